"""Clients that send on while a request of theirs is in work."""

import asyncio

import pytest

from tests.proxy.engine_script import WAIT_S, Turn
from tests.proxy.harness import RawClient, chat, event, front
from tests.proxy.test_disconnect import hang_up, silent, streaming, until_free

GET = b"GET /livez HTTP/1.1\r\nHost: x\r\n\r\n"
BIG_POST = b"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Length: 3000000\r\n\r\n" + b"x" * 3_000_000


async def sent(client: RawClient, data: bytes) -> None:
    """Hand it over as far as the other side takes it in a moment."""
    client.send(data)
    try:
        async with asyncio.timeout(0.2):
            await client.writer.drain()
    except TimeoutError:
        pass


@pytest.mark.parametrize("how", ["close", "reset", "half close"])
@pytest.mark.parametrize("more", [GET * 100, BIG_POST, GET * 5 + BIG_POST], ids=["many", "big", "mixed"])
async def test_a_hang_up_behind_pipelined_requests_is_seen_within_a_second(more: bytes, how: str) -> None:
    async with front(streaming) as (pharos, engine):
        client = await pharos.client()
        client.post(chat())
        turn = await engine.got(1)
        await client.until(b'"hi"')
        await sent(client, more)
        hang_up(client, how)
        async with asyncio.timeout(1.5):
            await until_free(pharos)
            while not turn.is_over:
                await asyncio.sleep(0)


async def test_a_flood_behind_a_request_that_waits_ends_at_a_hang_up_too() -> None:
    async with front(silent) as (pharos, engine):
        client = await pharos.client()
        client.post(chat())
        await engine.got(1)
        await sent(client, GET * 100_000)
        (connection,) = pharos.proxy.connections
        hang_up(client, "reset")
        async with asyncio.timeout(1.5):
            await until_free(pharos)
        assert len(connection._messages) == 0


async def test_a_reply_in_work_is_whole_behind_a_flood() -> None:
    async def play(turn: Turn) -> None:
        await turn.sse_head()
        await turn.chunk(event("a"))
        await go_on.wait()
        await turn.chunk(event("b") + b"data: [DONE]\n\n")
        await turn.write(b"0\r\n\r\n")

    go_on = asyncio.Event()
    async with front(play) as (pharos, _):
        client = await pharos.client()
        client.post(chat())
        await client.until(b'"a"')
        await sent(client, GET * 100)
        await asyncio.sleep(1.1)
        go_on.set()
        got, _ = await client.rest()
        assert got.endswith(b"data: [DONE]\n\n\r\n0\r\n\r\n")


async def test_many_quick_pipelined_requests_are_all_answered() -> None:
    async with front(silent) as (pharos, _):
        client = await pharos.client()
        client.send(GET * 500)
        async with asyncio.timeout(WAIT_S):
            for _ in range(500):
                assert (await client.reply()).status == 200


async def test_an_upload_that_is_faster_than_its_reader_is_paused_and_comes_whole() -> None:
    async def play(turn: Turn) -> None:
        await turn.reply(200, b"%d" % len(turn.body), kind=b"text/plain")

    body = chat(stream=False, pad="x" * 8_000_000)
    async with front(play) as (pharos, _):
        client = await pharos.client()
        client.send(b"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % len(body))
        client.send(body[: len(body) // 2])
        await asyncio.sleep(1.2)
        client.send(body[len(body) // 2 :])
        assert (await client.reply()).body == b"%d" % len(body)


async def test_what_comes_behind_the_last_request_of_a_connection_is_not_served() -> None:
    async with front(streaming) as (pharos, engine):
        client = await pharos.client()
        client.send(GET.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n"))
        client.post(chat())
        got, clean = await client.rest()
        assert clean
        assert got.count(b"HTTP/1.1 ") == 1
        assert pharos.done == []
        assert engine.connections == 0


async def test_a_flood_of_quick_requests_leaves_others_their_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    async with front(streaming) as (pharos, _):
        client = await pharos.client()
        client.send(GET)
        await client.reply()
        loop, order = asyncio.get_running_loop(), []
        serve = pharos.proxy._listener.serve
        monkeypatch.setattr(pharos.proxy._listener, "serve", lambda *args: (order.append("served"), serve(*args))[1])

        def other() -> None:
            order.append("other")
            if order.count("served") < 200:
                loop.call_soon(other)

        loop.call_soon(other)
        client.send(GET * 200)
        for _ in range(200):
            assert (await client.reply()).status == 200
        first = order.index("served")
        assert "other" in order[first : first + 10]
