import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pharos.core.engine.usage_fields import Usage
from pharos.proxy.grammar import CHAT
from pharos.proxy.record import Ending, chat_has_token, completion_has_token
from pharos.proxy.signs import matters
from pharos.proxy.sse import SseTap

CONTENT = b'data: {"choices":[{"delta":{"content":"hi"}}]}\n\n'
USAGE = b'data: {"choices":[],"usage":{"prompt_tokens":13,"completion_tokens":20,"total_tokens":33}}\n\n'
DONE = b"data: [DONE]\n\n"
COUNTED = Usage(13, None, 20)
LINE_LIMIT = 65_536


def tap(*, strip: bool = True) -> SseTap:
    return SseTap("openai_chat", strip_usage=strip)


def run(one: SseTap, *parts: bytes) -> bytes:
    return b"".join(map(one.feed, parts)) + one.finish()


def every_cut(stream: bytes, wanted: bytes, *, strip: bool, usage: Usage | None, ending: Ending) -> None:
    for at in range(len(stream) + 1):
        one = tap(strip=strip)
        assert run(one, stream[:at], stream[at:]) == wanted, at
        assert (one.usage, one.ending) == (usage, ending), at
    one = tap(strip=strip)
    assert run(one, *(bytes([byte]) for byte in stream)) == wanted
    assert (one.usage, one.ending) == (usage, ending)


@pytest.mark.parametrize("strip", [False, True])
def test_b01_only_the_usage_event_and_its_blank_line_go(*, strip: bool) -> None:
    stream = CONTENT * 2 + USAGE + DONE
    every_cut(stream, CONTENT * 2 + DONE if strip else stream, strip=strip, usage=COUNTED, ending=Ending.COMPLETED)


def test_b02_odd_choices_pass_and_harm_nothing() -> None:
    odd = (
        b'data: {"choices":[],"prompt_filter_results":[]}\n\n'
        b'data: {"choices":null}\n\n'
        b'data: {"object":"x"}\n\n'
        b'data: {"choices":[{"delta":{"content":"a"}}],"usage":null}\n\n'
        b'data: {"choices":[{"delta":null}, 3],"usage": null}\n\n'
        b'data: {"choices":[],"usage":[1]}\n\n'
        b'data: {"choices":[],"usage":null}\n\n'
        b'data: [1,"usage"]\n\n'
        b'data: {"choices":{},"usage":{"prompt_tokens":1,"completion_tokens":1}}\n\n'
        b'data: {"usage":{"prompt_tokens":1,"completion_tokens":1}}\n\n'
        b'data: {"choices":[],"usage":{"prompt_tokens":1},"error":{"message":"x"}}\n\n'
    )
    every_cut(odd + USAGE, odd, strip=True, usage=None, ending=Ending.ERROR)


def test_b05_characters_of_every_length_survive_every_cut() -> None:
    stream = "".join(f'data: {{"choices":[{{"delta":{{"content":"{c}"}}}}]}}\n\n' for c in "é€😀").encode()
    for strip in (False, True):
        every_cut(
            stream + USAGE + DONE,
            stream + (b"" if strip else USAGE) + DONE,
            strip=strip,
            usage=COUNTED,
            ending=Ending.COMPLETED,
        )


@pytest.mark.parametrize("comment", [b":\n\n", b": keep-alive\r\n\r\n", b": usage \n\n"])
def test_b06_comments_pass_at_once_and_are_no_token(comment: bytes) -> None:
    one = tap()
    for _ in range(5):
        assert one.feed(comment) == comment
        assert not one.saw_token
    assert one.feed(CONTENT) == CONTENT
    assert one.saw_token
    assert one.feed(comment) == comment
    assert one.feed(comment + USAGE) == comment
    assert one.feed(DONE) == DONE
    assert one.usage == COUNTED


def test_the_beginning_of_a_comment_is_not_held_back() -> None:
    one = tap()
    assert one.feed(b": pi") == b": pi"
    assert not one.at_event_boundary
    assert one.feed(b"ng\n") == b"ng\n"
    assert one.feed(b"\n") == b"\n"
    assert one.at_event_boundary


def test_a_comment_inside_the_usage_event_stays() -> None:
    line = USAGE[:-1]
    every_cut(line + b": ping\n\n" + DONE, b": ping\n\n" + DONE, strip=True, usage=COUNTED, ending=Ending.COMPLETED)
    every_cut(b": ping\n" + USAGE + DONE, b": ping\n\n" + DONE, strip=True, usage=COUNTED, ending=Ending.COMPLETED)


def test_a_line_that_a_comment_overtook_does_not_take_the_blank_line_behind_it() -> None:
    for blank in (b"\n", b"\r", b"\r\n"):
        one = tap()
        sent = one.feed(b"event: x\r: ping\n" + blank)
        assert sent.startswith(b": ping\nevent: x")
        assert len(sent.splitlines()) == 3
        assert one.at_event_boundary


def test_no_line_gets_into_the_middle_of_a_comment() -> None:
    one = tap()
    assert one.feed(b"event: x\n: pi") == b": pi"
    assert one.feed(b"n" * 300 + b"\n\n") == b"n" * 300 + b"\nevent: x\n\n"


@pytest.mark.parametrize("size", [1 << 30, 65536, 1000])
@pytest.mark.parametrize("strip", [False, True])
def test_b07_a_huge_line_passes_in_pieces_with_bounded_memory(size: int, *, strip: bool) -> None:
    huge = b'data: {"choices":[{"delta":{"content":"' + b"x" * (3 * 2**20) + b'"}}],"usage":{"prompt_tokens":1}}\n\n'
    stream = huge + USAGE + DONE
    one = tap(strip=strip)
    out = []
    for at in range(0, len(stream), size):
        out.append(one.feed(stream[at : at + size]))
        assert one._tail_bytes + one._held_bytes <= 2 * LINE_LIMIT
        assert one.saw_token or at < 2 * LINE_LIMIT
    out.append(one.finish())
    assert b"".join(out) == huge + (b"" if strip else USAGE) + DONE
    assert one.usage == COUNTED
    assert one.ending is Ending.COMPLETED


@pytest.mark.parametrize("over", [-1, 0, 1, 2])
def test_whether_a_line_is_read_depends_on_its_length_alone(over: int) -> None:
    start, end = b'data: {"choices":[],"usage":{"prompt_tokens":1,"completion_tokens":2},"x":"', b'"}\n'
    line = start + b"x" * (LINE_LIMIT - len(start) - len(end) + over) + end
    results = set()
    for parts in ([line + b"\n"], [line, b"\n"], [line[:-1], b"\n\n"], [line[:100], line[100:-1], b"\n", b"\n"]):
        one = tap()
        results.add((run(one, *parts), one.usage, one.saw_token))
    assert len(results) == 1
    assert results.pop()[1] == (Usage(1, None, 2) if over <= 0 else None)


def test_a_huge_event_of_many_lines_is_held_in_bounds() -> None:
    stream = b"id: 123456789\n" * 20_000 + USAGE
    for size in (1000, len(stream)):
        one = tap()
        out = b""
        for at in range(0, len(stream), size):
            out += one.feed(stream[at : at + size])
            assert one._held_bytes <= LINE_LIMIT
        assert out + one.finish() == stream
        assert one.usage == COUNTED


def test_b09_an_error_in_a_stream_is_no_completed_reply() -> None:
    stream = CONTENT + b'data: {"error":{"message":"timed out","code":504}}\n\n' + DONE
    every_cut(stream, stream, strip=True, usage=None, ending=Ending.ERROR)
    bare = b'data: {"error":"x"}\n\n' + USAGE + DONE
    one = tap(strip=False)
    assert run(one, bare) == bare
    assert one.usage is None
    assert one.ending is Ending.ERROR
    assert not one.saw_token


def test_an_error_field_that_is_null_is_none() -> None:
    one = tap()
    run(one, b'data: {"choices":[{"delta":{"content":"x"}}],"error":null}\n\n' * 2 + DONE)
    assert one.ending is Ending.COMPLETED


def test_b12_the_first_reasoning_is_the_first_token_and_passes_untouched() -> None:
    for name in (b"reasoning", b"reasoning_content"):
        one = tap()
        delta = b'data: {"choices":[{"delta":{"role":"assistant","content":"","%b":"hm"}}]}\n\n' % name
        assert run(one, delta * 50, CONTENT, USAGE) == delta * 50 + CONTENT
        assert one.saw_token


def test_b13_tool_calls_are_never_repaired() -> None:
    arguments = b'"{\\"a\\":1}{\\"usage\\":2"'
    calls = b'[{"index":0,"function":{"arguments":%b}}]' % arguments
    stream = b'data: {"choices":[{"delta":{"tool_calls":%b}}]}\n\n' % calls * 2
    one = tap()
    assert run(one, stream, USAGE, DONE) == stream + DONE
    assert one.saw_token


def test_b14_an_unpaired_surrogate_is_a_token_like_any_other() -> None:
    stream = b'data: {"choices":[{"delta":{"content":"\\ud83d"}}]}\n\n'
    one = tap()
    assert run(one, stream) == stream
    assert one.saw_token


@pytest.mark.parametrize("payload", [b"", b"nonsense", b"[" * 50_000, b'"x"', b"null", b"\xff\xfe"])
def test_data_that_is_no_record_passes(payload: bytes) -> None:
    stream = b"data:" + payload + b"\n\n"
    every = tap()
    assert run(every, stream, USAGE, DONE) == stream + DONE
    assert not every.saw_token


def test_events_with_other_fields_are_taken_out_whole_or_not_at_all() -> None:
    fields = b"event: message\nid: 7\n"
    every_cut(CONTENT + fields + USAGE + DONE, CONTENT + DONE, strip=True, usage=COUNTED, ending=Ending.COMPLETED)
    every_cut(USAGE[:-1] + b"id: 7\n\n" + DONE, DONE, strip=True, usage=COUNTED, ending=Ending.COMPLETED)
    kept = fields + CONTENT + b"retry: 3\n\n"
    every_cut(kept + DONE, kept + DONE, strip=True, usage=None, ending=Ending.COMPLETED)


def test_an_event_of_several_data_lines_is_never_taken_out() -> None:
    for event in (USAGE[:-1] + b"data: x\n\n", b"data: x\n" + USAGE, USAGE[:-1] + USAGE, USAGE[:-1] + b"x\n" + USAGE):
        every_cut(event + DONE, event + DONE, strip=True, usage=COUNTED, ending=Ending.COMPLETED)


def test_a_usage_event_without_its_blank_line_is_taken_out_at_the_end() -> None:
    for cut in (1, 2):
        every_cut(CONTENT + USAGE[:-cut], CONTENT, strip=True, usage=COUNTED, ending=Ending.OPEN)


def test_a_last_line_without_an_end_is_delivered_only_if_nothing_can_be_missing() -> None:
    every_cut(CONTENT + DONE[:-2], CONTENT + DONE[:-2], strip=True, usage=None, ending=Ending.COMPLETED)
    every_cut(CONTENT + b": ping", CONTENT + b": ping", strip=True, usage=None, ending=Ending.OPEN)
    for last in (b"id: 3", CONTENT[:-2]):
        every_cut(CONTENT + last, CONTENT, strip=True, usage=None, ending=Ending.OPEN)


@pytest.mark.parametrize("end", [b"\n", b"\r\n", b"\r"])
def test_an_error_or_a_finish_gets_the_blank_line_without_which_clients_skip_it(end: bytes) -> None:
    finish = b'data: {"choices":[{"delta":{"content":"a"},"finish_reason":"stop"}]}\n'
    for before, last, ending in ((b"", finish, Ending.OPEN), (CONTENT, b'data: {"error":"x"}\n', Ending.ERROR)):
        stream = before.replace(b"\n", end) + last.replace(b"\n", end)
        blank = b"\n\n" if end == b"\r" else b"\n"
        every_cut(stream, stream + blank, strip=True, usage=None, ending=ending)
        every_cut(stream + end, stream + end, strip=True, usage=None, ending=ending)
    error = CONTENT + b'data: {"error":"x"}'
    every_cut(error, error + b"\n\n", strip=True, usage=None, ending=Ending.ERROR)
    every_cut(CONTENT + DONE[:-1], CONTENT + DONE[:-1], strip=True, usage=None, ending=Ending.COMPLETED)


def test_usage_in_every_chunk_counts_with_its_last_value() -> None:
    stream = b"".join(
        b'data: {"choices":[{"text":"a"}],"usage":{"prompt_tokens":%d,"completion_tokens":%d}}\n\n' % pair
        for pair in ((0, 0), (5, 1), (5, 2), (0, 0))
    )
    one = SseTap("openai_completion", strip_usage=True)
    assert run(one, stream, DONE) == stream + DONE
    assert one.usage == Usage(5, None, 2)
    assert one.saw_token


def test_no_complete_content_event_is_held_back() -> None:
    for end, strip in itertools.product((b"\n", b"\r\n", b"\r"), (False, True)):
        one = tap(strip=strip)
        event = CONTENT.replace(b"\n", end)
        for _ in range(3):
            assert one.feed(event) == event


def test_a_cut_after_half_a_line_sends_nothing_of_it() -> None:
    for strip in (False, True):
        one = tap(strip=strip)
        assert one.feed(CONTENT + b'data: {"cho') == CONTENT
        assert one.abandon() == b""
        assert one.at_event_boundary
        assert one.error_event("Gone.", "engine_died").startswith(b'data: {"error":')


@pytest.mark.parametrize(
    ("sent", "lead"),
    [
        (b"", b""),
        (CONTENT, b""),
        (CONTENT[:-1], b"\n"),
        (CONTENT[:-2] + b"\r", b"\n\n"),
        (CONTENT[:-2] + b"\r\n", b"\n"),
        (b": comm", b"\n\n"),
        (b"data: " + b"x" * 70_000, b"\n\n"),
        (b"event: x\n", b""),
        (USAGE[:-1], b""),
        (CONTENT + USAGE, b""),
    ],
)
def test_the_error_event_starts_on_a_fresh_event(sent: bytes, lead: bytes) -> None:
    one = tap()
    one.feed(sent)
    one.abandon()
    wanted = lead + b'data: {"error":{"message":"Gone.","type":"server_error","param":null,"code":"engine_died"}}\n\n'
    assert one.error_event("Gone.", "engine_died") == wanted
    assert one.at_event_boundary


def test_only_named_values_matter() -> None:
    late = CHAT.signs.late
    assert not matters(b'{"content":"\\"usage\\" [done] \\"error\\"","usage":null}', late)
    assert matters(b'"usage":{', late)
    assert matters(b'"usage":null,"usage":{', late)
    assert matters(b'"timings"', late)
    assert matters(b'"error"', late)
    assert matters(b"[DONE]", late)


def test_usage_that_is_null_in_every_chunk_costs_and_changes_nothing() -> None:
    event = CONTENT.replace(b"}]}", b'}],"usage":null}')
    one = tap()
    for _ in range(3):
        assert one.feed(event) == event
    assert run(one, USAGE, DONE) == DONE
    assert one.usage == COUNTED


def test_an_empty_read_changes_nothing() -> None:
    one = tap()
    assert one.feed(b"") == b""
    assert one.feed(CONTENT) == CONTENT
    assert one.feed(b"") == b""
    assert one.finish() == b""


@pytest.mark.parametrize(
    ("record", "token"),
    [
        ({}, False),
        ({"choices": None}, False),
        ({"choices": [None]}, False),
        ({"choices": [{"delta": {"role": "assistant", "content": None}}]}, False),
        ({"choices": [{"delta": {"content": ""}}]}, False),
        ({"choices": [{"delta": {"tool_calls": []}}]}, False),
        ({"choices": [{"delta": {"tool_calls": [{}]}}]}, True),
        ({"choices": [{"delta": {}}, {"delta": {"reasoning": "a"}}]}, True),
    ],
)
def test_what_is_output_of_the_model(record: dict[str, object], *, token: bool) -> None:
    assert chat_has_token(record) is token


def test_what_is_output_of_a_completion() -> None:
    assert completion_has_token({"choices": [{"text": "a"}]})
    assert not completion_has_token({"choices": [{"text": ""}]})


TINY = [b"\n", b"data:x\r", b"data: {}\n\n", b":\n\n", b"x\n", b"\r\n"]


@pytest.mark.parametrize("begun", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("unit", TINY, ids=repr)
def test_a_megabyte_of_tiny_lines_passes_whole(unit: bytes, *, begun: bool) -> None:
    data = unit * (2**20 // len(unit))
    for strip, size in itertools.product((False, True), (2**16, 2**18)):
        one = tap(strip=strip)
        if begun:
            one.feed(CONTENT)
        sent = [one.feed(data[at : at + size]) for at in range(0, len(data), size)]
        assert b"".join([*sent, one.finish()]) == data


parts = st.sampled_from(
    [
        b"\n", b"\r", b"\r\n", b"\n\n", b"\r\n\r\n", b"\r\r", b"data: {}", b"data:x", b": c", b":\n\n", b"event: x\n",
        b"x", CONTENT, USAGE, USAGE[:-2], DONE, b'"usage":null', b'data: {"error":{"m":1}}\n\n', b'"error"', b"\xff",
        b"x" * 300, b"data: " + b"y" * 400 + b"\n\n", b"x\n" * 200, b"data:x\r" * 50, b"\n" * 300, b":\n" * 200,
        b"data: {}\n\n" * 40, b'data: {"ch\\u006fices":[{"delta":{"content":"a"}}]}\n\n',
    ]
)  # fmt: skip


@given(st.lists(parts, max_size=25), st.lists(st.integers(0, 5000), max_size=5), st.booleans())
def test_any_bytes_pass_alike_whole_cut_and_byte_by_byte(pieces: list[bytes], cuts: list[int], strip: bool) -> None:  # noqa: FBT001
    stream = b"".join(pieces)
    places = [0, *sorted(min(cut, len(stream)) for cut in cuts), len(stream)]
    results = []
    for reads in (
        [stream],
        [stream[a:b] for a, b in itertools.pairwise(places)],
        [stream[at : at + 1] for at in range(len(stream))],
    ):
        one = tap(strip=strip)
        results.append((run(one, *reads), one.usage, one.ending, one.saw_token, one.at_event_boundary))
    assert results[0] == results[1] == results[2]
