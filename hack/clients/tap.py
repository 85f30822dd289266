"""Stands between a client and Pharos, passes every byte on, and keeps the requests as they arrived.

Forbidden here: changing a byte. What may be kept of a request is recording.py's business.
"""

import asyncio
import contextlib
from collections.abc import Callable
from typing import Self

from tests.fakes.http import Seen, take_request

READ = 64 * 1024
OnRequest = Callable[[Seen], None]


class Tap:
    """One listener in front of one address; inside `async with`."""

    def __init__(self, port: int, on_request: OnRequest) -> None:
        """`port`: of Pharos, on this machine."""
        self._target = port
        self._on_request = on_request
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self.port = 0

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._server is not None
        self._server.close()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        try:
            there, back = await asyncio.open_connection("127.0.0.1", self._target)
        except OSError:
            writer.close()
            self._tasks.discard(task)
            return
        try:
            async with asyncio.TaskGroup() as both:
                both.create_task(self._up(reader, back))
                both.create_task(_down(there, writer))
        except* (ConnectionError, asyncio.CancelledError):
            pass
        finally:
            for one in (writer, back):
                one.close()
            self._tasks.discard(task)

    async def _up(self, reader: asyncio.StreamReader, back: asyncio.StreamWriter) -> None:
        buffer = b""
        while data := await reader.read(READ):
            buffer += data
            while (cut := take_request(buffer, 0.0)) is not None:
                request, buffer = cut
                self._on_request(request)
            back.write(data)
            await back.drain()
        with contextlib.suppress(OSError):
            back.close()  # the client has left: so does its other half


async def _down(there: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await there.read(READ):
        writer.write(data)
        await writer.drain()
    writer.close()
