import asyncio
import json
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from tests.fakes.ollama import FakeOllama
from tests.fakes.ollama_pages import book_of
from tests.fakes.replies import book
from tests.fakes.steps import Steps
from tests.fakes.watched import watched
from tests.fakes_tests.comparing import assert_like_its_capture, replay

TINY, EMBED = "tiny:latest", "tiny-embed:latest"
VERSIONS = ["0.17.4", "0.33.0-rc2"]
HELLO = [{"role": "user", "content": "hello"}]


async def ask(
    session: aiohttp.ClientSession, engine: FakeOllama, path: str = "/api/chat", **asked: Any
) -> tuple[int, bytes]:
    body = {"model": "tiny", "messages": HELLO, "stream": False, **asked}
    async with session.post(engine.url + path, json=body) as response:
        return response.status, await response.read()


async def ps(session: aiohttp.ClientSession, engine: FakeOllama) -> list[dict[str, Any]]:
    async with session.get(engine.url + "/api/ps") as response:
        listed: list[dict[str, Any]] = (await response.json())["models"]
        return listed


@pytest.mark.parametrize("version", VERSIONS)
async def test_it_is_read_like_its_capture(session: aiohttp.ClientSession, version: str) -> None:
    async with FakeOllama(version=version) as engine:
        await assert_like_its_capture(engine, version, "cold", "ollama")
        await ask(session, engine)
        await assert_like_its_capture(engine, version, "idle", "ollama")
        await ask(session, engine, "/v1/embeddings", model="tiny-embed", input="hello")
        if version != "0.17.4":  # its list was in another order then
            await assert_like_its_capture(engine, version, "two_models", "ollama")
        await ask(session, engine, options={"num_ctx": 2048})
        await assert_like_its_capture(engine, version, "reloaded_other_ctx", "ollama")
        await ask(session, engine, messages=[], keep_alive=0)
        await assert_like_its_capture(engine, version, "unloaded", "ollama")


@pytest.mark.parametrize(
    ("version", "name"),
    [
        pytest.param(version, one.name, id=f"{version}/{one.name}")
        for version in VERSIONS
        for one in book("ollama", version).exchanges
    ],
)
async def test_it_serves_every_recorded_reply(session: aiohttp.ClientSession, version: str, name: str) -> None:
    async with FakeOllama(version=version) as engine:
        await replay(session, engine, book_of(version), book_of(version).named(name))


@pytest.mark.parametrize("exchange", book("ollama", "0.33.0-rc2-queue2").exchanges, ids=lambda one: one.name)
async def test_a_full_queue_refuses_as_recorded(session: aiohttp.ClientSession, exchange: Any) -> None:
    async with FakeOllama(max_queue=2) as engine:
        engine.hold_loads()
        first = [asyncio.create_task(ask(session, engine)) for _ in range(3)]
        await engine.until(lambda: engine.waiting == 3)
        await replay(session, engine, book("ollama", "0.33.0-rc2-queue2"), exchange)
        engine.release_loads()
        assert [status for status, _ in await asyncio.gather(*first)] == [200] * 3


async def test_once_a_model_is_loaded_any_number_waits(session: aiohttp.ClientSession) -> None:
    async with FakeOllama(max_queue=2) as engine:
        await ask(session, engine)
        engine.hold()
        waiting = [asyncio.create_task(ask(session, engine)) for _ in range(14)]
        await engine.until(lambda: (engine.running, engine.waiting) == (2, 12))
        engine.release()
        assert [status for status, _ in await asyncio.gather(*waiting)] == [200] * 14
        assert (engine.loads, engine.finished) == ([TINY], 15)


@pytest.mark.parametrize(("version", "listed"), [("0.17.4", [0, 1]), ("0.33.0-rc2", [0, 0])])
async def test_a_model_that_loads_is_listed_late_or_not_at_all(
    session: aiohttp.ClientSession, steps: Steps, version: str, listed: list[int]
) -> None:
    async with FakeOllama(version=version, clock=steps.clock) as engine:
        engine.hold_loads()
        client = asyncio.create_task(ask(session, engine))
        await engine.until(lambda: engine.loading == 1)
        seen = [len(await ps(session, engine))]
        steps.now += 5
        assert [*seen, len(await ps(session, engine))] == listed
        engine.release_loads()
        await client
        assert [one["name"] for one in await ps(session, engine)] == [TINY]


async def test_the_end_of_the_keep_alive_moves_while_the_first_request_runs(
    session: aiohttp.ClientSession, steps: Steps
) -> None:
    async with FakeOllama(clock=steps.clock) as engine:
        engine.hold()
        client = asyncio.create_task(ask(session, engine, keep_alive="20s"))
        await engine.until(lambda: engine.held == 1)
        first = (await ps(session, engine))[0]["expires_at"]
        steps.now += 7
        assert (await ps(session, engine))[0]["expires_at"] > first
        engine.release()
        await client
        ended = (await ps(session, engine))[0]["expires_at"]
        steps.now += 7
        assert (await ps(session, engine))[0]["expires_at"] == ended
        engine.hold()
        second = asyncio.create_task(ask(session, engine, keep_alive="20s"))
        await engine.until(lambda: engine.held == 1)
        steps.now += 60
        assert (await ps(session, engine))[0]["expires_at"] == ended, "long past, and loaded"
        engine.release()
        await second
        steps.now += 19
        assert engine.loaded == [TINY]
        steps.now += 1
        assert (engine.loaded, engine.unloads) == ([], [TINY])


async def test_two_context_lengths_reload_a_model_in_turn(session: aiohttp.ClientSession) -> None:
    async with FakeOllama() as engine:
        await ask(session, engine)
        await ask(session, engine, options={"num_ctx": 2048})
        assert [one["context_length"] for one in await ps(session, engine)] == [2048]
        _, body = await ask(session, engine, "/v1/chat/completions", options={"num_ctx": 2048})
        assert json.loads(body)["object"] == "chat.completion"
        assert [one["context_length"] for one in await ps(session, engine)] == [4096], "OpenAI routes cannot ask"
        assert engine.loads == [TINY] * 3


async def test_a_model_makes_room_for_another_when_it_is_idle(session: aiohttp.ClientSession, steps: Steps) -> None:
    async with FakeOllama(models={"a": 4, "b": 4, "c": 4}, memory=8, clock=steps.clock) as engine:
        for name in ("a", "b"):
            await ask(session, engine, model=name)
            steps.now += 1
        await ask(session, engine, model="a")
        await ask(session, engine, model="c")
        assert engine.loaded == ["a", "c"], "b was used least recently"
        engine.hold()
        held = [asyncio.create_task(ask(session, engine, model=name)) for name in ("a", "c")]
        await engine.until(lambda: engine.held == 2)
        waits = asyncio.create_task(ask(session, engine, model="b"))
        await engine.until(lambda: engine.waiting == 1)
        assert engine.loaded == ["a", "c"]
        engine.release()
        await asyncio.gather(*held, waits)
        assert "b" in engine.loaded


@pytest.mark.parametrize(("version", "kept"), [("0.17.4", 4096), ("0.33.0-rc2", 2051)])
async def test_a_prompt_that_is_too_long_is_cut_without_a_word(
    session: aiohttp.ClientSession, version: str, kept: int
) -> None:
    async with FakeOllama(version=version) as engine:
        status, body = await ask(session, engine, messages=[{"role": "user", "content": "word " * 9000}])
        assert (status, json.loads(body)["prompt_eval_count"]) == (200, kept)
        status, _ = await ask(session, engine, "/api/generate", prompt="word " * 9000, truncate=False)
        assert status == 400


async def test_replies_have_their_own_numbers(session: aiohttp.ClientSession) -> None:
    spent = list[float]()

    async def pace(seconds: float) -> None:
        spent.append(seconds)

    async with FakeOllama(pace=pace) as engine:
        _, first = await ask(session, engine, options={"num_predict": 5})
        _, again = await ask(session, engine, options={"num_predict": 5})
        async with session.post(
            engine.url + "/api/chat", json={"model": TINY, "messages": HELLO, "options": {"num_predict": 3}}
        ) as response:
            lines = [json.loads(line) for line in (await response.read()).splitlines()]
    one, two = json.loads(first), json.loads(again)
    assert spent[0] == 10.0
    assert (one["load_duration"], one["eval_count"], one["prompt_eval_count"]) == (10_000_000_000, 5, 2)
    assert two["load_duration"] < 10_000_000
    assert two["prompt_eval_duration"] < one["prompt_eval_duration"], "cached, though no count tells"
    assert [line["done"] for line in lines] == [False] * 3 + [True]
    assert (lines[-1]["model"], lines[-1]["eval_count"]) == (TINY, 3)


async def test_a_client_that_hangs_up_frees_its_slot_or_place(session: aiohttp.ClientSession) -> None:
    async with FakeOllama(parallel=1) as engine:
        await ask(session, engine)
        engine.hold()
        clients = [asyncio.create_task(ask(session, engine)) for _ in range(3)]
        await engine.until(lambda: (engine.running, engine.waiting) == (1, 2))
        clients[2].cancel()
        clients[0].cancel()
        await engine.until(lambda: (engine.aborted, engine.running, engine.waiting) == (2, 1, 0))
        engine.release()
        assert (await clients[1])[0] == 200


async def test_a_killed_one_comes_back_cold(session: aiohttp.ClientSession) -> None:
    async with FakeOllama() as engine:
        engine.hold()
        client = asyncio.create_task(ask(session, engine))
        await engine.until(lambda: engine.held == 1)
        engine.kill()
        with pytest.raises(aiohttp.ClientError):
            await client
        await engine.restart()
        assert (engine.loaded, engine.aborted) == ([], 0)
        assert (await ask(session, engine))[0] == 200


@pytest.mark.parametrize(("version", "told"), [("0.17.4", [3, 3]), ("0.33.0-rc2", [None, 3])])
async def test_its_log_tells_the_slots(
    session: aiohttp.ClientSession, steps: Steps, tmp_path: Path, version: str, told: list[int | None]
) -> None:
    log = tmp_path / "serve.log"
    async with (
        FakeOllama(version=version, parallel=3, log=log, clock=steps.clock) as engine,
        watched(session, engine, steps=steps, logs=f"file://{log}") as rig,
    ):
        await rig.until(1)
        target, embed = rig.target(TINY), rig.target(EMBED)
        if told[0] is not None:
            await rig.told(lambda: target.view(steps.now).capacity == told[0])
        await ask(session, engine)
        await rig.told(lambda: target.view(steps.now).capacity == told[1])
        assert embed.view(steps.now).capacity == 1
