import asyncio
import json
import tracemalloc

import pytest

from pharos.proxy.auth import Key
from pharos.proxy.body import Buffers, Reservation, Uploads, read
from pharos.proxy.settings import KIB, MIB, ProxySettings
from tests.proxy.engine_script import WAIT_S, Turn
from tests.proxy.harness import KEY, RawClient, chat, front


async def ok(turn: Turn) -> None:
    await turn.reply(200, b"{}")


HEAD = "POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\n"


def send_chunked(client: RawClient, body: bytes, size: int = 64 * KIB) -> None:
    client.send((HEAD + "Transfer-Encoding: chunked\r\n\r\n").encode())
    for at in range(0, len(body), size):
        piece = body[at : at + size]
        client.send(b"%x\r\n%b\r\n" % (len(piece), piece))
    client.send(b"0\r\n\r\n")


@pytest.mark.parametrize("size", [5 * MIB, 31 * MIB])
@pytest.mark.parametrize("chunked", [False, True])
async def test_bodies_up_to_the_limit_are_served(size: int, chunked: bool) -> None:  # noqa: FBT001
    async with front(ok) as (pharos, engine):
        body = json.dumps(
            {
                "model": "m",
                "messages": [
                    {"role": "user", "content": [{"type": "image_url", "image_url": {"url": "data:," + "A" * size}}]}
                ],
            }
        ).encode()
        client = await pharos.client()
        if chunked:
            send_chunked(client, body, MIB)
        else:
            client.post(body)
        assert (await client.reply()).status == 200
        assert engine.turns[0].body == body
        await pharos.finished()
        assert pharos.proxy.routes.buffers.used == 0


async def test_a_stated_length_over_the_limit_is_refused_unread() -> None:
    async with front(ok) as (pharos, engine):
        client = await pharos.client()
        client.send((HEAD + f"Content-Length: {33 * MIB}\r\n\r\n").encode())
        reply = await client.reply()
        assert reply.status == 413
        assert reply.json()["error"]["code"] == "request_too_large"
        assert reply.header("connection") == ["close"]
        assert engine.turns == []
        assert ("admission", "too_large") in (await pharos.finished()).stages


async def test_a_chunked_body_over_the_limit_is_refused_without_being_held() -> None:
    async with front(ok, settings=ProxySettings(body_bytes=MIB)) as (pharos, _):
        client = await pharos.client()
        send_chunked(client, b"x" * (MIB + 100_000))
        reply = await client.reply()
        assert reply.status == 413
        assert pharos.proxy.routes.buffers.used == 0


async def test_all_bodies_together_have_a_limit() -> None:
    async with front(ok, settings=ProxySettings(buffered_bytes=100 * KIB)) as (pharos, _):
        first, second = await pharos.client(), await pharos.client()
        body = chat(stream=False, filler="x" * 60 * KIB)
        first.send((HEAD + f"Content-Length: {len(body)}\r\n\r\n").encode() + body[:-100])
        async with asyncio.timeout(WAIT_S):
            while pharos.proxy.routes.buffers.used < len(body) - 100:
                await asyncio.sleep(0)
        second.send((HEAD + f"Content-Length: {len(body)}\r\n\r\n").encode() + body)
        reply = await second.reply()
        assert reply.status == 503
        assert reply.header("retry-after") == ["1"]
        assert ("admission", "buffers_full") in (await pharos.finished()).stages
        first.send(body[-100:])
        assert (await first.reply()).status == 200
        third = await pharos.client()
        third.post(body)
        assert (await third.reply()).status == 200


async def test_b51_while_waiting_bodies_fill_all_the_memory_there_is_health_and_lists_are_answered() -> None:
    async def play(turn: Turn) -> None:
        await go_on.wait()
        await turn.reply(200, b"{}")

    go_on = asyncio.Event()
    body = chat(stream=False, filler="x" * MIB)
    limit = 8 * len(body)
    async with front(play, capacity=1, settings=ProxySettings(buffered_bytes=limit)) as (pharos, _):
        clients = [await pharos.client() for _ in range(8)]
        for client in clients:
            client.post(body)
        async with asyncio.timeout(WAIT_S):
            while pharos.ledger.waiting < len(clients) - 1:
                await asyncio.sleep(0)
        assert pharos.proxy.routes.buffers.used == limit
        late = await pharos.ask(body)
        assert (late.status, late.header("retry-after")) == (503, ["1"])
        for path in ("/healthz", "/livez", "/v1/models"):
            assert (await pharos.fetch(path)).status == 200
        go_on.set()
        for client in clients:
            assert (await client.reply()).status == 200
        assert pharos.proxy.routes.buffers.used == 0


async def test_lengths_that_are_only_stated_keep_nobody_out() -> None:
    async with front(ok, settings=ProxySettings(buffered_bytes=32 * MIB)) as (pharos, _):
        for _ in range(8):
            client = await pharos.client()
            client.send((HEAD + f"Content-Length: {32 * MIB}\r\n\r\n").encode())
        async with asyncio.timeout(WAIT_S):
            while pharos.proxy.inflight < 8:
                await asyncio.sleep(0)
        assert pharos.proxy.routes.buffers.used == 0
        assert (await pharos.ask(chat(stream=False))).status == 200


@pytest.mark.parametrize("framing", [f"Content-Length: {MIB}\r\n\r\n", "Transfer-Encoding: chunked\r\n\r\n5\r\n"])
@pytest.mark.parametrize("sent", [b"", b"hel"])
async def test_a_body_that_stops_coming_is_a_408(framing: str, sent: bytes) -> None:
    async with front(ok) as (pharos, engine):
        pharos.proxy.routes.door.body_idle_s = 0.05
        client = await pharos.client()
        client.send((HEAD + framing).encode() + sent)
        reply = await client.reply()
        assert reply.status == 408
        assert reply.json()["error"]["code"] == "request_timeout"
        assert reply.header("connection") == ["close"]
        assert (await client.rest())[0] == b""
        assert ("admission", "body_stalled") in (await pharos.finished()).stages
        assert pharos.proxy.routes.buffers.used == 0
        assert engine.turns == []


class Pieces:
    """A body that comes in pieces, each when it is asked for."""

    def __init__(self, size: int, count: int) -> None:
        self.size, self.count = size, count

    def is_eof(self) -> bool:
        return False

    def at_eof(self) -> bool:
        return self.count == 0

    async def readany(self) -> bytes:
        self.count -= 1
        return b"x" * self.size

    def read_nowait(self) -> bytes:
        raise AssertionError


@pytest.mark.parametrize("length", [8 * MIB, None])
async def test_a_body_in_pieces_is_held_once(length: int | None) -> None:
    reservation = Reservation(Buffers(32 * MIB))
    tracemalloc.start()
    try:
        body = await read(Pieces(64 * KIB, 128), length, 32 * MIB, reservation, Uploads())
        assert tracemalloc.get_traced_memory()[1] < 1.5 * len(body)
    finally:
        tracemalloc.stop()
    assert body == b"x" * 8 * MIB
    assert reservation.size == 8 * MIB


async def test_the_interim_line_comes_only_after_all_checks() -> None:
    keys = {KEY: Key("k")}
    async with front(ok, keys=keys) as (pharos, _):
        body = chat(stream=False)
        client = await pharos.client()
        client.send((HEAD + f"Expect: 100-continue\r\nContent-Length: {len(body)}\r\n\r\n").encode())
        reply = await client.reply()
        assert reply.status == 401
        assert reply.header("connection") == ["close"]

        client = await pharos.client()
        client.send(
            (
                HEAD + f"Authorization: Bearer {KEY}\r\nExpect: 100-continue\r\nContent-Length: {len(body)}\r\n\r\n"
            ).encode()
        )
        assert await client.head() == b"HTTP/1.1 100 Continue\r\n\r\n"
        client.send(body)
        assert (await client.reply()).status == 200

        client = await pharos.client()
        client.send(
            (
                HEAD + f"Authorization: Bearer {KEY}\r\nExpect: 100-continue\r\nContent-Length: {40 * MIB}\r\n\r\n"
            ).encode()
        )
        assert (await client.reply()).status == 413

        client = await pharos.client()
        client.send(
            (HEAD + f"Authorization: Bearer {KEY}\r\nExpect: magic\r\nContent-Length: {len(body)}\r\n\r\n").encode()
        )
        assert (await client.reply()).status == 417


async def test_an_http_1_0_client_gets_no_interim_line() -> None:
    async with front(ok) as (pharos, _):
        body = chat(stream=False)
        client = await pharos.client()
        client.send(
            b"POST /v1/chat/completions HTTP/1.0\r\nExpect: 100-continue\r\nContent-Length: %d\r\n\r\n" % len(body)
        )
        client.send(body)
        assert (await client.reply()).status == 200


@pytest.mark.parametrize("broken", [b"zz\r\nhalf", b"5\r\nhello0\r\n\r\n"])
async def test_a_body_whose_framing_breaks_is_a_400(broken: bytes) -> None:
    async with front(ok) as (pharos, engine):
        client = await pharos.client()
        client.send((HEAD + "Transfer-Encoding: chunked\r\n\r\n").encode() + b'4\r\n{"mo\r\n')
        async with asyncio.timeout(WAIT_S):
            while not pharos.proxy.routes.buffers.used:
                await asyncio.sleep(0)
        client.send(broken)
        reply = await client.reply()
        assert reply.status == 400
        assert reply.header("connection") == ["close"]
        assert b"zz" not in reply.body
        assert (await client.rest())[0] == b"", "one answer, not two"
        assert engine.turns == []


@pytest.mark.parametrize(
    "body", [b"", b"{", b"[]", b'{"model":"m","model":"n"}', b'{"model":"m","Model":"n","messages":[]}', b"\xff\xfe"]
)
async def test_a_body_that_cannot_be_understood_is_a_400(body: bytes) -> None:
    async with front(ok) as (pharos, engine):
        reply = await pharos.ask(body)
        assert reply.status == 400
        assert reply.json()["error"]["type"] == "invalid_request_error"
        assert engine.turns == []
        assert ("admission", "bad_request") in (await pharos.finished()).stages


@pytest.mark.parametrize(
    "query", ["model=other", "MODEL", "a=1&m%6fdel=other", "a=1;model=x", "a;b;Model=", "%6D%6F%64%65%6C=x", "+model=x"]
)
async def test_a_model_in_the_query_is_refused(query: str) -> None:
    async with front(ok) as (pharos, _):
        assert (await pharos.ask(chat(), path=f"/v1/chat/completions?{query}")).status == 400


async def test_strange_bodies_reach_the_engine_byte_for_byte() -> None:
    deep = b'{"model":"m","messages":[],"x":' + b"[" * 100_000 + b"]" * 100_000 + b"}"
    lone = b'{"model":"m","messages":[{"role":"user","content":"\\ud83d"}]}'
    many = json.dumps({"model": "m", "messages": [{"role": "user", "content": "x"}] * 2500}).encode()
    async with front(ok) as (pharos, engine):
        for count, body in enumerate((deep, lone, many), 1):
            assert (await pharos.ask(body)).status == 200
            assert engine.turns[count - 1].body == body
