"""The official OpenAI SDK, unchanged, against Pharos in front of a real engine."""

import asyncio
from typing import Any

import openai
import pytest

from tests.live.real import RealEngine, Running, pharos

pytestmark = [pytest.mark.live, pytest.mark.slow]

MESSAGES: Any = [{"role": "user", "content": "hello"}]
TOOLS: Any = [
    {
        "type": "function",
        "function": {
            "name": "get_weather",
            "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
        },
    }
]


def asynchronous(running: Running, key: str = "any") -> openai.AsyncOpenAI:
    return openai.AsyncOpenAI(base_url=running.url + "/v1", api_key=key, max_retries=0)


async def test_the_blocking_client_chats_streams_lists_and_completes(pair: tuple[RealEngine, RealEngine]) -> None:
    async with pharos(pair[0].url) as running:

        def use() -> tuple[Any, list[Any], list[str], Any]:
            with openai.OpenAI(base_url=running.url + "/v1", api_key="any", max_retries=0) as client:
                chat = client.chat.completions.create(model="tiny", messages=MESSAGES, max_tokens=5)
                stream = client.chat.completions.create(model="tiny", messages=MESSAGES, max_tokens=5, stream=True)
                chunks = list(stream)
                models = [model.id for model in client.models.list()]
                completion = client.completions.create(model="tiny", prompt="once upon", max_tokens=5)
                assert client.models.retrieve("tiny").id == "tiny"
                return chat, chunks, models, completion

        chat, chunks, models, completion = await asyncio.to_thread(use)
        assert chat.usage.completion_tokens == 5
        assert chunks[-1].choices[0].finish_reason == "length"
        assert models == ["tiny"]
        assert completion.usage.completion_tokens == 5


async def test_the_asynchronous_client_streams_with_and_without_usage(pair: tuple[RealEngine, RealEngine]) -> None:
    async with pharos(pair[0].url) as running, asynchronous(running) as client:
        plain = [
            chunk
            async for chunk in await client.chat.completions.create(
                model="tiny", messages=MESSAGES, max_tokens=5, stream=True
            )
        ]
        assert all(chunk.choices for chunk in plain)
        asked = [
            chunk
            async for chunk in await client.chat.completions.create(
                model="tiny",
                messages=MESSAGES,
                max_tokens=5,
                stream=True,
                stream_options={"include_usage": True},
            )
        ]
        assert asked[-1].choices == []
        assert asked[-1].usage is not None
        assert asked[-1].usage.completion_tokens == 5


async def test_a_chat_with_tools_is_passed_to_the_engine_as_it_is(pair: tuple[RealEngine, RealEngine]) -> None:
    async with pharos(pair[0].url) as running, asynchronous(running) as client:
        reply = await client.chat.completions.create(model="tiny", messages=MESSAGES, max_tokens=5, tools=TOOLS)
        assert reply.choices[0].finish_reason in ("length", "tool_calls", "stop")
        stream = await client.chat.completions.create(
            model="tiny", messages=MESSAGES, max_tokens=5, tools=TOOLS, stream=True
        )
        assert [chunk async for chunk in stream]


async def test_errors_are_the_exceptions_that_the_sdk_knows(pair: tuple[RealEngine, RealEngine]) -> None:
    hash_of_right = "7e5b1f7ee68bcd2b0d4e6dc2e84ea1b9f1b7ba37e3e4dfc5c9df6d9ddfda8ea0"
    keys = [{"name": "alice", "sha256": hash_of_right}]
    async with pharos(pair[0].url, keys=keys) as running, asynchronous(running, "wrong") as client:
        with pytest.raises(openai.AuthenticationError, match="key"):
            await client.chat.completions.create(model="tiny", messages=MESSAGES)
    async with pharos(pair[0].url) as running, asynchronous(running) as client:
        with pytest.raises(openai.NotFoundError) as caught:
            await client.chat.completions.create(model="no-such-model", messages=MESSAGES)
        assert caught.value.code == "model_not_found"
        with pytest.raises(openai.BadRequestError):
            await client.chat.completions.create(model="tiny", messages="not a list")  # type: ignore[arg-type]
