import asyncio
from collections.abc import AsyncIterator

import aiohttp
import pytest

from tests.fakes.steps import Steps

# Otherwise the first async test makes a loop "to restore afterwards", which nobody closes.
asyncio.set_event_loop(None)


@pytest.fixture
async def session() -> AsyncIterator[aiohttp.ClientSession]:
    async with aiohttp.ClientSession() as session:
        yield session


@pytest.fixture
def steps() -> Steps:
    return Steps()
