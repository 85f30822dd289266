"""What the data plane tells the scheduler: how long a prompt is, who asks, and that an engine is gone."""

import asyncio
import json

import pytest

from pharos.core.fleet import State
from pharos.proxy.auth import Key
from tests.proxy.engine_script import WAIT_S, Turn
from tests.proxy.harness import Front, chat, event, front


async def ok(turn: Turn) -> None:
    await turn.reply(200, b'{"choices":[]}')


async def until_waiting(pharos: Front, count: int) -> None:
    async with asyncio.timeout(WAIT_S):
        while pharos.ledger.waiting < count:
            await asyncio.sleep(0)


async def prefill_s(pharos: Front, number: int, text: str) -> float:
    body = {"model": "m", "messages": [{"role": "user", "content": text}]}
    await pharos.ask(json.dumps(body).encode())
    (score,) = (await pharos.finished(number)).scores
    return float(score.prefill_s)


async def test_the_length_of_a_prompt_reaches_the_policy() -> None:
    async with front(ok) as (pharos, _):
        short, long = await prefill_s(pharos, 1, ""), await prefill_s(pharos, 2, "x" * 4000)
        assert long - short == pytest.approx(4000 / 4 * 0.005), "4 bytes a token, 5 ms each until more is known"
        assert 0 < short < 0.1


async def test_the_weight_of_a_key_is_the_one_its_requests_wait_with() -> None:
    keys = {"pk-heavy": Key("heavy", weight=2), "pk-light": Key("light"), "pk-first": Key("first")}

    async def play(turn: Turn) -> None:
        if len(turn.engine.turns) == 1:
            await go_on.wait()
        await turn.reply(200, b'{"choices":[]}')

    go_on = asyncio.Event()
    async with front(play, capacity=1, keys=keys, clock=lambda: 1.0) as (pharos, engine):  # each takes the same time
        clients = []
        for number, name in enumerate(["first", *["heavy"] * 4, *["light"] * 2]):
            client = await pharos.client()
            client.post(chat(stream=False), f"Authorization: Bearer pk-{name}\r\nX-Who: {name}\r\n")
            clients.append(client)
            await (until_waiting(pharos, number) if number else engine.got(1))
        go_on.set()
        assert [(await client.reply()).status for client in clients] == [200] * 7
        served = [turn.header("x-who")[0] for turn in engine.turns]
        assert served[0] == "first"
        assert [sorted(served[at : at + 3]) for at in (1, 4)] == [["heavy", "heavy", "light"]] * 2


async def test_when_its_only_engine_dies_a_waiting_request_hears_of_it_without_a_scrape() -> None:
    async def play(turn: Turn) -> None:
        await turn.sse_head()
        await turn.chunk(event())
        await go_on.wait()
        turn.reset()

    go_on = asyncio.Event()
    async with front(play, capacity=1, absent_wait_s=0.05) as (pharos, _):
        first, second = await pharos.client(), await pharos.client()
        first.post(chat())
        await first.until(b'"hi"')
        second.post(chat())
        await until_waiting(pharos, 1)
        assert pharos.ledger.next_deadline() is None, "it waits for a slot, for as long as it takes"
        go_on.set()
        reply = await second.reply()
        assert reply.status == 503
        assert "came back" in reply.json()["error"]["message"]
        assert pharos.fleet.backends["a"].state is State.EJECTED
