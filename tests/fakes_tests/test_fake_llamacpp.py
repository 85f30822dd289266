import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import aiohttp
import pytest

from tests.fakes import captures
from tests.fakes.engine import Costs
from tests.fakes.http import Hang, Reply, Reset
from tests.fakes.llamacpp import FakeLlamaCpp, Phase
from tests.fakes.replayed import Replayed
from tests.fakes.replies import book
from tests.fakes.steps import Steps
from tests.fakes_tests.comparing import Look, look, replay

CHAT = {"model": "smollm2:135m", "messages": [{"role": "user", "content": "Say hello in French, then in Japanese."}]}


@pytest.fixture
async def engine() -> AsyncIterator[FakeLlamaCpp]:
    async with FakeLlamaCpp() as engine:
        yield engine


async def chat(
    session: aiohttp.ClientSession, engine: FakeLlamaCpp, path: str = "/v1/chat/completions", **more: Any
) -> tuple[int, bytes]:
    async with session.post(engine.url + path, json={**CHAT, **more}) as response:
        return response.status, await response.read()


def events(body: bytes) -> list[dict[str, Any]]:
    lines = [line.removeprefix(b"data: ") for line in body.split(b"\n\n") if line]
    assert lines[-1] == b"[DONE]"
    return [json.loads(line) for line in lines[:-1]]


@pytest.mark.parametrize("path", ["/props", "/v1/models", "/metrics", "/slots", "/health", "/api/tags", "/version"])
async def test_an_idle_engine_gives_the_recorded_bytes(
    session: aiohttp.ClientSession, engine: FakeLlamaCpp, path: str
) -> None:
    recorded = captures.state("llamacpp", "b11434", "idle")[path]
    async with session.get(engine.url + path) as response:
        assert (response.status, await response.read()) == (recorded.status, recorded.body)
        assert response.headers["Server"] == "llama.cpp"
        assert response.headers["Content-Type"] == recorded.headers["Content-Type"]


async def test_numbers_put_in_are_read_and_taken_out_again(
    session: aiohttp.ClientSession, engine: FakeLlamaCpp
) -> None:
    engine.report(2, 7)
    text = await (await session.get(engine.url + "/metrics")).text()
    assert "\nllamacpp:requests_processing 2\n" in text
    assert "\nllamacpp:requests_deferred 7\n" in text
    slots = await (await session.get(engine.url + "/slots")).json()
    assert [(slot["id"], slot["is_processing"]) for slot in slots] == [(0, True), (1, True)]
    engine.report()
    assert (engine.running, engine.deferred) == (0, 0)


async def test_what_is_put_in_at_the_start_shows_on_every_page(session: aiohttp.ClientSession) -> None:
    async with FakeLlamaCpp(model="m", slots=3, n_ctx=2048, size=99, build="b9000-x") as engine:
        props = await (await session.get(engine.url + "/props")).json()
        models = await (await session.get(engine.url + "/v1/models")).json()
        slots = await (await session.get(engine.url + "/slots")).json()
        _, body = await chat(session, engine)
    assert (props["total_slots"], props["build_info"], props["model_alias"]) == (3, "b9000-x", "m")
    assert props["default_generation_settings"]["n_ctx"] == 2048
    assert (models["data"][0]["id"], models["data"][0]["meta"]["size"]) == ("m", 99)
    assert [slot["n_ctx"] for slot in slots] == [2048] * 3
    assert json.loads(body)["model"] == "m"


async def test_while_loading_every_path_is_the_recorded_503(
    session: aiohttp.ClientSession, engine: FakeLlamaCpp
) -> None:
    engine.phase = Phase.LOADING
    recorded = captures.state("llamacpp", "b11434", "loading")
    for path in ("/health", "/metrics", "/nothing"):
        async with session.get(engine.url + path) as response:
            assert (response.status, await response.read()) == (503, recorded[path].body)
    assert (await chat(session, engine))[0] == 503


async def test_a_whole_chat_has_the_recorded_shape_and_its_own_numbers(
    session: aiohttp.ClientSession, engine: FakeLlamaCpp
) -> None:
    status, body = await chat(session, engine, max_tokens=5)
    reply, recorded = json.loads(body), json.loads(captures.exchange("llamacpp", "b11434", "chat_full").body)
    assert status == 200
    assert list(reply) == list(recorded)
    assert reply["choices"] == recorded["choices"]
    assert reply["usage"]["completion_tokens"] == reply["timings"]["predicted_n"] == 5
    assert reply["timings"]["cache_n"] == 0
    assert reply["timings"]["prompt_n"] == reply["usage"]["prompt_tokens"]


@pytest.mark.parametrize("tokens", [0, 1, 12, 40])
async def test_a_stream_has_as_many_tokens_as_asked_for_and_ends_as_recorded(
    session: aiohttp.ClientSession, engine: FakeLlamaCpp, tokens: int
) -> None:
    _, body = await chat(session, engine, stream=True, max_tokens=tokens)
    parsed = events(body)
    assert parsed[0]["choices"][0]["delta"]["role"] == "assistant"
    assert sum(bool(event["choices"][0]["delta"].get("content")) for event in parsed) == tokens
    assert "usage" not in parsed[-1]
    assert parsed[-1]["timings"]["predicted_n"] == tokens
    _, body = await chat(session, engine, stream=True, max_tokens=tokens, stream_options={"include_usage": True})
    last = events(body)[-1]
    assert (last["choices"], last["usage"]["completion_tokens"]) == ([], tokens)


async def test_a_completion_streams_with_usage_in_its_last_chunk(
    session: aiohttp.ClientSession, engine: FakeLlamaCpp
) -> None:
    _, body = await chat(session, engine, "/v1/completions", prompt="Once upon a time", stream=True)
    assert events(body)[-1]["usage"]["prompt_tokens"] == 4


@pytest.mark.parametrize("path", ["/v1/messages", "/v1/responses"])
async def test_other_protocols_stream_as_recorded(
    session: aiohttp.ClientSession, engine: FakeLlamaCpp, path: str
) -> None:
    name = path.removeprefix("/v1/") + "_stream"
    _, body = await chat(session, engine, path, stream=True)
    assert body == captures.exchange("llamacpp", "b11434", name).body


async def test_a_prompt_seen_before_is_cached_but_for_its_last_token(
    session: aiohttp.ClientSession, engine: FakeLlamaCpp
) -> None:
    first = json.loads((await chat(session, engine))[1])["usage"]
    again = json.loads((await chat(session, engine))[1])["usage"]
    assert first["prompt_tokens_details"]["cached_tokens"] == 0
    assert again["prompt_tokens_details"]["cached_tokens"] == again["prompt_tokens"] - 1
    for role in ("tool", "assistant"):  # as many unlike prompts as there are slots
        await chat(session, engine, messages=[{"role": role, "content": "0"}])
    forgotten = json.loads((await chat(session, engine))[1])["usage"]
    assert forgotten["prompt_tokens_details"]["cached_tokens"] == 0


async def test_prefill_and_decode_take_the_modelled_time(session: aiohttp.ClientSession) -> None:
    spent = list[float]()

    async def pace(seconds: float) -> None:
        spent.append(seconds)

    async with FakeLlamaCpp(pace=pace) as engine:
        _, body = await chat(session, engine, max_tokens=10)
    usage = json.loads(body)["usage"]
    assert spent == [pytest.approx(usage["prompt_tokens"] * 0.005), pytest.approx(0.107)]


async def test_its_costs_may_be_others_and_grow_with_company(session: aiohttp.ClientSession) -> None:
    spent = list[float]()

    async def pace(seconds: float) -> None:
        spent.append(seconds)

    async with FakeLlamaCpp(pace=pace) as engine:
        engine.costs = Costs(prefill_s_per_token=0.1, decode_s_per_token=2.0, base_s=7.0, slowdown=0.5)
        _, body = await chat(session, engine, max_tokens=10)
        told = json.loads(body)
        prompt = told["usage"]["prompt_tokens"]
        assert spent == [pytest.approx(7 + 0.1 * prompt), pytest.approx(20.0)]
        assert told["timings"]["prompt_ms"] == pytest.approx(7000 + 100 * prompt)
        assert told["timings"]["predicted_per_token_ms"] == pytest.approx(2000)
        assert (engine.prompted, engine.found, engine.working) == (prompt, 0, 0)
        engine.working = 2  # two others
        spent.clear()
        await chat(session, engine, max_tokens=10, messages=[{"role": "user", "content": "quite another one"}])
        uncached = engine.prompted - prompt - engine.found
        assert spent == [pytest.approx(7 + 0.2 * uncached), pytest.approx(40.0)]
        assert engine.working == 2


async def test_held_streams_keep_their_slots_and_the_rest_is_deferred(
    session: aiohttp.ClientSession, engine: FakeLlamaCpp
) -> None:
    engine.hold()
    clients = [asyncio.create_task(chat(session, engine, stream=True)) for _ in range(5)]
    await engine.until(lambda: (engine.held, engine.deferred) == (2, 3))
    assert engine.running == 2
    text = await (await session.get(engine.url + "/metrics")).text()
    assert "requests_processing 2\n" in text
    assert "requests_deferred 3\n" in text
    engine.release(1)
    await engine.until(lambda: (engine.finished, engine.held, engine.deferred) == (1, 2, 2))
    engine.release()
    for client in clients:
        assert events((await client)[1])
    assert (engine.finished, engine.running, engine.deferred, engine.aborted) == (5, 0, 0, 0)


async def test_a_held_whole_reply_is_held_before_its_first_byte(
    session: aiohttp.ClientSession, engine: FakeLlamaCpp
) -> None:
    engine.hold(after=3)
    client = asyncio.create_task(chat(session, engine))
    await engine.until(lambda: engine.held == 1)
    assert not client.done()
    engine.release()
    assert (await client)[0] == 200


async def test_a_client_that_hangs_up_frees_its_slot_or_its_place_in_the_queue(
    session: aiohttp.ClientSession, engine: FakeLlamaCpp
) -> None:
    engine.hold()
    clients = [asyncio.create_task(chat(session, engine, stream=True)) for _ in range(4)]
    await engine.until(lambda: (engine.held, engine.deferred) == (2, 2))
    clients[3].cancel()
    await engine.until(lambda: (engine.running, engine.deferred) == (2, 1))
    clients[0].cancel()
    await engine.until(lambda: (engine.aborted, engine.held, engine.deferred) == (2, 2, 0))
    engine.release()
    await asyncio.gather(clients[1], clients[2])
    assert engine.running == 0


async def test_a_killed_engine_cuts_its_streams_and_comes_back_empty_on_the_same_port(
    session: aiohttp.ClientSession, engine: FakeLlamaCpp
) -> None:
    engine.hold()
    clients = [asyncio.create_task(chat(session, engine, stream=True)) for _ in range(3)]
    await engine.until(lambda: engine.held == 2)
    url = engine.url
    engine.kill()
    ended = await asyncio.gather(*clients, return_exceptions=True)
    assert all(isinstance(end, aiohttp.ClientError) for end in ended)
    with pytest.raises(aiohttp.ClientConnectorError):
        await chat(session, engine)
    await engine.restart()
    assert (engine.url, engine.running, engine.aborted, engine.phase) == (url, 0, 0, Phase.READY)
    assert (await chat(session, engine))[0] == 200


async def test_a_sleeping_engine_says_so_and_wakes_for_slots_and_requests_only(
    session: aiohttp.ClientSession, engine: FakeLlamaCpp
) -> None:
    engine.phase = Phase.SLEEPING
    for path in ("/health", "/props", "/v1/models", "/metrics"):
        await (await session.get(engine.url + path)).read()
    assert (await (await session.get(engine.url + "/props")).json())["is_sleeping"] is True
    assert engine.woken == 0
    await (await session.get(engine.url + "/slots")).read()
    assert (engine.woken, engine.phase) == (1, Phase.READY)
    engine.phase = Phase.SLEEPING
    await chat(session, engine)
    assert engine.woken == 2


async def test_refusals_are_as_recorded(session: aiohttp.ClientSession, engine: FakeLlamaCpp) -> None:
    for name, sent in (("err_bad_json_field", {"messages": "nope"}), ("err_unknown_model", {"model": "no-such"})):
        recorded = captures.exchange("llamacpp", "b11434", name)
        status, body = await chat(session, engine, **sent)
        assert status == recorded.status
        assert list(json.loads(body)) == list(json.loads(recorded.body))
    status, body = await chat(session, engine, messages=[{"role": "user", "content": "word " * 9000}])
    assert (status, json.loads(body)["error"]["type"]) == (400, "exceed_context_size_error")
    assert (await chat(session, engine, "/v1/embeddings"))[0] == 501
    assert (await chat(session, engine, "/v1/nothing"))[0] == 404
    async with session.post(engine.url + "/v1/chat/completions", data=b"{") as response:
        assert response.status == 400


async def test_a_test_can_refuse_requests_or_answer_any_path_itself(
    session: aiohttp.ClientSession, engine: FakeLlamaCpp
) -> None:
    engine.refuse(Reply(429, b"busy", {"Retry-After": "3"}))
    engine.refuse(Reset())
    assert await chat(session, engine) == (429, b"busy")
    with pytest.raises(aiohttp.ClientError):
        await chat(session, engine)
    assert (await chat(session, engine))[0] == 200
    engine.answers["/health"] = Hang()
    with pytest.raises(TimeoutError):
        await session.get(engine.url + "/health", timeout=aiohttp.ClientTimeout(total=0.05))


async def test_requests_are_kept_in_order_with_what_they_carried(
    session: aiohttp.ClientSession, engine: FakeLlamaCpp
) -> None:
    await chat(session, engine)
    await (await session.get(engine.url + "/health")).read()
    assert engine.paths == ["/v1/chat/completions", "/health"]
    assert engine.prompts[0].json()["model"] == "smollm2:135m"
    assert engine.prompts[0].headers["content-type"] == "application/json"


async def test_a_fault_of_the_double_itself_fails_the_test_that_uses_it(session: aiohttp.ClientSession) -> None:
    class Broken(FakeLlamaCpp):
        def _metrics(self) -> bytes:
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):  # noqa: PT012
        async with Broken() as engine:
            with pytest.raises(aiohttp.ClientError):
                await session.get(engine.url + "/metrics")


async def test_a_request_body_in_chunks_is_understood(session: aiohttp.ClientSession, engine: FakeLlamaCpp) -> None:
    async def pieces() -> AsyncIterator[bytes]:
        body = json.dumps(CHAT).encode()
        yield body[:10]
        yield body[10:]

    async with session.post(engine.url + "/v1/chat/completions", data=pieces()) as response:
        assert response.status == 200
    assert engine.prompts[0].json() == CHAT


@pytest.mark.parametrize(("version", "model", "slots"), [("b11434", None, 2), ("b11549-sleep", "tiny", 2)])
async def test_it_is_read_like_its_capture(version: str, model: str | None, slots: int) -> None:
    async with FakeLlamaCpp(version=version, model=model, slots=slots) as engine:
        there = Look(await look(engine))
    async with Replayed("llamacpp", version, "idle") as recording:
        recorded = Look(await look(recording))
    if version == "b11549-sleep":  # nobody asked for /slots in that state
        for one in (there, recorded):
            one.asked.remove("/slots")
            one.values.pop(("cached_tokens", ""), None)
            one.dropped.pop("llamacpp-slots-kv", None)
            one.active = [name for name in one.active if "slots" not in name]
    assert (there.kind, there.active, there.dropped) == (recorded.kind, recorded.active, recorded.dropped)
    assert (there.values, there.asked) == (recorded.values, recorded.asked)


@pytest.mark.parametrize("exchange", book("llamacpp", "b11434").exchanges, ids=lambda one: one.name)
async def test_it_serves_every_recorded_reply(session: aiohttp.ClientSession, exchange: Any) -> None:
    async with FakeLlamaCpp() as engine:
        await replay(session, engine, book("llamacpp", "b11434"), exchange)


async def test_held_requests_are_what_the_control_path_reads(
    session: aiohttp.ClientSession, engine: FakeLlamaCpp
) -> None:
    engine.hold()
    clients = [asyncio.create_task(chat(session, engine, stream=True)) for _ in range(5)]
    await engine.until(lambda: (engine.held, engine.deferred) == (2, 3))
    found = Look(await look(engine))
    assert (found.known("running"), found.known("waiting")) == ({"": 2}, {"": 3})
    engine.release()
    await asyncio.gather(*clients)


async def test_it_falls_asleep_when_nothing_was_asked_of_it_for_its_limit(
    session: aiohttp.ClientSession, steps: Steps
) -> None:
    async with FakeLlamaCpp(sleep_idle_s=10, clock=steps.clock) as engine:
        for path, is_task in (("/metrics", False), ("/props", False), ("/slots", True)):
            await chat(session, engine)
            steps.now += 6
            await (await session.get(engine.url + path)).read()
            steps.now += 6
            engine.tick()
            assert (engine.phase is Phase.READY) is is_task, path
        engine.hold()
        client = asyncio.create_task(chat(session, engine, stream=True))
        await engine.until(lambda: engine.held == 1)
        steps.now += 60
        engine.tick()
        assert engine.phase is Phase.READY, "it works"
        engine.release()
        await client


async def test_a_refused_request_wakes_it_too(session: aiohttp.ClientSession, engine: FakeLlamaCpp) -> None:
    engine.phase = Phase.SLEEPING
    assert (await chat(session, engine, messages="nope"))[0] == 400
    assert (engine.phase, engine.woken) == (Phase.READY, 1)


async def test_a_new_process_says_when_it_began_and_counts_from_the_start(session: aiohttp.ClientSession) -> None:
    async with FakeLlamaCpp(started=1000) as engine:
        before = Look(await look(engine)).values
        await chat(session, engine, stream=True, max_tokens=9)
        assert Look(await look(engine)).values["work_done", ""] > before["work_done", ""]
        await engine.restart()
        after = Look(await look(engine)).values
    assert after["work_done", ""] == before["work_done", ""]
    assert (before["process", ""][0], after["process", ""][0]) == ("1000", "1001")
