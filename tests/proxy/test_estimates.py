"""What was foretold of a request is held against what came."""

import asyncio
import json

import pytest

from pharos.core.fleet import Feedback
from tests.proxy.engine_script import Script, Turn
from tests.proxy.harness import DONE, chat, event, front
from tests.proxy.test_asking import until_waiting


class Clock:
    """Stands still but for what a test adds."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def stream_after(clock: Clock, seconds: float, go_on: asyncio.Event | None = None) -> Script:
    async def play(turn: Turn) -> None:
        clock.now += seconds
        await turn.sse_head()
        await turn.chunk(event())
        if go_on is not None:
            await go_on.wait()
        usage = {"prompt_tokens": 9, "completion_tokens": 2}
        await turn.chunk(b"data: " + json.dumps({"choices": [], "usage": usage}).encode() + b"\n\n" + DONE)
        await turn.write(b"0\r\n\r\n")

    return play


async def test_the_predicted_start_is_held_against_the_first_token() -> None:
    clock = Clock()
    async with front(stream_after(clock, 2.0), clock=clock) as (pharos, _):
        await pharos.ask(chat())
        done = await pharos.finished()
        assert done.predicted_s is not None
        assert pharos.fleet.calibration.seen("m", "a") == 1
        assert pharos.fleet.calibration.ratio("m", "a") == pytest.approx(max(done.predicted_s, 0.05) / 2.0, rel=0.5)
        await pharos.ask(chat(stream=False))
        await pharos.finished(2)


async def test_a_reply_in_one_piece_and_a_failure_tell_nothing_of_a_start() -> None:
    async def play(turn: Turn) -> None:
        status = 200 if len(turn.engine.turns) == 1 else 400
        await turn.reply(status, b'{"choices":[{"text":"x"}]}')

    async with front(play) as (pharos, _):
        for number in (1, 2):
            await pharos.ask(chat(stream=False))
            await pharos.finished(number)
        assert pharos.fleet.calibration.seen("m", "a") == 0


async def test_a_model_whose_estimates_mislead_is_told_of() -> None:
    clock = Clock()
    async with front(stream_after(clock, 30.0), clock=clock) as (pharos, _):
        pharos.fleet.backends["a"].targets["m"].stats.prefill_s_per_token.add(0.001)  # a speed that was measured
        for number in range(1, 21):
            await pharos.ask(chat())
            await pharos.finished(number)
            pharos.bring_up("a")
        assert [one.outcome for one in pharos.events if one.stage == "calibration"] == ["fell_back"]


async def test_the_predicted_wait_is_held_against_the_one_that_it_had() -> None:
    clock, go_on = Clock(), asyncio.Event()
    async with front(stream_after(clock, 0.0, go_on), clock=clock, capacity=1) as (pharos, _):
        target = pharos.fleet.backends["a"].targets["m"]
        pharos.fleet.learn(target, Feedback(ok=True, cold=False, duration_s=8.0))
        clients = [await pharos.client() for _ in range(2)]
        clients[0].post(chat())
        await clients[0].until(b'"hi"')
        clients[1].post(chat())
        await until_waiting(pharos, 1)
        clock.now += 4.0
        go_on.set()
        for client in clients:
            await client.until(b"0\r\n\r\n")
        assert (await pharos.finished(2)).queue_wait_s == 4.0
        assert pharos.fleet.calibration.wait_ratio("m", "a") == pytest.approx(8.0 / 4.0, rel=0.1)
