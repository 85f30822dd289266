import asyncio
import json
from typing import Any

import aiohttp
import pytest

from tests.fakes.mlx_lm import ENGINE, VERSION, FakeMlxLm
from tests.fakes.replies import book
from tests.fakes_tests.comparing import Look, assert_like_its_capture, look, replay

HELLO = [{"role": "user", "content": "hello, how are you today?"}]
BOOK = book(ENGINE, VERSION)


async def chat(session: aiohttp.ClientSession, engine: FakeMlxLm, **asked: Any) -> tuple[int, bytes]:
    body = {"model": "default_model", "messages": HELLO, **asked}
    async with session.post(engine.url + "/v1/chat/completions", json=body) as response:
        return response.status, await response.read()


async def test_it_is_read_like_its_capture() -> None:
    async with FakeMlxLm() as engine:
        await assert_like_its_capture(engine, VERSION, "idle", ENGINE)


@pytest.mark.parametrize("exchange", BOOK.exchanges, ids=lambda one: one.name)
async def test_it_serves_every_recorded_reply(session: aiohttp.ClientSession, exchange: Any) -> None:
    async with FakeMlxLm() as engine:
        await replay(session, engine, BOOK, exchange)


async def test_its_list_is_what_the_disk_has() -> None:
    async with FakeMlxLm(disk=["/models/a", "/models/b"]) as engine:
        assert Look(await look(engine)).known("models") == {"": ("/models/a", "/models/b")}
        assert engine.model is None
    async with FakeMlxLm(disk=None) as engine:
        found = await look(engine)
        assert (found.plan, found.why) == (None, "connection closed (/v1/models)")


async def test_held_requests_run_and_the_rest_waits_and_nothing_tells(session: aiohttp.ClientSession) -> None:
    async with FakeMlxLm(concurrency=2) as engine:
        engine.hold()
        clients = [asyncio.create_task(chat(session, engine, stream=True)) for _ in range(3)]
        await engine.until(lambda: (engine.held, engine.waiting) == (2, 1))
        assert {signal for signal, _ in Look(await look(engine)).values} == {"models"}
        engine.release()
        assert [status for status, _ in await asyncio.gather(*clients)] == [200] * 3
        assert (engine.finished, engine.running) == (3, 0)


async def test_another_model_takes_the_place_of_the_first_once_that_is_idle(session: aiohttp.ClientSession) -> None:
    async with FakeMlxLm(disk=["/models/a", "/models/b"]) as engine:
        engine.hold()
        old = asyncio.create_task(chat(session, engine, stream=True))
        await engine.until(lambda: engine.held == 1)
        new = asyncio.create_task(chat(session, engine, model="/models/b"))
        await engine.until(lambda: engine.waiting == 1)
        assert engine.model == "/models/a"
        engine.release()
        _, (status, body) = await asyncio.gather(old, new)
        assert (status, json.loads(body)["model"]) == (200, "/models/b")
        assert engine.loads == ["/models/a", "/models/b"]


async def test_a_prompt_seen_before_is_cached_but_for_its_last_token(session: aiohttp.ClientSession) -> None:
    async with FakeMlxLm() as engine:
        usage = [json.loads((await chat(session, engine))[1])["usage"] for _ in range(2)]
    told = [(one["prompt_tokens"], one["prompt_tokens_details"]["cached_tokens"]) for one in usage]
    assert told == [(8, 0), (8, 7)]


async def test_a_killed_one_comes_back_without_a_model(session: aiohttp.ClientSession) -> None:
    async with FakeMlxLm() as engine:
        engine.hold()
        client = asyncio.create_task(chat(session, engine, stream=True))
        await engine.until(lambda: engine.held == 1)
        engine.kill()
        with pytest.raises(aiohttp.ClientError):
            await client
        await engine.restart()
        assert engine.model is None
        assert (await chat(session, engine))[0] == 200
