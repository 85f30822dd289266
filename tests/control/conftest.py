import asyncio
from collections.abc import AsyncIterator

import aiohttp
import pytest

from pharos.control.fetch import new_session
from tests.fakes.llamacpp import FakeLlamaCpp
from tests.fakes.steps import Steps

# Otherwise the first async test makes a loop "to restore afterwards", which nobody closes.
asyncio.set_event_loop(None)


@pytest.fixture
async def session() -> AsyncIterator[aiohttp.ClientSession]:
    async with new_session() as session:
        yield session


@pytest.fixture
def steps() -> Steps:
    return Steps()


@pytest.fixture
async def llamacpp(steps: Steps) -> AsyncIterator[FakeLlamaCpp]:
    """A llama.cpp double whose requests carry virtual times."""
    async with FakeLlamaCpp(clock=steps.clock) as engine:
        yield engine
