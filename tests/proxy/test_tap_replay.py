"""Every recorded reply of every engine and protocol through the tap: bytes unchanged, usage as stated."""

import functools
import json
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pharos.proxy.protocol import Protocol
from pharos.proxy.tap import Ending, JsonTap, Tap, make_tap
from tests.core.engine.test_usage_replay import counts_cached, dialect_of
from tests.core.engine.usage_table import USAGE, key_of, row_of
from tests.fakes import captures, records

PROTOCOLS: dict[str, Protocol] = {
    "/v1/chat/completions": "openai_chat",
    "/v1/completions": "openai_completion",
    "/v1/responses": "openai_responses",
    "/v1/messages": "anthropic",
    "/api/chat": "ollama_chat",
    "/api/generate": "ollama_generate",
}
"""Any other path: "plain"."""
STRIPPED = ("openai_chat", "openai_completion")
SILENT = ("api_chat_stream_stop",)
"""Replies without output: the model stopped at once."""
STREAM_TYPES = ("text/event-stream", "application/x-ndjson")
Reply = tuple[str, str, str]


@functools.cache
def asked(reply: Reply) -> Any:
    return json.loads(captures.request(*reply))


def content_type_of(reply: Reply) -> str:
    headers = captures.exchange(*reply).headers
    return next((value for name, value in headers.items() if name.lower() == "content-type"), "")


def is_stream(reply: Reply) -> bool:
    return content_type_of(reply).partition(";")[0] in STREAM_TYPES


def protocol_of(reply: Reply) -> Protocol:
    return PROTOCOLS.get(asked(reply)["path"], "plain")


REPLIES: list[Reply] = [
    (path.parts[-4], path.parts[-3], path.stem)
    for path in sorted(captures.TESTDATA.glob("*/*/streams/*.headers"))
    if "synthetic" not in path.parts
]
STREAMS = [reply for reply in REPLIES if is_stream(reply) and b'"error"' not in captures.exchange(*reply).body[:100]]
CHUNKED = [reply for reply in STREAMS if protocol_of(reply) in STRIPPED]


def tap_for(reply: Reply, *, strip: bool = False) -> Tap:
    return make_tap(
        protocol_of(reply),
        streamed=is_stream(reply),
        content_type=content_type_of(reply),
        strip_usage=strip,
        dialect=dialect_of(*reply[:2]),
        counts_cached=counts_cached(*reply[:2]),
    )


def without_usage_chunk(stream: bytes) -> bytes:
    def stays(event: bytes) -> bool:
        record = json.loads(event[len(b"data: ") :]) if event.startswith(b"data: {") else {}
        return record.get("choices") != [] or "usage" not in record

    return b"\n\n".join(filter(stays, stream.split(b"\n\n")))


def cut(body: bytes, places: list[int]) -> list[bytes]:
    ends = sorted({0, len(body), *(place % (len(body) + 1) for place in places)})
    return [body[start:end] for start, end in pairwise(ends)]


def run(tap: Tap, parts: list[bytes]) -> bytes:
    return b"".join(map(tap.feed, parts)) + tap.finish()


places = st.lists(st.integers(0, 1 << 20), max_size=12)


def test_streams_of_every_protocol_are_among_the_recorded_ones() -> None:
    assert {protocol_of(reply) for reply in STREAMS} == set(PROTOCOLS.values())
    assert not any(isinstance(tap_for(reply), JsonTap) for reply in STREAMS)


@pytest.mark.parametrize("reply", REPLIES, ids="/".join)
def test_a_recorded_reply_passes_unchanged_and_tells_its_usage(reply: Reply) -> None:
    body = captures.exchange(*reply).body
    whole = records.usage_in(
        body, content_type_of(reply), dialect_of(*reply[:2]), counts_cached=counts_cached(*reply[:2])
    )
    for size in (1, 7, 100, 1460, len(body) + 1):
        tap = tap_for(reply)
        assert run(tap, [body[at : at + size] for at in range(0, len(body), size)]) == body
        assert row_of(tap.usage) == USAGE[key_of(*reply)]
        assert tap.usage == whole
        if captures.exchange(*reply).status == 200:
            assert tap.ending is Ending.COMPLETED
            assert tap.saw_token or reply[2] in SILENT


@given(reply=st.sampled_from(REPLIES), where=places)
def test_where_a_recorded_reply_is_split_changes_nothing(reply: Reply, where: list[int]) -> None:
    body = captures.exchange(*reply).body
    tap, whole = tap_for(reply), tap_for(reply)
    assert run(tap, cut(body, where)) == run(whole, [body]) == body
    assert row_of(tap.usage) == USAGE[key_of(*reply)]
    assert (tap.usage, tap.ending, tap.saw_token) == (whole.usage, whole.ending, whole.saw_token)


@given(reply=st.sampled_from(STREAMS), where=places, end=st.sampled_from([b"\r\n", b"\r"]))
def test_other_line_ends_change_nothing(reply: Reply, where: list[int], end: bytes) -> None:
    body = captures.exchange(*reply).body
    if protocol_of(reply).startswith("ollama"):
        end = b"\r\n"  # a CR alone is a blank there
    body = body.replace(b"\n", end)
    tap = tap_for(reply)
    assert run(tap, cut(body, where)) == body
    assert row_of(tap.usage) == USAGE[key_of(*reply)]
    assert tap.ending is Ending.COMPLETED


@given(reply=st.sampled_from(CHUNKED), where=places)
def test_only_the_usage_chunk_is_taken_out_wherever_the_stream_is_split(reply: Reply, where: list[int]) -> None:
    body = captures.exchange(*reply).body
    tap = tap_for(reply, strip=True)
    assert run(tap, cut(body, where)) == without_usage_chunk(body)
    assert row_of(tap.usage) == USAGE[key_of(*reply)]


@given(reply=st.sampled_from(REPLIES), where=places, end=st.integers(0, 1 << 20))
def test_a_reply_that_broke_off_tells_the_same_or_nothing(reply: Reply, where: list[int], end: int) -> None:
    body = captures.exchange(*reply).body
    tap, kept = tap_for(reply), body[: end % (len(body) + 1)]
    sent = b"".join(map(tap.feed, cut(kept, where))) + tap.abandon()
    assert body.startswith(sent)
    assert row_of(tap.usage) in (None, USAGE[key_of(*reply)])
    if protocol_of(reply) not in STRIPPED:
        assert (tap.usage is None) or tap.ending is Ending.COMPLETED


FIRST = {
    ("llamacpp", "b11434", "chat_stream_plain"): b'"delta":{"content":"',
    ("llamacpp", "b11434", "completion_stream"): b'"text":"',
    ("llamacpp", "b11434", "responses_stream"): b'"delta":"Hello"',
    ("llamacpp", "b11434", "messages_stream"): b'"text":"Hello"',
    ("vllm", "0.32.0", "responses_stream"): b'"delta":"er"',
    ("vllm", "0.32.0", "messages_stream"): b'"text_delta","text":"',
    ("ollama", "0.33.0-rc2", "responses_stream"): b'"delta":"X"',
    ("ollama", "0.33.0-rc2", "messages_stream"): b'"text":" fr"',
    ("ollama", "0.33.0-rc2", "api_chat_stream"): b'"content":"x"',
    ("ollama", "0.33.0-rc2", "api_generate_stream"): b'"response":"X"',
    ("llama-swap", "v250-5-g0bdb37-loading-state", "chat_stream_loading_state"): b'"delta":{"content":"?"}',
    ("llama-swap", "v250-5-g0bdb37-loading-state", "chat_stream_loading_state_swap"): b'"content":" and"',
}
"""Bytes of the first event of a recorded stream that carries output of the model."""


@pytest.mark.parametrize("reply", FIRST, ids="/".join)
def test_the_first_token_is_the_first_output_and_nothing_ahead_of_it(reply: Reply) -> None:
    body = captures.exchange(*reply).body
    end = b"\n" if protocol_of(reply).startswith("ollama") else b"\n\n"
    tap, before = tap_for(reply), b""
    for event in body.split(end):
        assert not tap.saw_token
        tap.feed(event + end)
        if FIRST[reply] in event:
            break
        before += event
    assert tap.saw_token
    assert tap.is_between
    assert FIRST[reply] not in before


@given(reply=st.sampled_from(STREAMS), end=st.integers(0, 1 << 20))
def test_all_of_a_stream_that_ends_with_an_event_went_out(reply: Reply, end: int) -> None:
    """Nothing that is whole waits for what comes next."""
    body = captures.exchange(*reply).body
    blank = b"\n" if protocol_of(reply).startswith("ollama") else b"\n\n"
    kept = body[: body.find(blank, end % (len(body.rstrip()) + 1)) + len(blank)]
    tap = tap_for(reply)
    assert tap.feed(kept) == kept
    assert tap.at_event_boundary
