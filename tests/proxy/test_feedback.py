"""What a finished request leaves behind: in the averages, in what is known of its engine, in its own record."""

import asyncio
import json

import pytest

from pharos.core.engine import recipes
from pharos.core.engine.plan import Plan, Round
from pharos.core.fleet import Target
from pharos.core.signals import BACKEND, Reading, Residency, Signal
from tests.proxy.engine_script import WAIT_S, Turn
from tests.proxy.harness import DONE, Front, chat, event, front


class Clock:
    """Stands still but for what a test adds."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def only_target(pharos: Front) -> Target:
    return pharos.fleet.backends["a"].targets["m"]


def usage_event(prompt: int, cached: int) -> bytes:
    usage = {"prompt_tokens": prompt, "completion_tokens": 3, "prompt_tokens_details": {"cached_tokens": cached}}
    return b"data: " + json.dumps({"choices": [], "usage": usage}).encode() + b"\n\n"


async def test_a_good_reply_teaches_its_target_service_and_prefill_time_and_tokens_per_byte() -> None:
    clock = Clock()

    async def play(turn: Turn) -> None:
        clock.now += 2.0
        await turn.sse_head()
        await turn.chunk(event())
        await go_on.wait()
        clock.now += 4.0
        await turn.chunk(usage_event(1500, 500) + DONE)
        await turn.write(b"0\r\n\r\n")

    go_on = asyncio.Event()
    async with front(play, clock=clock) as (pharos, _):
        pharos.know_another()
        client = await pharos.client()
        client.post(chat(messages=[{"role": "user", "content": "x" * 3000}]))
        await client.until(b'"hi"')
        go_on.set()
        await client.until(b"0\r\n\r\n")
        done = await pharos.finished()
        assert (done.ttft_s, done.duration_s) == (2.0, 6.0)
        stats = only_target(pharos).stats
        assert stats.service_s.value == 6.0
        assert stats.prefill_s_per_token.value == pytest.approx(2.0 / (1500 - 500))
        assert stats.load_s.value is None
        assert pharos.fleet.prompt_tokens("m", 3000) == 1500, "of the text alone"


async def test_the_engines_own_prefill_time_is_what_is_learned() -> None:
    async def play(turn: Turn) -> None:
        await turn.sse_head()
        timings = {"prompt_n": 1000, "prompt_ms": 3000.0, "cache_n": 0, "predicted_n": 1}
        await turn.chunk(event(timings=timings) + DONE)
        await turn.write(b"0\r\n\r\n")

    async with front(play, kind="llamacpp") as (pharos, _):
        await pharos.ask()
        await pharos.finished()
        assert only_target(pharos).stats.prefill_s_per_token.value == pytest.approx(0.003)


async def test_a_reply_of_a_model_that_was_not_in_memory_teaches_the_load_time() -> None:
    clock = Clock()

    async def play(turn: Turn) -> None:
        clock.now += 9.0
        await turn.sse_head()
        await turn.chunk(event() + DONE)
        await turn.write(b"0\r\n\r\n")

    async with front(play, clock=clock) as (pharos, _):
        cold = Reading(value=Residency.COLD, at=clock.now, probe="test", interval_s=None)
        plan = Plan("llamacpp", "config", "1", recipes.by_kind("llamacpp").probes, ())
        found = Round({(Signal.RESIDENCY, BACKEND): cold}, (), frozenset({Signal.RESIDENCY}))
        pharos.fleet.publish(pharos.fleet.backends["a"], plan, found, clock.now, full=True, started_at=clock.now)
        await pharos.ask()
        assert ("load", "cold_start") in (await pharos.finished()).stages
        stats = only_target(pharos).stats
        assert (stats.load_s.value, stats.service_s.value) == (9.0, None)


@pytest.mark.parametrize("status", [400, 500])
async def test_a_reply_that_is_an_error_teaches_nothing(status: int) -> None:
    async def play(turn: Turn) -> None:
        await turn.reply(status, b'{"error":{"message":"no"},"usage":{"prompt_tokens":1000}}')

    async with front(play) as (pharos, _):
        await pharos.ask(chat(stream=False))
        await pharos.finished()
        assert only_target(pharos).stats.service_s.value is None
        assert only_target(pharos).loaded_at is None


async def test_an_engine_is_heard_of_for_as_long_as_bytes_of_a_reply_come() -> None:
    clock = Clock()
    steps = [asyncio.Event() for _ in range(4)]
    pieces = (b'data: {"choices":[{"delta":{"role":"assistant"}}]}\n\n', event("a"), event("b"), event("c"))

    async def play(turn: Turn) -> None:
        await turn.sse_head()
        for go_on, piece in zip(steps, pieces, strict=True):
            await go_on.wait()
            await turn.chunk(piece)
        await turn.until_closed()

    async with front(play, clock=clock) as (pharos, engine):
        client = await pharos.client()
        client.post(chat())
        await engine.got(1)
        for go_on, piece in zip(steps, pieces, strict=True):
            clock.now += 29.0  # a second more, and a backend that nobody hears of is no longer up
            go_on.set()
            await client.until(piece)
            assert pharos.fleet.backends["a"].heard_at == clock.now
        assert pharos.fleet.models(clock.now + 29.0) == ["m"], "no round of a scraper came all the while"


async def test_the_own_overhead_has_neither_the_upload_nor_the_queue_in_it() -> None:
    clock = Clock()

    async def play(turn: Turn) -> None:
        if turn.connection == 1 and len(turn.engine.turns) == 1:
            await go_on.wait()
        await turn.reply(200, b'{"choices":[]}')

    go_on = asyncio.Event()
    async with front(play, capacity=1, clock=clock) as (pharos, engine):
        first, second = await pharos.client(), await pharos.client()
        first.post(chat(stream=False))
        await engine.got(1)
        body = chat(stream=False)
        second.send(b"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % len(body))
        await until_in_work(pharos, 2)
        clock.now += 7.0
        second.send(body)
        await until_waiting(pharos)
        clock.now += 11.0
        go_on.set()
        assert (await second.reply()).status == 200
        done = await pharos.finished(2)
        assert (done.overhead_s, done.queue_wait_s, done.duration_s) == (0.0, 11.0, 18.0)


async def test_the_own_overhead_is_the_time_from_the_request_to_the_engines_first_byte_of_it() -> None:
    """What Pharos itself takes is in it: here a slow clock of its own, one second at each look."""
    clock = Clock()

    def slow() -> float:
        clock.now += 1.0
        return clock.now

    async def play(turn: Turn) -> None:
        await turn.reply(200, b'{"choices":[]}')

    async with front(play, clock=slow) as (pharos, _):
        await pharos.ask(chat(stream=False))
        done = await pharos.finished()
        assert done.overhead_s is not None
        assert 0 < done.overhead_s < done.duration_s


async def until_in_work(pharos: Front, count: int) -> None:
    async with asyncio.timeout(WAIT_S):
        while pharos.proxy.inflight < count:
            await asyncio.sleep(0)


async def until_waiting(pharos: Front) -> None:
    async with asyncio.timeout(WAIT_S):
        while not pharos.ledger.waiting:
            await asyncio.sleep(0)
