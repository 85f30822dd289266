"""How good estimates are on the mixed fleet, and what parts of Pharos are worth: runs with one of them left out."""

import pytest

from pharos.sim import workload
from pharos.sim.fleets import FleetError, changed, find
from pharos.sim.result import measure
from pharos.sim.run import Outcome, Plan, run
from pharos.sim.spec import FleetSpec

GOOD = 0.3
"""Median of |log(predicted/actual)|: within a third, either way."""


def played(fleet: FleetSpec, users: int, *without: str, seconds: float = 400.0, instances: int = 1) -> Outcome:
    plan = Plan(fleet, "cost", seconds, 7, instances, without=frozenset(without))
    return run(plan, workload.sessions(workload.Mix(users, fleet.models), 7))


def test_after_50_requests_of_a_target_estimates_are_off_by_less_than_a_third() -> None:
    outcome = played(find("mixed"), 20, seconds=600.0)
    assert {"0/fast-1/qwen2.5:7b", "0/fast-2/qwen2.5:7b"} <= outcome.spreads.keys()
    assert max(outcome.spreads.values()) < GOOD
    error = measure(outcome).error
    assert error is not None
    assert error < GOOD


def test_what_slots_hold_is_known_though_no_engine_tells() -> None:
    fleet = changed(find("mixed"), {"host_cache_tokens": "0"})
    known, unknown = played(fleet, 20), played(fleet, 20, "slots")
    assert known.wrong is not None
    assert unknown.wrong is not None
    assert known.wrong < 0.15 < unknown.wrong


def test_a_second_copy_that_is_paid_for_by_many_short_waits_saves_waiting() -> None:
    paid, kept = played(find("cold"), 8, seconds=900.0), played(find("cold"), 8, "copies", seconds=900.0)
    assert kept.loads < paid.loads <= 9
    assert measure(paid).wait_s < measure(kept).wait_s


def test_instances_that_know_what_the_others_have_in_hand_estimate_better() -> None:
    fleet = find("mixed")
    told, untold = measure(played(fleet, 32, instances=3)), measure(played(fleet, 32, "gauges", instances=3))
    assert told.error is not None
    assert untold.error is not None
    assert told.error < untold.error


def test_lengths_may_be_left_out() -> None:
    assert played(find("mixed"), 10, "lengths", seconds=100.0).held == 0


def test_a_fleet_may_be_changed_and_nonsense_is_named() -> None:
    fleet = changed(find("cold"), {"slots": "1", "claimed_slots": "3", "memory_gb": "null"})
    assert {(one.slots, one.claimed_slots, one.memory_gb) for one in fleet.engines} == {(1, 3, None)}
    for fields in ({"slots": "0"}, {"slots": "many"}, {"colour": "red"}, {"slots": "["}):
        with pytest.raises(FleetError, match="cold: "):
            changed(find("cold"), fields)
