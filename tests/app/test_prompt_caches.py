"""Prompts go to the engine that has them: engine doubles with caches of their own, behind the whole data plane."""

import asyncio
import contextlib
import hashlib
import json
from collections.abc import AsyncIterator
from typing import Any

import msgspec
import pytest

from pharos.app import keyring
from pharos.config.schema import Config
from pharos.core.fleet import BackendSpec
from pharos.proxy.auth import Key
from pharos.proxy.settings import ProxySettings
from tests.fakes.engine import EngineDouble
from tests.fakes.llamacpp import FakeLlamaCpp
from tests.fakes.vllm import FakeVllm
from tests.proxy.engine_script import Turn
from tests.proxy.harness import DONE, Front, event, front

TEXT = "All that glitters is not gold, and not all that is gold glitters. " * 40
ALICE = "Authorization: Bearer pk-a\r\n"
BOB = "Authorization: Bearer pk-b\r\n"


def talk(*said: str, stream: bool = True, **more: Any) -> bytes:
    """A chat of the user and the assistant in turns."""
    messages = [{"role": ("user", "assistant")[n % 2], "content": text} for n, text in enumerate(said)]
    return json.dumps({"model": "m", "messages": messages, "stream": stream} | more).encode()


@contextlib.asynccontextmanager
async def engines(*doubles: EngineDouble, kind: str = "llamacpp", **more: Any) -> AsyncIterator[Front]:
    async with contextlib.AsyncExitStack() as stack:
        for double in doubles:
            await stack.enter_async_context(double)
        specs = [BackendSpec(chr(ord("a") + n), double.url, capacity=2) for n, double in enumerate(doubles)]
        pharos = Front(specs, kind=kind, **more)
        await pharos.proxy.start("127.0.0.1:0")
        stack.push_async_callback(pharos.stop)
        yield pharos


async def ask(pharos: Front, body: bytes, headers: str = "") -> tuple[str, str | None]:
    """Which backend answered, and how its prediction turned out."""
    count = len(pharos.done) + 1
    assert (await pharos.ask(body, headers)).status == 200
    done = await pharos.finished(count)
    assert done.backend is not None
    return done.backend, next((outcome for stage, outcome in done.stages if stage == "prefix"), None)


@pytest.mark.parametrize("stream", [True, False])
async def test_the_second_turn_of_a_chat_goes_to_the_engine_that_has_the_first(*, stream: bool) -> None:
    async with engines(FakeLlamaCpp(model="m"), FakeLlamaCpp(model="m")) as pharos:
        first = await ask(pharos, talk(TEXT, stream=stream))
        assert first[1] == "miss"
        await ask(pharos, talk("Something else. " + TEXT, stream=stream))
        assert await ask(pharos, talk(TEXT, "Yes.", "And silver?", stream=stream)) == (first[0], "predicted_hit")
        done = pharos.done[-1]
        assert (done.predicted_from, done.choice is not None and done.reason.count("cached")) == ("local", 1)
        assert done.usage is not None
        assert (done.usage.cached_tokens or 0) > 500


async def test_a_body_that_escapes_its_text_is_the_same_prompt_and_no_longer_than_it() -> None:
    text = "輝くものすべてが金とは限らない" * 60
    async with engines(FakeLlamaCpp(model="m"), FakeLlamaCpp(model="m")) as pharos:
        escaped = talk(text)
        plain = json.dumps(json.loads(escaped), ensure_ascii=False).encode()
        assert len(escaped) > 1.5 * len(plain)
        first, _ = await ask(pharos, escaped)
        assert await ask(pharos, plain) == (first, "predicted_hit")
        tokens = [done.choice.req.prompt_tokens for done in pharos.done]  # type: ignore[union-attr]
        assert tokens[0] == -(-len(text.encode()) // 4)


async def test_a_prediction_that_was_wrong_is_corrected() -> None:
    a, b = FakeLlamaCpp(model="m"), FakeLlamaCpp(model="m")
    async with engines(a, b) as pharos:
        first, _ = await ask(pharos, talk(TEXT))
        for double in (a, b):
            double._cache.clear()
        assert await ask(pharos, talk(TEXT, "Yes.", "No.")) == (first, "wrong_prediction")
        assert len(pharos.ledger.caches.index) == 0
        assert (await ask(pharos, talk(TEXT, "Yes.", "No.", "Yes.", "No.")))[1] == "unpredicted_hit"


async def test_a_lost_cache_is_forgotten() -> None:
    async with engines(FakeLlamaCpp(model="m")) as pharos:
        pharos.know_another()
        await ask(pharos, talk(TEXT))
        pharos.fleet.cache_lost(pharos.fleet.backends["a"].targets["m"])
        assert (await ask(pharos, talk(TEXT)))[1] == "unpredicted_hit"


async def test_a_salt_parts_the_prompts_of_keys_and_a_common_one_joins_them() -> None:
    keys = {"pk-a": Key("alice", salt=b"1"), "pk-b": Key("bob", salt=b"2"), "pk-c": Key("carol", salt=b"1")}
    async with engines(FakeLlamaCpp(model="m"), keys=keys) as pharos:
        pharos.know_another()
        await ask(pharos, talk(TEXT), ALICE)
        assert (await ask(pharos, talk(TEXT), BOB))[1] == "unpredicted_hit"
        assert (await ask(pharos, talk(TEXT), "x-api-key: pk-c\r\n"))[1] == "predicted_hit"
    assert "1" not in repr(keys["pk-a"])


async def test_a_large_body_is_read_in_a_thread_and_found_again() -> None:
    async with engines(FakeLlamaCpp(model="m", n_ctx=1_000_000), FakeLlamaCpp(model="m", n_ctx=1_000_000)) as pharos:
        first, _ = await ask(pharos, talk(TEXT * 120))
        assert len(talk(TEXT * 120)) > 256 * 1024
        assert await ask(pharos, talk(TEXT * 120, "Yes.", "No.")) == (first, "predicted_hit")


async def test_a_shared_cache_has_the_prompt_from_the_first_token_on() -> None:
    a, b = FakeVllm(names=["m"]), FakeVllm(names=["m"])
    async with engines(a, b, kind="vllm") as pharos:
        for double in (a, b):
            double.hold(after=2)
        client = await pharos.client()
        client.post(talk(TEXT))
        await client.until(b'"content"')
        async with asyncio.timeout(5):
            while not len(pharos.ledger.caches.index):
                await asyncio.sleep(0)
        for double in (a, b):
            double.release()
        await client.until(b"[DONE]")
        first = await pharos.finished(1)
        assert (await ask(pharos, talk(TEXT, "Yes.", "No.")))[0] == first.backend


async def refuses(turn: Turn) -> None:
    await turn.reply(500, b'{"error":{"message":"no"}}')


async def answers(turn: Turn) -> None:
    await turn.sse_head()
    await turn.chunk(event())
    await turn.chunk(DONE)
    await turn.write(b"0\r\n\r\n")


async def test_a_prompt_that_a_target_answered_with_an_error_is_forgotten_there() -> None:
    scripts = [answers, refuses]

    async def play(turn: Turn) -> None:
        await scripts[min(len(turn.engine.turns), 2) - 1](turn)

    async with front(play, settings=ProxySettings(retry_attempts=0)) as (pharos, _):
        pharos.know_another()
        await pharos.ask(talk(TEXT))
        assert len(pharos.ledger.caches.index) == 1
        assert (await pharos.ask(talk(TEXT))).status == 500
        await pharos.finished(2)
        assert len(pharos.ledger.caches.index) == 0
        assert [stage for stage, _ in pharos.done[1].stages].count("prefix") == 0


async def test_b09_a_prompt_whose_stream_brought_an_error_is_not_kept() -> None:
    async def fails(turn: Turn) -> None:
        await turn.sse_head()
        await turn.chunk(event())
        await turn.chunk(b'data: {"error":{"message":"timed out","code":504}}\n\n' + DONE)
        await turn.write(b"0\r\n\r\n")

    async with front(fails) as (pharos, _):
        pharos.know_another()
        assert (await pharos.ask(talk(TEXT))).status == 200
        done = await pharos.finished()
        assert done.chain is not None
        assert len(pharos.ledger.caches.index) == 0


async def test_what_a_request_needs_and_may_cost_reaches_the_policy() -> None:
    async with front(answers) as (pharos, _):
        pharos.know_another()
        picture = [
            {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}},
            {"type": "text", "text": "?"},
        ]
        body = {"messages": [{"role": "user", "content": picture}], "max_tokens": 9, "tools": [{"type": "function"}]}
        await pharos.ask(json.dumps({"model": "m", "stream": True} | body).encode())
        req = (await pharos.finished()).choice.req
        assert (req.needs, req.max_tokens, req.expected_tokens) == (frozenset({"vision", "tools"}), 9, 9.0)
        assert req.prompt_tokens < 12, "a picture is no text"


async def test_a_prompt_that_one_target_alone_can_take_is_not_looked_at_but_for_escapes() -> None:
    async with front(answers) as (pharos, _):
        await pharos.ask(talk(TEXT))
        await pharos.finished()
        await pharos.ask(talk("Привет. " * 100))
        await pharos.finished(2)
        await pharos.ask(talk('"\\n' * 100))
        await pharos.finished(3)
        assert [done.chain is None for done in pharos.done] == [True, False, True]
        assert pharos.done[1].choice.req.prompt_tokens < 400, "what is written in six bytes is two"


async def test_an_empty_request_that_only_loads_leaves_nothing() -> None:
    async def loads(turn: Turn) -> None:
        await turn.reply(200, b'{"model":"m","done":true,"response":""}\n', kind=b"application/x-ndjson")

    async with front(loads, kind="ollama") as (pharos, _):
        body = b'{"model":"m","messages":[],"tools":[{"a":1}],"options":{"num_ctx":8192}}'
        await pharos.ask(body, path="/api/chat")
        done = await pharos.finished()
        assert done.chain is None
        assert done.choice.req.context_tokens == 8192


async def test_how_long_replies_become_is_learned_by_key_route_and_limit() -> None:
    async def counts(turn: Turn) -> None:
        await turn.reply(200, b'{"choices":[{"text":"x"}],"usage":{"prompt_tokens":9,"completion_tokens":40}}')

    async with front(counts) as (pharos, _):
        for number in (1, 2):
            await pharos.ask(talk("Hi.", stream=False))
            await pharos.finished(number)
        assert pharos.done[1].choice.req.expected_tokens == 40.0


async def test_b13_a_call_whose_arguments_are_no_json_is_a_part_of_its_prompt_like_any_other() -> None:
    def body(arguments: str) -> bytes:
        call = {"id": "1", "type": "function", "function": {"name": "f", "arguments": arguments}}
        said = [{"role": "user", "content": TEXT}, {"role": "assistant", "tool_calls": [call]}]
        return json.dumps({"model": "m", "messages": said, "stream": True}).encode()

    async with front(answers) as (pharos, engine):
        pharos.know_another()
        for number, sent in enumerate((body('{"a":'), body('{"a": 1}')), 1):
            assert (await pharos.ask(sent)).status == 200
            await pharos.finished(number)
            assert engine.turns[-1].body.startswith(sent[:-1]), "as it was sent"
        first, second = (done.chain for done in pharos.done)
        assert first is not None
        assert second is not None
        assert first.hashes[0] == second.hashes[0]
        assert first.hashes[1] != second.hashes[1]


async def test_b56_prompts_that_fail_or_teach_nothing_are_not_kept() -> None:
    async with front(refuses, settings=ProxySettings(retry_attempts=0)) as (pharos, _):
        pharos.know_another()
        for number in range(1, 21):
            await pharos.ask(talk(f"{number} {TEXT}"))
            await pharos.finished(number)
        assert len(pharos.ledger.caches.index) == 0


def test_the_salt_of_a_key_and_whether_it_is_told_its_place_come_from_the_configuration() -> None:
    key = {"name": "alice", "sha256": hashlib.sha256(b"pk-a").hexdigest()}
    told = msgspec.convert({"keys": [key | {"cache_salt": "süß", "queue_events": True}]}, Config)
    plain = msgspec.convert({"keys": [key]}, Config)
    found = [keyring(config).find({"x-api-key": "pk-a"}) for config in (told, plain)]
    assert [(one.salt, one.queue_events) for one in found if one is not None] == [("süß".encode(), True), (b"", False)]


async def test_a_client_that_defeats_every_cache_is_found() -> None:
    async with front(answers) as (pharos, _):
        pharos.know_another()
        for number in range(1, 25):
            said = [{"role": "system", "content": f"It is {number:06}."}, {"role": "user", "content": TEXT}]
            await pharos.ask(json.dumps({"model": "m", "messages": said, "stream": True}).encode())
            await pharos.finished(number)
        [found] = pharos.ledger.caches.busters.found()
        assert (found.key, found.model) == ("anonymous", "m")
        assert found.position < 200
