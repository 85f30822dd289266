import pytest

from pharos.core.fleet import Feedback, Fleet
from pharos.core.sched import Expiry, Grant, Ledger
from pharos.core.signals import Residency, Signal
from tests.core.fleet.given import EVERYTHING, OLLAMA_LIKE, OPENAI, M, backend, fleet_of, publish, spec, target, warm
from tests.core.sched.given import ask, expired, granted, lease, refusal, ticket, world

DONE = Feedback(ok=True, cold=False, ttft_s=1.0, duration_s=3.0, prompt_tokens=1000, cached_tokens=0, bytes_prompt=2000)


def test_a_free_slot_is_leased_at_once() -> None:
    _, ledger = world(1)
    held = lease(ledger.submit(ask(), 1.0, 0))
    assert (held.model, held.backend, held.key, held.at, held.waited_s) == (M, "gpu-1", "alice", 1.0, 0.0)
    assert (held.cold, held.is_speed_sample) == (False, True)
    assert held.decision.why == "only_choice"
    assert (held.target.inflight, held.slots.inflight, ledger.leased) == (1, 1, 1)
    assert repr(ledger) == "<Ledger 1 leased, 0 waiting>"
    assert repr(held) == f"<Lease 1 {M}@gpu-1 held>"


def test_a_request_without_a_slot_waits_and_gets_the_one_that_is_released() -> None:
    _, ledger = world(1)
    held = lease(ledger.submit(ask(), 1.0, 0))
    waits = ticket(ledger.submit(ask(), 2.0, 0))
    assert (waits.position, waits.deadline, ledger.next_deadline()) == (1, None, None)
    assert ledger.waiting_by_model() == {M: 1}
    [grant] = ledger.release(held, 5.0, 0)
    assert (grant.ticket, grant.lease.waited_s) == (waits.id, 3.0)
    assert ledger.waiting_by_model() == {}
    assert repr(held) == f"<Lease 1 {M}@gpu-1 released>"


def test_a_second_release_does_nothing() -> None:
    _, ledger = world(1)
    held = lease(ledger.submit(ask(), 1.0, 0))
    first, second = ticket(ledger.submit(ask(), 1.0, 0)), ticket(ledger.submit(ask(), 1.0, 0))
    assert granted(ledger.release(held, 2.0, 0)) == [first.id]
    assert ledger.release(held, 3.0, 0) == []
    assert (ledger.leased, ledger.waiting) == (1, 1)
    assert second.position == 2


def test_a_cancelled_waiter_leaves_the_queue() -> None:
    _, ledger = world(1)
    held = lease(ledger.submit(ask(), 1.0, 0))
    first, second = ticket(ledger.submit(ask(), 1.0, 0)), ticket(ledger.submit(ask(), 1.0, 0))
    assert ledger.cancel(first.id, 2.0, 0) == []
    assert ledger.cancel(first.id, 2.0, 0) == []
    assert granted(ledger.release(held, 3.0, 0)) == [second.id]


def test_a_new_request_never_passes_one_that_waits_for_the_same_model() -> None:
    fleet, ledger = world(1)
    lease(ledger.submit(ask("carol"), 0.5, 0))
    first = ticket(ledger.submit(ask("alice"), 0.5, 0))
    publish(fleet, "gpu-1", 1.0, warm(2, running=1))
    second = ticket(ledger.submit(ask("bob"), 1.1, 0))
    assert ledger.next_deadline() == 1.1, "a slot is free: look at once"
    assert granted(ledger.kick(1.1, 0)) == [first.id]
    assert ledger.next_deadline() is None
    assert ledger.waiting_by_model() == {M: 1}
    assert second.position == 2


def test_foreign_requests_take_slots_too_and_a_round_that_sees_them_gone_frees_them() -> None:
    fleet, ledger = world(1)
    publish(fleet, "gpu-1", 1.0, warm(1, running=1))
    waits = ticket(ledger.submit(ask(), 1.5, 0))
    publish(fleet, "gpu-1", 2.0, warm(1, running=0))
    assert granted(ledger.kick(2.0, 0)) == [waits.id]


def test_an_engine_that_does_not_report_a_queue_full_gets_no_more_than_its_slots() -> None:
    _, ledger = world(2, 1)
    for _ in range(3):
        lease(ledger.submit(ask(), 1.0, 0))
    ticket(ledger.submit(ask(), 1.0, 0))


def test_names_of_one_queue_share_its_slots() -> None:
    _, ledger = world(1, models=("x", "y"))
    held = lease(ledger.submit(ask(model="x"), 1.0, 0))
    waits = ticket(ledger.submit(ask(model="y"), 1.0, 0))
    assert granted(ledger.release(held, 2.0, 0)) == [waits.id]


def test_the_queue_is_bounded_and_says_when_to_come_back() -> None:
    fleet, ledger = world(1, queue_size=2)
    lease(ledger.submit(ask(), 1.0, 0))
    for _ in range(2):
        ticket(ledger.submit(ask(), 1.0, 0))
    full = refusal(ledger.submit(ask(), 1.0, 0))
    assert (full.outcome, full.retry_after_s) == ("queue_full", 15)
    target(fleet).stats.service_s.add(1.5)
    assert refusal(ledger.submit(ask(), 1.0, 0)).retry_after_s == 12, "1.5 s there, and twice the 5 s of those who wait"
    target(fleet).stats.service_s.add(1000.0)
    assert refusal(ledger.submit(ask(), 1.0, 0)).retry_after_s == 60
    assert isinstance(ledger.submit(ask(retry=True), 1.0, 0).id, int), "a retry was let in once"  # type: ignore[union-attr]


def test_retry_after_counts_the_slots_that_are_known_configured_or_assumed() -> None:
    fleet = fleet_of(spec("a"), spec("b", capacity=6), spec("c"))
    publish(fleet, "a", 0.0, warm(2, running=2))
    publish(fleet, "b", 0.0, {Signal.RUNNING: 6}, plan=OPENAI)
    publish(fleet, "c", 0.0, {Signal.RUNNING: 2}, plan=OPENAI)
    ledger = Ledger(fleet, queue_size=0)
    assert refusal(ledger.submit(ask(), 0.5, 0)).retry_after_s == 1


def test_waiting_ends_at_max_wait() -> None:
    _, ledger = world(1, max_wait_s=10.0)
    lease(ledger.submit(ask(), 1.0, 0))
    waits = ticket(ledger.submit(ask(), 2.0, 0))
    assert (waits.deadline, ledger.next_deadline()) == (12.0, 12.0)
    assert ledger.kick(11.9, 0) == []
    [late] = ledger.kick(12.0, 0)
    assert isinstance(late, Expiry)
    assert (late.ticket, late.refusal.outcome) == (waits.id, "wait_too_long")
    assert late.refusal.text == f"No slot for the model '{M}' became free within 10 s."
    assert (ledger.next_deadline(), ledger.waiting) == (None, 0)


def test_a_slot_that_frees_at_the_deadline_is_still_given() -> None:
    fleet, ledger = world(1, max_wait_s=10.0)
    lease(ledger.submit(ask(), 1.0, 0))
    waits = ticket(ledger.submit(ask(), 2.0, 0))
    publish(fleet, "gpu-1", 12.0, warm(2, running=1))
    assert granted(ledger.kick(12.0, 0)) == [waits.id]


# -- models without a backend


def test_a_model_that_nobody_lists_is_unknown() -> None:
    _, ledger = world(1)
    unknown = refusal(ledger.submit(ask(model="nope"), 1.0, 0))
    assert (unknown.outcome, unknown.retry_after_s) == ("unknown_model", None)


def test_a_model_whose_backends_are_gone_for_long_is_unavailable() -> None:
    fleet, ledger = world(1)
    fleet.unreachable(backend(fleet), "gone")
    assert refusal(ledger.submit(ask(), 301.0, 0)).outcome == "unavailable"


def test_a_model_whose_backends_were_heard_of_within_5_minutes_is_waited_for() -> None:
    fleet, ledger = world(1)
    fleet.unreachable(backend(fleet), "gone")
    ticket(ledger.submit(ask(), 299.9, 0))


def test_a_request_waits_for_a_backend_that_was_up_lately() -> None:
    fleet, ledger = world(1)
    fleet.eject(backend(fleet), "died", 1.0, connected_at=0.5)
    waits = ticket(ledger.submit(ask(), 2.0, 0))
    assert (waits.deadline, ledger.next_deadline()) == (32.0, 32.0)
    assert ledger.kick(10.0, 0) == []
    publish(fleet, "gpu-1", 20.0, warm(1))
    assert granted(ledger.kick(20.0, 0)) == [waits.id]


def test_it_waits_no_longer_than_absent_wait() -> None:
    fleet, ledger = world(1)
    fleet.eject(backend(fleet), "died", 1.0, connected_at=0.5)
    waits = ticket(ledger.submit(ask(), 2.0, 0))
    [late] = ledger.kick(32.0, 0)
    assert isinstance(late, Expiry)
    assert (late.ticket, late.refusal.outcome, late.refusal.retry_after_s) == (waits.id, "wait_too_long", 5)
    assert late.refusal.text == f"No backend that serves the model '{M}' came back within 30 s."


def test_the_clock_of_absence_starts_for_those_who_wait_already_and_stops_when_it_ends() -> None:
    fleet, ledger = world(1)
    held = lease(ledger.submit(ask(), 0.5, 0))
    waits = ticket(ledger.submit(ask(), 1.0, 0))
    fleet.eject(backend(fleet), "died", 2.0, connected_at=0.5)
    assert ledger.release(held, 2.0, 0) == []
    assert ledger.kick(3.0, 0) == []
    assert ledger.next_deadline() == 33.0
    assert ledger.kick(4.0, 0) == []
    assert ledger.next_deadline() == 33.0
    publish(fleet, "gpu-1", 5.0, warm(1, running=1))
    assert ledger.kick(5.0, 0) == []
    assert ledger.next_deadline() is None
    publish(fleet, "gpu-1", 40.0, warm(1))
    assert granted(ledger.kick(40.0, 0)) == [waits.id]


def test_a_model_that_is_deleted_while_requests_wait_is_unknown_to_them() -> None:
    fleet, ledger = world(1)
    lease(ledger.submit(ask(), 0.5, 0))
    first, second = ticket(ledger.submit(ask(), 1.0, 0)), ticket(ledger.submit(ask(), 1.0, 0))
    publish(fleet, "gpu-1", 2.0, warm(1), models=("other",))
    assert expired(ledger.kick(2.0, 0)) == {first.id: "unknown_model", second.id: "unknown_model"}
    assert ledger.waiting == 0


def test_waiting_for_absent_backends_can_be_off() -> None:
    fleet, ledger = world(1, absent_wait_s=0.0)
    fleet.eject(backend(fleet), "died", 1.0, connected_at=0.5)
    assert refusal(ledger.submit(ask(), 2.0, 0)).outcome == "unavailable"


def test_a_lately_removed_backend_is_waited_for_and_one_removed_long_ago_is_unknown() -> None:
    fleet, ledger = world(1)
    fleet.set_backends([], 1.0)
    ticket(ledger.submit(ask(), 2.0, 0))
    assert refusal(ledger.submit(ask(), 400.0, 0)).outcome == "unknown_model"


def test_before_every_list_was_read_a_model_may_still_come() -> None:
    fleet = fleet_of(spec("a"), spec("b"))
    ledger = Ledger(fleet)
    waits = ticket(ledger.submit(ask(), 0.0, 0))
    fleet.starting(backend(fleet, "a"))
    fleet.unreachable(backend(fleet, "b"), "refused")
    assert ledger.kick(1.0, 0) == []
    publish(fleet, "a", 2.0, warm(1))
    assert granted(ledger.kick(2.0, 0)) == [waits.id]


def test_names_asked_for_in_vain_are_not_kept() -> None:
    fleet = fleet_of(spec("a"))
    ledger = Ledger(fleet)
    waits = ticket(ledger.submit(ask(model="made-up"), 0.0, 0))
    ledger.cancel(waits.id, 1.0, 0)
    ledger.kick(2.0, 0)
    assert ledger._room.absent == set()


# -- retries


def test_a_retry_goes_to_another_target_than_the_one_that_refused() -> None:
    _, ledger = world(2, 2)
    first = lease(ledger.submit(ask(), 1.0, 0))
    ledger.release(first, 1.0, 0)
    again = ask(retry=True, exclude=frozenset({first.target.id}), absent_ok=False)
    assert lease(ledger.submit(again, 1.0, 0)).target is not first.target


def test_a_retry_with_nobody_else_up_is_refused_at_once() -> None:
    fleet, ledger = world(1)
    again = ask(retry=True, exclude=frozenset({target(fleet).id}), absent_ok=False)
    assert refusal(ledger.submit(again, 1.0, 0)).outcome == "nowhere_else"
    fleet.eject(backend(fleet), "died", 2.0, connected_at=1.0)
    assert refusal(ledger.submit(ask(retry=True, absent_ok=False), 2.0, 0)).outcome == "nowhere_else"


def test_a_retry_that_waits_gives_up_when_the_last_other_target_goes() -> None:
    fleet, ledger = world(1, 1)
    both = [lease(ledger.submit(ask(), 1.0, 0)) for _ in range(2)]
    refused = next(held for held in both if held.backend == "gpu-1")
    again = ask(retry=True, exclude=frozenset({refused.target.id}), absent_ok=False)
    waits = ticket(ledger.submit(again, 1.0, 0))
    assert ledger.kick(2.0, 0) == []
    fleet.eject(backend(fleet, "gpu-2"), "died", 3.0, connected_at=1.0)
    assert expired(ledger.kick(3.0, 0)) == {waits.id: "nowhere_else"}


def test_a_retry_with_a_refusal_in_hand_waits_for_a_short_time_only() -> None:
    _, ledger = world(1, 1)
    both = [lease(ledger.submit(ask(), 1.0, 0)) for _ in range(2)]
    again = ask(retry=True, exclude=frozenset({both[0].target.id}), absent_ok=False)
    waits = ticket(ledger.submit(again, 1.0, 0))
    assert waits.deadline == 6.0
    assert expired(ledger.kick(6.0, 0)) == {waits.id: "nowhere_else"}


def test_a_retry_keeps_its_place() -> None:
    _, ledger = world(1)
    held = lease(ledger.submit(ask(), 1.0, 0))
    ticket(ledger.submit(ask(), 1.0, 0))
    again = ticket(ledger.submit(ask(retry=True), 2.0, 0))
    assert granted(ledger.release(held, 3.0, 0)) == [again.id]


def test_a_retry_after_a_dead_connection_waits_for_the_backend_to_come_back() -> None:
    fleet, ledger = world(1)
    held = lease(ledger.submit(ask(), 1.0, 0))
    fleet.eject(backend(fleet), "reset", 2.0, connected_at=1.0)
    ledger.release(held, 2.0, 0)
    again = ticket(ledger.submit(ask(retry=True), 2.0, 0))
    publish(fleet, "gpu-1", 4.0, warm(1))
    assert granted(ledger.kick(4.0, 0)) == [again.id]


# -- fairness


def test_keys_take_turns_at_the_slot_by_their_weights() -> None:
    _, ledger = world(1)
    held = lease(ledger.submit(ask("first"), 1.0, 0))
    a = [ticket(ledger.submit(ask("a", weight=2), 1.0, 0)).id for _ in range(4)]
    b = [ticket(ledger.submit(ask("b"), 1.0, 0)).id for _ in range(2)]
    order = []
    for _ in range(6):
        [grant] = ledger.release(held, 2.0, 0)
        order.append(grant.ticket)
        held = grant.lease
    assert order == [a[0], b[0], a[1], b[1], a[2], a[3]]


def test_a_model_without_a_slot_blocks_no_other() -> None:
    fleet, ledger = world(1, 1)
    publish(fleet, "gpu-2", 0.0, warm(1), models=("other",))
    lease(ledger.submit(ask(), 0.5, 0))
    held = lease(ledger.submit(ask(model="other"), 0.5, 0))
    ticket(ledger.submit(ask(), 1.0, 0))
    behind = ticket(ledger.submit(ask(model="other"), 1.0, 0))
    assert granted(ledger.release(held, 2.0, 0)) == [behind.id]


def test_a_crowd_makes_a_load_worth_it_that_one_waiter_would_not_pay() -> None:
    fleet = fleet_of(spec("warm"), spec("cold"))
    publish(fleet, "warm", 0.0, warm(1))
    publish(fleet, "cold", 0.0, warm(1) | {Signal.RESIDENCY: Residency.COLD})
    ledger = Ledger(fleet)
    lease(ledger.submit(ask(), 0.5, 0))
    patient = ticket(ledger.submit(ask(), 0.5, 0))
    assert ledger.next_deadline() == 0.5, "the cold one is free"
    assert ledger.kick(0.5, 0) == []
    assert ledger.waiting == 1
    for _ in range(3):
        ticket(ledger.submit(ask(), 0.7, 0))
        assert ledger.kick(0.7, 0) == []
    ticket(ledger.submit(ask(), 0.7, 0))
    [grant] = ledger.kick(0.7, 0)
    assert isinstance(grant, Grant)
    assert (grant.ticket, grant.lease.backend, grant.lease.cold) == (patient.id, "cold", True)


def test_one_that_prefers_to_wait_does_not_hold_up_another_key() -> None:
    fleet = fleet_of(spec("warm"), spec("other"))
    publish(fleet, "warm", 0.0, warm(1))
    publish(fleet, "other", 0.0, warm(1))
    target(fleet, "warm").stats.service_s.add(0.1)
    target(fleet, "other").stats.prefill_s_per_token.add(1.0)
    target(fleet, "warm").stats.prefill_s_per_token.add(0.001)
    ledger = Ledger(fleet)
    lease(ledger.submit(ask(), 0.5, 0))
    patient = ticket(ledger.submit(ask(), 0.5, 0))
    short = ticket(ledger.submit(ask("bob", prompt_tokens=0), 0.5, 0))
    assert granted(ledger.kick(0.5, 0)) == [short.id]
    assert ledger.cancel(patient.id, 0.6, 0) == []
    assert ledger.waiting == 0


# -- what a request teaches


def test_feedback_reaches_the_targets_averages() -> None:
    fleet, ledger = world(1)
    ledger.release(lease(ledger.submit(ask(), 1.0, 0)), 2.0, 0, DONE)
    stats = target(fleet).stats
    assert (stats.service_s.value, stats.prefill_s_per_token.value) == (3.0, 0.001)
    assert fleet.prompt_tokens(M, 100) == 50


def test_a_failed_request_teaches_nothing() -> None:
    fleet, ledger = world(1)
    failed = Feedback(ok=False, cold=False, duration_s=3.0)
    ledger.release(lease(ledger.submit(ask(), 1.0, 0)), 2.0, 0, failed)
    assert target(fleet).stats.service_s.value is None
    assert target(fleet).loaded_at is None


def cold_fleet() -> tuple[Fleet, Ledger]:
    fleet = fleet_of(spec())
    publish(fleet, "gpu-1", 0.0, warm(2) | {Signal.RESIDENCY: Residency.COLD})
    return fleet, Ledger(fleet)


def test_one_that_joins_a_load_is_not_cold_and_its_times_teach_nothing() -> None:
    fleet, ledger = cold_fleet()
    first, second = (lease(ledger.submit(ask(), 1.0, 0)) for _ in range(2))
    assert (first.cold, first.is_speed_sample) == (True, True)
    assert (second.cold, second.is_speed_sample) == (False, False)
    ledger.release(second, 9.0, 0, DONE)
    stats = target(fleet).stats
    assert (stats.service_s.value, stats.prefill_s_per_token.value) == (None, None)
    ledger.release(first, 9.0, 0, Feedback(ok=True, cold=True, ttft_s=7.0))
    assert stats.load_s.value == 7.0


def test_a_reply_shows_the_model_loaded_to_the_next_request() -> None:
    _, ledger = cold_fleet()
    ledger.release(lease(ledger.submit(ask(), 1.0, 0)), 4.0, 0, Feedback(ok=True, cold=True, ttft_s=2.0))
    assert not lease(ledger.submit(ask(), 4.1, 0)).cold


def test_an_unknown_residency_is_neither_cold_nor_a_speed_sample() -> None:
    fleet, ledger = world(1)
    publish(fleet, "gpu-1", 1.0, {}, read=EVERYTHING)
    held = lease(ledger.submit(ask(), 1.0, 0))
    assert (held.cold, held.is_speed_sample) == (False, False)


def test_an_engine_that_reports_no_residency_is_always_a_speed_sample() -> None:
    fleet = fleet_of(spec())
    publish(fleet, "gpu-1", 1.0, plan=OPENAI)
    assert lease(Ledger(fleet).submit(ask(), 1.0, 0)).is_speed_sample


def test_a_request_waits_while_loading_would_evict_a_busy_model() -> None:
    fleet = fleet_of(spec(memory_bytes=10))
    values = {(Signal.RESIDENCY, "x"): Residency.LOADED, (Signal.RESIDENCY, "y"): Residency.COLD}
    publish(fleet, "gpu-1", 0.0, values | {Signal.SIZE_BYTES: 6}, models=("x", "y"), plan=OLLAMA_LIKE)
    ledger = Ledger(fleet)
    held = lease(ledger.submit(ask(model="x"), 0.5, 0))
    waits = ticket(ledger.submit(ask(model="y"), 0.5, 0))
    [grant] = ledger.release(held, 1.0, 0)
    assert (grant.ticket, grant.lease.cold) == (waits.id, True)


def test_a_lease_outlives_its_backend() -> None:
    fleet, ledger = world(1)
    held = lease(ledger.submit(ask(), 1.0, 0))
    for n in range(34):
        fleet.set_backends([spec(f"other-{n}")], 2.0)
    assert (held.backend, held.model) == ("gpu-1", M)
    assert ledger.release(held, 3.0, 0, DONE) == []
    assert held.slots.inflight == 0


def test_the_policy_is_chosen_by_name() -> None:
    fleet = fleet_of(spec("a"), spec("b"))
    publish(fleet, "a", 0.0, warm(4, running=1))
    publish(fleet, "b", 0.0, warm(4) | {Signal.RESIDENCY: Residency.COLD})
    assert lease(Ledger(fleet, policy="cost").submit(ask(), 0.5, 0)).backend == "a"
    assert lease(Ledger(fleet, policy="least-load").submit(ask(), 0.5, 0)).backend == "b"
    with pytest.raises(KeyError):
        Ledger(fleet, policy="random")


def test_an_engine_that_is_kept_for_another_model_gets_nothing_though_it_has_a_free_slot() -> None:
    fleet = fleet_of(spec("one"), spec("two"))
    told = {(Signal.RESIDENCY, "x"): Residency.LOADED, (Signal.RESIDENCY, "y"): Residency.COLD, Signal.CAPACITY: 2}

    def scrape(now: float) -> None:
        for name in ("one", "two"):
            publish(fleet, name, now, told | {Signal.MODELS_AT_ONCE: 1}, models=("x", "y"), plan=OLLAMA_LIKE)

    scrape(0.0)
    ledger = Ledger(fleet)
    held = [lease(ledger.submit(ask(model="x"), 0.5, 0)) for _ in range(2)]
    waits = ticket(ledger.submit(ask(model="y"), 1.0, 0))
    assert ledger.kick(1.0, 0) == []
    due = ledger.next_deadline()
    assert due == 1.0 + 4 * 10.0
    scrape(due)
    assert ledger.kick(due, 0) == []
    [kept] = ledger._arbiter.claims
    more = lease(ledger.submit(ask(model="x"), due, 0))
    assert more.backend != kept.name
    last = ticket(ledger.submit(ask(model="x"), due, 0))
    first = next(one for one in held if one.backend == kept.name)
    assert granted(ledger.release(first, due + 1.0, 0)) == [waits.id]
    assert granted(ledger.release(more, due + 2.0, 0)) == [last.id]
