"""The event loop here is the one that serves."""

import asyncio
from collections.abc import Callable, Mapping

import pytest
import uvloop

asyncio.set_event_loop(None)  # else pytest-asyncio makes a loop of its own to restore, and never closes it


def pytest_asyncio_loop_factories(
    config: pytest.Config, item: pytest.Item
) -> Mapping[str, Callable[[], asyncio.AbstractEventLoop]]:
    """uvloop."""
    del config, item
    return {"uvloop": uvloop.new_event_loop}
