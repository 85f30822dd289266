import asyncio
import socket
import struct

import pytest

from pharos.core.engine import recipes
from pharos.core.engine.plan import Plan, Round
from pharos.core.fleet import State
from pharos.core.signals import BACKEND, Reading, Residency, Signal
from tests.proxy.engine_script import WAIT_S, Turn
from tests.proxy.harness import Front, RawClient, chat, event, front
from tests.waiting import until


def hang_up(client: RawClient, how: str) -> None:
    sock = client.writer.get_extra_info("socket")
    if how == "half close":
        client.writer.write_eof()
        return
    if how == "reset":
        real = socket.socket(fileno=socket.dup(sock.fileno()))
        real.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        real.close()
    client.writer.transport.abort()


async def until_free(pharos: Front) -> None:
    async with asyncio.timeout(WAIT_S):
        while pharos.inflight or pharos.ledger.leased or pharos.proxy.inflight:
            await asyncio.sleep(0)


async def silent(turn: Turn) -> None:
    await turn.until_closed()


async def streaming(turn: Turn) -> None:
    await turn.sse_head()
    await turn.chunk(event())
    await turn.until_closed()


@pytest.mark.parametrize("how", ["close", "reset", "half close"])
@pytest.mark.parametrize("stream", [True, False])
async def test_a_client_that_leaves_before_the_reply_stops_its_engine(how: str, stream: bool) -> None:  # noqa: FBT001
    async with front(silent) as (pharos, engine):
        client = await pharos.client()
        client.post(chat(stream=stream))
        turn = await engine.got(1)
        hang_up(client, how)
        await until_free(pharos)
        await until(lambda: turn.is_over)
        done = await pharos.finished()
        assert done.status == 499
        assert ("upstream", "client_left") in done.stages
        assert pharos.fleet.backends["a"].state is State.UP


@pytest.mark.parametrize("how", ["close", "reset", "half close"])
@pytest.mark.parametrize("stream", [True, False])
async def test_b25_a_client_that_leaves_during_a_cold_load_stops_it_and_no_load_time_is_learned(
    how: str,
    stream: bool,  # noqa: FBT001
) -> None:
    async with front(silent) as (pharos, engine):
        now = pharos.clock()
        cold = Reading(value=Residency.COLD, at=now, probe="test", interval_s=None)
        plan = Plan("llamacpp", "config", "1", recipes.by_kind("llamacpp").probes, ())
        found = Round({(Signal.RESIDENCY, BACKEND): cold}, (), frozenset({Signal.RESIDENCY}))
        pharos.fleet.publish(pharos.fleet.backends["a"], plan, found, now, full=True, started_at=now)
        client = await pharos.client()
        client.post(chat(stream=stream))
        turn = await engine.got(1)
        hang_up(client, how)
        await until_free(pharos)
        await until(lambda: turn.is_over)
        done = await pharos.finished()
        assert done.status == 499
        assert ("load", "cold_start") in done.stages
        assert ("upstream", "client_left") in done.stages
        stats = pharos.fleet.backends["a"].targets["m"].stats
        assert (stats.load_s.value, stats.service_s.value) == (None, None)
        assert pharos.fleet.backends["a"].state is State.UP


@pytest.mark.parametrize("how", ["close", "reset", "half close"])
async def test_a_client_that_leaves_inside_a_stream_stops_its_engine(how: str) -> None:
    async with front(streaming) as (pharos, engine):
        client = await pharos.client()
        client.post(chat())
        await client.until(b'"hi"')
        hang_up(client, how)
        await until_free(pharos)
        async with asyncio.timeout(WAIT_S):
            while not engine.turns[0].is_over:
                await asyncio.sleep(0)
        assert (await pharos.finished()).status == 499
        target = pharos.fleet.backends["a"].targets["m"]
        assert target.stats.service_s.value is None, "nothing is learned from a client that left"
        assert pharos.fleet.backends["a"].state is State.UP


async def test_the_engine_is_let_go_in_the_same_turn_as_the_hang_up_is_seen() -> None:
    async with front(streaming) as (pharos, _):
        client = await pharos.client()
        client.post(chat())
        await client.until(b'"hi"')
        (connection,) = pharos.proxy.connections
        relay = connection.relay
        assert relay is not None
        up = relay._up
        assert up is not None
        connection.connection_lost(None)
        assert up.is_closed
        assert connection.relay is None
        await until_free(pharos)


async def test_a_client_that_leaves_the_queue_gives_its_place_up() -> None:
    async with front(streaming, capacity=1) as (pharos, engine):
        first, second = await pharos.client(), await pharos.client()
        first.post(chat())
        await first.until(b'"hi"')
        second.post(chat())
        async with asyncio.timeout(WAIT_S):
            while pharos.ledger.waiting != 1:
                await asyncio.sleep(0)
        hang_up(second, "close")
        async with asyncio.timeout(WAIT_S):
            while pharos.ledger.waiting:
                await asyncio.sleep(0)
        done = await pharos.finished()
        assert done.status == 499
        assert ("route", "client_left") in done.stages
        assert len(engine.turns) == 1
        hang_up(first, "close")
        await until_free(pharos)


async def test_impatient_clients_never_run_more_than_one_request_each() -> None:
    running = 0
    most = 0

    async def play(turn: Turn) -> None:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await turn.until_closed()
        running -= 1

    async with front(play, capacity=2) as (pharos, engine):
        for attempt in range(4):
            clients = [await pharos.client() for _ in range(2)]
            for client in clients:
                client.post(chat())
            await engine.got(2 * attempt + 2)
            for client in clients:
                hang_up(client, "close")
            async with asyncio.timeout(WAIT_S):
                while running or pharos.inflight:
                    await asyncio.sleep(0)
        assert most == 2
        assert pharos.fleet.backends["a"].state is State.UP


async def test_a_client_that_leaves_inside_its_upload_holds_nothing() -> None:
    async with front(silent) as (pharos, engine):
        client = await pharos.client()
        client.send(b"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Length: 100000\r\n\r\nhalf")
        async with asyncio.timeout(WAIT_S):
            while pharos.proxy.routes.buffers.used != len(b"half"):
                await asyncio.sleep(0)
        hang_up(client, "close")
        async with asyncio.timeout(WAIT_S):
            while pharos.proxy.routes.buffers.used:
                await asyncio.sleep(0)
        assert (await pharos.finished()).status == 499
        assert engine.turns == []
