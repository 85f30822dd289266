import asyncio
import json
from typing import Any

import aiohttp
import pytest

from pharos.core.signals import Residency
from tests.fakes.replies import book
from tests.fakes.vllm import FakeVllm
from tests.fakes_tests.comparing import Look, assert_like_its_capture, look, replay

HELLO = [{"role": "user", "content": "hello"}]
LONG = [{"role": "user", "content": "word " * 100}]
VERSIONS = ["0.32.0", "0.32.0-defaults"]


async def chat(session: aiohttp.ClientSession, engine: FakeVllm, **asked: Any) -> tuple[int, bytes]:
    body = {"model": "tiny", "messages": HELLO, **asked}
    async with session.post(engine.url + "/v1/chat/completions", json=body) as response:
        return response.status, await response.read()


async def loads(engine: FakeVllm) -> tuple[Any, Any, Any]:
    found = Look(await look(engine))
    return found.known("running").get(""), found.known("waiting").get(""), found.known("kv_usage").get("")


@pytest.mark.parametrize("version", VERSIONS)
async def test_it_is_read_like_its_capture(version: str) -> None:
    async with FakeVllm(version=version) as engine:
        await assert_like_its_capture(engine, version, "idle", "vllm")


@pytest.mark.parametrize(
    ("version", "name"), [(version, one.name) for version in VERSIONS for one in book("vllm", version).exchanges]
)
async def test_it_serves_every_recorded_reply(session: aiohttp.ClientSession, version: str, name: str) -> None:
    async with FakeVllm(version=version) as engine:
        await replay(session, engine, book("vllm", version), book("vllm", version).named(name))


async def test_held_requests_are_what_its_gauges_say(session: aiohttp.ClientSession) -> None:
    async with FakeVllm() as engine:
        engine.hold()
        clients = [asyncio.create_task(chat(session, engine, stream=True)) for _ in range(6)]
        await engine.until(lambda: (engine.held, engine.waiting) == (2, 4))
        assert await loads(engine) == (2, 4, 2 / 32768)
        engine.release(1)
        await engine.until(lambda: (engine.finished, engine.held) == (1, 2))
        assert (await loads(engine))[:2] == (engine.running, engine.waiting) == (2, 3)
        engine.release()
        assert [status for status, _ in await asyncio.gather(*clients)] == [200] * 6
        assert await loads(engine) == (0, 0, 0.0)


async def test_requests_wait_for_room_in_the_cache(session: aiohttp.ClientSession) -> None:
    async with FakeVllm(version="0.32.0-defaults", kv_blocks=2) as engine:
        engine.hold()
        clients = [asyncio.create_task(chat(session, engine, stream=True)) for _ in range(3)]
        await engine.until(lambda: (engine.held, engine.waiting) == (2, 1))
        assert await loads(engine) == (2, 1, 1.0)
        engine.release()
        await asyncio.gather(*clients)


async def test_every_engine_behind_one_address_has_its_own_series(session: aiohttp.ClientSession) -> None:
    async with FakeVllm(engines=2, max_num_seqs=2) as engine:
        engine.hold()
        clients = [asyncio.create_task(chat(session, engine, stream=True)) for _ in range(5)]
        await engine.until(lambda: (engine.held, engine.waiting) == (4, 1))
        text = await (await session.get(engine.url + "/metrics")).text()
        assert 'num_requests_running{engine="0",model_name="tiny"} 2.0\n' in text
        assert 'num_requests_running{engine="1",model_name="tiny"} 2.0\n' in text
        assert (await loads(engine))[:2] == (4, 1)
        engine.release()
        await asyncio.gather(*clients)


async def test_a_prefix_is_cached_for_all_in_whole_blocks(session: aiohttp.ClientSession) -> None:
    async with FakeVllm() as engine:
        _, first = await chat(session, engine, messages=LONG)
        _, again = await chat(session, engine, messages=[*LONG, *HELLO])
        engine.sleep()
        engine.wake()
        _, woken = await chat(session, engine, messages=LONG)
    told = [json.loads(body)["usage"]["prompt_tokens_details"]["cached_tokens"] for body in (first, again, woken)]
    assert told == [0, 112, 0]  # of 126 tokens 7 whole blocks


async def test_gauges_stand_still_once_all_requests_are_aborted_at_once(session: aiohttp.ClientSession) -> None:
    async with FakeVllm(freezes=True) as engine:
        engine.hold()
        clients = [asyncio.create_task(chat(session, engine, stream=True)) for _ in range(3)]
        await engine.until(lambda: (engine.held, engine.waiting) == (2, 1))
        for client in clients:
            client.cancel()
        await engine.until(lambda: engine.aborted == 3)
        assert (engine.running, engine.waiting) == (0, 0)
        assert (await loads(engine))[:2] == (2, 1)
        engine.release()
        await chat(session, engine)
        assert (await loads(engine))[:2] == (0, 0)


async def test_without_that_fault_they_fall(session: aiohttp.ClientSession) -> None:
    async with FakeVllm() as engine:
        engine.hold()
        client = asyncio.create_task(chat(session, engine, stream=True))
        await engine.until(lambda: engine.held == 1)
        client.cancel()
        await engine.until(lambda: engine.aborted == 1)
        assert (await loads(engine))[:2] == (0, 0)


async def test_it_sleeps_and_tells_its_settings_in_development_mode_only(session: aiohttp.ClientSession) -> None:
    async with FakeVllm(dev_mode=True, max_num_seqs=7, engines=2) as engine:
        assert Look(await look(engine)).known("capacity") == {"": 14}
        for route, asleep, residency in (
            ("/sleep?level=2", True, Residency.COLD),
            ("/wake_up", False, Residency.LOADED),
        ):
            await (await session.post(engine.url + route)).read()
            assert await (await session.get(engine.url + "/is_sleeping")).json() == {"is_sleeping": asleep}
            assert Look(await look(engine)).known("residency") == {"": residency}
    async with FakeVllm() as engine:
        for path in ("/is_sleeping", "/server_info?config_format=json"):
            assert (await session.get(engine.url + path)).status == 404
        assert (await session.post(engine.url + "/sleep")).status == 404


async def test_numbers_names_and_an_upgrade_can_be_put_in(session: aiohttp.ClientSession) -> None:
    async with FakeVllm(names=["a", "b"], max_model_len=100) as engine:
        engine.report(5, 7, 0.5)
        found = Look(await look(engine))
        assert (found.known("models"), found.known("context_length")) == ({"": ("a", "b")}, {"a": 100, "b": 100})
        assert await loads(engine) == (5, 7, 0.5)
        engine.told_version = "0.33.0"
        engine.renamed["vllm:num_requests_running"] = "vllm:requests_running"
        found = Look(await look(engine))
        assert (found.version, found.known("running"), found.known("waiting")) == ("0.33.0", {}, {"": 7})
        status, body = await chat(session, engine, model="tiny")
        assert (status, b"Valid aliases: a, b." in body) == (404, True)
        assert (await chat(session, engine, model="a", messages=LONG))[0] == 400


async def test_a_new_process_says_when_it_began_and_counts_from_the_start(session: aiohttp.ClientSession) -> None:
    async with FakeVllm() as engine:
        before = Look(await look(engine)).values
        await chat(session, engine)
        assert Look(await look(engine)).values["work_done", ""] > before["work_done", ""]
        await engine.restart()
        after = Look(await look(engine)).values
    assert after["work_done", ""] == before["work_done", ""]
    assert after["process", ""] != before["process", ""]
