"""No read of ours loads, wakes or keeps a model (field report B33): scraping, the doctor, detection, a recording."""

import asyncio
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import aiohttp

from pharos.cli.checkup import Checkup
from pharos.control.recorder import record
from pharos.core.fleet.backend import BackendSpec
from pharos.core.signals import Residency, Signal
from tests.fakes.engine import EngineDouble
from tests.fakes.llama_swap import FakeLlamaSwap
from tests.fakes.llama_swap_models import State as SwapState
from tests.fakes.llamacpp import FakeLlamaCpp, Phase
from tests.fakes.llamacpp_router import FakeRouter, State
from tests.fakes.ollama import FakeOllama
from tests.fakes.steps import Steps
from tests.fakes.vllm import FakeVllm
from tests.fakes.watched import watched

HELLO = [{"role": "user", "content": "hello"}]


async def ask(session: aiohttp.ClientSession, engine: EngineDouble, model: str, **more: Any) -> None:
    body = {"model": model, "messages": HELLO, **more}
    async with session.post(engine.url + "/v1/chat/completions", json=body) as response:
        assert response.status == 200
        await response.read()


async def look_closely(session: aiohttp.ClientSession, engine: EngineDouble, folder: Path) -> None:
    """What a person does with the doctor: a look at it, and a recording."""
    checkup = Checkup(session)
    spec = BackendSpec("gpu", engine.url)
    (finding,) = await checkup.examine([spec])
    assert finding.found is not None
    await record(checkup.fetcher, spec, finding.found, folder, now=datetime(2026, 11, 30, tzinfo=UTC))
    assert (folder / "paths.tsv").read_text().count("\n") >= 3


async def test_a_router_loads_wakes_and_keeps_nothing_for_us(
    session: aiohttp.ClientSession, steps: Steps, tmp_path: Path
) -> None:
    states = {"loaded": State.LOADED, "sleeping": State.SLEEPING}
    names = ["loaded", "unloaded", "sleeping"]
    async with (
        FakeRouter(models=names, states=states, max_models=3, sleep_idle_s=10, clock=steps.clock) as engine,
        watched(session, engine, steps=steps) as rig,
    ):
        await rig.until(9)
        assert engine.states["loaded"] is State.LOADED
        await rig.until(10)
        assert engine.states["loaded"] is State.SLEEPING, "on time"
        await rig.until(15)
        assert rig.value(Signal.RESIDENCY, "loaded") is Residency.COLD
        await rig.until(60)
        await look_closely(session, engine, tmp_path / "recording")
        assert engine.states == {"loaded": "sleeping", "unloaded": "unloaded", "sleeping": "sleeping"}
        assert (engine.loads, engine.woken, engine.pinned) == ([], [], [])
        assert {path for path in engine.paths if "model=" in path} == set()


async def test_a_routers_model_is_looked_into_only_while_requests_of_ours_run_there(
    session: aiohttp.ClientSession, steps: Steps
) -> None:
    async with (
        FakeRouter(
            models="ab", states=dict.fromkeys("ab", State.LOADED), max_models=2, sleep_idle_s=10, clock=steps.clock
        ) as engine,
        watched(session, engine, steps=steps) as rig,
    ):
        target = rig.target("a")
        rig.fleet.dispatched(target)
        await rig.until(5)
        assert {model for model, _ in engine.pinned} == {"a"}
        rig.fleet.ended(target, target.slots, steps.now)
        before = len(engine.pinned)
        await rig.until(30)
        assert len(engine.pinned) == before
        assert set(engine.states.values()) == {State.SLEEPING}
        assert engine.woken == []


async def test_a_llama_swaps_time_to_live_runs_out_on_time(
    session: aiohttp.ClientSession, steps: Steps, tmp_path: Path
) -> None:
    async with FakeLlamaSwap(clock=steps.clock) as engine, watched(session, engine, steps=steps) as rig:
        await ask(session, engine, "other")
        await rig.until(19)
        assert engine.states["other"] is SwapState.READY
        await look_closely(session, engine, tmp_path / "loaded")
        await rig.until(20)
        assert engine.states["other"] is SwapState.STOPPED, "on time, and looked at all the while"
        await rig.until(60)
        await look_closely(session, engine, tmp_path / "unloaded")
        assert rig.value(Signal.RESIDENCY, "other") is Residency.COLD
        assert engine.loads == [("other", "/v1/chat/completions")]
        assert engine.renewed == []


async def test_an_ollamas_keep_alive_runs_out_on_time(
    session: aiohttp.ClientSession, steps: Steps, tmp_path: Path
) -> None:
    async with (
        FakeOllama(keep_alive_s=30, clock=steps.clock) as engine,
        watched(session, engine, steps=steps) as rig,
    ):
        await ask(session, engine, "tiny")
        await rig.until(29)
        assert rig.value(Signal.RESIDENCY, "tiny:latest") is Residency.LOADED
        await look_closely(session, engine, tmp_path / "loaded")
        await rig.until(30)
        assert engine.loaded == []
        await rig.until(60)
        await look_closely(session, engine, tmp_path / "unloaded")
        assert rig.value(Signal.RESIDENCY) is Residency.COLD
        assert engine.loads == ["tiny:latest"]
        assert {request.body for request in engine.prompts[1:]} == {b"{}"}, "whether a route is there"


async def test_a_sleeping_llamacpp_stays_asleep(session: aiohttp.ClientSession, steps: Steps, tmp_path: Path) -> None:
    async with (
        FakeLlamaCpp(version="b11549-sleep", model="tiny", phase=Phase.SLEEPING, clock=steps.clock) as engine,
        watched(session, engine, steps=steps) as rig,
    ):
        await rig.until(60)
        await look_closely(session, engine, tmp_path / "recording")
        assert (engine.phase, engine.woken, engine.prompts) == (Phase.SLEEPING, 0, [])
        assert rig.value(Signal.RESIDENCY) is Residency.COLD


async def test_a_llamacpp_falls_asleep_on_time(session: aiohttp.ClientSession, steps: Steps) -> None:
    async with (
        FakeLlamaCpp(version="b11549-sleep", model="tiny", sleep_idle_s=10, clock=steps.clock) as engine,
        watched(session, engine, steps=steps) as rig,
    ):
        await rig.until(9)
        assert engine.phase is Phase.READY
        await rig.until(30)
        assert engine.phase is Phase.SLEEPING
        assert rig.value(Signal.RESIDENCY) is Residency.COLD
        assert engine.woken == 0


async def test_what_was_proven_harmless_is_read_after_a_new_plan_too(
    session: aiohttp.ClientSession, steps: Steps
) -> None:
    async with FakeLlamaCpp(clock=steps.clock) as engine, watched(session, engine, steps=steps) as rig:
        await rig.until(602)
        assert rig.counts("resolve") == {"new_plan": 1, "same_plan": 1}
        engine.report(2, 3)
        await rig.until(604)
        assert (rig.value(Signal.RUNNING), rig.value(Signal.WAITING)) == (2, 3), "/metrics wakes nobody in this version"


async def test_a_sleeping_vllm_stays_asleep(session: aiohttp.ClientSession, steps: Steps, tmp_path: Path) -> None:
    async with FakeVllm(dev_mode=True, clock=steps.clock) as engine, watched(session, engine, steps=steps) as rig:
        await rig.until(5)
        engine.sleep()
        await rig.until(60)
        await look_closely(session, engine, tmp_path / "recording")
        assert (engine.sleep_level, engine.woken, engine.running) == (1, 0, 0)
        assert rig.value(Signal.RESIDENCY) is Residency.COLD


async def test_nobody_is_asked_more_than_twice_a_second(session: aiohttp.ClientSession, steps: Steps) -> None:
    async with (
        FakeRouter(clock=steps.clock) as router,
        FakeLlamaSwap(clock=steps.clock) as swap,
        FakeOllama(clock=steps.clock) as ollama,
        FakeVllm(dev_mode=True, engines=2, clock=steps.clock) as vllm,
        watched(session, router, swap, ollama, vllm, steps=steps) as rig,
    ):
        await rig.until(10)
        doubles = (router, swap, ollama, vllm)
        before = [len(double.seen) for double in doubles]
        await rig.until(130)
        for double, count in zip(doubles, before, strict=True):
            assert len(double.seen) - count <= 2 * 120
        await asyncio.sleep(0)
