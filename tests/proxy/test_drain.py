import asyncio
from collections.abc import Awaitable, Callable

import pytest

from pharos.proxy.drain import CUT_FLUSH_S, LOOK_EVERY_S
from tests.fakes.ports import is_refused
from tests.proxy.engine_script import WAIT_S, Turn
from tests.proxy.harness import DONE, RawClient, chat, event, front
from tests.waiting import until


def halted_until(go_on: asyncio.Event) -> Callable[[Turn], Awaitable[None]]:
    """An engine that halts in the middle of a stream."""

    async def play(turn: Turn) -> None:
        await turn.sse_head()
        await turn.chunk(event("a"))
        await go_on.wait()
        await turn.chunk(event("b") + DONE)
        await turn.write(b"0\r\n\r\n")

    return play


async def test_a_stream_in_work_at_the_end_finishes_and_nothing_new_comes_in() -> None:
    go_on = asyncio.Event()
    async with front(halted_until(go_on)) as (pharos, _):
        port = pharos.proxy.port
        client, idle = await pharos.client(), await pharos.client()
        idle.get("/livez")
        await idle.reply()
        client.post(chat())
        await client.until(b'"a"')
        draining = asyncio.create_task(pharos.proxy.drain(0.05, 30))
        await until(lambda: pharos.proxy.draining)

        late = await pharos.client()  # in the grace: health fails, requests are still served
        late.get("/healthz")
        health = await late.reply()
        assert health.status == 503
        assert health.header("connection") == ["close"]
        models = await pharos.fetch("/v1/models")
        assert models.status == 200
        assert models.header("connection") == ["close"]
        assert (await pharos.fetch("/livez")).status == 200

        assert await idle.rest() == (b"", True)  # closed cleanly when the grace ended
        assert await is_refused(port)
        assert not draining.done()
        go_on.set()
        got, clean = await client.rest()
        assert clean
        assert got.endswith(b"0\r\n\r\n")
        assert DONE in got
        async with asyncio.timeout(WAIT_S):
            await draining
        assert pharos.inflight == 0


async def test_a_kept_connection_whose_stream_outlasts_the_grace_gets_one_more_answer() -> None:
    """Its reply began before the drain and promised to keep it: a client that asks again at once must not be reset."""
    go_on = asyncio.Event()
    async with front(halted_until(go_on)) as (pharos, _):
        client, idle = await pharos.client(), await pharos.client()
        idle.get("/livez")
        await idle.reply()
        client.post(chat())
        await client.until(b'"a"')
        draining = asyncio.create_task(pharos.proxy.drain(1.0, 30))
        assert await idle.rest() == (b"", True)  # the grace is over
        go_on.set()
        await client.until(b"0\r\n\r\n")
        for _ in range(3):  # the drain looks meanwhile, more than once
            await asyncio.sleep(LOOK_EVERY_S)
        client.get("/livez")
        second = await client.reply()
        assert second.status == 200
        assert second.header("connection") == ["close"]
        async with asyncio.timeout(WAIT_S):
            await draining


async def test_a_stream_that_outlasts_the_timeout_is_cut_honestly() -> None:
    async def play(turn: Turn) -> None:
        await turn.sse_head()
        await turn.chunk(event("a"))
        await turn.until_closed()

    async with front(play) as (pharos, _):
        client = await pharos.client()
        client.post(chat())
        await client.until(b'"a"')
        await pharos.proxy.drain(0, 0.05)
        got, _ = await client.rest()
        assert b'"shutting_down"' in got
        assert b"[DONE]" not in got
        assert not got.endswith(b"0\r\n\r\n")
        assert ("upstream", "cut_at_shutdown") in (await pharos.finished()).stages
        assert pharos.inflight == 0


async def test_a_request_that_waits_for_a_slot_when_the_end_begins_still_gets_its_turn() -> None:
    go_on = asyncio.Event()
    async with front(halted_until(go_on), capacity=1) as (pharos, _):
        first, second = await pharos.client(), await pharos.client()
        first.post(chat())
        await first.until(b'"a"')
        second.post(chat())
        await until(lambda: pharos.ledger.waiting == 1)
        draining = asyncio.create_task(pharos.proxy.drain(0, 30))
        await until(lambda: pharos.proxy.draining)
        go_on.set()
        assert (await second.reply()).is_whole
        async with asyncio.timeout(WAIT_S):
            await draining


async def test_a_half_sent_request_is_not_closed_as_idle() -> None:
    """The trap: closing before idle swallows the next request on a kept connection."""

    async def play(turn: Turn) -> None:
        await turn.reply(200, b"{}")

    async with front(play) as (pharos, _):
        client = await pharos.client()
        client.get("/livez")
        await client.reply()
        body = chat(stream=False)
        client.send(b"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-")
        await until(lambda: not pharos.proxy.connections[0].is_idle)
        draining = asyncio.create_task(pharos.proxy.drain(0, 0.5))
        await until(lambda: pharos.proxy.draining)
        client.send(b"Length: %d\r\n\r\n%b" % (len(body), body))
        reply = await client.reply()
        assert reply.status == 200
        assert reply.header("connection") == ["close"]
        await draining


@pytest.mark.parametrize("piece", [1, 7])
async def test_the_end_waits_until_a_slow_client_has_everything(piece: int) -> None:
    size = 3_000_000

    async def play(turn: Turn) -> None:
        await turn.reply(200, b"x" * size)

    async with front(play) as (pharos, _):
        client = await pharos.client()
        client.writer.transport.pause_reading()
        client.post(chat(stream=False))
        await until(lambda: pharos.proxy.inflight == 1)
        draining = asyncio.create_task(pharos.proxy.drain(0, 30))
        await until(lambda: pharos.proxy.draining)
        for _ in range(piece):
            await asyncio.sleep(0)
        client.writer.transport.resume_reading()
        reply: RawClient = client
        got = await reply.reply()
        assert got.is_whole
        assert len(got.body) == size
        await draining


@pytest.mark.parametrize("stream", [False, True])
async def test_who_waits_at_the_timeout_is_told_that_this_instance_ends(stream: bool) -> None:  # noqa: FBT001
    """One waits for the first byte of a reply, the others for a slot: no reply is empty, none blames an engine."""

    async def play(turn: Turn) -> None:
        await turn.until_closed()

    async with front(play, capacity=1) as (pharos, engine):
        clients = [await pharos.client() for _ in range(4)]
        for client in clients:
            client.post(chat(stream=stream))
        await engine.got(1)
        await until(lambda: pharos.ledger.waiting == 3)
        started = asyncio.get_running_loop().time()
        await pharos.proxy.drain(0, 0.1)
        assert asyncio.get_running_loop().time() - started < 1
        for client in clients:
            reply = await client.reply()
            assert reply.status == 503
            assert reply.header("retry-after") == ["1"]
            assert reply.header("connection") == ["close"]
            assert "this instance is ending" in reply.json()["error"]["message"]
        assert len(engine.turns) == 1
        assert pharos.inflight == 0
        assert pharos.ledger.waiting == 0
        await pharos.finished(4)
        assert {done.status for done in pharos.done} == {503}


async def test_an_upload_that_never_ends_does_not_hold_the_process() -> None:
    async def play(turn: Turn) -> None:
        await turn.reply(200, b"{}")

    async with front(play) as (pharos, _):
        client = await pharos.client()
        client.send(b"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n{")
        await until(lambda: pharos.proxy.inflight == 1)
        started = asyncio.get_running_loop().time()
        await pharos.proxy.drain(0, 0.05)
        assert asyncio.get_running_loop().time() - started < CUT_FLUSH_S + 1
        assert pharos.proxy.inflight == 0
        assert pharos.proxy.connections == []
        reply = await client.reply()
        assert (reply.status, reply.header("retry-after"), reply.header("connection")) == (503, ["1"], ["close"])
        assert "this instance is ending" in reply.json()["error"]["message"]
