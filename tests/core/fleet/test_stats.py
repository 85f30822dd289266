import pytest

from pharos.core.fleet.stats import Ewma, Feedback, Stats, learn


def learned(**what: object) -> Stats:
    stats = Stats()
    learn(stats, Feedback(**({"ok": True, "cold": False} | what)))  # type: ignore[arg-type]
    return stats


def test_an_average_is_unknown_until_its_first_sample_which_it_takes_as_it_is() -> None:
    average = Ewma()
    assert average.value is None
    average.add(0.0)
    assert average.value == 0.0
    average.add(1.0)
    assert average.value == pytest.approx(0.3)


def test_a_failed_request_teaches_nothing() -> None:
    assert learned(ok=False, duration_s=3.0, ttft_s=1.0, prompt_tokens=900, cached_tokens=0) == Stats()


def test_prefill_is_the_engines_own_time_per_uncached_token() -> None:
    stats = learned(prompt_tokens=1000, cached_tokens=500, prefill_s=1.0, ttft_s=9.0)
    assert stats.prefill_s_per_token.value == pytest.approx(0.002)


def test_prefill_falls_back_to_the_time_to_first_token_on_a_warm_dispatch() -> None:
    assert learned(prompt_tokens=1000, cached_tokens=0, ttft_s=2.0).prefill_s_per_token.value == pytest.approx(0.002)


@pytest.mark.parametrize(
    "what",
    [
        {"prompt_tokens": None, "cached_tokens": 0},
        {"prompt_tokens": 1000, "cached_tokens": None},
        {"prompt_tokens": 1000, "cached_tokens": 745},
        {"prompt_tokens": 1000, "cached_tokens": 0, "cold": True},
        {"prompt_tokens": 1000, "cached_tokens": 0, "ttft_s": None},
    ],
    ids=["prompt unknown", "cached unknown", "nearly all cached", "cold", "no first token"],
)
def test_prefill_is_not_sampled_when_the_request_cannot_tell(what: dict[str, object]) -> None:
    assert learned(**({"ttft_s": 2.0} | what)).prefill_s_per_token.value is None


def test_a_load_takes_the_engines_figure_before_the_time_to_first_token() -> None:
    assert learned(cold=True, load_s=4.0, ttft_s=5.0).load_s.value == 4.0
    assert learned(cold=True, ttft_s=5.0).load_s.value == 5.0
    assert learned(cold=True).load_s.value is None


def test_a_warm_dispatch_teaches_no_load_time_whatever_the_engine_reports() -> None:
    assert learned(load_s=4.0, ttft_s=5.0, duration_s=6.0).load_s.value is None


def test_a_cold_dispatch_that_loaded_nothing_counts_as_warm() -> None:
    stats = learned(cold=True, load_s=0.0005, duration_s=2.0)
    assert (stats.load_s.value, stats.service_s.value) == (None, 2.0)


def test_less_than_10_ms_of_loading_is_next_to_nothing() -> None:
    nothing = learned(cold=True, load_s=0.009, duration_s=2.0)
    assert (nothing.load_s.value, nothing.service_s.value) == (None, 2.0)
    a_load = learned(cold=True, load_s=0.011, duration_s=2.0)
    assert (a_load.load_s.value, a_load.service_s.value) == (0.011, None)


def test_service_time_is_learned_from_warm_dispatches_only() -> None:
    assert learned(duration_s=2.0).service_s.value == 2.0
    assert learned().service_s.value is None
    assert learned(cold=True, duration_s=2.0).service_s.value is None


def test_seconds_per_token_of_the_reply_are_the_engines_own_else_the_time_after_the_first() -> None:
    own = learned(completion_tokens=100, decode_s=2.0, ttft_s=1.0, duration_s=9.0)
    assert own.decode_s_per_token.value == pytest.approx(0.02)
    ours = learned(completion_tokens=101, ttft_s=1.0, duration_s=4.0)
    assert ours.decode_s_per_token.value == pytest.approx(0.03)


@pytest.mark.parametrize(
    "what",
    [
        {"completion_tokens": None, "decode_s": 2.0},
        {"completion_tokens": 7, "decode_s": 2.0},
        {"completion_tokens": 100, "ttft_s": None, "duration_s": 9.0},
        {"completion_tokens": 100, "ttft_s": 1.0, "duration_s": None},
        {"completion_tokens": 100, "decode_s": 2.0, "cold": True},
    ],
    ids=["no count", "too short", "no first token", "no end", "cold"],
)
def test_the_speed_of_a_reply_is_not_sampled_when_the_request_cannot_tell(what: dict[str, object]) -> None:
    assert learned(**what).decode_s_per_token.value is None


def test_what_prefill_does_not_explain_of_a_nearly_cached_prompt_is_the_fixed_part() -> None:
    stats = learned(prompt_tokens=1000, cached_tokens=0, ttft_s=2.0)
    learn(stats, Feedback(ok=True, cold=False, prompt_tokens=1000, cached_tokens=990, ttft_s=0.07))
    assert stats.base_s.value == pytest.approx(0.05)
    learn(stats, Feedback(ok=True, cold=False, prompt_tokens=1000, cached_tokens=0, ttft_s=9.0))
    assert stats.base_s.value == pytest.approx(0.05), "of a long one it cannot be told"


@pytest.mark.parametrize(
    "what", [{"ttft_s": None}, {"prompt_tokens": None}, {"cached_tokens": None}, {"cold": True, "load_s": 5.0}]
)
def test_the_fixed_part_is_not_sampled_when_the_request_cannot_tell(what: dict[str, object]) -> None:
    stats = learned(prompt_tokens=1000, cached_tokens=0, ttft_s=2.0)
    fields = {"ok": True, "cold": False, "prompt_tokens": 1000, "cached_tokens": 990, "ttft_s": 0.07} | what
    learn(stats, Feedback(**fields))  # type: ignore[arg-type]
    assert stats.base_s.value is None


def test_a_service_time_is_expected_from_the_prompt_and_the_length_of_the_reply() -> None:
    stats = learned(prompt_tokens=1000, cached_tokens=0, ttft_s=2.0, completion_tokens=101, duration_s=4.0)
    assert stats.expect_s(500, 200) == pytest.approx(0.02 + 1.0 + 4.0)
    stats.base_s.add(0.5)
    assert stats.expect_s(0, 1) == pytest.approx(0.52), "a classifier's call is not a chat"
    assert learned(prompt_tokens=1000, cached_tokens=0, ttft_s=2.0).expect_s(500, 200) is None
    assert learned(completion_tokens=100, decode_s=2.0).expect_s(500, 200) is None
