"""Comment lines of a stream before its first event, as a request that waits may get: SDKs must read past them."""

import json
from typing import Any

import anthropic
import openai
import pytest

from tests.fakes.replies import book, events_of
from tests.proxy.engine_script import Script, Turn
from tests.proxy.harness import Front, chat, front

pytestmark = pytest.mark.filterwarnings("default::ResourceWarning")  # of the SDKs' own connections

COMMENTS = (
    b": pharos queue position=3 eta_s=12\n\n",
    b": pharos queue position=2 eta_s=4\n\n: pharos queue position=1 eta_s=1\n\n",
    b": pharos queue position=1 eta_s=0\n",  # the first event follows at once
)
MESSAGES: Any = [{"role": "user", "content": "hi"}]


def commenting(name: str, *, between: bool = False) -> Script:
    """An engine whose recorded stream begins with comments, and with `between` has one before every event."""
    reply = book("llamacpp", "b11434").named(name).reply

    async def play(turn: Turn) -> None:
        await turn.sse_head()
        for comment in COMMENTS:
            await turn.chunk(comment)
        for event in events_of(reply):
            await turn.chunk((COMMENTS[0] if between else b"") + event)
        await turn.write(b"0\r\n\r\n")

    return play


def base_of(pharos: Front) -> str:
    return f"http://127.0.0.1:{pharos.proxy.port}"


def recorded_text(name: str) -> str:
    """The text of a recorded stream, read without any SDK."""
    found = []
    for event in events_of(book("llamacpp", "b11434").named(name).reply):
        data = event.rpartition(b"data: ")[2].strip()
        told = json.loads(data) if data != b"[DONE]" else {}
        found.append(told.get("delta", {}).get("text") or "" if "type" in told else _chat_text(told))
    return "".join(found)


def _chat_text(told: dict[str, Any]) -> str:
    return "".join(choice["delta"].get("content") or "" for choice in told.get("choices", ()))


@pytest.mark.parametrize("between", [False, True])
async def test_the_openai_package_reads_past_comments_in_chats(between: bool) -> None:  # noqa: FBT001
    async with front(commenting("chat_stream_plain", between=between), kind="llamacpp") as (pharos, _):
        async with openai.AsyncOpenAI(base_url=f"{base_of(pharos)}/v1", api_key="any", max_retries=0) as client:
            stream = await client.chat.completions.create(model="m", messages=MESSAGES, stream=True)
            chunks = [chunk async for chunk in stream]
        text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks)
        assert text == recorded_text("chat_stream_plain") != ""
        assert chunks[-1].choices[0].finish_reason is not None


async def test_the_openai_package_reads_past_comments_in_responses() -> None:
    async with front(commenting("responses_stream"), kind="llamacpp") as (pharos, _):
        async with openai.AsyncOpenAI(base_url=f"{base_of(pharos)}/v1", api_key="any", max_retries=0) as client:
            stream = await client.responses.create(model="m", input="hi", stream=True)
            kinds = [event.type async for event in stream]
        assert (kinds[0], kinds[-1]) == ("response.created", "response.completed")


@pytest.mark.parametrize("between", [False, True])
async def test_the_anthropic_package_reads_past_comments(between: bool) -> None:  # noqa: FBT001
    async with front(commenting("messages_stream", between=between), kind="llamacpp") as (pharos, _):
        async with (
            anthropic.AsyncAnthropic(base_url=base_of(pharos), api_key="any", max_retries=0) as client,
            client.messages.stream(model="m", max_tokens=8, messages=MESSAGES) as stream,
        ):
            text = "".join([part async for part in stream.text_stream])
            final = await stream.get_final_message()
        assert text == recorded_text("messages_stream") != ""
        assert final.stop_reason is not None


async def test_comments_pass_byte_for_byte_and_are_no_token() -> None:
    async with front(commenting("chat_stream_plain"), kind="llamacpp") as (pharos, _):
        reply = await pharos.ask(chat())
        assert reply.body.startswith(b"".join(COMMENTS))
        done = await pharos.finished()
        assert done.status == 200


async def test_lines_of_ollama_have_no_comments() -> None:
    stream = book("ollama", "0.17.4").named("api_chat_stream").reply

    async def play(turn: Turn) -> None:
        await turn.write(b"HTTP/1.1 200 OK\r\nContent-Type: application/x-ndjson\r\nTransfer-Encoding: chunked\r\n\r\n")
        for line in events_of(stream):
            await turn.chunk(line)
        await turn.write(b"0\r\n\r\n")

    async with front(play, kind="ollama") as (pharos, _):
        reply = await pharos.ask(chat(), path="/api/chat")
        assert reply.body == stream.body
        assert all(line.startswith(b"{") for line in reply.body.splitlines())
