"""Waiting for what sockets, timers and other tasks bring about."""

import asyncio
from collections.abc import Callable

WAIT_S = 30.0
"""Longest wait for anything that a test waits for; reached only when the test fails."""


async def until(claim: Callable[[], object]) -> None:
    async with asyncio.timeout(WAIT_S):
        while not claim():
            await asyncio.sleep(0.001)
