"""A visit keeps to what a small server can take: Python's lets five connections wait and drops what comes beside."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any

import aiohttp

from pharos.control import inspect
from pharos.control.fetch import Fetcher
from pharos.core.engine.probe import FetchFault
from pharos.core.fleet.backend import BackendSpec

ASKS = [f"/{number}" for number in range(10)]


class Small:
    """A server that answers nobody before as many as are let in at once have come, and counts who is there."""

    def __init__(self) -> None:
        self.open = self.most = self.seen = 0
        self._full = asyncio.Event()
        self._serving: set[Any] = set()
        self.url = ""

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._serving.add(asyncio.current_task())
        self.open += 1
        self.seen += 1
        self.most = max(self.most, self.open)
        with suppress(ConnectionError, asyncio.IncompleteReadError):
            await reader.readuntil(b"\r\n\r\n")
            if self.open == inspect.AT_ONCE:
                self._full.set()
            await self._full.wait()
            self.open -= 1
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\n{}")
        writer.close()
        with suppress(ConnectionError):
            await writer.wait_closed()

    async def end(self) -> None:
        """Answer whoever waits, and see every connection closed."""
        self._full.set()
        await asyncio.gather(*self._serving)


@asynccontextmanager
async def small() -> AsyncIterator[Small]:
    double = Small()
    server = await asyncio.start_server(double.serve, "127.0.0.1", 0)
    double.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    async with server:
        yield double
        await double.end()


async def test_requests_of_a_visit_come_a_few_at_a_time_and_all_are_made(session: aiohttp.ClientSession) -> None:
    async with small() as double:
        pages = await inspect.get_all(Fetcher(session), BackendSpec(name="gpu", url=double.url), ASKS, 20.0)
    assert double.most == inspect.AT_ONCE
    assert double.seen == len(ASKS)
    assert [page.status for page in pages.values()] == [200] * len(ASKS)


async def test_a_request_that_has_no_turn_in_time_has_timed_out_and_is_not_made(session: aiohttp.ClientSession) -> None:
    few = ASKS[: inspect.AT_ONCE - 1]  # as nobody is answered, those behind them get no turn
    async with small() as double:
        fetcher, spec = Fetcher(session), BackendSpec(name="gpu", url=double.url)
        pages = await inspect.get_all(fetcher, spec, few, 0.05)
        assert {page.fault for page in pages.values()} == {FetchFault.TIMEOUT}
        late = await inspect.get_all(fetcher, spec, ASKS, 0.0)
    assert {page.fault for page in late.values()} == {FetchFault.TIMEOUT}
    assert double.seen <= len(few)
