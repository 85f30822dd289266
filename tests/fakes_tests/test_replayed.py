import asyncio
from pathlib import Path

import aiohttp
import pytest

from tests.core.engine.replay.worlds import GENERIC
from tests.fakes import captures
from tests.fakes.captures import TESTDATA
from tests.fakes.replayed import Replayed
from tests.fakes.replies import book
from tests.fakes_tests.comparing import look, replay

SYNTHETIC = [
    (engine.name, *state)
    for engine in sorted(TESTDATA.iterdir())
    if engine.is_dir()
    for state in captures.states(engine.name)
    if state[0].startswith("synthetic")
]
WITH_STREAMS = sorted(folder.parent for folder in TESTDATA.glob("*/*/streams"))


@pytest.mark.parametrize("row", SYNTHETIC, ids="/".join)
async def test_every_page_of_a_state_is_served_as_it_is(
    session: aiohttp.ClientSession, row: tuple[str, str, str]
) -> None:
    async with Replayed(*row) as double:
        for path, recorded in captures.state(*row).items():
            async with session.get(double.url + path, allow_redirects=False) as response:
                assert (response.status, await response.read()) == (recorded.status, recorded.body), path
        assert (await session.get(double.url + "/no/such/page")).status == 404


@pytest.mark.parametrize("folder", WITH_STREAMS, ids=lambda folder: f"{folder.parent.name}/{folder.name}")
async def test_every_recorded_reply_is_served_as_it_is(session: aiohttp.ClientSession, folder: Path) -> None:
    engine, version = folder.parent.name, folder.name
    state = next(state for of, state in captures.states(engine) if of == version)
    async with Replayed(engine, version, state) as double:
        for exchange in book(engine, version).exchanges:
            if not exchange.headers:  # what a foreign page or a foreign name is told is not in its body
                await replay(session, double, book(engine, version), exchange)


async def test_a_state_can_be_changed_and_its_streams_held(session: aiohttp.ClientSession) -> None:
    async with Replayed("vllm", "0.32.0", "idle") as double:
        double.state = "saturated"
        text = await (await session.get(double.url + "/metrics")).text()
        assert 'vllm:num_requests_waiting{engine="0",model_name="tiny"} 4.0' in text
        double.hold()
        exchange = double.book.named("chat_stream_plain")
        client = asyncio.create_task(replay(session, double, double.book, exchange))
        await double.until(lambda: double.held == 1)
        assert double.running == 1
        double.release()
        await client
        assert (double.finished, double.running) == (1, 0)


@pytest.mark.parametrize("engine", ["koboldcpp", "lemonade", "localai", "model-runner", "sglang", "lmdeploy", "mlx-lm"])
async def test_the_control_path_tells_what_kind_it_is(engine: str) -> None:
    version, state = captures.states(engine)[-1]
    async with Replayed(engine, version, state) as double:
        found = await look(double)
        assert found.plan is not None
        assert found.plan.kind == GENERIC.get(engine, engine)
