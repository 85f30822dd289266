"""Ollama's own streams: lines of JSON."""

import json
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pharos.core.engine.usage_fields import Dialect, Usage
from pharos.proxy.ndjson import NdjsonTap
from pharos.proxy.record import Ending
from pharos.proxy.tap import make_tap

LIMIT = 65_536
TOKEN = b'{"model":"m","message":{"role":"assistant","content":"hi"},"done":false}\n'
THOUGHT = b'{"model":"m","message":{"role":"assistant","content":"","thinking":"hm"},"done":false}\n'
CALL = (
    b'{"model":"m","message":{"role":"assistant","content":"","tool_calls":[{"function":{"name":"f","arguments":'
    b'{"error":"x","done":true,"usage":1}}}]},"done":false}\n'
)
EMPTY = b'{"model":"m","message":{"role":"assistant","content":""},"done":false}\n'
LAST = (
    b'{"model":"m","message":{"role":"assistant","content":""},"done":true,"done_reason":"stop","total_duration":9,'
    b'"load_duration":1,"prompt_eval_count":13,"prompt_eval_duration":2,"eval_count":20,"eval_duration":3}\n'
)
FAILED = b'{"error":"runner gone"}\n'
COUNTED = Usage(13, None, 20, 2e-9, 1e-9, 3e-9)
OLLAMA = Dialect(is_ollama=True)


def tap(protocol: str = "ollama_chat") -> NdjsonTap:
    return NdjsonTap(protocol, dialect=OLLAMA)  # type: ignore[arg-type]


def run(one: NdjsonTap, *parts: bytes) -> bytes:
    return b"".join(map(one.feed, parts)) + one.finish()


def every_cut(stream: bytes, usage: Usage | None, ending: Ending, *, token: bool) -> None:
    for at in range(len(stream) + 1):
        one = tap()
        assert run(one, stream[:at], stream[at:]) == stream, at
        assert (one.usage, one.ending, one.saw_token) == (usage, ending, token), at
    one = tap()
    assert run(one, *(bytes([byte]) for byte in stream)) == stream
    assert (one.usage, one.ending, one.saw_token) == (usage, ending, token)


@pytest.mark.parametrize("end", [b"\n", b"\r\n"], ids=["LF", "CRLF"])
def test_b05_lines_pass_whole_wherever_they_are_cut(end: bytes) -> None:
    stream = "".join(f'{{"message":{{"content":"{c}"}},"done":false}}\n' for c in "é€😀").encode() + LAST
    every_cut(stream.replace(b"\n", end), COUNTED, Ending.COMPLETED, token=True)


def test_the_record_that_says_done_is_the_end_and_tells_usage() -> None:
    every_cut(TOKEN * 2 + LAST, COUNTED, Ending.COMPLETED, token=True)
    every_cut(TOKEN * 2 + LAST[:-1], COUNTED, Ending.COMPLETED, token=True)
    every_cut(TOKEN * 2, None, Ending.OPEN, token=True)
    every_cut(TOKEN + LAST.replace(b'"done":true', b'"done": true'), COUNTED, Ending.COMPLETED, token=True)


def test_b09_an_error_line_is_no_completed_reply() -> None:
    every_cut(TOKEN * 2 + FAILED, None, Ending.ERROR, token=True)
    every_cut(FAILED + LAST, None, Ending.ERROR, token=False)
    every_cut(TOKEN + LAST + FAILED, None, Ending.ERROR, token=True)


@pytest.mark.parametrize("line", [TOKEN, THOUGHT, CALL])
def test_content_thinking_and_tool_calls_are_tokens_and_an_empty_message_is_none(line: bytes) -> None:
    one = tap()
    one.feed(EMPTY)
    one.feed(b"\n")
    assert not one.saw_token
    assert one.feed(line) == line
    assert one.saw_token
    assert one.ending is Ending.OPEN


def test_names_in_the_arguments_of_a_tool_mean_nothing() -> None:
    every_cut(CALL + CALL + LAST, COUNTED, Ending.COMPLETED, token=True)


def test_what_generate_writes_is_output() -> None:
    for name, token in (("response", True), ("thinking", True), ("context", False)):
        one = tap("ollama_generate")
        one.feed(b'{"%b":"a","done":false}\n' % name.encode())
        assert one.saw_token is token


def test_a_reply_of_nothing_but_its_end_has_no_token() -> None:
    every_cut(LAST, COUNTED, Ending.COMPLETED, token=False)


def test_an_unpaired_surrogate_is_a_token_like_any_other() -> None:
    every_cut(TOKEN.replace(b"hi", b"\\ud83d") + LAST, COUNTED, Ending.COMPLETED, token=True)


@pytest.mark.parametrize("line", [b"", b"nonsense", b"[" * 50_000, b'"x"', b"null", b"[1]", b"\xff\xfe", b" \t"])
def test_a_line_that_is_no_record_passes(line: bytes) -> None:
    one = tap()
    assert run(one, line + b"\n", LAST) == line + b"\n" + LAST
    assert (one.usage, one.saw_token) == (COUNTED, False)


def test_a_line_between_two_reads_is_held_and_nothing_else() -> None:
    one = tap()
    assert one.feed(TOKEN + TOKEN[:9]) == TOKEN
    assert not one.is_between
    assert one.at_event_boundary
    assert one.feed(TOKEN[9:]) == TOKEN
    assert one.is_between
    assert one.feed(TOKEN) == TOKEN
    assert one.feed(b"") == b""
    assert one.is_between
    assert one.feed(LAST) == LAST
    assert one.usage == COUNTED


@pytest.mark.parametrize("size", [1 << 30, LIMIT, 1000])
def test_a_huge_line_passes_in_pieces_with_bounded_memory(size: int) -> None:
    huge = b'{"message":{"content":"' + b"x" * (3 * 2**20) + b'"},"done":false}\n'
    stream = huge + LAST
    one = tap()
    out = []
    for at in range(0, len(stream), size):
        out.append(one.feed(stream[at : at + size]))
        assert one._tail_bytes <= LIMIT
        assert one.saw_token or at < 2 * LIMIT
    assert b"".join(out) + one.finish() == stream
    assert (one.usage, one.ending) == (COUNTED, Ending.COMPLETED)


@pytest.mark.parametrize("size", [1 << 30, LIMIT + 1, 9000])
@pytest.mark.parametrize("ahead", [b"", b'{"response":"a","done":false}\n'])
def test_a_last_record_with_a_long_context_ends_the_reply_and_tells_usage(size: int, ahead: bytes) -> None:
    context = b",".join(b"%d" % n for n in range(100_000))
    last = LAST.replace(b'"message":{"role":"assistant","content":""}', b'"response":""')
    last = last.replace(b'"total_duration"', b'"context":[' + context + b'],"total_duration"')
    stream = ahead + last
    one = tap("ollama_generate")
    assert run(one, *(stream[at : at + size] for at in range(0, len(stream), size))) == stream
    assert (one.usage, one.ending, one.saw_token) == (COUNTED, Ending.COMPLETED, bool(ahead))


@pytest.mark.parametrize("over", [-1, 0, 1, 2])
def test_where_a_line_near_the_limit_is_cut_changes_nothing(over: int) -> None:
    line = LAST[:-2] + b',"x":"'
    line += b"y" * (LIMIT - len(line) - 2 + over) + b'"}'
    results = set()
    for parts in ([line + b"\n"], [line, b"\n"], [line[:-1], line[-1:] + b"\n"], [line[:9], line[9:], b"\n"], [line]):
        one = tap()
        results.add((run(one, *parts).rstrip(), one.usage, one.ending, one.saw_token))
    assert results == {(line, COUNTED, Ending.COMPLETED, False)}


@pytest.mark.parametrize(
    ("sent", "lead"),
    [
        (b"", b""),
        (TOKEN, b""),
        (TOKEN + TOKEN[:20], b""),
        (TOKEN + b"\r", b""),
        (b'{"message":{"content":"' + b"x" * 70_000, b"\n"),
        (b'{"message":{"content":"' + b"x" * 70_000 + b'"}}\n', b""),
    ],
)
def test_a_failure_is_told_on_a_line_of_its_own(sent: bytes, lead: bytes) -> None:
    one = tap()
    out = one.feed(sent) + one.abandon()
    assert one.at_event_boundary is not bool(lead)
    assert one.error_event("It's gone.", "engine_lost") == lead + b'{"error":"It\'s gone."}\n'
    assert one.at_event_boundary
    assert one.ending is Ending.OPEN
    assert json.loads((out + lead + b'{"error":"It\'s gone."}\n').splitlines()[-1]) == {"error": "It's gone."}


LINES = [TOKEN, EMPTY, CALL, THOUGHT, LAST, FAILED, b'{"done":true}\n']
ODD = [b"\n", b"\r\n", b"\r", b"x", b"{", b'"error"', b"\xff"]
pieces = st.lists(st.sampled_from(LINES + ODD), max_size=20)


@given(pieces, st.lists(st.integers(0, 3000), max_size=8))
def test_any_bytes_pass_alike_whole_cut_and_byte_by_byte(parts: list[bytes], cuts: list[int]) -> None:
    stream = b"".join(parts)
    places = [0, *sorted(min(cut, len(stream)) for cut in cuts), len(stream)]
    results = []
    for reads in (
        [stream],
        [stream[a:b] for a, b in pairwise(places)],
        [stream[at : at + 1] for at in range(len(stream))],
    ):
        one = tap()
        assert run(one, *reads) == stream
        results.append((one.usage, one.ending, one.saw_token))
    assert results[0] == results[1] == results[2]


@given(pieces, st.lists(st.integers(0, 3000), max_size=8))
def test_a_cut_stream_never_ends_in_half_a_line(parts: list[bytes], cuts: list[int]) -> None:
    stream = b"".join(parts)
    places = sorted({0} | {min(cut, len(stream)) for cut in cuts})
    one = tap()
    sent = b"".join(one.feed(stream[a:b]) for a, b in pairwise(places)) + one.abandon()
    assert stream.startswith(sent)
    assert sent[-1:] in (b"", b"\n")


def test_the_tap_is_chosen_by_the_type_of_the_reply() -> None:
    for streamed, kind in ((True, "application/x-ndjson"), (True, "application/x-ndjson; charset=utf-8"), (True, "")):
        one = make_tap("ollama_chat", streamed=streamed, content_type=kind, strip_usage=False)
        assert repr(one) == "<NdjsonTap open token=False held=0>"
    one = make_tap("ollama_chat", streamed=True, content_type="application/json", strip_usage=False, dialect=OLLAMA)
    assert run(one, LAST) == LAST  # type: ignore[arg-type]
    assert one.usage == COUNTED
