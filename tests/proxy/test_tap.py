import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pharos.core.engine.usage_fields import Dialect, Usage, Zero
from pharos.proxy.protocol import Protocol
from pharos.proxy.tap import Ending, JsonTap, SseTap, Tap, make_tap

STREAMS = Path(__file__).parents[2] / "testdata" / "llamacpp" / "b11434" / "streams"
SSE = "text/event-stream"

USAGE: dict[str, Usage] = {
    "chat_stream_usage": Usage(29, 6, 12, 135.876 / 1000, None, 116.82 / 1000),
    "chat_stream_plain": Usage(29, 28, 12, 10.63 / 1000, None, 117.475 / 1000),
    "tools_stream": Usage(29, 28, 12, 10.748 / 1000, None, 116.778 / 1000),
    "completion_stream": Usage(4, 0, 8, 28.6 / 1000, None, 75.376 / 1000),
    "completion_stream_usage": Usage(4, 3, 8, 10.49 / 1000, None, 74.491 / 1000),
}
STRIPPED = {"chat_stream_usage"}
"""Streams with a chunk whose only purpose is usage."""


def recorded(name: str) -> bytes:
    return (STREAMS / f"{name}.response").read_bytes()


def protocol_of(name: str) -> Protocol:
    return "openai_completion" if name.startswith("completion") else "openai_chat"


def tap_for(name: str, *, strip: bool) -> Tap:
    return make_tap(protocol_of(name), streamed=True, content_type=SSE, strip_usage=strip)


def without_usage_chunk(stream: bytes) -> bytes:
    """The same stream made another way: by whole events."""
    end = b"\r\n\r\n" if b"\r\n" in stream else b"\r\r" if b"\r" in stream else b"\n\n"
    events = stream.split(end)
    return end.join(event for event in events if b'"choices":[],' not in event)


def run(tap: Tap, parts: list[bytes]) -> bytes:
    return b"".join(tap.feed(part) for part in parts) + tap.finish()


@pytest.mark.parametrize("strip", [False, True])
@pytest.mark.parametrize("end", [b"\n", b"\r\n", b"\r"], ids=["LF", "CRLF", "CR"])
@pytest.mark.parametrize("name", USAGE)
def test_where_a_recorded_stream_is_cut_changes_nothing(name: str, end: bytes, *, strip: bool) -> None:
    stream = recorded(name).replace(b"\n", end)
    wanted = without_usage_chunk(stream) if strip and name in STRIPPED else stream
    assert (wanted != stream) == (strip and name in STRIPPED)
    for at in range(len(stream) + 1):
        tap = tap_for(name, strip=strip)
        assert run(tap, [stream[:at], stream[at:]]) == wanted, at
        assert tap.usage == USAGE[name], at
        assert tap.ending is Ending.COMPLETED
        assert tap.saw_token
        assert tap.at_event_boundary


@pytest.mark.parametrize("strip", [False, True])
@pytest.mark.parametrize("end", [b"\n", b"\r\n", b"\r"], ids=["LF", "CRLF", "CR"])
@pytest.mark.parametrize("name", USAGE)
def test_a_recorded_stream_in_reads_of_any_size_is_the_same(name: str, end: bytes, *, strip: bool) -> None:
    stream = recorded(name).replace(b"\n", end)
    wanted = without_usage_chunk(stream) if strip and name in STRIPPED else stream
    for size in (1, 2, 3, 7, 64, 193, 500, 1460):
        tap = tap_for(name, strip=strip)
        assert run(tap, [stream[at : at + size] for at in range(0, len(stream), size)]) == wanted
        assert tap.usage == USAGE[name]
        assert tap.ending is Ending.COMPLETED


def test_the_first_token_is_the_first_content_and_not_the_role() -> None:
    tap = tap_for("chat_stream_usage", strip=False)
    seen = []
    for event in recorded("chat_stream_usage").split(b"\n\n")[:3]:
        tap.feed(event + b"\n\n")
        seen.append(tap.saw_token)
    assert seen == [False, True, True]


LINES = [
    b'data: {"choices":[{"delta":{"content":"a"}}]}',
    b'data: {"choices":[],"usage":{"prompt_tokens":13,"completion_tokens":20}}',
    b'data: {"choices":[],"usage":null}',
    b'data: {"choices":[{"text":"a"}],"usage":{"prompt_tokens":1,"completion_tokens":2}}',
    b'data: {"error":{"message":"x"}}',
    b"data: [DONE]",
    b"data: half",
    b": comment",
    b":",
    b"",
    b"",
    b"event: message",
    b"id: 3",
    b"data",
]
streams = st.lists(st.tuples(st.sampled_from(LINES), st.sampled_from([b"\n", b"\n", b"\r\n", b"\r"])), max_size=24).map(
    lambda lines: b"".join(line + end for line, end in lines)
)


def state(tap: Tap) -> tuple[Any, ...]:
    return tap.usage, tap.ending, tap.saw_token


@given(stream=streams, cuts=st.lists(st.integers(0, 2000), max_size=12), strip=st.booleans())
def test_where_any_stream_is_cut_changes_nothing(stream: bytes, cuts: list[int], *, strip: bool) -> None:
    whole = tap_for("chat", strip=strip)
    wanted = run(whole, [stream])
    places = sorted({min(cut, len(stream)) for cut in cuts} | {0, len(stream)})
    pieces = tap_for("chat", strip=strip)
    assert run(pieces, [stream[a:b] for a, b in pairwise(places)]) == wanted
    assert state(pieces) == state(whole)
    if not strip:
        assert wanted == stream or (whole.shows_end and wanted in (stream + b"\n", stream + b"\n\n"))


@given(stream=streams, cuts=st.lists(st.integers(0, 2000), max_size=12), strip=st.booleans())
def test_a_cut_stream_never_ends_in_half_a_line_before_the_error(
    stream: bytes, cuts: list[int], *, strip: bool
) -> None:
    tap = tap_for("chat", strip=strip)
    places = sorted({0} | {min(cut, len(stream)) for cut in cuts})
    sent = b"".join(tap.feed(stream[a:b]) for a, b in pairwise(places)) + tap.abandon()
    lines = sent.splitlines(keepends=True)
    if not lines or lines[-1][-1:] in (b"\n", b"\r") or lines[-1].startswith(b":"):
        reply = sent + tap.error_event("The engine went away.", "engine_died")
        assert last_event(reply) == ["data: " + json.dumps(ERROR, separators=(",", ":"))]
        assert tap.at_event_boundary
    else:
        pytest.fail("half a line was sent")


ERROR = {"error": {"message": "The engine went away.", "type": "server_error", "param": None, "code": "engine_died"}}


def last_event(stream: bytes) -> list[str]:
    """Lines of the last event a client would see, by the standard's line ends."""
    events: list[list[str]] = [[]]
    for line in stream.decode().replace("\r\n", "\n").replace("\r", "\n").split("\n")[:-1]:
        if line:
            events[-1].append(line)
        else:
            events.append([])
    return [event for event in events if event][-1]


def test_a_reply_in_one_piece_passes_as_it_is_and_is_read_at_its_end() -> None:
    body = recorded("chat_full")
    for at in range(len(body) + 1):
        tap = make_tap("openai_chat", streamed=False, content_type="application/json; charset=utf-8", strip_usage=True)
        assert tap.at_event_boundary
        assert run(tap, [body[:at], body[at:]]) == body
        assert tap.usage == Usage(29, 28, 12, 11.113 / 1000, None, 118.218 / 1000)
        assert tap.ending is Ending.COMPLETED
        assert tap.saw_token
        assert not tap.at_event_boundary
        assert tap.error_event("m", "c") == tap.abandon() == b""


def test_thirty_megabytes_of_embeddings_pass_without_being_held() -> None:
    tap = make_tap("plain", streamed=False, content_type="application/json", strip_usage=False)
    numbers = b"-0.01234567," * (2**18 // 12)
    tap.feed(b'{"object":"list","data":[{"embedding":[')
    for _ in range(120):
        assert tap.feed(numbers) is numbers
        assert isinstance(tap, JsonTap)
        assert len(tap._ends._tail) + len(tap._ends._head) <= 3 * 65536
    tap.feed(b'0]}],"model":"m","usage":{"prompt_tokens":5,"total_tokens":5}}')
    tap.finish()
    assert (tap.usage, tap.ending) == (Usage(5, None, 0), Ending.COMPLETED)


@pytest.mark.parametrize("size", [10, 200_000])
def test_an_error_that_a_whole_response_states_is_one_whatever_its_size(size: int) -> None:
    usage = {"input_tokens": 3, "output_tokens": 1, "total_tokens": 4}
    for error in (None, {"code": "server_error", "message": "x"}):
        body = {"id": "resp_1", "object": "response", "error": error, "output": ["x" * size], "usage": usage}
        tap = make_tap("openai_responses", streamed=False, content_type="application/json", strip_usage=False)
        run(tap, [json.dumps(body).encode()])
        assert tap.ending is (Ending.ERROR if error else Ending.COMPLETED)
        assert tap.usage == (None if error else Usage(3, None, 1))


def test_what_a_zero_means_is_told_to_the_tap_of_a_whole_reply() -> None:
    usage = {"input_tokens": 3, "input_tokens_details": {"cached_tokens": 0}, "output_tokens": 1, "total_tokens": 4}
    body = json.dumps({"object": "response", "usage": usage}).encode()
    for zero, seen, cached in ((Zero.COUNT, False, 0), (Zero.COUNT_ONCE_SEEN, True, 0), (Zero.SILENCE, True, None)):
        tap = make_tap(
            "openai_responses",
            streamed=False,
            content_type="application/json",
            strip_usage=False,
            dialect=Dialect(responses_zero=zero),
            counts_cached=seen,
        )
        run(tap, [body])
        assert tap.usage == Usage(3, cached, 1)


@pytest.mark.parametrize("size", [1000, 65536, 8 * 2**20])
def test_usage_at_the_end_of_a_huge_reply_is_found(size: int) -> None:
    body = (
        b'{"choices":[{"message":{"content":"'
        + b"x" * (8 * 2**20)
        + b'"}}],"usage":{"prompt_tokens":3,"completion_tokens":4}}'
    )
    tap = JsonTap(is_json=True)
    assert run(tap, [body[at : at + size] for at in range(0, len(body), size)]) == body
    assert tap.usage == Usage(3, None, 4)
    assert tap.ending is Ending.COMPLETED
    assert len(tap._ends._tail) + len(tap._ends._head) <= 4 * 65536


def test_usage_ahead_of_a_huge_reply_is_found() -> None:
    body = b'{"object":"list","usage":{"prompt_tokens":3,"total_tokens":3},"data":[' + b"0.1," * 100_000 + b"1]}"
    tap = JsonTap(is_json=True)
    assert run(tap, [body]) == body
    assert tap.usage == Usage(3, None, 0)


def test_an_error_in_a_reply_of_one_piece_is_one() -> None:
    tap = JsonTap(is_json=True)
    run(tap, [recorded("embeddings")])
    assert tap.ending is Ending.ERROR
    assert tap.usage is None


@pytest.mark.parametrize("body", [b"", b" ", b'{"a":1', b'{"a":"}'])
def test_a_torn_body_has_no_end(body: bytes) -> None:
    tap = JsonTap(is_json=True)
    run(tap, [body])
    assert tap.ending is (Ending.OPEN if not body.endswith(b"}") else Ending.COMPLETED)
    assert tap.usage is None


def test_leading_spaces_that_keep_a_connection_alive_are_no_token() -> None:
    tap = JsonTap(is_json=True)
    tap.feed(b" \n")
    assert not tap.saw_token
    tap.feed(b"{")
    assert tap.saw_token


def test_a_body_that_is_no_json_ends_with_the_transfer() -> None:
    tap = make_tap("openai_chat", streamed=True, content_type="text/html", strip_usage=False)
    assert run(tap, [b"<html>"]) == b"<html>"
    assert tap.ending is Ending.COMPLETED
    assert tap.usage is None


@pytest.mark.parametrize(
    ("streamed", "content_type", "kind"),
    [
        (True, "text/event-stream", SseTap),
        (False, "Text/Event-Stream; charset=utf-8", SseTap),
        (True, "", SseTap),
        (False, "", JsonTap),
        (True, "application/json", JsonTap),
        (True, "text/plain", JsonTap),
    ],
)
def test_the_tap_is_chosen_by_what_the_engine_answers(streamed: bool, content_type: str, kind: type) -> None:  # noqa: FBT001
    tap = make_tap("openai_chat", streamed=streamed, content_type=content_type, strip_usage=False)
    assert isinstance(tap, kind)
    assert repr(tap).startswith(f"<{kind.__name__} open")
