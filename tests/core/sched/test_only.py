"""Requests that only some targets may serve, and those that take no slot."""

from pharos.core.sched import Lease
from pharos.core.signals import Residency, Signal
from tests.core.fleet.given import M, backend, publish, target, warm
from tests.core.sched.given import ask, expired, granted, lease, refusal, ticket, world


def only(fleet: object, *names: str) -> frozenset[int]:
    return frozenset(target(fleet, name).id for name in names)  # type: ignore[arg-type]


def test_a_request_goes_to_the_only_target_that_may_serve_it_however_busy_the_others_are_not() -> None:
    fleet, ledger = world(2, 2)
    for _ in range(2):
        held = lease(ledger.submit(ask(only=only(fleet, "gpu-2")), 1.0, 0))
        assert held.backend == "gpu-2"
    assert held.decision.why == "only_choice"


def test_it_waits_for_that_target_while_others_are_free() -> None:
    fleet, ledger = world(1, 2)
    held = lease(ledger.submit(ask(only=only(fleet, "gpu-1")), 1.0, 0))
    waits = ticket(ledger.submit(ask(only=only(fleet, "gpu-1")), 1.0, 0))
    assert waits.deadline is None
    assert ledger.kick(2.0, 0) == []
    assert granted(ledger.release(held, 3.0, 0)) == [waits.id]


def test_one_that_waits_for_its_only_target_holds_up_nobody_who_may_go_elsewhere() -> None:
    fleet, ledger = world(1, 1)
    first = lease(ledger.submit(ask(only=only(fleet, "gpu-1")), 1.0, 0))
    second = lease(ledger.submit(ask(only=only(fleet, "gpu-2")), 1.0, 0))
    bound = ticket(ledger.submit(ask(only=only(fleet, "gpu-1")), 1.0, 0))
    free = ticket(ledger.submit(ask(), 1.0, 0))
    assert granted(ledger.release(second, 2.0, 0)) == [free.id]
    assert granted(ledger.release(first, 3.0, 0)) == [bound.id]


def test_with_its_only_target_down_it_is_refused_at_once_while_others_serve_the_model() -> None:
    fleet, ledger = world(1, 1)
    held = lease(ledger.submit(ask(only=only(fleet, "gpu-1")), 1.0, 0))
    waits = ticket(ledger.submit(ask(only=only(fleet, "gpu-1")), 1.0, 0))
    fleet.eject(backend(fleet, "gpu-1"), "died", 2.0, connected_at=1.0)
    assert expired(ledger.kick(2.0, 0)) == {waits.id: "nowhere_else"}
    ledger.release(held, 2.0, 0)
    assert refusal(ledger.submit(ask(only=only(fleet, "gpu-1")), 3.0, 0)).outcome == "nowhere_else"


def test_with_everybody_down_it_waits_for_its_only_target_to_come_back_as_others_wait_for_any() -> None:
    fleet, ledger = world(1, 1)
    for name in ("gpu-1", "gpu-2"):
        fleet.eject(backend(fleet, name), "died", 2.0, connected_at=1.0)
    waits = ticket(ledger.submit(ask(only=only(fleet, "gpu-1")), 2.0, 0))
    assert waits.deadline == 32.0
    assert ledger.kick(3.0, 0) == []
    publish(fleet, "gpu-1", 4.0, warm(1))
    assert granted(ledger.kick(4.0, 0)) == [waits.id]


def test_it_stops_waiting_when_another_comes_back_first() -> None:
    fleet, ledger = world(1, 1)
    for name in ("gpu-1", "gpu-2"):
        fleet.eject(backend(fleet, name), "died", 2.0, connected_at=1.0)
    waits = ticket(ledger.submit(ask(only=only(fleet, "gpu-1")), 2.0, 0))
    publish(fleet, "gpu-2", 4.0, warm(1))
    assert expired(ledger.kick(4.0, 0)) == {waits.id: "nowhere_else"}


def test_a_target_that_refused_is_left_out_of_the_only_ones_too() -> None:
    fleet, ledger = world(1, 1, 1)
    may = only(fleet, "gpu-1", "gpu-2")
    again = ask(only=may, exclude=only(fleet, "gpu-1"), retry=True)
    assert lease(ledger.submit(again, 1.0, 0)).backend == "gpu-2"
    assert refusal(ledger.submit(ask(only=may, exclude=may), 1.0, 0)).outcome == "nowhere_else"


# -- without a slot


def test_what_takes_no_slot_is_served_while_all_are_taken_and_leaves_no_trace() -> None:
    _, ledger = world(1)
    held = lease(ledger.submit(ask(), 1.0, 0))
    waits = ticket(ledger.submit(ask(), 1.0, 0))
    visit = lease(ledger.visit(ask(), 2.0, 5))
    assert visit.target is held.target
    assert visit.decision.target_id == held.target.id
    assert visit.decision.reason.startswith("warm")
    assert (ledger.leased, ledger.waiting, held.target.inflight) == (1, 1, 1)
    assert ledger.release(visit, 3.0, 0) == []
    assert (ledger.leased, ledger.waiting, held.target.inflight) == (1, 1, 1)
    assert granted(ledger.release(held, 4.0, 0)) == [waits.id]


def test_it_goes_to_the_best_target_that_may_serve_it() -> None:
    fleet, ledger = world(1, 1)
    publish(fleet, "gpu-1", 1.0, warm(1, running=1))
    assert lease(ledger.visit(ask(), 1.0, 0)).backend == "gpu-2"
    assert lease(ledger.visit(ask(only=only(fleet, "gpu-1")), 1.0, 0)).backend == "gpu-1"


def test_of_busy_targets_it_goes_to_the_one_that_a_request_would_wait_for() -> None:
    fleet, ledger = world(1, 1)
    publish(fleet, "gpu-1", 1.0, warm(1, running=1))
    publish(fleet, "gpu-2", 1.0, {**warm(1), Signal.RESIDENCY: Residency.COLD, Signal.RUNNING: 0})
    for target_ in (target(fleet, "gpu-1"), target(fleet, "gpu-2")):
        target_.stats.load_s.add(60.0)
        target_.stats.service_s.add(1.0)
    got = ledger.visit(ask(), 1.0, 0)
    assert isinstance(got, Lease)
    assert got.backend == "gpu-1"


def test_without_a_slot_too_an_unknown_model_is_unknown_and_one_whose_backends_are_down_unavailable() -> None:
    fleet, ledger = world(1)
    assert refusal(ledger.visit(ask(model="nope"), 1.0, 0)).outcome == "unknown_model"
    assert refusal(ledger.visit(ask(exclude=only(fleet, "gpu-1")), 1.0, 0)).outcome == "nowhere_else"
    fleet.eject(backend(fleet), "died", 2.0, connected_at=1.0)
    assert refusal(ledger.visit(ask(), 2.0, 0)).outcome == "unavailable"
    assert M in fleet.models(1.0) or fleet.knows(M)
