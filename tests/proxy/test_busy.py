"""Engines that say "not now", and clients that do not wait."""

import asyncio
import json

import pytest

from pharos.core.fleet import State
from tests.proxy.engine_script import WAIT_S, Turn
from tests.proxy.harness import Front, RawClient, chat, front
from tests.proxy.test_forward import BUSY, OK_BODY, first_to, ok, refuses


@pytest.mark.parametrize("status", [429, 409, 503])
async def test_a_busy_engine_s_request_goes_to_an_idle_one_and_it_is_passed_over_for_its_stated_time(
    status: int,
) -> None:
    now = [1000.0]
    script = refuses(status, b"Retry-After: 5\r\n")
    async with front(script, ok, clock=lambda: now[0]) as (pharos, a, b):
        for count in range(3):
            first_to(pharos, "a")
            assert (await pharos.ask(chat(stream=False))).body == OK_BODY
            assert len(b.turns) == count + 1
        assert len(a.turns) == 1
        now[0] += 5.0
        first_to(pharos, "a")
        assert (await pharos.ask(chat(stream=False))).status == 200
        assert len(a.turns) == 2


@pytest.mark.parametrize("status", [429, 409, 503])
async def test_alone_its_answer_and_its_time_go_to_the_client(status: int) -> None:
    async with front(refuses(status, b"Retry-After: 5\r\n")) as (pharos, a):
        for count in range(2):
            reply = await pharos.ask(chat(stream=False))
            assert (reply.status, reply.body, reply.header("retry-after")) == (status, BUSY, ["5"])
            assert len(a.turns) == count + 1, "asked once for each request, though it wants to be left alone"


@pytest.mark.parametrize("policy", ["cost", "least-load"])
@pytest.mark.parametrize("is_same", [True, False])
async def test_whatever_the_policy_a_backend_that_fails_fast_is_tried_rarely_and_returns_once_it_serves(
    policy: str,
    is_same: bool,  # noqa: FBT001
) -> None:
    now = [1000.0]
    is_broken = True

    async def play(turn: Turn) -> None:
        await (refuses(500) if is_broken else ok)(turn)

    async with front(play, ok, clock=lambda: now[0], policy=policy) as (pharos, a, b):
        for number in range(100):
            body = {"model": "m", "messages": [{"role": "user", "content": "hi" if is_same else f"{number} hi"}]}
            assert (await pharos.ask(json.dumps(body).encode())).status == 200
            now[0] += 0.1
        assert len(a.turns) < 10
        assert len(b.turns) == 100
        is_broken = False
        failed = len(a.turns)
        now[0] += 60.0
        pharos.bring_up("a")
        pharos.bring_up("b")
        for _ in range(5):
            first_to(pharos, "a")
            assert (await pharos.ask(chat(stream=False))).status == 200
        assert len(a.turns) == failed + 5


async def test_clients_that_give_up_and_ask_again_never_make_more_work_than_there_are_clients() -> None:
    running: set[int] = set()
    most = 0

    async def prefills(turn: Turn) -> None:
        nonlocal most
        running.add(id(turn))
        most = max(most, len(running))
        await turn.until_closed()
        running.discard(id(turn))

    async with front(prefills, prefills, capacity=2) as (pharos, a, b):
        targets = [backend.targets["m"] for backend in pharos.fleet.backends.values()]
        for round_ in range(4):
            clients = [await pharos.client() for _ in range(10)]
            for client in clients:
                client.post(chat())
            await settled(pharos, leased=4, waiting=6)
            async with asyncio.timeout(WAIT_S):
                while len(running) < 4 or len(a.turns) + len(b.turns) < 4 * (round_ + 1):
                    await asyncio.sleep(0)
            leave(clients)
            await settled(pharos, leased=0, waiting=0)
            async with asyncio.timeout(WAIT_S):
                while running:
                    await asyncio.sleep(0)
        await pharos.finished(40)
        assert most <= 10
        assert [done.status for done in pharos.done] == [499] * 40
        assert [backend.state for backend in pharos.fleet.backends.values()] == [State.UP, State.UP]
        for stats in (target.stats for target in targets):
            assert (stats.service_s.value, stats.prefill_s_per_token.value, stats.load_s.value) == (None, None, None)
        assert pharos.proxy.routes._forwarder._judge.standing.is_clear("/v1/chat/completions")


def leave(clients: list[RawClient]) -> None:
    for client in clients:
        client.writer.transport.abort()


async def settled(pharos: Front, *, leased: int, waiting: int) -> None:
    async with asyncio.timeout(WAIT_S):
        while (pharos.ledger.leased, pharos.ledger.waiting) != (leased, waiting):
            await asyncio.sleep(0)
