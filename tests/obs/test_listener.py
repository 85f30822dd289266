import asyncio
import logging
import socket
from collections.abc import AsyncIterator, Generator, Mapping

import aiohttp
import pytest

from pharos.obs import listener
from pharos.obs.listener import PageListener
from pharos.proxy.incoming import Page

TEXT = "text/plain; version=0.0.4; charset=utf-8"


class Site:
    """A page made in steps, one that fails, and what a listener answers for them."""

    def __init__(self) -> None:
        self.steps = 0
        self.lines = 100_000
        self.listener = PageListener({"/metrics": self.metrics, "/broken": self.broken})

    def metrics(self, _query: Mapping[str, str], _accept: str, _is_admin: bool) -> Generator[None, None, Page]:  # noqa: FBT001
        for _ in range(3):
            self.steps += 1
            yield
        return 200, TEXT, b"up 1\n" * self.lines

    def broken(self, query: Mapping[str, str], _accept: str, _is_admin: bool) -> Page:  # noqa: FBT001
        raise ValueError(f"secret of the page {query}")

    async def ask(self, path: str, method: str = "GET", body: bytes | None = None) -> tuple[int, str, bytes]:
        url = f"http://127.0.0.1:{self.listener.port}{path}"
        async with aiohttp.ClientSession() as http, http.request(method, url, data=body) as reply:
            return reply.status, reply.headers["Content-Type"], await reply.read()

    @property
    def connections(self) -> int:
        assert self.listener._runner is not None
        assert self.listener._runner.server is not None
        return len(self.listener._runner.server.connections)

    async def raw(self, sent: bytes) -> bytes:
        reader, writer = await asyncio.open_connection("127.0.0.1", self.listener.port)
        writer.write(sent)
        answer = await reader.read()
        writer.close()
        await writer.wait_closed()
        return answer


@pytest.fixture
async def site() -> AsyncIterator[Site]:
    made = Site()
    await made.listener.start("127.0.0.1:0")
    yield made
    await made.listener.close()


async def test_the_page_is_served_in_steps_and_whole(site: Site) -> None:
    assert await site.ask("/metrics") == (200, TEXT, b"up 1\n" * 100_000)
    assert site.steps == 3


async def test_a_head_gives_the_length_alone(site: Site) -> None:
    answer = await site.raw(b"HEAD /metrics HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
    assert answer.startswith(b"HTTP/1.1 200 OK\r\n")
    assert b"Content-Length: 500000\r\n" in answer
    assert answer.endswith(b"\r\n\r\n")


@pytest.mark.parametrize(("method", "path"), [("GET", "/v1/models"), ("POST", "/metrics"), ("GET", "/status")])
async def test_nothing_else_is_served_there(site: Site, method: str, path: str) -> None:
    status, _, body = await site.ask(path, method)
    assert status == 404
    assert b"unknown_url" in body


async def test_a_connection_serves_many_scrapes(site: Site) -> None:
    ask = b"GET /metrics HTTP/1.1\r\nHost: a\r\n"
    answer = await site.raw(ask + b"\r\n" + ask + b"Connection: close\r\n\r\n")
    assert answer.count(b"HTTP/1.1 200 OK") == 2


async def test_a_client_that_does_not_take_the_page_is_parted_from(
    site: Site, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(listener, "PAGE_TAKEN_S", 0.05)
    site.lines = 8_000_000
    with socket.socket() as idle:
        idle.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        idle.connect(("127.0.0.1", site.listener.port))
        idle.sendall(b"GET /metrics HTTP/1.1\r\nHost: a\r\n\r\n")
        async with asyncio.timeout(30):
            while site.steps < 3 or site.connections:
                await asyncio.sleep(0.001)
    assert not caplog.records


async def test_a_fault_in_a_page_is_an_error_that_tells_nothing_of_it(
    site: Site, caplog: pytest.LogCaptureFixture
) -> None:
    status, _, body = await site.ask("/broken?token=hush")
    assert status == 500
    assert b"hush" not in body
    assert "hush" not in caplog.text
    assert [one.levelno for one in caplog.records] == [logging.ERROR]


@pytest.mark.parametrize(
    ("sent", "status"),
    [
        (b"GET /metrics HTTP/1.1\r\nHost: a\r\nX: " + b"x" * 20_000 + b"\r\n\r\n", b"431"),
        (b"GET /metrics HTTP/1.1\r\nHost: a b\r\n\r\n", b"400"),
        (b"\x16\x03\x01\x00\x05hello\r\n\r\n", b"400"),
        (b"POST /metrics HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\n", b"404"),
    ],
)
async def test_what_is_no_request_for_a_page_is_refused_and_echoed_nowhere(
    site: Site, caplog: pytest.LogCaptureFixture, sent: bytes, status: bytes
) -> None:
    answer = await site.raw(sent)
    assert answer.startswith(b"HTTP/1.1 " + status)
    assert b"xxxx" not in answer
    assert not caplog.records


async def test_an_address_that_is_taken_raises_and_leaves_nothing_open() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        made = PageListener({})
        with pytest.raises(OSError, match="in use"):
            await made.start(f"127.0.0.1:{taken.getsockname()[1]}")
    await made.close()
