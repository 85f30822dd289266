"""Engines that change under our feet, with requests running: no wrong number, and what was lost is said."""

import asyncio
from typing import Any

import aiohttp
import pytest

from pharos.cli.checkup import Checkup
from pharos.core.fleet.backend import BackendSpec, State
from pharos.core.signals import Signal
from pharos.obs.metrics import Metrics
from tests.fakes.http import HttpDouble, Reply
from tests.fakes.llamacpp import FakeLlamaCpp, Phase
from tests.fakes.ollama import FakeOllama
from tests.fakes.replayed import Replayed
from tests.fakes.steps import Steps
from tests.fakes.vllm import FakeVllm
from tests.fakes.watched import Watched, watched
from tests.obs.reading import text

HELLO = [{"role": "user", "content": "hello"}]
RUNNING = "vllm:num_requests_running"
RENAMED = "vllm:num_requests_in_progress"


def streams(session: aiohttp.ClientSession, engine: HttpDouble, count: int, model: str) -> list[asyncio.Task[Any]]:
    async def one() -> None:
        body = {"model": model, "messages": HELLO, "stream": True}
        async with session.post(engine.url + "/v1/chat/completions", json=body) as response:
            await response.read()

    return [asyncio.create_task(one()) for _ in range(count)]


async def seen_each_second(rig: Watched, first: int, last: int, signal: Signal, model: str = "") -> list[Any]:
    told = []
    for second in range(first, last + 1):
        await rig.until(second)
        told.append(rig.value(signal, model))
    return told


async def test_a_renamed_series_is_unknown_never_0_and_told_with_its_likely_successor(
    session: aiohttp.ClientSession, steps: Steps
) -> None:
    async with FakeVllm(clock=steps.clock) as engine, watched(session, engine, steps=steps) as rig:
        engine.hold()
        clients = streams(session, engine, 5, "tiny")
        await engine.until(lambda: (engine.held, engine.waiting) == (2, 3))
        await rig.until(2)
        assert (rig.value(Signal.RUNNING), rig.value(Signal.WAITING)) == (2, 3)
        engine.told_version = "0.33.0"
        engine.renamed[RUNNING] = RENAMED
        told = await seen_each_second(rig, 3, 20, Signal.RUNNING)
        assert set(told) == {None}
        assert rig.value(Signal.WAITING) == 3, "what has its old name is read as before"
        assert rig.plan.version == "0.33.0"
        assert rig.backend.lost_probes == {"vllm-running": RENAMED}
        lost = [event for event in rig.events if event.outcome == "probe_lost"]
        assert [event.level for event in lost] == ["warning"]
        assert lost[0].text.endswith(
            f"running is not read any more (vllm-running: no value; {RENAMED} may have replaced it)"
        )
        engine.release()
        await asyncio.gather(*clients)


async def test_a_lost_probe_is_told_within_one_plan_and_its_gauge_falls_when_it_is_back(
    session: aiohttp.ClientSession, steps: Steps
) -> None:
    async with FakeVllm(clock=steps.clock) as engine, watched(session, engine, steps=steps) as rig:
        await rig.until(3)
        engine.renamed[RUNNING] = RENAMED
        await rig.until(4)
        assert rig.counts("scrape")["probe_failed"] == 1
        await rig.until(6)
        assert rig.counts("resolve")["probe_lost"] == 1, "as soon as the rate allows another plan"
        assert list(rig.backend.lost_probes) == ["vllm-running"]
        engine.renamed.clear()
        engine.told_version = "0.32.1"  # the next one has it again
        await rig.until(25)
        assert rig.backend.lost_probes == {}
        assert rig.value(Signal.RUNNING) == 0
        assert rig.counts("resolve")["probe_lost"] == 1


async def test_a_new_process_of_another_version_is_read_right_under_load(
    session: aiohttp.ClientSession, steps: Steps
) -> None:
    async with FakeVllm(clock=steps.clock) as engine, watched(session, engine, steps=steps) as rig:
        engine.hold()
        clients = streams(session, engine, 3, "tiny")
        await engine.until(lambda: (engine.held, engine.waiting) == (2, 1))
        await rig.until(2)
        generation = rig.target("tiny").generation
        engine.kill()
        await asyncio.gather(*clients, return_exceptions=True)
        await rig.until(4)
        assert rig.state is State.DOWN
        engine.told_version = "0.33.0"
        await engine.restart()
        engine.hold()
        clients = streams(session, engine, 4, "tiny")
        await engine.until(lambda: (engine.held, engine.waiting) == (2, 2))
        told = await seen_each_second(rig, 5, 12, Signal.RUNNING)
        assert set(told) == {2}
        assert rig.value(Signal.WAITING) == 2
        assert rig.target("tiny").generation > generation
        engine.release()
        await asyncio.gather(*clients)


async def test_another_recorded_version_takes_over_while_requests_run(
    session: aiohttp.ClientSession, steps: Steps
) -> None:
    async with FakeOllama(version="0.17.4", clock=steps.clock) as old, watched(session, old, steps=steps) as rig:
        old.hold()
        clients = streams(session, old, 2, "tiny")
        await old.until(lambda: old.held == 2)
        await rig.until(6)
        assert rig.value(Signal.VERSION) == "0.17.4"
        old.kill()
        await asyncio.gather(*clients, return_exceptions=True)
        async with FakeOllama(port=old.port, clock=steps.clock) as new:
            new.hold()
            clients = streams(session, new, 2, "tiny")
            await new.until(lambda: new.held == 2)
            assert set(await seen_each_second(rig, 7, 20, Signal.RUNNING, "tiny:latest")) == {None}
            assert (rig.value(Signal.VERSION), rig.state) == ("0.33.0-rc2", State.UP)
            assert rig.value(Signal.RUNNING) is None, "it never tells"
            assert rig.backend.lost_probes == {}
            new.release()
            await asyncio.gather(*clients)


async def test_another_kind_behind_the_same_address_is_found_out(session: aiohttp.ClientSession, steps: Steps) -> None:
    kinds = []
    async with FakeVllm(clock=steps.clock) as first, watched(session, first, steps=steps) as rig:
        kinds.append(rig.plan.kind)
        at = 0
        port = first.port
        first.kill()
        others = [
            FakeLlamaCpp(port=port, clock=steps.clock),
            FakeOllama(port=port, clock=steps.clock),
            Replayed("koboldcpp", "synthetic-1.98.1", "busy", port=port, clock=steps.clock),
            Replayed("mlx-lm", "0.32.2", "idle", port=port, clock=steps.clock),
        ]
        for other in others:
            async with other:
                at += 20
                await rig.until(at)
                assert rig.state is State.UP
                kinds.append(rig.plan.kind)
                assert rig.backend.lost_probes == {}
        assert rig.counts("resolve")["probe_lost"] == 0
    assert kinds == ["vllm", "llamacpp", "ollama", "koboldcpp", "openai"]


async def test_another_kind_that_takes_over_without_a_gap_is_found_out_too(
    session: aiohttp.ClientSession, steps: Steps
) -> None:
    async with FakeLlamaCpp(clock=steps.clock) as engine, watched(session, engine, steps=steps) as rig:
        await rig.until(10)
        async with FakeVllm(clock=steps.clock) as other:
            for path in ("/v1/models", "/version", "/metrics", "/load"):
                async with session.get(other.url + path) as response:
                    engine.answers[path] = Reply(200, await response.read(), {"Content-Type": response.content_type})
        for path in ("/props", "/slots"):
            engine.answers[path] = Reply(404, b'{"detail":"Not Found"}', {"Content-Type": "application/json"})
        await rig.until(30)
        assert rig.plan.kind == "vllm"
        assert rig.fleet.models(steps.now) == ["tiny"]


@pytest.mark.parametrize("answer", [Reply(503, b""), Reply(404, b""), Reply(200, b"<html></html>"), Reply(500, b"")])
async def test_a_page_that_stops_answering_never_reads_as_idle(
    session: aiohttp.ClientSession, steps: Steps, answer: Reply
) -> None:
    async with FakeVllm(clock=steps.clock) as engine, watched(session, engine, steps=steps) as rig:
        engine.report(2, 4, 0.5)
        await rig.until(2)
        engine.answers["/metrics"] = answer
        told = await seen_each_second(rig, 3, 30, Signal.RUNNING)
        assert set(told) <= {None, 2}
        assert told[5:] == [None] * len(told[5:])


async def test_an_engine_that_loads_again_is_not_taken_for_another_kind(
    session: aiohttp.ClientSession, steps: Steps
) -> None:
    async with FakeLlamaCpp(clock=steps.clock) as engine, watched(session, engine, steps=steps) as rig:
        await rig.until(3)
        await engine.restart(Phase.LOADING)
        await rig.until(10)
        assert (rig.state, rig.plan.kind) == (State.STARTING, "llamacpp")
        engine.phase = Phase.READY
        await rig.until(20)
        assert (rig.state, rig.plan.kind) == (State.UP, "llamacpp")


async def test_metrics_and_doctor_show_what_was_lost(session: aiohttp.ClientSession, steps: Steps) -> None:
    async with FakeVllm(clock=steps.clock) as engine, watched(session, engine, steps=steps) as rig:
        await rig.until(3)
        engine.renamed[RUNNING] = RENAMED
        await rig.until(20)
        page = text(Metrics(version="1", max_models=10, max_keys=10), rig.fleet, steps.now)
        assert 'pharos_probe_lost{backend="gpu0",probe="vllm-running"} 1\n' in page
        (finding,) = await Checkup(session).examine([BackendSpec("gpu", engine.url)])
        assert any(RENAMED in remark for remark in finding.row["remarks"])


async def test_a_page_that_was_broken_as_the_plan_was_made_is_tried_again_after_a_minute(
    session: aiohttp.ClientSession, steps: Steps
) -> None:
    async with FakeVllm(clock=steps.clock) as engine, watched(session, engine, steps=steps) as rig:
        await rig.until(3)
        assert rig.value(Signal.RUNNING) == 0
        engine.answers["/metrics"] = Reply(200, b"\n", {"Content-Type": "text/plain"})
        await rig.until(10)
        assert rig.backend.lost_probes
        del engine.answers["/metrics"]
        await rig.until(80)
        assert rig.value(Signal.RUNNING) == 0
        assert not rig.backend.lost_probes
