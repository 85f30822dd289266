import asyncio
import ssl
from collections.abc import AsyncIterator

import aiohttp
import pytest

from pharos.control.fetch import Fetcher
from pharos.control.follow.fault import Fault, FeedError
from pharos.control.follow.sse import QUIET_RATE, SLICE, open_events
from pharos.core.engine.probe import DropReason, FetchFault
from tests.fakes.http import Answer, Connection, Hang, HttpDouble, Raw, Reply, Reset, Seen

STREAM = {"Content-Type": "text/event-stream; charset=utf-8"}
HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n"


class Engine(HttpDouble):
    """Sends the events that a test puts in, each in two halves."""

    def __init__(self) -> None:
        super().__init__()
        self.events: asyncio.Queue[bytes] = asyncio.Queue()

    async def respond(self, request: Seen, connection: Connection) -> None:  # noqa: ARG002
        await connection.head(200, {**STREAM, "Transfer-Encoding": "chunked"})
        while event := await self.events.get():
            await connection.chunk(event[:5])
            await connection.chunk(event[5:])
        await connection.chunk(b"")


@pytest.fixture
async def engine() -> AsyncIterator[Engine]:
    async with Engine() as engine:
        yield engine


async def read(session: aiohttp.ClientSession, url: str, silence_s: float | None) -> None:
    async with open_events(session, url, "/models/sse", silence_s=silence_s, max_event=1000) as events:
        async for _ in events:
            pass


async def opening(session: aiohttp.ClientSession, url: str, *, silence_s: float | None = None) -> FeedError:
    with pytest.raises(FeedError) as caught:
        await read(session, url, silence_s)
    return caught.value


async def test_events_come_as_the_engine_sends_them_until_it_ends_the_stream(
    session: aiohttp.ClientSession, engine: Engine
) -> None:
    async with open_events(session, engine.url, "/models/sse") as events:
        engine.events.put_nowait(b'event: status_change\ndata: {"a":1}\n\n')
        event = await anext(events)
        assert (event.event, event.data) == ("status_change", b'{"a":1}')
        engine.events.put_nowait(b": keep-alive\n\ndata: x\r\n\r\n")
        assert (await anext(events)).data == b"x"
        engine.events.put_nowait(b"")
        assert [event async for event in events] == []


async def test_the_request_asks_for_events_and_carries_what_identifies_us(
    session: aiohttp.ClientSession, engine: Engine
) -> None:
    async with open_events(session, engine.url, "/api/events", headers=(("Authorization", "Bearer k"),)):
        pass
    [request] = engine.seen
    assert (request.method, request.path) == ("GET", "/api/events")
    assert request.headers["accept"] == "text/event-stream"
    assert request.headers["authorization"] == "Bearer k"
    assert request.headers["accept-encoding"] == "identity"
    await engine.until(lambda: not engine.connections)


@pytest.mark.parametrize(
    ("answer", "fault", "reason"),
    [
        (Reply(401), Fault.UNAUTHORIZED, DropReason.UNAUTHORIZED),
        (Reply(403), Fault.UNAUTHORIZED, DropReason.UNAUTHORIZED),
        (Reply(404, b"", STREAM), Fault.NOT_FOUND, DropReason.NOT_FOUND),
        (Reply(501), Fault.NOT_FOUND, DropReason.NOT_FOUND),
        (Reply(503), Fault.STARTING, DropReason.STARTING),
        (Reply(302, b"", {"Location": "/login"}), Fault.STATUS, DropReason.STATUS),
        (Reply(204, b"", STREAM), Fault.STATUS, DropReason.STATUS),
        (Reply(200, b"<html>", {"Content-Type": "text/html"}), Fault.WRONG_TYPE, DropReason.PARSE_ERROR),
        (Reply(200, b"data: x\n\n"), Fault.WRONG_TYPE, DropReason.PARSE_ERROR),
        (Reply(200, b"", {**STREAM, "Content-Encoding": "gzip"}), Fault.WRONG_TYPE, DropReason.PARSE_ERROR),
        (Raw(HEAD, endless=b"data: x\n"), Fault.TOO_LARGE, DropReason.PARSE_ERROR),
        (Raw(HEAD, endless=b"x" * 65536), Fault.TOO_LARGE, DropReason.PARSE_ERROR),
        (Raw(b"SSH-2.0-OpenSSH_9.2\r\n"), Fault.UNREADABLE, DropReason.PARSE_ERROR),
        (Reset(), Fault.CUT, DropReason.FETCH_ERROR),
        (Raw(HEAD.replace(b"\r\n\r\n", b"\r\nContent-Length: 9\r\n\r\nda")), Fault.CUT, DropReason.FETCH_ERROR),
    ],
)
async def test_what_is_no_stream_of_events_is_told_by_a_closed_set_of_faults(
    session: aiohttp.ClientSession, engine: Engine, answer: Answer, fault: Fault, reason: DropReason
) -> None:
    engine.every = answer
    error = await opening(session, engine.url)
    assert (error.fault, error.reason) == (fault, reason)
    assert set(engine.paths) == {"/models/sse"}
    if isinstance(answer, Raw):  # other replies are whole, and the connection good for another request
        await engine.until(lambda: not engine.connections)


async def test_an_engine_that_is_not_there_is_told_as_the_scraper_tells_it(
    session: aiohttp.ClientSession, engine: Engine
) -> None:
    engine.kill()
    error = await opening(session, engine.url)
    assert (error.fault, str(error)) == (Fault.NO_CONNECTION, "connection refused")


@pytest.mark.parametrize("data", [b"", HEAD, HEAD + b"data: x\n\n"], ids=["no answer", "no event", "no more events"])
async def test_silence_longer_than_allowed_is_an_end(
    session: aiohttp.ClientSession, engine: Engine, data: bytes
) -> None:
    engine.every = Hang(data)
    error = await opening(session, engine.url, silence_s=0.05)
    assert (error.fault, str(error)) == (Fault.SILENT, "silent for too long")
    await engine.until(lambda: not engine.connections)


async def test_tls_before_a_server_that_speaks_plain_http_is_no_connection(session: aiohttp.ClientSession) -> None:
    async def plain(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1)
        writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        writer.close()

    async with await asyncio.start_server(plain, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        opened = open_events(session, f"https://127.0.0.1:{port}", "/", tls=ssl.create_default_context())
        with pytest.raises(FeedError, match="TLS failed") as caught:
            await opened.__aenter__()
    assert caught.value.fault is Fault.NO_CONNECTION


async def test_cancelling_closes_the_connection(session: aiohttp.ClientSession, engine: Engine) -> None:
    reading = asyncio.create_task(opening(session, engine.url))
    await engine.until(lambda: len(engine.seen) == 1)
    reading.cancel()
    await asyncio.wait((reading,))
    assert reading.cancelled()
    await engine.until(lambda: not engine.connections)


@pytest.mark.parametrize("noise", [b":\n", b"\n", b"id: 1\n\n"], ids=["comments", "blank lines", "other fields"])
async def test_a_flood_that_is_no_event_ends_the_stream_and_leaves_the_loop_to_others(
    session: aiohttp.ClientSession, engine: Engine, noise: bytes
) -> None:
    engine.every = Raw(HEAD + b"data: first\n\n", endless=noise * 8000)
    others = 0

    async def other() -> None:
        nonlocal others
        while True:
            others += 1
            await asyncio.sleep(0)

    beside = asyncio.create_task(other())
    try:
        async with open_events(session, engine.url, "/models/sse", max_event=100_000) as events:
            assert (await anext(events)).data == b"first"
            with pytest.raises(FeedError, match="no event") as caught:
                await anext(events)
    finally:
        beside.cancel()
    assert caught.value.fault is Fault.TOO_LARGE
    assert others > QUIET_RATE / SLICE


async def test_interim_answers_without_end_are_no_http(session: aiohttp.ClientSession, engine: Engine) -> None:
    engine.every = Raw(b"", endless=b"HTTP/1.1 100 Continue\r\n\r\n" * 999)
    assert (await opening(session, engine.url)).fault is Fault.UNREADABLE
    assert (await Fetcher(session).get(engine.url, "/a", 20.0)).fault is FetchFault.NOT_HTTP


async def test_one_interim_answer_is_borne(session: aiohttp.ClientSession, engine: Engine) -> None:
    engine.every = Raw(b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
    assert (await Fetcher(session).get(engine.url, "/a", 20.0)).body == b"ok"
