"""The real router of llama.cpp: nothing that Pharos does of its own accord loads a model there."""

import asyncio
import time
from pathlib import Path

import pytest

from pharos.core.engine.probe import FeedKind
from pharos.core.signals import Residency, Signal
from tests.engines import registry
from tests.engines.ledger import Ledger
from tests.engines.llamacpp_stands import Router
from tests.engines.looking import backend_of, doctored, post, target_of, told, visit, warm, watched
from tests.engines.recording import Recordings, record
from tests.live.real import Running

pytestmark = [pytest.mark.live, pytest.mark.slow]

ROUTER = pytest.mark.parametrize("stand", registry.names(lambda kind: kind is Router), indirect=True)
MINUTE_S = 60.0


def _now() -> float:
    return asyncio.get_running_loop().time()


@ROUTER
@pytest.mark.timeout(150)
async def test_a_cold_router_stays_cold_for_a_minute_of_detection_scraping_and_recording(
    stand: Router, tmp_path: Path
) -> None:
    await asyncio.to_thread(stand.restart)
    until = time.monotonic() + MINUTE_S
    async with watched(stand) as running:
        await record(stand, tmp_path / "made")
        await doctored(stand)
        while time.monotonic() < until:
            assert set((await asyncio.to_thread(stand.states)).values()) == {"unloaded"}
            assert stand.process.children() == []
            await asyncio.sleep(0.5)
        await visit(stand)
        assert target_of(running, stand).view(_now()).residency is Residency.COLD
    assert set(stand.states().values()) == {"unloaded"}
    assert stand.process.children() == []


@ROUTER
async def test_a_model_that_makes_room_for_another_is_cold_and_its_generation_counts_up(
    stand: Router, recordings: Recordings, tmp_path: Path
) -> None:
    async with watched(stand) as running:
        first, second = target_of(running, stand), target_of(running, stand, stand.other)
        await warm(running.http, stand)
        await running.until(lambda: first.view(_now()).residency is Residency.LOADED)
        before = first.generation
        path, body = stand.chat(4)
        status, answer, _ = await post(running.http, stand.url, (path, {**body, "model": stand.other}))
        assert status == 200, answer
        await running.until(lambda: second.view(_now()).residency is Residency.LOADED)
        await running.until(lambda: first.view(_now()).residency is Residency.COLD)
        assert first.generation == before + 1
        await recordings.state(stand, "other_loaded", tmp_path)


@ROUTER
async def test_a_load_is_told_by_the_stream_of_events_before_the_list_is_read_again(
    stand: Router, ledger: Ledger
) -> None:
    await asyncio.to_thread(stand.restart)
    async with watched(stand) as running:
        await running.until(lambda: target_of(running, stand).view(_now()).residency is Residency.COLD)
        plan = backend_of(running, stand).plan
        assert plan is not None
        streams = [probe.name for probe in plan.active if probe.feed.kind is FeedKind.SSE]
        await warm(running.http, stand)
        await running.until(lambda: _residency(running, stand) == (Residency.LOADED, streams[0]))
        ledger.judge(stand, "residency_followed", streams[0])


def _residency(running: Running, stand: Router) -> tuple[object, str] | None:
    reading = told(running, stand, Signal.RESIDENCY, stand.model)
    return (reading.value, reading.probe) if reading is not None else None


@ROUTER
async def test_a_loaded_model_that_nobody_uses_is_not_kept_from_being_asked_for_another(stand: Router) -> None:
    """Reads of one model's pages must not make the router load it again after it was put out."""
    async with watched(stand) as running:
        await warm(running.http, stand)
        path, body = stand.chat(4)
        status, answer, _ = await post(running.http, stand.url, (path, {**body, "model": stand.other}))
        assert status == 200, answer
        until = time.monotonic() + 8
        while time.monotonic() < until:
            states = await asyncio.to_thread(stand.states)
            assert (states[stand.model], states[str(stand.other)]) == ("unloaded", "loaded")
            await asyncio.sleep(0.5)
