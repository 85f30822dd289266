import asyncio

import pytest

# Otherwise the first async test makes a loop "to restore afterwards", which nobody closes.
asyncio.set_event_loop(None)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """A virtual clock waits for nothing real: one turn of its loop may take long on a loaded machine, and no matter."""
    for item in items:
        if item.get_closest_marker("looptime") is not None:
            item.add_marker(pytest.mark.timeout(120))
