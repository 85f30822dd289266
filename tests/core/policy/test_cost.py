import pytest
from hypothesis import given
from hypothesis import strategies as st

from pharos.core.decisions import DECISIONS
from pharos.core.policy import Candidate
from tests.core.policy.given import candidate, fleets, pick


def test_nobody_to_choose_from_is_no_decision() -> None:
    decision = pick()
    assert (decision.target_id, decision.enqueue, decision.any_free) == (None, False, False)


def test_the_only_candidate_is_chosen_and_said_so() -> None:
    decision = pick(candidate())
    assert (decision.target_id, decision.why, decision.reason) == (0, "only_choice", "warm, est 1.0 s")


def test_a_warm_target_beats_a_cold_one_by_its_load_time() -> None:
    decision = pick(candidate(0, warm=False), candidate(1))
    assert (decision.target_id, decision.why) == (1, "warm")
    assert decision.reason == "warm, est 1.0 s vs 9.0 s on gpu-0 (cold)"
    assert decision.predicted_s == pytest.approx(1.0)


def test_the_sentence_that_the_readme_shows_is_one_that_is_said() -> None:
    busy = candidate(2, running=4, service_s=4.84, prefill_s_per_token=0.00009)
    decision = pick(candidate(1, prefill_s_per_token=0.00009), busy)
    assert decision.reason == "warm, est 90 ms vs 1.3 s on gpu-2 (warm, no free slot)"


def test_a_cached_prompt_wins_by_the_prefill_it_saves() -> None:
    decision = pick(candidate(0), candidate(1, matched_tokens=1200), prompt=2000)
    assert (decision.target_id, decision.why) == (1, "cache")
    assert decision.reason == "warm, 1.2k cached tokens, est 800 ms vs 2.0 s on gpu-0 (warm)"


def test_more_cached_tokens_than_the_prompt_has_save_no_more_than_all_of_it() -> None:
    decision = pick(candidate(matched_tokens=5000), prompt=900)
    assert decision.reason == "warm, 900 cached tokens, est under 1 ms"
    assert decision.scores[0].prefill_s == 0.0


def test_a_cached_prompt_loses_to_an_idle_target_once_waiting_costs_more() -> None:
    cached = candidate(0, running=4, matched_tokens=1000)
    decision = pick(cached, candidate(1))
    assert (decision.target_id, decision.why) == (1, "least_loaded")
    assert decision.reason == "warm, est 1.0 s vs 1.0 s on gpu-0 (warm, no free slot); less busy"
    assert pick(candidate(0, running=4, matched_tokens=1000, service_s=1.0), candidate(1)).enqueue


def test_waiting_for_a_warm_target_beats_a_long_load() -> None:
    decision = pick(candidate(0, running=4), candidate(1, warm=False))
    assert (decision.target_id, decision.enqueue, decision.any_free) == (None, True, True)
    assert decision.reason == "waits for gpu-0: est 2.0 s there is the least"
    assert decision.predicted_s == pytest.approx(2.0)
    assert decision.scores[0].why_not == "no free slot"


def test_requests_in_the_engines_own_queue_count_among_those_ahead() -> None:
    [score] = pick(candidate(running=4, waiting=7)).scores
    assert score.wait_s == pytest.approx((7 + 1) / 4 * 4.0)
    cold = candidate(1, warm=False)
    assert pick(candidate(0, running=4, waiting=0), cold).enqueue, "soon free: worth waiting for"
    assert pick(candidate(0, running=4, waiting=8), cold).target_id == 1, "a load costs less than that queue"


def test_those_who_wait_already_make_a_load_worth_it() -> None:
    crowd = [candidate(0, running=4, router_ahead=12), candidate(1, warm=False, router_ahead=12)]
    assert pick(*crowd).target_id == 1


def test_a_model_that_is_being_loaded_counts_as_warm() -> None:
    decision = pick(candidate(0, warm=False, loading=True), candidate(1, warm=False))
    assert decision.target_id == 0
    assert decision.reason.startswith("loading, est 1.0 s")


def test_an_engine_that_does_not_report_residency_has_its_model_always_loaded() -> None:
    decision = pick(candidate(0, warm=None, reports_residency=False))
    assert decision.scores[0].load_s == 0.0
    assert decision.reason == "always loaded, est 1.0 s"


def test_an_unknown_residency_is_charged_as_cold_where_it_should_be_known() -> None:
    decision = pick(candidate(0, warm=None))
    assert decision.scores[0].load_s == 8.0
    assert decision.reason == "residency unknown, est 9.0 s"


def test_a_load_that_would_evict_a_busy_model_is_never_chosen() -> None:
    decision = pick(candidate(0, warm=False, fits_if_cold=False))
    assert (decision.target_id, decision.enqueue, decision.any_free) == (None, True, False)
    assert decision.reason == "waits: loading it would evict a model that is in use"
    assert decision.predicted_s is None
    assert pick(candidate(0, warm=False, fits_if_cold=False), candidate(1, running=4)).any_free is False


def test_a_full_cache_makes_a_match_worthless_and_an_empty_one_does_not() -> None:
    def kv_s(usage: float) -> float:
        return pick(candidate(matched_tokens=1000, kv_usage=usage)).scores[0].kv_s

    assert kv_s(0.9) == 0.0
    assert kv_s(0.95) == pytest.approx(0.5)
    assert kv_s(1.0) == pytest.approx(1.0)
    assert pick(candidate(kv_usage=1.0)).scores[0].kv_s == 0.0


def test_without_a_known_capacity_two_requests_fill_an_engine() -> None:
    assert pick(candidate(capacity=None, ours=1)).target_id == 0
    assert pick(candidate(capacity=None, ours=2)).enqueue
    assert pick(candidate(capacity=None, waiting=1)).enqueue
    assert not pick(candidate(capacity=None, waiting=1)).any_free


def test_an_unknown_capacity_is_never_taken_for_more_than_others_have() -> None:
    assert pick(candidate(0, capacity=None, ours=1), candidate(1, capacity=1, running=1)).enqueue


def test_a_capacity_of_zero_takes_nothing() -> None:
    assert pick(candidate(capacity=0)).enqueue


def test_equal_costs_go_to_the_least_occupied() -> None:
    assert pick(candidate(0, running=2), candidate(1, running=1), candidate(2, running=3)).target_id == 1


def test_exact_ties_are_broken_by_the_seed() -> None:
    twins = [candidate(i) for i in range(4)]
    assert {pick(*twins, seed=seed).target_id for seed in range(8)} == {0, 1, 2, 3}


def test_costs_within_a_millisecond_are_equal() -> None:
    nearly = [candidate(0, prefill_s_per_token=0.0010005, running=0), candidate(1, running=1)]
    assert pick(*nearly).target_id == 0
    clearly = [candidate(0, prefill_s_per_token=0.0011, running=0), candidate(1, running=1)]
    assert pick(*clearly).target_id == 1


def test_a_presumed_full_target_is_charged_but_not_left_idle_when_all_that_tell_are_full() -> None:
    full = [candidate(0, running=4), candidate(1, running=4)]
    silent = candidate(2, running=None)
    decision = pick(*full, silent)
    assert decision.target_id == 2
    assert decision.scores[2].wait_s == decision.scores[0].wait_s, "it never looks better than the median"
    assert pick(*full, candidate(2, running=None, ours=4)).enqueue, "its slots are ours, and taken"
    assert pick(*full, candidate(2, running=None, warm=False)).enqueue, "a load costs more than the wait"


def test_an_unknown_engine_queue_is_presumed_but_not_known_to_be_there() -> None:
    full = candidate(0, running=4, waiting=3, service_s=1.0)
    assert pick(full, candidate(1, capacity=None, waiting=None)).target_id == 1


def test_a_target_that_does_not_tell_loses_to_one_that_is_free() -> None:
    crowd = [candidate(0, running=4), candidate(1, running=4), candidate(2, running=0), candidate(3, running=None)]
    assert pick(*crowd).target_id == 2


@given(fleets(), st.integers(0, 5000), st.integers(0, 2**32), st.sampled_from(["cost", "least-load"]))
def test_a_decision_is_always_consistent(crowd: list[Candidate], prompt: int, seed: int, policy: str) -> None:
    decision = pick(*crowd, prompt=prompt, seed=seed, policy=policy)
    assert [s.target_id for s in decision.scores] == [c.target_id for c in crowd]
    assert decision.enqueue == (decision.target_id is None)
    assert decision.why in DECISIONS["route"]
    assert decision.reason
    open_now = [s for s in decision.scores if s.free and s.feasible]
    assert decision.any_free == bool(open_now)
    if decision.target_id is not None:
        chosen = crowd[decision.target_id]
        assert decision.scores[decision.target_id] in open_now
        capacity = chosen.capacity if chosen.capacity is not None else 2
        assert chosen.ours < capacity
        assert chosen.running is None or chosen.running < capacity
        cold = not chosen.warm and not chosen.loading and (chosen.warm is not None or chosen.reports_residency)
        assert not (cold and chosen.fits_if_cold is False)
    for score in decision.scores:
        assert score.total_s == pytest.approx(score.wait_s + score.load_s + score.prefill_s + score.kv_s)
        assert min(score.wait_s, score.load_s, score.prefill_s, score.kv_s) >= 0
        assert (score.why_not == "") == (score.free and score.feasible)


def test_equal_targets_are_said_to_be_equal_and_the_less_busy_one_to_be_that() -> None:
    tied = pick(candidate(0), candidate(1))
    assert (tied.why, tied.reason.partition("; ")[2]) == ("tied", "equal, by chance")
    calmer = pick(candidate(0, running=1), candidate(1))
    assert (calmer.target_id, calmer.why, calmer.reason.partition("; ")[2]) == (1, "least_loaded", "less busy")
