"""A name that means another machine from now on, with a whole Pharos behind it."""

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator
from typing import Any

import pytest

from tests.app.running import pharos
from tests.fakes.llamacpp import FakeLlamaCpp
from tests.waiting import WAIT_S

NAME = "engine.test"


@contextlib.asynccontextmanager
async def also_at(address: str, port: int, engine: FakeLlamaCpp) -> AsyncIterator[None]:
    """The engine answers there too."""
    streams: list[asyncio.StreamWriter] = []
    tasks = []

    async def pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError):
            while data := await reader.read(65536):
                writer.write(data)
                await writer.drain()
        writer.close()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there, back = await asyncio.open_connection("127.0.0.1", engine.port)
        streams.extend((writer, back))
        tasks.extend((asyncio.create_task(pump(reader, back)), asyncio.create_task(pump(there, writer))))

    server = await asyncio.start_server(serve, address, port)
    try:
        yield
    finally:
        server.close()
        for writer in streams:
            writer.close()
        await asyncio.gather(*tasks, *(writer.wait_closed() for writer in streams), return_exceptions=True)
        await server.wait_closed()


async def test_b44_a_name_that_means_another_address_is_looked_up_again_once_the_old_one_is_gone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    address, system = "127.0.0.1", socket.getaddrinfo

    def found(host: Any, port: Any, *more: Any, **named: Any) -> Any:
        return system(address if host == NAME else host, port, *more, **named)

    monkeypatch.setattr(socket, "getaddrinfo", found)
    async with contextlib.AsyncExitStack() as old, FakeLlamaCpp() as new:
        engine = await old.enter_async_context(FakeLlamaCpp())
        async with pharos(backends=[{"url": f"http://{NAME}:{engine.port}", "name": "gpu"}]) as running:
            async with running.chat() as response:
                assert response.status == 200
            assert new.seen == []
            address = "127.0.0.2"
            async with also_at(address, engine.port, new):
                await old.aclose()
                async with asyncio.timeout(WAIT_S), running.chat() as response:
                    assert response.status == 200, "it waited until the engine was found again"
                assert [seen.path for seen in new.seen if seen.method == "POST"] == ["/v1/chat/completions"]
