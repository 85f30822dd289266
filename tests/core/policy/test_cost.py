import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pharos.core.decisions import DECISIONS
from pharos.core.policy import POLICIES, Candidate, Crowd, RouteRequest
from tests.core.policy.given import PARAMS, candidate, fleets, pick, requests


def test_nobody_to_choose_from_is_no_decision() -> None:
    decision = pick()
    assert (decision.target_id, decision.enqueue, decision.any_free) == (None, False, False)
    assert (decision.predicted_s, decision.predicted_start_s, decision.reloads) == (None, None, False)


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
    decision = pick(candidate(0), candidate(1), prompt=2000, matched={1: 1200})
    assert (decision.target_id, decision.why) == (1, "cache")
    assert decision.reason == "warm, 1.2k cached tokens, est 800 ms vs 2.0 s on gpu-0 (warm)"


def test_more_cached_tokens_than_the_prompt_has_save_no_more_than_all_of_it() -> None:
    decision = pick(candidate(), prompt=900, matched={0: 5000})
    assert decision.reason == "warm, 900 cached tokens, est under 1 ms"
    assert decision.scores[0].prefill_s == 0.0


def test_a_cached_prompt_loses_to_an_idle_target_once_waiting_costs_more() -> None:
    decision = pick(candidate(0, running=4), candidate(1), matched={0: 1000})
    assert (decision.target_id, decision.why) == (1, "least_loaded")
    assert decision.reason == "warm, est 1.0 s vs 1.0 s on gpu-0 (warm, no free slot); less busy"
    assert pick(candidate(0, running=4, service_s=1.0), candidate(1), matched={0: 1000}).enqueue


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


def test_what_has_passed_of_a_load_is_not_paid_again() -> None:
    loading = candidate(0, warm=False, loading=True, loading_since=10.0)
    decision = pick(loading, candidate(1, warm=False), now=15.0)
    assert decision.target_id == 0
    assert decision.scores[0].load_s == pytest.approx(3.0)
    assert decision.reason.startswith("loading, est 4.0 s")
    assert decision.predicted_start_s == pytest.approx(4.0)


def test_a_load_that_takes_longer_than_usual_is_not_over_the_next_moment() -> None:
    late = candidate(warm=False, loading=True, loading_since=10.0)
    assert pick(late, now=60.0).scores[0].load_s == pytest.approx(0.8)


def test_a_load_of_which_nobody_knows_the_beginning_is_charged_whole_and_still_joined() -> None:
    crowd = [candidate(0, warm=False), candidate(1, warm=False, loading=True, running=2), candidate(2, warm=False)]
    for seed in range(4):
        decision = pick(*crowd, seed=seed)
        assert decision.target_id == 1, "another load beside it is no faster, and takes another model's place"
        assert decision.scores[1].load_s == 8.0
    assert pick(candidate(warm=False, loading=True, loading_since=9.0), now=8.0).scores[0].load_s == 8.0


def test_a_load_is_over_when_the_first_of_those_ends_who_wait_for_it_too() -> None:
    full = candidate(warm=False, loading=True, loading_since=0.0, running=4, ours=4, frees_at=9.0)
    [score] = pick(full, now=1.0).scores
    assert (score.wait_s, score.load_s) == (8.0, 0.0)
    [score] = pick(msgspec.structs.replace(full, frees_at=None), now=1.0).scores
    assert (score.wait_s, score.load_s) == (1.0, 7.0), "of those of whom nothing is known the wait begins after it"


def test_the_wait_at_a_full_target_is_what_is_left_of_the_first_request_there() -> None:
    full = candidate(0, running=4, ours=4, frees_at=100.0)
    assert pick(full, now=99.5).scores[0].wait_s == pytest.approx(0.5)
    assert pick(full, now=70.0).scores[0].wait_s == pytest.approx(30.0)
    assert pick(full, now=101.0).scores[0].wait_s == 0.0


def test_those_in_line_come_on_top_of_what_is_left() -> None:
    full = candidate(0, running=4, ours=4, waiting=3, router_ahead=1, frees_at=2.0)
    assert pick(full, now=1.0).scores[0].wait_s == pytest.approx(1.0 + 4 / 4 * 4.0)


def test_requests_of_others_may_end_before_ours_do() -> None:
    mixed = candidate(0, running=4, ours=1, frees_at=50.0)
    assert pick(mixed).scores[0].wait_s == pytest.approx(4.0 / 4), "as if nothing were known of them"
    assert pick(msgspec.structs.replace(mixed, frees_at=0.5)).scores[0].wait_s == 0.5


def test_what_is_left_of_the_first_decides_whom_to_wait_for() -> None:
    ends_soon, just_began = candidate(0, running=4, ours=4, frees_at=0.2), candidate(1, running=4, ours=4, frees_at=9.0)
    decision = pick(just_began, ends_soon)
    assert (decision.awaited, decision.enqueue) == (1, True)


def test_the_part_that_does_not_grow_with_the_prompt_is_charged_to_each() -> None:
    decision = pick(candidate(0, base_s=0.4), candidate(1, base_s=0.1))
    assert decision.target_id == 1
    assert decision.scores[1].prefill_s == pytest.approx(1.1)


def test_matches_of_one_request_leave_no_trace_in_the_crowd_that_the_next_one_meets() -> None:
    crowd = Crowd([candidate(0), candidate(1)], PARAMS)
    first = POLICIES["cost"](RouteRequest(1000, 0, ((1, 900),)), crowd, PARAMS)
    second = POLICIES["cost"](RouteRequest(1000, 0, ((0, 900),)), crowd, PARAMS)
    assert (first.target_id, second.target_id) == (1, 0)
    assert first.reason == "warm, 900 cached tokens, est 100 ms vs 1.0 s on gpu-0 (warm)"


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
        return pick(candidate(kv_usage=usage), matched={0: 1000}).scores[0].kv_s

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


@given(fleets(), requests, st.sampled_from(["cost", "least-load"]))
def test_a_decision_is_always_consistent(crowd: list[Candidate], request: RouteRequest, policy: str) -> None:
    decision = POLICIES[policy](request, crowd, PARAMS)
    assert [s.target_id for s in decision.scores] == [c.target_id for c in crowd]
    assert decision.enqueue == (decision.target_id is None)
    assert decision.why in DECISIONS["route"]
    assert decision.reason
    open_now = [s for s in decision.scores if s.free and s.feasible]
    assert decision.any_free or not open_now
    if decision.target_id is not None:
        chosen = crowd[decision.target_id]
        assert decision.scores[decision.target_id] in open_now
        capacity = chosen.capacity if chosen.capacity is not None else 2
        assert chosen.ours < capacity
        assert chosen.running is None or chosen.running < capacity
        cold = not chosen.warm and not chosen.loading and (chosen.warm is not None or chosen.reports_residency)
        assert not (cold and chosen.fits_if_cold is False)
        assert not request.needs & chosen.unable
    for score in decision.scores:
        assert score.total_s == pytest.approx(score.wait_s + score.load_s + score.prefill_s + score.kv_s)
        assert min(score.wait_s, score.load_s, score.prefill_s, score.kv_s) >= 0
        assert (score.why_not == "") == (score.free and score.feasible)


def test_equal_targets_are_said_to_be_equal_and_the_less_busy_one_to_be_that() -> None:
    tied = pick(candidate(0), candidate(1))
    assert (tied.why, tied.reason.partition("; ")[2]) == ("tied", "equal, by chance")
    calmer = pick(candidate(0, running=1), candidate(1))
    assert (calmer.target_id, calmer.why, calmer.reason.partition("; ")[2]) == (1, "least_loaded", "less busy")
