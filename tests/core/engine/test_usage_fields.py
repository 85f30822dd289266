import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pharos.core.engine.usage_fields import Dialect, Usage, Zero, merge, read_json, usage_of

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


def test_a_prompt_of_no_token_is_one_that_was_not_counted() -> None:
    assert usage_of({"usage": {"prompt_tokens": 0, "completion_tokens": 3, "total_tokens": 3}}) == Usage(None, None, 3)


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


def test_the_later_event_wins_where_it_knows() -> None:
    assert merge(None, Usage(1)) == Usage(1)
    assert merge(Usage(4, 2, 3, 0.5), Usage(4, None, 0, None, 1.5)) == Usage(4, 2, 0, 0.5, 1.5)


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


def test_cached_tokens_of_another_prompt_are_not_kept() -> None:
    assert merge(Usage(9, 8, 1), Usage(4, None, 2)) == Usage(4, None, 2)
    assert merge(Usage(None, 8), Usage(4, None, 2)) == Usage(4, None, 2)
    assert merge(Usage(9, 8, 1), Usage(None, None, 2)) == Usage(9, 8, 2)
    assert merge(Usage(9), Usage(None, 10, 2)) == Usage(9, None, 2)


def test_output_counted_so_far_is_no_final_count() -> None:
    assert merge(Usage(9, None, 5), Usage(9, None, None)) == Usage(9, None, None)
    assert merge(Usage(9, None, 5), Usage(None, None, None, 0.5)) == Usage(9, None, 5, 0.5)


counts = st.none() | st.integers(0, 50)
usages = st.builds(Usage, counts, counts, counts, st.none() | st.floats(0, 9)).filter(
    lambda usage: None in (usage.prompt_tokens, usage.cached_tokens) or usage.cached_tokens <= usage.prompt_tokens
)


@given(usages, usages)
def test_a_joined_usage_holds_only_what_one_of_the_two_said(old: Usage, new: Usage) -> None:
    joined = merge(old, new)
    for field in Usage.__struct_fields__:
        assert getattr(joined, field) in (None, getattr(old, field), getattr(new, field))
    assert None in (joined.prompt_tokens, joined.cached_tokens) or joined.cached_tokens <= joined.prompt_tokens
    assert merge(joined, new) == joined
    assert merge(new, new) == new


@pytest.mark.parametrize(("prompt", "completion", "total"), [(5, 6, 12), (5, 6, 10), (5, 6, 5), (13, None, 12)])
def test_counts_that_contradict_their_total_are_unknown(prompt: int, completion: int | None, total: int) -> None:
    usage = {"prompt_tokens": prompt, "completion_tokens": completion, "total_tokens": total}
    assert usage_of({"usage": usage}) is None


@pytest.mark.parametrize("total", [0, None, -1, "11", 11])
def test_a_total_that_is_not_told_contradicts_nothing(total: object) -> None:
    assert usage_of({"usage": {"prompt_tokens": 5, "completion_tokens": 6, "total_tokens": total}}) == Usage(5, None, 6)


def test_a_total_does_not_tell_what_is_missing() -> None:
    assert usage_of({"usage": {"completion_tokens": 6, "total_tokens": 11}}) == Usage(None, None, 6)
    assert usage_of({"usage": {"prompt_tokens": 5, "total_tokens": 11}}) == Usage(5, None, None)
    assert usage_of({"usage": {"total_tokens": 11}}) is None


@pytest.mark.parametrize("usage", [{"prompt_tokens": 9, "total_tokens": 9}, {"total_tokens": 9}])
def test_a_ranking_reads_all_and_produces_nothing(usage: dict[str, int]) -> None:
    assert usage_of({"results": [{"index": 0, "relevance_score": 1.5}], "usage": usage}) == Usage(9, None, 0)


def test_a_ranking_whose_prompt_is_wrong_is_unknown() -> None:
    assert usage_of({"results": [], "usage": {"prompt_tokens": None, "total_tokens": 9}}) is None
    assert usage_of({"results": [], "usage": {"completion_tokens": 3, "total_tokens": 9}}) == Usage(None, None, 3)


TRANSCRIPT = {"type": "tokens", "input_tokens": 14, "output_tokens": 45, "total_tokens": 59}


def test_a_transcription_is_counted_in_tokens_or_not_at_all() -> None:
    assert usage_of({"text": "x", "usage": TRANSCRIPT}) == Usage(14, None, 45)
    assert usage_of({"type": "transcript.text.done", "text": "x", "usage": TRANSCRIPT}) == Usage(14, None, 45)
    assert usage_of({"text": "x", "usage": {"type": "duration", "seconds": 3}}) is None


OLLAMA = Dialect(whole_input=True, estimates_start=True, is_ollama=True)
COUNTS = {"prompt_eval_count": 33, "eval_count": 8}
DURATIONS = {"total_duration": 5, "load_duration": 2_000_000, "prompt_eval_duration": 3_000_000, "eval_duration": 10**9}


def test_only_the_last_record_of_a_native_stream_counts() -> None:
    assert usage_of({"message": {}, "done": False, **COUNTS, **DURATIONS}, OLLAMA) is None
    assert usage_of({"message": {}, "done": None, **COUNTS, **DURATIONS}, OLLAMA) is None
    assert usage_of({"message": {}, "done": True, **COUNTS}, OLLAMA) == Usage(33, None, 8)


def test_an_imitation_of_ollama_is_believed_its_counts_and_not_its_durations() -> None:
    assert usage_of({"done": True, **COUNTS, **DURATIONS}) == Usage(33, None, 8)
    assert usage_of({"done": True, **COUNTS, **DURATIONS}, OLLAMA) == Usage(33, None, 8, 0.003, 0.002, 1.0)


def test_a_count_that_ollama_leaves_out_is_zero() -> None:
    record = {"done": True, "prompt_eval_count": 33, "prompt_eval_duration": 3_000_000}
    assert usage_of(record, OLLAMA) == Usage(33, None, 0, 0.003)
    assert usage_of(record) == Usage(33, None, None)
    assert usage_of({**record, "eval_count": None}, OLLAMA) == Usage(33, None, None, 0.003)
    assert usage_of({**record, "eval_duration": 10**9}, OLLAMA) == Usage(33, None, None, 0.003, None, 1.0)


def test_a_load_without_a_prompt_has_no_usage() -> None:
    assert (
        usage_of({"message": {"role": "assistant", "content": ""}, "done": True, "done_reason": "load"}, OLLAMA) is None
    )


def test_silence_of_ollama_about_cached_tokens_is_zero_once_it_has_spoken() -> None:
    record = {"done": True, **COUNTS}
    assert usage_of({**record, "prompt_eval_cached_count": 30}, OLLAMA) == Usage(33, 30, 8)
    assert usage_of(record, OLLAMA, counts_cached=True) == Usage(33, 0, 8)
    assert usage_of(record, OLLAMA) == usage_of(record, counts_cached=True) == Usage(33, None, 8)
    assert usage_of({**record, "prompt_eval_cached_count": None}, OLLAMA, counts_cached=True) == Usage(33, None, 8)
    assert usage_of({"embeddings": [], "prompt_eval_count": 3}, OLLAMA, counts_cached=True) == Usage(3, None, 0)


def test_a_prompt_that_is_counted_without_the_cached_part_is_unknown() -> None:
    partly = Dialect(is_ollama=True, whole_input=True, leaves_out_cached=True)
    assert usage_of({"done": True, **COUNTS}, partly) == Usage(None, None, 8)
    assert usage_of({"usage": {"prompt_tokens": 5, "completion_tokens": 6, "total_tokens": 11}}, partly) == Usage(
        None, None, 6
    )


def message(**usage: object) -> dict[str, object]:
    return {"type": "message", "usage": usage}


def test_the_prompt_of_a_message_is_the_sum_of_its_parts() -> None:
    parts = {"input_tokens": 3, "cache_read_input_tokens": 16, "cache_creation_input_tokens": 32, "output_tokens": 8}
    for dialect in (Dialect(), OLLAMA):
        assert usage_of(message(**parts), dialect) == Usage(51, 16, 8)
    del parts["cache_creation_input_tokens"]
    assert usage_of(message(**parts)) == Usage(19, 16, 8)


def test_a_message_that_says_nothing_of_a_cache_counts_all_only_where_that_is_known() -> None:
    plain = message(input_tokens=33, output_tokens=8)
    assert usage_of(plain) == Usage(None, None, 8)
    assert usage_of(plain, Dialect(whole_input=True)) == Usage(33, None, 8)


@pytest.mark.parametrize(
    "parts",
    [
        {"cache_read_input_tokens": None},
        {"cache_read_input_tokens": -1},
        {"cache_read_input_tokens": 3, "cache_creation_input_tokens": None},
        {"cache_creation_input_tokens": 32},
    ],
)
def test_a_part_that_is_wrong_makes_the_prompt_unknown(parts: dict[str, object]) -> None:
    found = usage_of(message(input_tokens=3, output_tokens=8, **parts), OLLAMA)
    assert found is not None
    assert (found.prompt_tokens, found.completion_tokens) == (None, 8)


def test_the_start_of_a_message_has_no_output_and_may_only_guess_its_input() -> None:
    start = {"type": "message_start", "message": {"usage": {"input_tokens": 2, "output_tokens": 1}}}
    assert usage_of(start, Dialect(whole_input=True)) == Usage(2)
    assert usage_of(start, OLLAMA) is None
    start["message"]["usage"]["cache_read_input_tokens"] = 30
    assert usage_of(start) == usage_of(start, OLLAMA) == Usage(32, 30)


@pytest.mark.parametrize(
    ("zero", "proved", "cached"),
    [
        (Zero.SILENCE, True, None),
        (Zero.COUNT, False, 0),
        (Zero.COUNT_ONCE_SEEN, False, None),
        (Zero.COUNT_ONCE_SEEN, True, 0),
    ],
)
def test_what_a_zero_in_a_response_means_depends_on_the_engine(zero: Zero, *, proved: bool, cached: int | None) -> None:
    usage = {"input_tokens": 9, "input_tokens_details": {"cached_tokens": 0}, "output_tokens": 2, "total_tokens": 11}
    for record in (
        {"object": "response", "usage": usage},
        {"type": "response.completed", "response": {"usage": usage}},
    ):
        assert usage_of(record, Dialect(responses_zero=zero), counts_cached=proved) == Usage(9, cached, 2)
        usage["input_tokens_details"] = {"cached_tokens": 4}
        assert usage_of(record) == Usage(9, 4, 2)
        usage["input_tokens_details"] = {"cached_tokens": 0}


def test_timings_beside_a_response_prove_its_zero() -> None:
    usage = {"input_tokens": 9, "input_tokens_details": {"cached_tokens": 0}, "output_tokens": 2}
    record = {"type": "response.completed", "response": {"usage": usage}, "timings": {"cache_n": 0, "prompt_n": 9}}
    assert usage_of(record) == Usage(9, 0, 2)


@pytest.mark.parametrize("kind", ["response.created", "response.in_progress", "response.failed", None, [], 3])
def test_only_the_last_event_of_a_response_counts(kind: object) -> None:
    assert usage_of({"type": kind, "response": {"usage": {"input_tokens": 9, "output_tokens": 2}}}) is None


def test_durations_that_no_reply_can_take_are_unknown() -> None:
    assert usage_of({"timings": {"predicted_n": 3, "predicted_ms": 86_400_000}}) == Usage(
        None, None, 3, None, None, 86_400
    )
    assert usage_of({"timings": {"predicted_n": 3, "predicted_ms": 86_400_001}}) == Usage(None, None, 3)
