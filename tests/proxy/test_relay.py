import asyncio
import gzip
import json
import socket
import tracemalloc
from typing import Any

import pytest

from pharos.core.fleet import State
from pharos.proxy import attempt, holding
from pharos.proxy.tap import SseTap
from tests.proxy.engine_script import WAIT_S, Turn
from tests.proxy.harness import DONE, USAGE, USAGE_EVENT, chat, event, front


async def test_a_reply_with_a_length_keeps_it_and_its_bytes() -> None:
    body = json.dumps({"choices": [], "usage": USAGE}).encode()

    async def play(turn: Turn) -> None:
        await turn.reply(200, body)

    async with front(play) as (pharos, _):
        reply = await pharos.ask(chat(stream=False))
        assert reply.header("content-length") == [str(len(body))]
        assert reply.header("transfer-encoding") == []
        assert reply.header("x-accel-buffering") == []
        assert reply.body == body
        done = await pharos.finished()
        assert done.usage is not None
        assert done.ttft_s is None
        assert done.first_byte_s is not None


async def test_a_stream_with_a_stale_length_is_framed_anew() -> None:
    events = event("a") + USAGE_EVENT + DONE

    async def play(turn: Turn) -> None:
        await turn.reply(200, events, kind=b"text/event-stream")

    async with front(play) as (pharos, _):
        reply = await pharos.ask()
        assert reply.header("content-length") == []
        assert reply.header("transfer-encoding") == ["chunked"]
        assert reply.body == event("a") + DONE
        assert reply.is_whole


@pytest.mark.parametrize("extra", [b"", b"X-Accel-Buffering: no\r\n", b"x-accel-buffering: yes\r\n"])
async def test_a_stream_says_once_that_it_must_not_be_buffered(extra: bytes) -> None:
    async def play(turn: Turn) -> None:
        await turn.sse_head(extra)
        await turn.chunk(DONE)
        await turn.write(b"0\r\n\r\n")

    async with front(play) as (pharos, _):
        reply = await pharos.ask()
        assert reply.header("x-accel-buffering") == ["no"]


async def test_an_error_status_of_the_client_s_making_passes_whole_and_is_not_retried() -> None:
    body = b'{"error":{"message":"bad temperature"}}'

    async def play(turn: Turn) -> None:
        await turn.reply(400, body)

    async with front(play, play) as (pharos, a, b):
        reply = await pharos.ask()
        assert reply.status == 400
        assert reply.body == body
        assert len(a.turns) + len(b.turns) == 1
        assert ("upstream", "error_status") in (await pharos.finished()).stages


async def test_a_reply_without_a_body_has_none() -> None:
    async def play(turn: Turn) -> None:
        await turn.write(b"HTTP/1.1 204 No Content\r\n\r\n")

    async with front(play) as (pharos, _):
        client = await pharos.client()
        client.post(chat(stream=False))
        reply = await client.reply()
        assert reply.status == 204
        assert reply.header("content-length") == reply.header("transfer-encoding") == []
        client.get("/livez")
        assert (await client.reply()).status == 200


async def test_encoded_replies_pass_as_they_are_and_are_unmetered() -> None:
    packed = gzip.compress(event("a") + USAGE_EVENT + DONE)

    async def play(turn: Turn) -> None:
        await turn.reply(200, packed, b"Content-Encoding: gzip\r\n", kind=b"text/event-stream")

    async with front(play) as (pharos, engine):
        reply = await pharos.ask(headers="Accept-Encoding: gzip, br\r\n")
        assert engine.turns[0].header("accept-encoding") == ["identity"]
        assert reply.header("content-encoding") == ["gzip"]
        assert reply.body == packed
        assert (await pharos.finished()).usage is None


async def test_headers_of_the_engine_s_leg_and_its_cookies_do_not_cross() -> None:
    async def play(turn: Turn) -> None:
        extra = (
            b"Connection: X-Dbg\r\nX-Dbg: 1\r\nKeep-Alive: timeout=5\r\nSet-Cookie: s=1\r\n"
            b"Proxy-Authenticate: Basic\r\nX-Kept: yes\r\nX-Request-Id: engine\r\n"
        )
        await turn.reply(200, b"{}", extra)

    async with front(play) as (pharos, _):
        reply = await pharos.ask(chat(stream=False), "X-Request-Id: mine-1\r\n")
        for name in ("connection", "x-dbg", "keep-alive", "set-cookie", "proxy-authenticate"):
            assert reply.header(name) == [], name
        assert reply.header("x-kept") == ["yes"]
        assert reply.header("x-request-id") == ["mine-1"]


@pytest.mark.parametrize("ending", ["close", "reset"])
async def test_a_stream_whose_engine_dies_ends_in_its_protocol_and_without_a_last_chunk(ending: str) -> None:
    async def play(turn: Turn) -> None:
        await turn.sse_head()
        await turn.chunk(event("a") + b'data: {"cho')
        await seen.wait()
        getattr(turn, ending)()

    seen = asyncio.Event()
    async with front(play) as (pharos, _):
        client = await pharos.client()
        client.post(chat())
        await client.head()
        await client.until(b'"a"')
        seen.set()
        got, _ = await client.rest()
        assert b"[DONE]" not in got
        assert not got.endswith(b"0\r\n\r\n")
        assert b'"error"' in got
        assert b'data: {"chodata:' not in got
        assert b'\r\ndata: {"error"' in got
        done = await pharos.finished()
        assert ("upstream", "died_mid_reply") in done.stages
        assert pharos.fleet.backends["a"].state is State.EJECTED
        assert pharos.inflight == 0


async def test_a_reply_with_a_length_that_breaks_off_is_cut_short() -> None:
    async def play(turn: Turn) -> None:
        await turn.write(
            b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 1000\r\n\r\n" + b"x" * 400
        )
        turn.close()

    async with front(play) as (pharos, _):
        reply = await pharos.ask(chat(stream=False))
        assert not reply.is_whole
        assert len(reply.body) == 400
        assert ("upstream", "died_mid_reply") in (await pharos.finished()).stages


async def test_a_cut_reply_to_an_http_1_0_client_is_no_clean_close() -> None:
    async def play(turn: Turn) -> None:
        await turn.sse_head()
        await turn.chunk(event("a"))
        await seen.wait()
        turn.close()

    seen = asyncio.Event()
    async with front(play) as (pharos, _):
        client = await pharos.client()
        client.post(chat(), version="1.0")
        head = await client.head()
        assert b"chunked" not in head
        await client.until(b'"a"')
        seen.set()
        _, clean = await client.rest()
        assert not clean


async def test_an_http_1_0_client_gets_a_stream_that_ends_with_the_connection() -> None:
    async def play(turn: Turn) -> None:
        await turn.sse_head()
        await turn.chunk(event("a") + DONE)
        await turn.write(b"0\r\n\r\n")

    async with front(play) as (pharos, _):
        client = await pharos.client()
        client.post(chat(), version="1.0")
        reply = await client.reply()
        assert reply.header("connection") == ["close"]
        assert reply.body == event("a") + DONE
        assert reply.is_whole


async def test_a_close_delimited_stream_is_whole_only_with_its_protocol_s_end() -> None:
    async def play(turn: Turn) -> None:
        await turn.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n" + event("a"))
        if len(turn.engine.turns) == 1:
            await turn.write(DONE)
        turn.close()

    async with front(play) as (pharos, _):
        whole = await pharos.ask()
        assert whole.is_whole
        assert whole.body == event("a") + DONE
        assert pharos.fleet.backends["a"].state is State.UP
        cut = await pharos.ask()
        assert not cut.is_whole
        assert b"[DONE]" not in cut.body


async def test_an_error_inside_a_stream_passes_unchanged_and_is_counted() -> None:
    failure = b'data: {"error":{"message":"timed out","code":504}}\n\n'

    async def play(turn: Turn) -> None:
        await turn.sse_head()
        await turn.chunk(failure)
        await turn.chunk(DONE)
        await turn.write(b"0\r\n\r\n")

    async with front(play, play) as (pharos, a, b):
        reply = await pharos.ask()
        assert reply.body == failure + DONE
        assert len(a.turns) + len(b.turns) == 1
        done = await pharos.finished()
        assert ("upstream", "error_in_stream") in done.stages
        assert done.usage is None


async def test_comments_pass_at_once_and_are_no_token() -> None:
    async def play(turn: Turn) -> None:
        await turn.sse_head()
        await turn.chunk(b":\n\n")
        await seen.wait()
        await turn.chunk(event("a") + DONE)
        await turn.write(b"0\r\n\r\n")

    seen = asyncio.Event()
    async with front(play) as (pharos, _):
        client = await pharos.client()
        client.post(chat())
        await client.head()
        await client.until(b":\n\n")
        seen.set()
        await client.until(b"0\r\n\r\n")
        done = await pharos.finished()
        assert done.ttft_s is not None
        assert done.first_byte_s is not None
        assert done.ttft_s > done.first_byte_s


async def test_events_cut_anywhere_reach_the_client_as_they_were() -> None:
    events = event("é€😀") + USAGE_EVENT + event("z") + DONE
    framed = b"%x\r\n%b\r\n0\r\n\r\n" % (len(events), events)

    async def play(turn: Turn) -> None:
        await turn.sse_head()
        at = len(turn.engine.turns) * 3 % len(framed)
        await turn.write(framed[:at])
        await asyncio.sleep(0)
        await turn.write(framed[at:])

    async with front(play) as (pharos, _):
        client = await pharos.client()
        for _ in range(len(framed) // 3):
            client.post(chat())
            assert (await client.reply()).body == event("é€😀") + event("z") + DONE


async def test_a_slow_client_pauses_its_engine_and_memory_stays_small() -> None:
    size = 50_000_000
    piece = b"x" * 65536

    async def play(turn: Turn) -> None:
        await turn.write(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n" % size)
        sent = 0
        while sent < size:
            part = piece[: size - sent]
            await turn.write(part)
            sent += len(part)
            progress.append(sent)

    progress: list[int] = []
    async with front(play) as (pharos, engine):
        sock = socket.socket()
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        sock.settimeout(0)
        loop = asyncio.get_running_loop()
        await loop.sock_connect(sock, ("127.0.0.1", pharos.proxy.port))
        body = chat(stream=False)
        await loop.sock_sendall(
            sock, b"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body)
        )
        await engine.got(1)
        tracemalloc.start()
        try:
            got = 0
            for _ in range(50):  # a reader that takes 1 KiB at a time
                got += len(await loop.sock_recv(sock, 1024))
                await asyncio.sleep(0)
            _, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        (connection,) = pharos.proxy.connections
        assert connection.wire.get_write_buffer_size() < 1_000_000
        assert peak < 2_000_000
        assert progress[-1] < size / 2
        async with asyncio.timeout(30):
            while got < size:
                data = await loop.sock_recv(sock, 1 << 20)
                assert data
                got += len(data)
        sock.close()
        assert (await pharos.finished()).status == 200


async def test_a_fault_in_the_tap_is_ours_and_not_the_engine_s_death(monkeypatch: pytest.MonkeyPatch) -> None:
    class Broken(SseTap):
        def feed(self, data: bytes) -> bytes:
            raise RuntimeError("secret " + data.decode())

    def broken(*args: Any, **kwargs: Any) -> Broken:
        del args, kwargs
        return Broken("openai_chat", strip_usage=False)

    monkeypatch.setattr(attempt, "make_tap", broken)

    async def play(turn: Turn) -> None:
        await turn.sse_head()
        await turn.chunk(event("a"))
        await turn.until_closed()

    async with front(play) as (pharos, engine):
        client = await pharos.client()
        client.post(chat())
        got, _ = await client.rest()
        assert b"HTTP/1.1 500" not in got[1:]
        assert ("upstream", "pharos_error") in (await pharos.finished()).stages
        assert pharos.fleet.backends["a"].state is State.UP
        assert pharos.inflight == 0
        assert engine.connections == 1


async def test_nothing_is_ever_written_after_a_started_reply() -> None:
    """The trap: aiohttp believes that nothing was sent and adds its own 500."""

    async def play(turn: Turn) -> None:
        await turn.sse_head()
        await turn.chunk(event("a"))
        await seen.wait()
        await turn.chunk(event("b") + DONE)
        await turn.write(b"0\r\n\r\n")

    seen = asyncio.Event()

    class BoomError(Exception):
        pass

    def boom(_done: object) -> None:
        raise BoomError

    async with front(play) as (pharos, _):
        pharos.proxy.routes._on_done = boom
        client = await pharos.client()
        client.post(chat())
        await client.until(b'"a"')
        seen.set()
        got, _ = await client.rest()
        assert b"HTTP/1.1" not in got
        async with asyncio.timeout(WAIT_S):
            while pharos.inflight:
                await asyncio.sleep(0)


async def test_a_refusal_that_takes_longer_than_5_s_is_let_go_and_not_retried(monkeypatch: pytest.MonkeyPatch) -> None:
    assert holding.HELD_S == 5.0
    monkeypatch.setattr(holding, "HELD_S", 0.01)

    async def play(turn: Turn) -> None:
        await turn.write(b"HTTP/1.1 503 Busy\r\nContent-Type: application/json\r\nContent-Length: 8\r\n\r\nhalf")
        await go_on.wait()
        await turn.write(b"more")

    async def ok(turn: Turn) -> None:
        await turn.reply(200, b"{}")

    go_on = asyncio.Event()
    async with front(play, ok) as (pharos, _, b):
        (other,) = pharos.fleet.backends["b"].targets.values()
        other.slots.inflight = 1  # the first attempt goes to a
        client = await pharos.client()
        client.post(chat(stream=False))
        got = await client.until(b"half")  # while the engine still writes
        assert got.startswith(b"HTTP/1.1 503")
        go_on.set()
        await client.until(b"more")
        done = await pharos.finished()
        assert done.status == 503
        assert ("upstream", "error_status") in done.stages
        assert b.turns == []
