"""What an engine lost: a process that was started again, gauges that stand still (B31), caches and models."""

import asyncio
from typing import Any

import aiohttp
import pytest

from pharos.core.fleet.doubt import FROZEN_S
from pharos.core.signals import Residency, Signal
from pharos.obs import describe
from tests.fakes.llamacpp import FakeLlamaCpp
from tests.fakes.ollama import FakeOllama
from tests.fakes.steps import Steps
from tests.fakes.vllm import FakeVllm
from tests.fakes.watched import watched

HELLO = [{"role": "user", "content": "hello"}]


async def ask(session: aiohttp.ClientSession, url: str, path: str = "/v1/chat/completions", **asked: Any) -> None:
    async with session.post(url + path, json={"model": "tiny", "messages": HELLO, **asked}) as response:
        assert response.status == 200
        await response.read()


@pytest.mark.parametrize("shown_by", ["its start", "its counters"])
async def test_a_process_that_was_started_again_between_two_rounds_is_seen(
    session: aiohttp.ClientSession, steps: Steps, shown_by: str
) -> None:
    started = 14405555447 if shown_by == "its start" else None
    async with FakeLlamaCpp(started=started, clock=steps.clock) as engine:
        engine.decoded = 100 if shown_by == "its counters" else 0
        async with watched(session, engine, steps=steps) as rig:
            engine.report(1, 2)
            await rig.until(8)
            target = rig.target("smollm2:135m")
            assert (target.generation, rig.value(Signal.RUNNING)) == (0, 1)
            await engine.restart()
            engine.report()
            await rig.until(9)
            assert target.generation == 1
            assert rig.counts("generation") == {"restarted": 1}
            assert rig.value(Signal.RUNNING) in {None, 0}
            await rig.until(30)
            assert rig.counts("resolve") == {"new_plan": 1, "same_plan": 1}, "the new process may read otherwise"
            assert rig.value(Signal.RUNNING) == 0
            assert target.generation == 1
            assert rig.counts("scrape")["unreachable"] == 0


async def test_a_vllm_that_was_started_again_loses_its_cache_once(session: aiohttp.ClientSession, steps: Steps) -> None:
    async with FakeVllm(clock=steps.clock) as engine, watched(session, engine, steps=steps) as rig:
        await ask(session, engine.url)
        await rig.until(3)
        await engine.restart()
        await rig.until(20)
        assert rig.counts("generation") == {"restarted": 1}, "its start and its counters tell of one thing"
        assert rig.target("tiny").generation == 1


async def test_counters_that_only_grow_are_no_restart(session: aiohttp.ClientSession, steps: Steps) -> None:
    async with FakeVllm(clock=steps.clock) as engine, watched(session, engine, steps=steps) as rig:
        for second in range(1, 10):
            await ask(session, engine.url)
            await rig.until(second)
        assert rig.counts("generation") == {}


async def test_a_llamacpp_whose_slots_became_empty_lost_its_cache(session: aiohttp.ClientSession, steps: Steps) -> None:
    async with FakeLlamaCpp(clock=steps.clock) as engine:
        engine.report(1)  # a slot with a prompt
        async with watched(session, engine, steps=steps) as rig:
            rig.fleet.dispatched(rig.target("smollm2:135m"))  # else nobody looks into the slots: that keeps it awake
            await rig.until(6)
            assert rig.value(Signal.CACHED_TOKENS) > 0
            engine.report()
            await rig.until(12)
            assert rig.counts("generation") == {"cache_lost": 1}


async def test_gauges_that_stand_still_are_doubted_and_believed_again_once_the_engine_works(
    session: aiohttp.ClientSession, steps: Steps
) -> None:
    async with (
        FakeVllm(freezes=True, clock=steps.clock) as engine,
        FakeVllm(clock=steps.clock) as busy,
        watched(session, engine, busy, steps=steps) as rig,
    ):
        engine.hold()
        busy.hold()
        others = [asyncio.create_task(ask(session, engine.url, stream=True)) for _ in range(5)]
        await engine.until(lambda: (engine.held, engine.waiting) == (2, 3))
        await rig.until(1)
        for other in others:
            other.cancel()
        await engine.until(lambda: engine.aborted == 5)
        assert (engine.running, engine.waiting) == (0, 0)
        await rig.until(FROZEN_S - 1)
        assert (rig.value(Signal.RUNNING), rig.value(Signal.WAITING)) == (2, 3), "as far as can be told"
        await rig.until(FROZEN_S + 2)
        assert (rig.value(Signal.RUNNING), rig.value(Signal.WAITING)) == (None, None)
        assert rig.value(Signal.KV_USAGE) is None
        assert rig.counts("scrape")["frozen"] == 1
        row = describe.backend(rig.backend, steps.now)
        assert "have not moved" in str(row)
        await rig.until(2 * FROZEN_S)
        assert rig.counts("scrape")["frozen"] == 1, "said once"
        engine.release()
        await ask(session, engine.url)  # now a router that does not believe the gauges sends a request
        await rig.until(2 * FROZEN_S + 3)
        assert (rig.value(Signal.RUNNING), rig.value(Signal.WAITING)) == (0, 0)
        assert rig.backend.doubts == {}


async def test_gauges_are_not_doubted_while_requests_of_ours_run_there(
    session: aiohttp.ClientSession, steps: Steps
) -> None:
    async with FakeVllm(clock=steps.clock) as engine, watched(session, engine, steps=steps) as rig:
        engine.hold()  # a long prompt: nothing moves
        client = asyncio.create_task(ask(session, engine.url, stream=True))
        await engine.until(lambda: engine.held == 1)
        rig.fleet.dispatched(rig.target("tiny"))
        await rig.until(3 * FROZEN_S)
        assert rig.value(Signal.RUNNING) == 1
        assert rig.backend.doubts == {}
        engine.release()
        await client


async def test_an_ollama_that_reloads_or_unloads_a_model_lost_its_cache(
    session: aiohttp.ClientSession, steps: Steps
) -> None:
    async with (
        FakeOllama(keep_alive_s=60, clock=steps.clock) as engine,
        watched(session, engine, steps=steps) as rig,
    ):
        target = rig.target("tiny:latest")
        await ask(session, engine.url)
        await rig.until(10)
        assert (target.last_residency, target.generation) == (Residency.LOADED, 0)
        await ask(session, engine.url, "/api/chat", options={"num_ctx": 2048}, stream=False)
        await rig.until(20)
        assert rig.counts("generation") == {"reloaded": 1}
        assert target.view(steps.now).context_length == 2048
        await rig.until(90)
        assert rig.counts("generation") == {"reloaded": 1, "unloaded": 1}
        assert target.view(steps.now).residency is Residency.COLD


async def test_a_vllm_that_sleeps_lost_its_cache(session: aiohttp.ClientSession, steps: Steps) -> None:
    async with FakeVllm(clock=steps.clock) as engine, watched(session, engine, steps=steps) as rig:
        await rig.until(3)
        engine.sleep()
        await rig.until(9)
        assert rig.counts("generation") == {"unloaded": 1}
        engine.wake()
        await rig.until(15)
        assert rig.target("tiny").view(steps.now).residency is Residency.LOADED
