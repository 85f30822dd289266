"""Streams of typed events: those of `/v1/responses`, of Anthropic, and of routes that are not known to stream."""

import itertools
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pharos.core.engine.usage_fields import Dialect, Usage
from pharos.proxy.protocol import Protocol
from pharos.proxy.record import Ending, message_has_token, response_has_token
from pharos.proxy.sse import SseTap

LIMIT = 65_536
WHOLE = Dialect(whole_input=True)


def event(kind: str, **members: Any) -> bytes:
    return b"event: %b\ndata: " % kind.encode() + json.dumps({"type": kind} | members).encode() + b"\n\n"


def response(status: str, **members: Any) -> dict[str, Any]:
    return {"id": "resp_1", "object": "response", "model": "m", "status": status, "error": None} | members


COUNTS = {"input_tokens": 31, "input_tokens_details": {"cached_tokens": 30}, "output_tokens": 8, "total_tokens": 39}
CREATED = event("response.created", response=response("in_progress", usage=None, created_at=5), sequence_number=0)
ADDED = event("response.output_item.added", item={"type": "message", "content": [], "role": "assistant"})
PART = event("response.content_part.added", part={"type": "output_text", "text": ""})
DELTA = event("response.output_text.delta", delta="hi", item_id="msg_1")
COMPLETED = event("response.completed", response=response("completed", usage=COUNTS))
INCOMPLETE = event("response.incomplete", response=response("incomplete", usage=COUNTS))
FAILED = event("response.failed", response=response("failed", usage=None) | {"error": {"code": "server_error"}})
BROKEN = event("error", code="server_error", message="x", param=None)
OWN_ERROR = b'data: {"error":{"message":"boom","code":500}}\n\n'
DONE = b"data: [DONE]\n\n"

START = event("message_start", message={"role": "assistant", "content": [], "usage": {"input_tokens": 2}})
PING = event("ping")
BLOCK = event("content_block_start", index=0, content_block={"type": "text", "text": ""})
TEXT = event("content_block_delta", index=0, delta={"type": "text_delta", "text": "hi"})
STOPPED = event("message_delta", delta={"stop_reason": "end_turn"}, usage={"input_tokens": 33, "output_tokens": 8})
STOP = event("message_stop")
OVERLOADED = event("error", error={"type": "overloaded_error", "message": "x"})


def tap(protocol: Protocol) -> SseTap:
    return SseTap(protocol, strip_usage=False, dialect=WHOLE, counts_cached=True)


def run(one: SseTap, *parts: bytes) -> bytes:
    return b"".join(map(one.feed, parts)) + one.finish()


def state(one: SseTap) -> tuple[Any, ...]:
    return one.usage, one.ending, one.saw_token


ENDS: list[tuple[Protocol, bytes, Usage | None, Ending]] = [
    ("openai_responses", CREATED + DELTA + COMPLETED, Usage(31, 30, 8), Ending.COMPLETED),
    ("openai_responses", CREATED + DELTA + INCOMPLETE, Usage(31, 30, 8), Ending.COMPLETED),
    ("openai_responses", CREATED + DELTA + COMPLETED + DONE, Usage(31, 30, 8), Ending.COMPLETED),
    ("openai_responses", CREATED + DELTA + DONE, None, Ending.OPEN),
    ("openai_responses", CREATED + DELTA + FAILED, None, Ending.ERROR),
    ("openai_responses", CREATED + DELTA + BROKEN, None, Ending.ERROR),
    ("openai_responses", CREATED + DELTA + OWN_ERROR + DONE, None, Ending.ERROR),
    ("openai_responses", CREATED + DELTA, None, Ending.OPEN),
    ("anthropic", START + PING + BLOCK + TEXT + STOPPED + STOP, Usage(33, None, 8), Ending.COMPLETED),
    ("anthropic", START + BLOCK + TEXT + STOPPED, None, Ending.OPEN),
    ("anthropic", START + BLOCK + TEXT + OVERLOADED, None, Ending.ERROR),
    ("anthropic", START + BLOCK + TEXT + OWN_ERROR, None, Ending.ERROR),
    ("anthropic", START + BLOCK + TEXT + STOPPED + STOP + OVERLOADED, None, Ending.ERROR),
]


@pytest.mark.parametrize(("protocol", "stream", "usage", "ending"), ENDS)
def test_each_protocol_ends_in_its_own_way_wherever_its_stream_is_cut(
    protocol: Protocol, stream: bytes, usage: Usage | None, ending: Ending
) -> None:
    for end in (b"\n", b"\r\n", b"\r"):
        body = stream.replace(b"\n", end)
        for at in range(0, len(body) + 1, 1 if end == b"\n" else 7):
            one = tap(protocol)
            assert run(one, body[:at], body[at:]) == body
            assert state(one) == (usage, ending, True), at
            assert one.at_event_boundary


def test_of_a_message_that_was_cut_the_prompt_is_not_known() -> None:
    one = tap("anthropic")
    one.feed(START + TEXT + STOPPED)
    one.abandon()
    assert one.usage is None


def test_of_a_chat_that_was_cut_behind_its_usage_it_is_known() -> None:
    one = tap("openai_chat")
    one.feed(b'data: {"choices":[],"usage":{"prompt_tokens":3,"completion_tokens":4}}\n\n')
    one.abandon()
    assert one.usage == Usage(3, None, 4)


@pytest.mark.parametrize("quiet", [CREATED, ADDED, PART, PING, START, BLOCK, b": ping\n\n", COMPLETED, STOPPED])
@pytest.mark.parametrize("protocol", ["openai_responses", "anthropic"])
def test_what_only_begins_something_is_no_token(protocol: Protocol, quiet: bytes) -> None:
    one = tap(protocol)
    assert one.feed(quiet) == quiet
    assert not one.saw_token


@pytest.mark.parametrize(
    ("record", "token"),
    [
        ({"type": "response.output_text.delta", "delta": ""}, False),
        ({"type": "response.reasoning_text.delta", "delta": "hm"}, True),
        ({"type": "response.reasoning_summary_text.delta", "delta": "hm"}, True),
        ({"type": "response.function_call_arguments.delta", "delta": "{"}, True),
        ({"type": "response.output_text.done", "text": "all"}, True),
        ({"type": "response.output_text.done", "text": ""}, False),
        ({"type": "response.function_call_arguments.done", "arguments": "{}"}, True),
        ({"type": "response.output_item.added", "item": {"type": "function_call", "name": "f"}}, True),
        ({"type": "response.output_item.added", "item": {"type": "reasoning", "summary": [], "content": None}}, False),
        ({"type": "response.output_item.added", "item": {"content": [{"type": "output_text", "text": ""}]}}, False),
        ({"type": "response.output_item.done", "item": {"content": [{"type": "output_text", "text": "a"}]}}, True),
        ({"type": "response.output_item.added", "item": None}, False),
        ({"type": ["response.output_text.delta"], "delta": "x"}, False),
        ({"delta": "x"}, False),
    ],
)
def test_what_is_output_in_responses(record: dict[str, Any], *, token: bool) -> None:
    assert response_has_token(record) is token


@pytest.mark.parametrize(
    ("record", "token"),
    [
        ({"type": "content_block_delta", "delta": {"type": "text_delta", "text": "a"}}, True),
        ({"type": "content_block_delta", "delta": {"type": "text_delta", "text": ""}}, False),
        ({"type": "content_block_delta", "delta": {"type": "thinking_delta", "thinking": "a"}}, True),
        ({"type": "content_block_delta", "delta": {"type": "input_json_delta", "partial_json": ""}}, False),
        ({"type": "content_block_delta", "delta": {"type": "input_json_delta", "partial_json": "{"}}, True),
        ({"type": "content_block_start", "content_block": {"type": "tool_use", "name": "f", "input": {}}}, True),
        (
            {"type": "content_block_start", "content_block": {"type": "thinking", "thinking": "", "signature": ""}},
            False,
        ),
        ({"type": "content_block_start", "content_block": {"type": "redacted_thinking", "data": "x"}}, True),
        ({"type": "message_delta", "delta": {"stop_reason": "end_turn"}}, False),
        ({"type": "content_block_delta", "delta": "a"}, False),
    ],
)
def test_what_is_output_in_messages(record: dict[str, Any], *, token: bool) -> None:
    assert message_has_token(record) is token


@pytest.mark.parametrize("kind", [{"a": 1}, [1], None, 3, True])
def test_a_type_that_is_no_name_ends_nothing(kind: Any) -> None:
    for protocol in ("openai_responses", "anthropic", "plain"):
        one = tap(protocol)  # type: ignore[arg-type]
        run(one, b"data: " + json.dumps({"type": kind, "usage": 1}).encode() + b"\n\n")
        assert one.ending is Ending.OPEN


def last_response(*, type_first: bool, size: int) -> bytes:
    """The last event of a long reply, as llama.cpp or as Ollama and vLLM order its members."""
    body = response("completed", output=[{"content": [{"text": "x" * size}]}], usage=COUNTS)
    members = {"type": "response.completed", "response": body}
    if not type_first:
        members = {"response": body, "sequence_number": 9, "type": "response.completed"}
    return b"event: response.completed\ndata: " + json.dumps(members).encode() + b"\n\n"


@pytest.mark.parametrize("read", [1 << 30, LIMIT + 1, 5000])
@pytest.mark.parametrize("size", [LIMIT, 3 * LIMIT, 2**21])
@pytest.mark.parametrize("type_first", [True, False])
@pytest.mark.parametrize("ahead", [CREATED, CREATED + DELTA])
def test_the_last_event_that_repeats_a_long_reply_ends_it_and_tells_usage(
    ahead: bytes, *, type_first: bool, size: int, read: int
) -> None:
    stream = ahead + last_response(type_first=type_first, size=size)
    one = tap("openai_responses")
    out = b""
    for at in range(0, len(stream), read):
        out += one.feed(stream[at : at + read])
        assert one._tail_bytes <= LIMIT
        assert one._long is None or len(one._long._tail) + len(one._long._head) <= 3 * LIMIT
    assert out + one.finish() == stream
    assert state(one) == (Usage(31, 30, 8), Ending.COMPLETED, ahead != CREATED)


def test_a_first_event_that_repeats_a_long_request_is_no_token() -> None:
    body = response("in_progress", instructions="x" * 200_000, usage=None)
    for members in ({"type": "response.created", "response": body}, {"response": body, "type": "response.created"}):
        created = b"event: response.created\ndata: " + json.dumps(members).encode() + b"\n\n"
        for read in (1 << 30, 9000):
            one = tap("openai_responses")
            assert run(one, *(created[at : at + read] for at in range(0, len(created), read))) == created
            assert not one.saw_token
            assert b'"id":"resp_1"' in one.error_event("Gone.", "engine_lost")


def test_a_long_delta_is_a_token_before_it_has_ended() -> None:
    one = tap("anthropic")
    one.feed(START)
    one.feed(TEXT[:-8] + b"x" * 70_000)
    assert one.saw_token
    assert one.ending is Ending.OPEN


def test_a_long_line_that_is_no_data_is_no_token() -> None:
    one = tap("openai_responses")
    assert run(one, b"event: " + b"x" * 200_000 + b"\n\n", DELTA, COMPLETED)
    assert state(one) == (Usage(31, 30, 8), Ending.COMPLETED, True)


def test_events_after_the_first_token_pass_unread_until_one_matters() -> None:
    for protocol, token, last in (("openai_responses", DELTA, COMPLETED), ("anthropic", TEXT, STOP)):
        one = tap(protocol)  # type: ignore[arg-type]
        one.feed(token)
        for _ in range(3):
            assert one.is_between
            assert one.feed(token) == token
        one.feed(last)
        assert one.ending is Ending.COMPLETED


def test_names_of_ends_in_the_text_of_a_model_end_nothing() -> None:
    for protocol, kind in (("openai_responses", "response.completed"), ("anthropic", "message_stop")):
        text = f'{{"type":"{kind}"}} "error" "usage" data: [DONE]'
        one = tap(protocol)  # type: ignore[arg-type]
        delta = event("response.output_text.delta", delta=text) + event("content_block_delta", delta={"text": text})
        assert run(one, delta, delta) == delta * 2
        assert one.ending is Ending.OPEN


def test_a_transcription_that_streams_is_read_as_far_as_known() -> None:
    delta = event("transcript.text.delta", delta="hi")
    usage = {"type": "tokens", "input_tokens": 5, "output_tokens": 2, "total_tokens": 7}
    last = event("transcript.text.done", text="hi", usage=usage)
    chunk = b'data: {"object":"transcription.chunk","choices":[{"delta":{"content":"hi"}}]}\n\n'
    for stream, known in ((delta + delta + last, Usage(5, None, 2)), (chunk + chunk + DONE, None)):
        for at in range(len(stream)):
            one = tap("plain")
            assert run(one, stream[:at], stream[at:]) == stream
            assert state(one) == (known, Ending.COMPLETED, True)
    one = tap("plain")
    run(one, OWN_ERROR)
    assert one.ending is Ending.ERROR


EVENTS = [
    CREATED, ADDED, DELTA, COMPLETED, FAILED, BROKEN, OWN_ERROR, DONE, START, PING, TEXT, STOPPED, STOP, OVERLOADED,
]  # fmt: skip
ODD = [
    b"\n",
    b"\r",
    b"\r\n",
    b": c",
    b":\n\n",
    b"event: x\n",
    b"data: {}",
    b"data:x",
    b"x",
    b'"error"',
    b"\xff",
    b"\n\n",
]
LONG = [last_response(type_first=first, size=LIMIT) for first in (True, False)]
pieces = st.lists(st.sampled_from(EVENTS * 2 + ODD + LONG), max_size=16)


@given(
    pieces,
    st.lists(st.integers(0, 5000) | st.integers(LIMIT - 300, LIMIT + 3000), max_size=6),
    st.sampled_from(["openai_responses", "anthropic", "plain"]),
    st.sampled_from([b"\n", b"\r\n", b"\r"]),
)
def test_any_bytes_pass_alike_however_they_are_cut(
    parts: list[bytes], cuts: list[int], protocol: Protocol, end: bytes
) -> None:
    stream = b"".join(parts).replace(b"\n", end)
    places = [0, *sorted(min(cut, len(stream)) for cut in cuts), len(stream)]
    results = []
    for reads in (
        [stream],
        [stream[a:b] for a, b in itertools.pairwise(places)],
        [stream[at : at + 193] for at in range(0, len(stream), 193)],
    ):
        one = tap(protocol)
        sent = run(one, *reads)
        if one.ending is Ending.ERROR and len(sent) > len(stream):
            assert sent[len(stream) :].strip(b"\n") == b"", "only the blank line that an error lacks is added"
            sent = sent[: len(stream)]
        half = stream[len(sent) :]
        assert sent + half == stream
        assert not half or (one.is_short and half == stream.splitlines()[-1]), "only half a line at the end is left out"
        results.append((*state(one), one.at_event_boundary))
    assert results[0] == results[1] == results[2]
