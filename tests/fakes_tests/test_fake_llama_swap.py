import asyncio
import json
from typing import Any

import aiohttp
import pytest

from pharos.core.signals import Residency, Signal
from tests.fakes import captures
from tests.fakes.llama_swap import FakeLlamaSwap
from tests.fakes.llama_swap_loading import LOADING
from tests.fakes.llama_swap_models import VERSION, State, Swapped
from tests.fakes.replies import book
from tests.fakes.steps import Steps
from tests.fakes.watched import watched
from tests.fakes_tests.comparing import assert_like_its_capture, replay

HELLO = [{"role": "user", "content": "hello"}]
RECORDED = [one for one in book("llama-swap", VERSION).exchanges if one.name != "err_no_body"]


async def chat(session: aiohttp.ClientSession, engine: FakeLlamaSwap, model: str = "tiny", **asked: Any) -> int:
    body = {"model": model, "messages": HELLO, **asked}
    async with session.post(engine.url + "/v1/chat/completions", json=body) as response:
        await response.read()
        return response.status


async def get(session: aiohttp.ClientSession, engine: FakeLlamaSwap, path: str) -> tuple[int, bytes]:
    async with session.get(engine.url + path) as response:
        return response.status, await response.read()


async def test_it_is_read_like_its_capture(session: aiohttp.ClientSession) -> None:
    async with FakeLlamaSwap() as engine:
        await assert_like_its_capture(engine, VERSION, "cold", "llama-swap")
        await chat(session, engine)
        await assert_like_its_capture(engine, VERSION, "idle", "llama-swap")
        engine.hold_loads()
        client = asyncio.create_task(chat(session, engine, "other"))
        await engine.until(lambda: engine.loading == 1)
        await assert_like_its_capture(engine, VERSION, "swapping", "llama-swap")
        engine.release_loads()
        await client
        await assert_like_its_capture(engine, VERSION, "swapped", "llama-swap")


@pytest.mark.parametrize("exchange", RECORDED, ids=lambda one: one.name)
async def test_it_serves_every_recorded_reply(session: aiohttp.ClientSession, exchange: Any) -> None:
    async with FakeLlamaSwap() as engine:
        await replay(session, engine, book("llama-swap", VERSION), exchange)


@pytest.mark.parametrize("state", ["cold", "swapped"])
async def test_its_lists_have_the_recorded_fields(session: aiohttp.ClientSession, state: str) -> None:
    async with FakeLlamaSwap() as engine:
        if state == "swapped":
            await chat(session, engine, "other")
        for path, changing in (("/v1/models", "created"), ("/running", "cmd")):
            _, body = await get(session, engine, path)
            recorded = json.loads(captures.state("llama-swap", VERSION, state)[path].body)
            for listed in (told := json.loads(body), recorded):
                for entry in listed.get("data", listed.get("running")):
                    entry.pop(changing)
                    entry.pop("proxy", None)
            assert told == recorded


async def test_a_model_takes_ten_at_once_and_its_paths_count(session: aiohttp.ClientSession) -> None:
    async with FakeLlamaSwap() as engine:
        engine.hold()
        clients = [asyncio.create_task(chat(session, engine, stream=True)) for _ in range(10)]
        await engine.until(lambda: (engine.held, engine.deferred("tiny")) == (2, 8))
        assert await chat(session, engine) == 429
        recorded = captures.state("llama-swap", VERSION, "saturated")["/upstream/tiny/metrics"]
        assert await get(session, engine, "/upstream/tiny/metrics") == (429, recorded.body)
        engine.release()
        assert await asyncio.gather(*clients) == [200] * 10
        status, body = await get(session, engine, "/upstream/tiny/metrics")
        assert (status, b"\nllamacpp:requests_processing 0\n" in body) == (200, True)


async def test_a_swap_waits_for_what_runs(session: aiohttp.ClientSession) -> None:
    async with FakeLlamaSwap() as engine:
        engine.hold()
        old = asyncio.create_task(chat(session, engine, stream=True))
        await engine.until(lambda: engine.held == 1)
        new = asyncio.create_task(chat(session, engine, "other", stream=True))
        await engine.until(lambda: engine.inside("other") == 1)
        assert engine.states == {"embed": "stopped", "other": "stopped", "tiny": "ready"}, "nothing tells of it"
        assert (await get(session, engine, "/upstream/tiny/health"))[0] == 200
        engine.hold_loads()
        engine.release(1)
        await old
        await engine.until(lambda: engine.loading == 1)
        assert engine.states == {"embed": "stopped", "other": "starting", "tiny": "stopped"}
        engine.release_loads()
        engine.release()
        assert await new == 200
        assert engine.loads == [("tiny", "/v1/chat/completions"), ("other", "/v1/chat/completions")]


async def test_a_read_below_upstream_loads_a_model_and_keeps_it(session: aiohttp.ClientSession, steps: Steps) -> None:
    async with FakeLlamaSwap(clock=steps.clock) as engine:
        await get(session, engine, "/upstream/other/metrics")
        assert engine.loads == [("other", "/metrics")]
        for _ in range(9):
            steps.now += 5
            await get(session, engine, "/upstream/other/metrics")
        assert engine.states["other"] is State.READY, "45 s later, with a time to live of 20 s"
        for _ in range(4):
            steps.now += 5
            await get(session, engine, "/running")
        assert engine.states["other"] is State.STOPPED
        assert engine.renewed == ["/upstream/other/metrics"] * 10


async def test_its_events_tell_what_runs_and_where_models_are(session: aiohttp.ClientSession, steps: Steps) -> None:
    async with FakeLlamaSwap(clock=steps.clock) as engine, watched(session, engine, steps=steps) as rig:
        names = ("tiny", "small", "other")

        def told() -> list[Any]:
            return [rig.value(Signal.RUNNING, name) for name in names]

        await rig.told(lambda: told() == [0, 0, 0])
        engine.hold()
        clients = [asyncio.create_task(chat(session, engine, stream=True)) for _ in range(3)]
        await rig.told(lambda: told() == [3, 3, 0])
        assert engine.inside("tiny") == 3
        assert rig.value(Signal.RESIDENCY, "tiny") is Residency.LOADED
        engine.release()
        await asyncio.gather(*clients)
        await rig.told(lambda: told() == [0, 0, 0])
        clients = [asyncio.create_task(chat(session, engine, "other"))]
        await rig.told(lambda: rig.value(Signal.RESIDENCY, "other") is Residency.LOADED)
        assert rig.value(Signal.RESIDENCY, "tiny") is Residency.COLD
        await asyncio.gather(*clients)


async def test_who_comes_later_gets_what_runs_at_once(session: aiohttp.ClientSession, steps: Steps) -> None:
    async with FakeLlamaSwap(clock=steps.clock) as engine:
        engine.hold()
        client = asyncio.create_task(chat(session, engine, "small", stream=True))
        await engine.until(lambda: engine.held == 1)
        async with watched(session, engine, steps=steps) as rig:
            await rig.told(lambda: rig.value(Signal.RUNNING, "tiny") == 1)
            client.cancel()
            await rig.told(lambda: rig.value(Signal.RUNNING, "small") == 0)
            assert engine.aborted == 1


@pytest.mark.parametrize("name", ["chat_stream_loading_state", "chat_stream_loading_state_swap"])
async def test_it_can_tell_who_waits_that_a_model_loads(session: aiohttp.ClientSession, name: str) -> None:
    async with FakeLlamaSwap(loading_state=True) as engine:
        if name.endswith("swap"):
            await chat(session, engine)
        await replay(session, engine, LOADING, LOADING.named(name))
        assert await chat(session, engine, "other", stream=True) == 200
        assert engine.loads[-1][0] == "other"


async def test_limits_and_times_to_live_can_be_put_in(session: aiohttp.ClientSession, steps: Steps) -> None:
    async with FakeLlamaSwap(models=[Swapped("m", aliases=("n",), ttl=3, limit=1)], clock=steps.clock) as engine:
        engine.hold()
        client = asyncio.create_task(chat(session, engine, "n", stream=True))
        await engine.until(lambda: engine.held == 1)
        assert await chat(session, engine, "m") == 429
        engine.release()
        await client
        steps.now += 3
        assert (engine.states, engine.unloads) == ({"m": "stopped"}, ["m"])
        assert json.loads((await get(session, engine, "/running"))[1]) == {"running": []}
        engine.kill()
        await engine.restart()
        assert await chat(session, engine, "m") == 200
