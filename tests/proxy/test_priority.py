"""A key's priority reaches the queue."""

import asyncio

import pytest

from pharos.proxy.auth import Key
from tests.proxy.engine_script import WAIT_S, Turn
from tests.proxy.harness import Front, chat, front


async def until_waiting(pharos: Front, count: int) -> None:
    async with asyncio.timeout(WAIT_S):
        while pharos.ledger.waiting < count:
            await asyncio.sleep(0.001)


@pytest.mark.parametrize(("priority", "order"), [(0, ["low", "high"]), (1, ["high", "low"])])
async def test_while_requests_wait_those_of_a_higher_priority_go_first(priority: int, order: list[str]) -> None:
    may_end = asyncio.Event()

    async def play(turn: Turn) -> None:
        await may_end.wait()
        await turn.reply(200, b'{"choices":[]}')

    keys = {"pk-any": Key("any"), "pk-low": Key("low"), "pk-high": Key("high", priority=priority)}
    async with front(play, capacity=1, keys=keys) as (pharos, engine):
        asking = [asyncio.create_task(pharos.ask(chat(stream=False), "Authorization: Bearer pk-any\r\n"))]
        await engine.got(1)
        for number, name in enumerate(("low", "high"), 1):
            header = f"Authorization: Bearer pk-{name}\r\n"
            asking.append(asyncio.create_task(pharos.ask(chat(stream=False), header)))
            await until_waiting(pharos, number)
        may_end.set()
        assert [reply.status for reply in await asyncio.gather(*asking)] == [200] * 3
        await pharos.finished(3)
        assert [done.key for done in pharos.done] == ["any", *order]
