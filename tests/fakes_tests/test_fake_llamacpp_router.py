import asyncio
import json
from typing import Any

import aiohttp
import pytest

from pharos.core.signals import BACKEND, Residency, Signal
from tests.fakes import captures
from tests.fakes.llamacpp_router import FakeRouter, State
from tests.fakes.replies import book
from tests.fakes.steps import Steps
from tests.fakes.watched import watched
from tests.fakes_tests.comparing import assert_like_its_capture, look, replay

ENGINE, VERSION = "llamacpp-router", "b11434"
HELLO = [{"role": "user", "content": "hello"}]
BOOK = book("llamacpp", VERSION)
OF_SINGLE = ("err_unknown_model",)
"""A single server answers any name."""
SERVED = [one for one in BOOK.exchanges if one.name not in OF_SINGLE]


async def chat(session: aiohttp.ClientSession, engine: FakeRouter, model: str = "tiny", **asked: Any) -> int:
    body = {"model": model, "messages": HELLO, **asked}
    async with session.post(engine.url + "/v1/chat/completions", json=body) as response:
        await response.read()
        return response.status


async def get(session: aiohttp.ClientSession, engine: FakeRouter, path: str) -> tuple[int, bytes]:
    async with session.get(engine.url + path) as response:
        return response.status, await response.read()


async def test_it_is_read_like_its_capture(session: aiohttp.ClientSession) -> None:
    async with FakeRouter() as engine:
        await assert_like_its_capture(engine, VERSION, "cold", ENGINE)
        await chat(session, engine, "smollm2-135m")
        await assert_like_its_capture(engine, VERSION, "smollm_loaded", ENGINE)
        await chat(session, engine)
        await assert_like_its_capture(engine, VERSION, "tiny_loaded", ENGINE)
        assert engine.loads == [("smollm2-135m", "/v1/chat/completions"), ("tiny", "/v1/chat/completions")]
        assert (engine.woken, engine.pinned) == ([], [])


@pytest.mark.parametrize("exchange", SERVED, ids=lambda one: one.name)
async def test_its_models_give_every_recorded_reply_of_a_single_server(
    session: aiohttp.ClientSession, exchange: Any
) -> None:
    async with FakeRouter(models=["smollm2:135m"]) as engine:
        await replay(session, engine, BOOK, exchange)


@pytest.mark.parametrize("state", ["cold", "tiny_loaded"])
async def test_its_pages_are_as_recorded(session: aiohttp.ClientSession, state: str) -> None:
    async with FakeRouter(states={"tiny": State.LOADED} if state == "tiny_loaded" else {}) as engine:
        for path, recorded in captures.state(ENGINE, VERSION, state).items():
            status, body = await get(session, engine, path)
            assert status == recorded.status, path
            if path.startswith(("/slots?", "/v1/models")):
                continue
            assert json.loads(body) == json.loads(recorded.body) if body[:1] == b"{" else body == recorded.body, path


@pytest.mark.parametrize("path", ["/metrics", "/slots", "/props"])
async def test_a_read_of_a_models_page_loads_wakes_and_keeps_awake(
    session: aiohttp.ClientSession, steps: Steps, path: str
) -> None:
    states = {"b": State.SLEEPING, "c": State.LOADED}
    async with FakeRouter(models="abc", states=states, max_models=3, sleep_idle_s=10, clock=steps.clock) as engine:
        assert (await get(session, engine, f"{path}?model=a&autoload=false"))[0] == 400
        assert engine.loads == []
        assert (await get(session, engine, f"{path}?model=a"))[0] == 200
        assert engine.loads == [("a", path)]
        assert (await get(session, engine, f"{path}?model=b&autoload=false"))[0] == 200
        assert engine.woken == [("b", path)]
        for _ in range(3):
            steps.now += 6
            await get(session, engine, f"{path}?model=c&autoload=false")
        assert engine.states == {"a": "sleeping", "b": "sleeping", "c": "loaded"}
        steps.now += 10
        assert engine.states["c"] is State.SLEEPING
        assert engine.pinned == [(model, path) for model in "abccc"]
        assert (await get(session, engine, f"{path}?model=x"))[0] == 400


async def test_a_model_makes_room_for_another_when_it_is_idle(session: aiohttp.ClientSession) -> None:
    async with FakeRouter(models="ab") as engine:
        engine.hold()
        old = asyncio.create_task(chat(session, engine, "a", stream=True))
        await engine.until(lambda: engine.held == 1)
        new = asyncio.create_task(chat(session, engine, "b"))
        await engine.until(lambda: len(engine.seen) == 2)
        assert engine.states == {"a": "loaded", "b": "unloaded"}
        engine.release()
        assert await asyncio.gather(old, new) == [200, 200]
        assert engine.states == {"a": "unloaded", "b": "loaded"}


async def test_its_events_tell_where_models_are(session: aiohttp.ClientSession, steps: Steps) -> None:
    async with (
        FakeRouter(sleep_idle_s=10, clock=steps.clock) as engine,
        watched(session, engine, steps=steps) as rig,
    ):
        await engine.until(lambda: engine.events.followers == 1)
        engine.hold_loads()
        client = asyncio.create_task(chat(session, engine))
        for state in (Residency.LOADING, Residency.LOADED, Residency.COLD):
            await rig.told(lambda state=state: rig.value(Signal.RESIDENCY, "tiny") is state)
            if state is Residency.LOADING:
                engine.release_loads()
                await client
            else:
                steps.now += 10
                engine.tick()


async def test_held_requests_are_what_is_read_of_a_model_that_runs_ours(
    session: aiohttp.ClientSession, steps: Steps
) -> None:
    async with FakeRouter(slots=2, clock=steps.clock) as engine:
        engine.hold()
        clients = [asyncio.create_task(chat(session, engine, stream=True)) for _ in range(5)]
        await engine.until(lambda: (engine.held, engine.deferred("tiny")) == (2, 3))
        async with watched(session, engine, steps=steps) as rig:
            await rig.until(3)
            assert engine.pinned == [], "none of them is ours"
            assert rig.value(Signal.RUNNING, "tiny") is None
            rig.fleet.dispatched(rig.target("tiny"))
            await rig.until(6)
            assert (rig.value(Signal.RUNNING, "tiny"), rig.value(Signal.WAITING, "tiny")) == (2, 3)
            assert rig.value(Signal.CAPACITY, "tiny") == 2
            engine.release(1)
            await engine.until(lambda: (engine.finished, engine.held) == (1, 2))
            await rig.until(9)
            assert (rig.value(Signal.RUNNING, "tiny"), rig.value(Signal.WAITING, "tiny")) == (2, 2)
            engine.release()
            await asyncio.gather(*clients)


async def test_a_killed_one_comes_back_cold(session: aiohttp.ClientSession) -> None:
    async with FakeRouter() as engine:
        engine.hold()
        client = asyncio.create_task(chat(session, engine, stream=True))
        await engine.until(lambda: engine.held == 1)
        engine.kill()
        with pytest.raises(aiohttp.ClientError):
            await client
        await engine.restart()
        assert set(engine.states.values()) == {State.UNLOADED}
        assert await chat(session, engine) == 200
        assert await chat(session, engine, "nope") == 400


async def test_it_tells_its_own_context_size_and_how_many_models_fit(session: aiohttp.ClientSession) -> None:
    async with FakeRouter(models=["a", "b"], states={"a": State.LOADED}, max_models=2, n_ctx=9000) as engine:
        found = await look(engine)
        assert found.round is not None
        told = found.round.readings
        assert told[Signal.CONTEXT_LENGTH, "a"].value == 9000
        assert told[Signal.MODELS_AT_ONCE, BACKEND].value == 2
        _, body = await get(session, engine, "/v1/models")
        assert b"4096" not in body
        assert await chat(session, engine, "a", messages=[{"role": "user", "content": "word " * 6000}]) == 200
