"""Everything here runs on both event loops: many of the traps are about only one of them."""

import asyncio
from collections.abc import Callable, Mapping

import pytest
import uvloop

asyncio.set_event_loop(None)  # else pytest-asyncio makes a loop of its own to restore, and never closes it


def pytest_asyncio_loop_factories(
    config: pytest.Config, item: pytest.Item
) -> Mapping[str, Callable[[], asyncio.AbstractEventLoop]]:
    """The two loops; time is virtual on one of them only."""
    del config
    if item.get_closest_marker("looptime") is not None:
        return {"asyncio": asyncio.new_event_loop}
    return {"asyncio": asyncio.new_event_loop, "uvloop": uvloop.new_event_loop}
