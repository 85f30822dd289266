"""How far requests in front have come, from the grant to what the next one waits for."""

import pytest

from pharos.core.fleet import Feedback
from pharos.core.sched.progress import first_end, revise
from pharos.core.signals import Residency, Signal
from tests.core.fleet.given import M, publish, target, warm
from tests.core.sched.given import ask, lease, ticket, world


def test_the_first_that_ends_counts_and_nothing_is_expected_of_nobody() -> None:
    assert first_end({}, 1.0) is None
    assert first_end({1: (0.0, 9.0), 2: (3.0, 2.0)}, 4.0) == 5.0


def test_one_that_is_late_is_expected_to_take_half_as_long_again_each_time() -> None:
    late = {1: (0.0, 10.0)}
    assert [first_end(late, now) for now in (9.9, 10.0, 15.0, 23.0)] == [10.0, 15.0, 22.5, pytest.approx(33.75)]
    assert first_end({1: (0.0, 0.0)}, 1000.0) is not None, "one of which nothing was expected ends some time, too"


def test_a_grant_expects_what_the_reply_takes_by_its_length() -> None:
    fleet, ledger = world(1)
    stats = target(fleet).stats
    stats.prefill_s_per_token.add(0.01)
    stats.base_s.add(0.5)
    stats.decode_s_per_token.add(0.1)
    stats.service_s.add(77.0)
    held = lease(ledger.submit(ask(prompt_tokens=200, expected_tokens=30.0, max_tokens=64), 1.0, 0))
    assert held.slots.progress == {held.id: (1.0, pytest.approx(0.5 + 2.0 + 3.0))}
    waits = ledger.submit(ask(), 3.0, 0)
    ticket(waits)
    ledger.release(held, 9.0, 0)
    assert list(held.slots.progress.values()) == [(9.0, 77.0)], "without a length, what requests took so far"


def test_a_cold_dispatch_is_expected_to_take_its_load_besides() -> None:
    fleet, ledger = world(1)
    publish(fleet, "gpu-1", 0.5, {Signal.RESIDENCY: Residency.COLD, Signal.CAPACITY: 1})
    target(fleet).stats.service_s.add(4.0)
    target(fleet).stats.load_s.add(8.0)
    held = lease(ledger.submit(ask(), 1.0, 0))
    assert held.slots.progress == {held.id: (1.0, 12.0)}


def test_nothing_is_expected_where_nothing_was_learned() -> None:
    _, ledger = world(1)
    held = lease(ledger.submit(ask(expected_tokens=30.0), 1.0, 0))
    assert held.slots.progress == {}
    revise(held.slots, held.id, 9.0)
    assert held.slots.progress == {}


def test_a_relay_that_knows_better_may_say_so() -> None:
    fleet, ledger = world(1, 1)
    for name in ("gpu-1", "gpu-2"):
        target(fleet, name).stats.service_s.add(10.0)
        publish(fleet, name, 0.5, warm(1) | {Signal.RUNNING: 0})
    first, second = (lease(ledger.submit(ask(), 1.0, 0)) for _ in range(2))
    revise(second.slots, second.id, 3.0)
    ticket(ledger.submit(ask(), 2.0, 0))
    decision = ledger._decide(ask(), fleet.targets_for(M, 2.0), 0, 2.0, 0)
    assert decision.scores[first.target.id].wait_s == pytest.approx(9.0)
    assert decision.scores[second.target.id].wait_s == pytest.approx(2.0)
    assert decision.reason == f"waits for {second.backend}: est 2.5 s there is the least"


def test_the_clock_of_a_request_that_went_to_the_best_of_two_busy_ones_is_theirs() -> None:
    fleet, ledger = world(1)
    target(fleet).stats.service_s.add(4.0)
    held = lease(ledger.submit(ask(), 1.0, 0))
    ledger.release(held, 2.0, 0, Feedback(ok=True, cold=False, duration_s=1.0))
    assert held.slots.progress == {}
