from tests.core.policy.given import candidate, pick


def test_nobody_to_choose_from_is_no_decision() -> None:
    assert pick(policy="least-load").target_id is None


def test_the_least_occupied_wins_whatever_it_costs() -> None:
    decision = pick(candidate(0, running=1), candidate(1, warm=False), policy="least-load")
    assert decision.target_id == 1
    assert decision.why == "least_loaded"


def test_occupancy_counts_per_slot() -> None:
    assert (
        pick(candidate(0, running=2, capacity=4), candidate(1, running=3, capacity=8), policy="least-load").target_id
        == 1
    )


def test_when_all_are_full_it_waits() -> None:
    decision = pick(candidate(0, running=4), candidate(1, running=5), policy="least-load")
    assert (decision.target_id, decision.enqueue) == (None, True)


def test_a_load_that_would_evict_a_busy_model_is_never_chosen() -> None:
    evicting = candidate(0, warm=False, fits_if_cold=False)
    assert pick(evicting, candidate(1, running=3), policy="least-load").target_id == 1
    assert pick(evicting, policy="least-load").enqueue


def test_of_equally_occupied_ones_it_takes_one_that_has_the_model() -> None:
    crowd = [candidate(0, warm=False), candidate(1), candidate(2, warm=False), candidate(3)]
    assert {pick(*crowd, seed=seed, policy="least-load").target_id for seed in range(8)} == {1, 3}
