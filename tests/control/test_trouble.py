"""Engines that are busy, dead or never there: scrapes that time out take nobody out, a refused connection does."""

import asyncio
import itertools
from typing import Any

import aiohttp
import pytest

from pharos.core.fleet.backend import State
from pharos.core.signals import Signal
from tests.fakes.http import Answer, Hang, HttpDouble, Raw, Reply, Reset
from tests.fakes.llamacpp import FakeLlamaCpp
from tests.fakes.ollama import FakeOllama
from tests.fakes.steps import Steps
from tests.fakes.vllm import FakeVllm
from tests.fakes.watched import Watched, watched


def said(rig: Watched) -> list[str]:
    return [event.text for event in rig.events if event.text and event.level != "debug"]


TAKEN_OUT = {State.DOWN, State.EJECTED, State.UNRECOGNISED}


async def stream(session: aiohttp.ClientSession, engine: HttpDouble, model: str = "tiny") -> bytes:
    body = {"model": model, "messages": [{"role": "user", "content": "hello"}], "stream": True}
    async with session.post(engine.url + "/v1/chat/completions", json=body) as response:
        return await response.read()


async def scrapes_hang(rig: Watched, engine: FakeVllm, *seconds: int) -> list[Any]:
    """Go on to each second, in whose rounds no page of the engine answers; what was known shortly before the next."""
    pages = ("/metrics", "/v1/models", "/version")
    told = []
    for second in seconds:
        engine.answers = dict.fromkeys(pages, Hang())
        await rig.until(second)
        assert rig.state not in TAKEN_OUT
        assert rig.backend.is_up(rig.steps.now)
        await rig.until(second + 0.9)
        told.append(rig.value(Signal.RUNNING))
    engine.answers = {}
    return told


async def test_scrapes_that_time_out_take_no_engine_out_while_its_streams_flow(
    session: aiohttp.ClientSession, steps: Steps
) -> None:
    async with FakeVllm(max_num_seqs=8, clock=steps.clock) as engine, watched(session, engine, steps=steps) as rig:
        engine.hold()
        clients = [asyncio.create_task(stream(session, engine)) for _ in range(3)]
        await engine.until(lambda: engine.held == 3)
        target = rig.target("tiny")
        rig.fleet.dispatched(target)
        for second in range(1, 31):  # every third round gives nothing
            if second % 3 == 0:
                await scrapes_hang(rig, engine, second)
            else:
                await rig.until(second)
                assert rig.value(Signal.RUNNING) == 3
        told = await scrapes_hang(rig, engine, 31, 32, 33)  # and then three in a row
        assert 0 not in told
        assert told[-1] is None, "too old, so unknown: neither what it was nor idle"
        late = asyncio.create_task(stream(session, engine))
        await engine.until(lambda: engine.held == 4)
        await rig.until(34)
        assert rig.value(Signal.RUNNING) == 4
        engine.release()
        for body in await asyncio.gather(*clients, late):
            assert body.endswith(b"data: [DONE]\n\n")
        assert rig.state is State.UP
        assert rig.target("tiny").generation == 0
        assert {event.outcome for event in rig.events} & {"restarted", "unloaded", "frozen"} == set()


async def test_an_engine_that_answers_no_scrape_for_long_is_busy_while_it_is_heard_of(
    session: aiohttp.ClientSession, steps: Steps
) -> None:
    async with FakeVllm(clock=steps.clock) as engine, watched(session, engine, steps=steps) as rig:
        engine.every = Hang()
        for second in range(5, 50, 5):
            rig.fleet.heard(rig.backend, steps.now)  # a token of one of our streams
            await rig.until(second)
            assert rig.backend.is_up(steps.now)
        assert rig.state is State.BUSY
        await rig.until(80)
        assert not rig.backend.is_up(steps.now), "and then nothing at all"


async def test_a_refused_connection_takes_an_engine_out_at_once(session: aiohttp.ClientSession, steps: Steps) -> None:
    async with FakeVllm(clock=steps.clock) as engine, watched(session, engine, steps=steps) as rig:
        await rig.until(3)
        engine.kill()
        await rig.until(4)
        assert rig.state is State.DOWN
        assert not rig.backend.is_up(steps.now)
        await engine.restart()
        await rig.until(6)
        assert rig.state is State.UP


async def test_dead_backends_keep_nobody_from_being_ready(session: aiohttp.ClientSession, steps: Steps) -> None:
    async with (
        HttpDouble(clock=steps.clock) as dead,
        FakeVllm(clock=steps.clock) as hanging,
        FakeLlamaCpp(clock=steps.clock) as live,
    ):
        dead.kill()
        hanging.every = Hang()
        async with watched(session, dead, hanging, live, steps=steps) as rig:
            assert rig.fleet.is_ready, "after the first round, without any time passing"
            assert [at for _, at in rig.rounds] == [steps.now] * 3
            assert rig.fleet.models(steps.now) == ["smollm2:135m"]
            states = [backend.state for backend in rig.fleet.backends.values()]
            assert states == [State.DOWN, State.DOWN, State.UP]
            assert len(hanging.seen) == 1, "one question is enough to know that it does not answer"
            await rig.until(10)
            assert [at for name, at in rig.rounds if name == "gpu2"] == [1000.0 + second for second in range(11)]
            hanging.every = None
            await rig.until(20)
            assert rig.fleet.models(steps.now) == ["tiny", "smollm2:135m"]


async def test_a_feed_that_takes_long_is_read_less_often_and_the_others_as_before(
    session: aiohttp.ClientSession, steps: Steps
) -> None:
    class Slow(FakeVllm):
        """Its counters take half a second of the test's time."""

        takes_s = 0.5

        def _metrics(self) -> bytes:
            steps.now += self.takes_s
            return super()._metrics()

    def reads(path: str, first: float, last: float) -> list[float]:
        return [seen.at for seen in engine.seen if seen.path == path and first <= seen.at - 1000.0 <= last]

    async with Slow(clock=steps.clock) as engine, watched(session, engine, steps=steps) as rig:
        engine.report(2, 1)
        told = []
        for second in range(1, 51):
            await rig.until(second + 0.9)
            told.append(rig.value(Signal.RUNNING))
        assert set(told[2:]) <= {0, 2}, "fresh for as long as its own interval says, from the first read on"
        assert set(told[12:]) == {2}
        times = reads("/metrics", 0, 51)
        gaps = [later - sooner for sooner, later in itertools.pairwise(times)]
        assert gaps
        assert min(gaps) >= 8.5, "half a second of ten is 5 %"
        assert len(reads("/version", 5, 51)) >= 9
        engine.takes_s = 0.0
        await rig.until(140)
        assert len(reads("/metrics", 130, 140)) >= 10


async def test_an_ollama_that_dies_while_it_loads_is_not_idle_and_comes_back_cold(
    session: aiohttp.ClientSession, steps: Steps
) -> None:
    async with FakeOllama(clock=steps.clock) as engine, watched(session, engine, steps=steps) as rig:
        engine.hold_loads()
        client = asyncio.create_task(stream(session, engine))
        await engine.until(lambda: engine.loading == 1)
        await rig.until(10)
        assert rig.value(Signal.RUNNING, "tiny:latest") is None
        engine.kill()
        await asyncio.gather(client, return_exceptions=True)
        await rig.until(16)
        assert rig.state is State.DOWN
        await engine.restart()
        await rig.until(20)
        assert (rig.state, engine.loaded) == (State.UP, [])


BAD_PAGES: dict[str, Answer] = {
    "reset": Reset(),
    "busy": Reply(503, b"busy"),
    "no HTTP": Raw(b"SSH-2.0-x\r\n\r\n"),
    "endless": Raw(b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\n\r\n", endless=b"# x\n" * 9999),
    "a web page": Reply(200, b"<html>", {"Content-Type": "text/html"}),
    "failing": Reply(500, b"{}"),
    "locked": Reply(401, b"{}"),
}


@pytest.mark.parametrize("bad", BAD_PAGES)
async def test_one_bad_page_takes_no_engine_out_and_is_told_once(
    session: aiohttp.ClientSession, steps: Steps, bad: str
) -> None:
    async with FakeVllm(clock=steps.clock) as engine, watched(session, engine, steps=steps) as rig:
        await rig.until(8)
        kind = rig.backend.plan.kind if rig.backend.plan is not None else None
        told = len(said(rig))
        engine.answers["/metrics"] = BAD_PAGES[bad]
        for second in range(9, 150):
            await rig.until(second)
            assert rig.state is State.UP, second
        assert rig.value(Signal.RUNNING) is None
        assert rig.backend.plan is not None
        assert rig.backend.plan.kind == kind == "vllm"
        lines = said(rig)[told:]
        assert 1 <= len(lines) <= 6, lines
        assert len(set(lines)) == len(lines), lines
        engine.answers.clear()
        await rig.until(300)
        assert rig.value(Signal.RUNNING) == 0


async def test_an_engine_that_is_bad_on_all_pages_is_out_in_the_next_round(
    session: aiohttp.ClientSession, steps: Steps
) -> None:
    async with FakeVllm(clock=steps.clock) as engine, watched(session, engine, steps=steps) as rig:
        await rig.until(8)
        engine.every = Reply(503, b"loading")
        await rig.until(9)
        assert rig.state is State.STARTING
        engine.every = None
        await rig.until(16)
        assert rig.state is State.UP
        engine.every = Reset()
        await rig.until(17)
        assert rig.state is State.DOWN
