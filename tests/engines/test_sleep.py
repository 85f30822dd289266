"""A llama.cpp that puts its model to sleep is left asleep by all that Pharos does of its own accord."""

import asyncio
import time
from pathlib import Path

import pytest

from pharos.core.signals import Residency, Signal
from tests.engines import registry
from tests.engines.ledger import Ledger
from tests.engines.llamacpp_stands import Sleeps
from tests.engines.looking import doctored, target_of, told, visit, warm, watched
from tests.engines.recording import Recordings, record

pytestmark = [pytest.mark.live, pytest.mark.slow]

SLEEPS = pytest.mark.parametrize("stand", registry.names(lambda kind: kind is Sleeps), indirect=True)
MINUTE_S = 60.0


async def _asleep(stand: Sleeps) -> None:
    async with asyncio.timeout(20):
        while not await asyncio.to_thread(stand.is_asleep):
            await asyncio.sleep(0.1)


@SLEEPS
@pytest.mark.timeout(150)
async def test_a_model_that_sleeps_is_cold_and_a_minute_of_scraping_does_not_wake_it(
    stand: Sleeps, ledger: Ledger, recordings: Recordings, tmp_path: Path
) -> None:
    async with watched(stand) as running:
        target = target_of(running, stand)
        await warm(running.http, stand)
        await running.until(lambda: target.view(asyncio.get_running_loop().time()).residency is Residency.LOADED)
        before = target.generation
        await _asleep(stand)
        woken, until = stand.times_woken(), time.monotonic() + MINUTE_S
        await running.until(lambda: target.view(asyncio.get_running_loop().time()).residency is Residency.COLD)
        assert target.generation == before + 1
        reading = told(running, stand, Signal.RESIDENCY, stand.model)
        ledger.judge(stand, Signal.RESIDENCY.value, reading.probe if reading is not None else None)
        await recordings.state(stand, "sleeping", tmp_path)
        await record(stand, tmp_path / "made")  # and neither do detection, planning, a recording and the doctor
        await visit(stand)
        await doctored(stand)
        while time.monotonic() < until:
            assert await asyncio.to_thread(stand.is_asleep)
            await asyncio.sleep(0.5)
        assert stand.times_woken() == woken
        assert target.view(asyncio.get_running_loop().time()).residency is Residency.COLD
        await warm(running.http, stand)
        await running.until(lambda: target.view(asyncio.get_running_loop().time()).residency is Residency.LOADED)
        assert stand.times_woken() == woken + 1
