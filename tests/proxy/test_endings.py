"""A stream that breaks off: what its client is told, in every protocol and after every byte."""

import json
import re
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pharos.proxy.ends import LIMIT, Ends
from pharos.proxy.protocol import Protocol
from pharos.proxy.tap import Ending, Tap, make_tap
from tests.fakes import captures

SSE, LINES = "text/event-stream", "application/x-ndjson"
STREAMS: dict[Protocol, list[tuple[str, str, str]]] = {
    "openai_chat": [("llamacpp", "b11434", "chat_stream_usage"), ("vllm", "0.32.0", "chat_stream_usage")],
    "openai_completion": [("llamacpp", "b11434", "completion_stream_usage")],
    "openai_responses": [
        ("llamacpp", "b11434", "responses_stream"),
        ("vllm", "0.32.0", "responses_stream"),
        ("ollama", "0.33.0-rc2", "responses_stream"),
    ],
    "anthropic": [("llamacpp", "b11434", "messages_stream"), ("ollama", "0.33.0-rc2", "messages_stream")],
    "ollama_chat": [("ollama", "0.33.0-rc2", "api_chat_stream")],
    "ollama_generate": [("ollama", "0.33.0-rc2", "api_generate_stream")],
}
CASES = [(protocol, reply) for protocol, replies in STREAMS.items() for reply in replies]
CUTS = [
    (*case, end, step)
    for case in CASES
    for end, step in ((b"\n", 1), (b"\r\n", 5), (b"\r", 5))
    if end != b"\r" or not case[0].startswith("ollama")
]
SUCCESS = re.compile(rb'\[DONE\]|message_stop|response\.completed|"done":true')
MESSAGE, CODE = 'The engine "went" away: é.', "engine_lost"


def tap_for(protocol: Protocol, *, strip: bool = False) -> Tap:
    kind = LINES if protocol.startswith("ollama") else SSE
    return make_tap(protocol, streamed=True, content_type=kind, strip_usage=strip)


def events(protocol: Protocol, stream: bytes) -> list[tuple[str, Any]]:
    """Name and value of what a client of the protocol sees; a value that is no JSON stays text.

    As the SDKs do, and other than the standard says, a name without a value counts as well.
    """
    text = stream.decode("utf-8", "replace")
    if protocol.startswith("ollama"):
        return [("", _value(line)) for line in text.split("\n") if line.strip()]
    found, name, data = [], "", []
    for line in text.replace("\r\n", "\n").replace("\r", "\n").split("\n"):
        field, _, value = line.partition(":")
        if not line and (data or name):
            found.append((name, _value("\n".join(data))))
        if not line:
            name, data = "", []
        elif field == "event":
            name = value.strip()
        elif field == "data":
            data.append(value.removeprefix(" "))
    return found


def _value(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text


def is_failure(protocol: Protocol, name: str, value: Any) -> bool:
    """Whether it is an error in the shape that clients of the protocol know."""
    if protocol in ("openai_chat", "openai_completion"):
        error = {"message": MESSAGE, "type": "server_error", "param": None, "code": CODE}
        return (name, value) == ("", {"error": error})
    if protocol == "anthropic":
        return (name, value) == ("error", {"type": "error", "error": {"type": "api_error", "message": MESSAGE}})
    if protocol.startswith("ollama"):
        return (name, value) == ("", {"error": MESSAGE})
    if name == "error":
        return value == {"type": "error", "code": CODE, "message": MESSAGE, "param": None, "sequence_number": 0}
    failed = value["response"]
    assert name == value["type"] == "response.failed"
    assert failed["object"] == "response"
    assert failed["status"] == "failed"
    return failed["error"] == {"code": "server_error", "message": MESSAGE}


@pytest.mark.parametrize(("protocol", "reply", "end", "step"), CUTS)
def test_after_every_byte_of_a_stream_its_last_event_is_the_failure(
    protocol: Protocol, reply: tuple[str, str, str], end: bytes, step: int
) -> None:
    body = captures.exchange(*reply).body.replace(b"\n", end)
    whole, told = events(protocol, body), 0
    for at in range(0, len(body), step):
        tap = tap_for(protocol)
        sent = tap.feed(body[: at // 2]) + tap.feed(body[at // 2 : at]) + tap.abandon()
        if tap.ending is not Ending.OPEN:
            continue
        told += 1
        got = events(protocol, sent + tap.error_event(MESSAGE, CODE))
        assert is_failure(protocol, *got[-1]), at
        assert got[:-1] == whole[: len(got) - 1], "an event was torn, glued or lost"
        assert tap.at_event_boundary
        assert body.startswith(sent)
    assert told > len(body) // step // 4


@given(case=st.sampled_from(CASES), where=st.lists(st.integers(0, 1 << 20), max_size=9), end=st.integers(0, 1 << 20))
def test_a_stream_that_broke_off_never_looks_whole(
    case: tuple[Protocol, tuple[str, str, str]], where: list[int], end: int
) -> None:
    protocol, reply = case
    body = captures.exchange(*reply).body
    body = body[: end % len(body)]
    tap = tap_for(protocol, strip=True)
    ends = sorted({0, len(body), *(place % (len(body) + 1) for place in where)})
    sent = b"".join(tap.feed(body[a:b]) for a, b in pairwise(ends)) + tap.abandon()
    if tap.ending is Ending.OPEN:
        assert not SUCCESS.search(tap.error_event(MESSAGE, CODE))
        assert sent == b"" or sent.endswith(b"\n")


def test_the_failed_response_is_the_one_that_was_begun() -> None:
    for engine, version, wanted in (
        ("llamacpp", "b11434", {"id": "resp_FtjPORgEJVkWfGoVc9CIATF3eFcXw8gX"}),
        ("vllm", "0.32.0", {"id": "resp_9957d7b63fba5ec3", "created_at": 1796029505, "model": "tiny"}),
    ):
        tap = tap_for("openai_responses")
        tap.feed(captures.exchange(engine, version, "responses_stream").body[:2500])
        tap.abandon()
        ((_, failed),) = events("openai_responses", tap.error_event(MESSAGE, CODE))
        assert {name: failed["response"].get(name) for name in wanted} == wanted
        assert ("model" in failed["response"]) == ("model" in wanted)
        assert ("sequence_number" in failed) == (engine == "vllm")
        assert failed.get("sequence_number", 99) > 9


@pytest.mark.parametrize(
    "begun",
    [
        {"type": "response.created"},
        {"type": "response.created", "response": None},
        {"type": "response.created", "response": {"id": 3}},
        {"type": "response.created", "response": {"id": "x" * 300}},
        {"type": "response.other", "response": {"id": "x"}},
    ],
)
def test_without_an_id_the_failure_is_a_plain_error(begun: Any) -> None:
    tap = tap_for("openai_responses")
    tap.feed(b"data: " + json.dumps(begun).encode() + b"\n\n")
    assert tap.error_event(MESSAGE, CODE).startswith(b"event: error\n")


def test_an_id_that_cannot_be_written_is_made_writable() -> None:
    tap = tap_for("openai_responses")
    created = {"type": "response.created", "response": {"id": "\ud83d", "model": "m" * 300, "created_at": "now"}}
    tap.feed(b"data: " + json.dumps(created).encode() + b"\n\n")
    ((_, failed),) = events("openai_responses", tap.error_event(MESSAGE, CODE))
    assert failed["response"]["id"] == "?"
    assert not {"model", "created_at"} & set(failed["response"])


@pytest.mark.parametrize("protocol", STREAMS)
def test_half_of_a_long_line_is_ended_before_the_failure(protocol: Protocol) -> None:
    tap = tap_for(protocol)
    start = b'{"message":{"content":"' if protocol.startswith("ollama") else b'data: {"delta":"'
    sent = tap.feed(start + b"x" * 100_000) + tap.abandon()
    assert len(sent) > 100_000
    assert not tap.at_event_boundary
    got = events(protocol, sent + tap.error_event(MESSAGE, CODE))
    assert len(got) == 2
    assert isinstance(got[0][1], str)
    assert is_failure(protocol, *got[1])


@pytest.mark.parametrize("protocol", [*STREAMS, "plain"])
def test_half_a_body_in_one_piece_has_no_ending(protocol: Protocol) -> None:
    tap = make_tap(protocol, streamed=False, content_type="application/json", strip_usage=False)
    tap.feed(b'{"a":')
    assert tap.abandon() == tap.error_event(MESSAGE, CODE) == b""


@given(st.lists(st.integers(0, 3 * LIMIT), max_size=8))
def test_both_ends_of_anything_are_kept_and_little_else(sizes: list[int]) -> None:
    whole, ends = b"", Ends()
    for turn, size in enumerate(sizes):
        piece = bytes([65 + turn]) * size
        whole += piece
        ends.add(piece)
        assert len(ends._head) + len(ends._tail) <= 3 * LIMIT
    assert ends.size == len(whole)
    assert ends.is_whole == (len(whole) <= LIMIT)
    assert ends.head == whole[:LIMIT]
    assert ends.tail == whole[-LIMIT:]
    assert repr(ends) == f"<Ends of {len(whole)} bytes>"
