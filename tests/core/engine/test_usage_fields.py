import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pharos.core.engine.usage_fields import Usage, merge, parse_usage_ends, read_json, usage_of

STREAMS = Path(__file__).parents[3] / "testdata" / "llamacpp" / "b11434" / "streams"

RECORDED = {
    "chat_full": Usage(29, 28, 12, 11.113 / 1000, None, 118.218 / 1000),
    "completion_full": Usage(4, 3, 8, 10.519 / 1000, None, 74.01 / 1000),
    "err_unknown_model": Usage(29, 28, 12, 10.577 / 1000, None, 118.272 / 1000),
}


@pytest.mark.parametrize("name", RECORDED)
def test_a_recorded_reply_states_its_usage(name: str) -> None:
    assert usage_of(read_json((STREAMS / f"{name}.response").read_bytes())) == RECORDED[name]


@pytest.mark.parametrize("name", ["err_bad_json_field", "err_too_long", "err_unknown_route", "embeddings"])
def test_a_recorded_error_states_none(name: str) -> None:
    assert usage_of(read_json((STREAMS / f"{name}.response").read_bytes())) is None


def test_timings_alone_tell_all_counts() -> None:
    timings = {"cache_n": 28, "prompt_n": 1, "prompt_ms": 10.5, "predicted_n": 12, "predicted_ms": 117}
    assert usage_of({"timings": timings}) == Usage(29, 28, 12, 0.0105, None, 0.117)


def test_usage_is_trusted_before_timings() -> None:
    usage = {"prompt_tokens": 5, "completion_tokens": 6, "prompt_tokens_details": {"cached_tokens": 2}}
    assert usage_of({"usage": usage, "timings": {"cache_n": 1, "prompt_n": 1, "predicted_n": 1}}) == Usage(5, 2, 6)


def test_half_a_sum_is_unknown() -> None:
    assert usage_of({"timings": {"prompt_n": 7, "predicted_n": 1}}) == Usage(None, None, 1)


def test_a_null_is_unknown_and_never_zero() -> None:
    usage = {"prompt_tokens": 5, "completion_tokens": 6, "prompt_tokens_details": None}
    assert usage_of({"usage": usage, "timings": None}) == Usage(5, None, 6)


def test_an_honest_zero_stays_zero() -> None:
    usage = {"prompt_tokens": 5, "completion_tokens": 0, "prompt_tokens_details": {"cached_tokens": 0}}
    assert usage_of({"usage": usage}) == Usage(5, 0, 0)


def test_all_zeros_are_a_placeholder() -> None:
    assert usage_of({"usage": {"prompt_tokens": 0, "completion_tokens": 0, "total_tokens": 0}}) is None


def test_an_embedding_produced_no_token() -> None:
    assert usage_of({"usage": {"prompt_tokens": 5, "total_tokens": 5}}) == Usage(5, None, 0)


def test_a_missing_completion_count_without_a_total_is_unknown() -> None:
    assert usage_of({"usage": {"prompt_tokens": 5}}) == Usage(5, None, None)


@pytest.mark.parametrize("wrong", [1.5, 12.0, -1, "12", True, None, [], 2**60])
def test_what_is_no_count_is_unknown(wrong: object) -> None:
    assert usage_of({"usage": {"prompt_tokens": wrong, "completion_tokens": 3}}) == Usage(None, None, 3)


@pytest.mark.parametrize("wrong", [-1.0, float("nan"), float("inf"), "3", True, None])
def test_what_is_no_duration_is_unknown(wrong: object) -> None:
    assert usage_of({"timings": {"predicted_n": 3, "prompt_ms": wrong}}) == Usage(None, None, 3)


def test_more_cached_tokens_than_prompt_are_a_contradiction() -> None:
    usage = {"prompt_tokens": 5, "completion_tokens": 1, "prompt_tokens_details": {"cached_tokens": 6}}
    assert usage_of({"usage": usage}) == Usage(5, None, 1)


@pytest.mark.parametrize(
    "data", [b"", b"[1]", b"nonsense", b'"usage"', b'{"usage":[1]}', b'{"usage":3}', b"[" * 100_000]
)
def test_what_is_no_reply_has_no_usage(data: bytes) -> None:
    assert usage_of(read_json(data)) is None


def test_an_unpaired_surrogate_or_broken_text_does_not_hide_usage() -> None:
    for text in (b"\\ud83d", b"\xff"):
        reply = b'{"a":"' + text + b'","usage":{"prompt_tokens":1,"completion_tokens":2}}'
        assert usage_of(read_json(reply)) == Usage(1, None, 2)


@given(st.binary())
def test_reading_never_raises(data: bytes) -> None:
    usage_of(read_json(data))
    parse_usage_ends(data, data)


def test_the_later_event_wins_where_it_knows() -> None:
    assert merge(None, Usage(1)) == Usage(1)
    assert merge(Usage(1, 2, 3, 0.5), Usage(4, None, 0)) == Usage(4, 2, 0, 0.5)


USAGE = b'"usage":{"prompt_tokens":7,"completion_tokens":9}'


def test_usage_behind_a_large_reply_is_found_in_its_tail() -> None:
    for end in (b"}", b" } \r\n\t", b',"timings":{"predicted_n":9},"id":"x"}'):
        assert parse_usage_ends(b'{"choices":["xxx', b'xxx"],' + USAGE + end) == Usage(7, None, 9)


def test_timings_ahead_of_usage_are_found_too() -> None:
    tail = b'x"],"timings":{"prompt_ms":2000.0},' + USAGE + b"}"
    assert parse_usage_ends(b"", tail) == Usage(7, None, 9, 2.0)


def test_usage_ahead_of_a_large_reply_is_found_in_its_head() -> None:
    assert parse_usage_ends(b' { "a" : 1 , ' + USAGE + b',"data":[0.1,0.2', b"0.3]}") == Usage(7, None, 9)


@pytest.mark.parametrize(
    "tail",
    [
        b'x", "inner": {' + USAGE + b"}}",
        b'x \\"usage\\":{\\"prompt_tokens\\":7}"}',
        b'{"a\\"usage":{"prompt_tokens":7}}',
        USAGE,
        USAGE + b"} trailing",
        b'"usage" 3}',
        b'"usage":{"prompt_tokens":7',
        b'"usage":' + b"[" * 60_000,
    ],
)
def test_usage_that_is_not_at_the_top_of_the_object_is_not_taken(tail: bytes) -> None:
    assert parse_usage_ends(b"", tail) is None


def test_the_same_name_in_a_nested_object_does_not_hide_the_real_one() -> None:
    tail = b'x",' + USAGE + b',"more":{"usage":{"prompt_tokens":1}}}'
    assert parse_usage_ends(b"", tail) == Usage(7, None, 9)


@given(
    st.dictionaries(
        st.sampled_from(["prompt_tokens", "completion_tokens", "x"]), st.integers() | st.floats() | st.text()
    )
)
def test_whatever_an_engine_writes_counts_stay_counts(usage: dict[str, object]) -> None:
    found = usage_of(read_json(json.dumps({"usage": usage}).encode()))
    if found is not None:
        for count in (found.prompt_tokens, found.completion_tokens):
            assert count is None or (type(count) is int and count >= 0)
