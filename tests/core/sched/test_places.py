"""What those who wait are told: their place, how long it takes, when to come back, and that they fit nowhere now."""

import pytest

from pharos.core.fleet import Feedback
from pharos.core.policy import Params
from pharos.core.sched import Place
from pharos.core.sched.charging import LEAST_S, Account, Accounts, work_s
from pharos.core.sched.copies import gained_s, holders, pays, slots_free_in, slots_of
from pharos.core.sched.places import eta_s, retry_after_s
from pharos.core.signals import Residency, Signal
from tests.core.fleet.given import LLAMACPP, OPENAI, M, backend, fleet_of, publish, spec, target, warm
from tests.core.sched.given import ask, expired, granted, lease, refusal, ticket, world

PARAMS = Params()


def test_a_place_is_the_one_in_the_order_of_service() -> None:
    fleet, ledger = world(2)
    target(fleet).stats.service_s.add(4.0)
    held = [lease(ledger.submit(ask("x"), 0.0, 0)) for _ in range(2)]
    first, second = (ticket(ledger.submit(ask("a"), 1.0, 0)) for _ in range(2))
    third = ticket(ledger.submit(ask("b"), 1.0, 0))
    assert ledger.place(first.id, 1.0) == Place(1, 3.0)
    assert ledger.place(third.id, 1.0) == Place(2, 3.0 + 4.0 / 2)
    assert ledger.place(second.id, 1.0) == Place(3, 3.0 + 8.0 / 2)
    assert second.position == 2, "when it came"
    assert granted(ledger.release(held[0], 2.0, 0)) == [first.id]
    assert ledger.place(first.id, 2.0) is None
    assert ledger.place(third.id, 2.0) == Place(1, 2.0)
    assert ledger.place(77, 2.0) is None


def test_nobody_is_promised_a_time_while_no_speed_is_known_or_no_engine_is_there() -> None:
    fleet, ledger = world(1)
    lease(ledger.submit(ask(), 0.5, 0))
    waits = ticket(ledger.submit(ask(), 0.5, 0))
    assert ledger.place(waits.id, 0.5) == Place(1, None)
    target(fleet).stats.service_s.add(4.0)
    assert ledger.place(waits.id, 0.5) == Place(1, 4.0)
    fleet.eject(backend(fleet), "died", 1.0, connected_at=0.5)
    assert ledger.place(waits.id, 1.0) == Place(1, None)


def test_whoever_waits_for_a_load_is_told_of_it() -> None:
    fleet = fleet_of(spec())
    publish(fleet, "gpu-1", 0.0, warm(1) | {Signal.RESIDENCY: Residency.COLD})
    it = target(fleet)
    it.stats.service_s.add(4.0)
    assert eta_s([it], 8.0, 0.0, PARAMS) == PARAMS.load_s + 8.0
    it.stats.load_s.add(3.0)
    assert eta_s([it], 8.0, 0.0, PARAMS) == 11.0
    fleet.dispatched(it, 0.0)
    it.slots.progress[1] = (0.0, 7.0)
    assert eta_s([it], 8.0, 1.0, PARAMS) == 6.0 + 8.0, "the one that runs waits for the load"


def test_when_to_come_back_is_known_without_an_engine_too() -> None:
    assert retry_after_s([], 100.0, 0.0, PARAMS) == 5


def test_foreign_requests_hold_slots_too() -> None:
    fleet, _ = world(2)
    publish(fleet, "gpu-1", 0.0, warm(2, running=2))
    it = target(fleet)
    it.stats.service_s.add(4.0)
    assert eta_s([it], 0.0, 0.0, PARAMS) == 2.0
    assert slots_free_in(it, 0.0, 4.0, 0.0) == [4.0, 4.0]


@pytest.mark.parametrize(
    ("more", "plan", "slots"),
    [({"capacity": 3}, OPENAI, 3), ({}, OPENAI, 2), ({"capacity": 0}, OPENAI, 1)],
    ids=["configured", "assumed", "none"],
)
def test_slots_are_those_told_configured_or_assumed(more: dict[str, int], plan: object, slots: int) -> None:
    fleet = fleet_of(spec(**more))
    publish(fleet, "gpu-1", 0.0, {}, plan=plan)  # type: ignore[arg-type]
    assert slots_of(target(fleet), 0.0) == slots
    publish(fleet, "gpu-1", 0.0, {Signal.CAPACITY: 7})
    assert slots_of(target(fleet), 0.0) == 7


def test_a_kind_with_many_slots_as_a_rule_is_taken_to_have_them() -> None:
    fleet = fleet_of(spec())
    publish(fleet, "gpu-1", 0.0, {})
    backend(fleet).usual_capacity = 128
    assert slots_of(target(fleet), 0.0) == 128


# -- what a request takes


def test_work_is_what_is_not_cached_and_the_reply_at_the_speed_of_the_target() -> None:
    fleet, _ = world(1)
    it = target(fleet)
    sub = ask(prompt_tokens=1000, expected_tokens=50.0, matched={it.id: 800})
    assert work_s(sub, None, PARAMS) == pytest.approx(PARAMS.base_s + 1000 * 0.005 + 50 * 0.0107)
    assert work_s(sub, it, PARAMS) == pytest.approx(PARAMS.base_s + 200 * 0.005 + 50 * 0.0107)
    assert work_s(ask(), it, PARAMS) == PARAMS.service_s
    it.stats.service_s.add(3.0)
    assert work_s(sub, it, PARAMS) == 3.0
    it.stats.prefill_s_per_token.add(0.01)
    it.stats.decode_s_per_token.add(0.1)
    it.stats.base_s.add(0.0)
    assert work_s(sub, it, PARAMS) == pytest.approx(2.0 + 5.0)
    assert work_s(ask(prompt_tokens=0, expected_tokens=0.0), it, PARAMS) == LEAST_S


def test_a_key_pays_for_its_request_and_not_for_the_load_before_it() -> None:
    fleet = fleet_of(spec())
    publish(fleet, "gpu-1", 0.0, warm(1) | {Signal.RESIDENCY: Residency.COLD})
    _, ledger = world(1)
    ledger = type(ledger)(fleet)
    target(fleet).stats.load_s.add(8.0)
    held = lease(ledger.submit(ask("first"), 0.0, 0))
    waits = [ticket(ledger.submit(ask(key), 0.0, 0)).id for key in ("a", "b", "a", "b")]
    fleet.unreachable(backend(fleet), "gone")
    publish(fleet, "gpu-1", 1.0, {Signal.RESIDENCY: Residency.COLD, Signal.CAPACITY: 1})
    [grant] = ledger.release(held, 1.0, 0)
    assert (grant.ticket, grant.lease.cold, grant.lease.charged_s) == (waits[0], True, PARAMS.service_s)
    account = ledger._queue._lines["a"].account
    ledger.release(grant.lease, 12.0, 0)
    assert account.settled_s == pytest.approx(3.0)


def test_what_ran_already_when_a_key_begins_to_wait_counts_from_then_on() -> None:
    fleet, ledger = world(3)
    target(fleet).stats.service_s.add(10.0)
    ours = [lease(ledger.submit(ask(key), 0.0, 0)) for key in ("a", "a", "b")]
    ticket(ledger.submit(ask("a"), 4.0, 0))
    account = ledger._queue._lines["a"].account
    assert (account.out_s, account.running, ours[2].charged_s) == (12.0, 2, 0.0)
    ticket(ledger.submit(ask("a"), 5.0, 0))
    assert account.running == 2, "once"
    other = ticket(ledger.submit(ask("b"), 5.0, 0))
    assert granted(ledger.release(ours[0], 9.0, 0)) == [other.id]
    assert (account.out_s, account.settled_s) == (6.0, 5.0)


def test_a_load_that_the_engine_tells_of_is_left_out_as_told() -> None:
    _, ledger = world(1)
    held = lease(ledger.submit(ask("x"), 0.0, 0))
    for key in ("a", "b", "a"):
        ticket(ledger.submit(ask(key), 0.0, 0))
    [grant] = ledger.release(held, 1.0, 0)
    account = ledger._queue._lines["a"].account
    ledger.release(grant.lease, 9.0, 0, Feedback(ok=True, cold=False, load_s=6.0))
    assert account.settled_s == pytest.approx(2.0)


def test_another_weight_counts_from_then_on_and_what_is_owed_stays() -> None:
    accounts = Accounts()
    account = accounts.enter("a", 1, [])
    account.settled_s = 6.0
    assert accounts.enter("a", 3, [Account(1)]).owed == 6.0
    assert account.settled_s == 18.0


# -- second copies


def test_more_slots_gain_what_they_take_off_each_wait() -> None:
    assert gained_s([5.0], [10.0], 1, 5.0) == 0.0
    assert gained_s([5.0], [10.0], 5, 5.0) == 20.0
    assert gained_s([5.0], [0.0], 2, 5.0) == (5 + 10) - (0 + 5)
    assert gained_s([], [], 0, 5.0) == 0.0


def test_a_slow_copy_is_worth_less_than_a_fast_one_that_must_be_loaded() -> None:
    fleet = fleet_of(spec("slow"), spec("fast"))
    publish(fleet, "slow", 0.0, warm(4))
    publish(fleet, "fast", 0.0, warm(4) | {Signal.RESIDENCY: Residency.COLD})
    target(fleet, "slow").stats.prefill_s_per_token.add(0.1)
    target(fleet, "fast").stats.prefill_s_per_token.add(0.001)
    target(fleet, "fast").stats.load_s.add(5.0)
    _, ledger = world(1)
    ledger = type(ledger)(fleet)
    assert lease(ledger.submit(ask(prompt_tokens=1000), 0.5, 0)).backend == "fast"
    assert lease(ledger.submit(ask(prompt_tokens=10), 0.5, 0)).backend == "slow"


def test_a_decision_that_chose_nobody_pays_for_nothing() -> None:
    fleet, ledger = world(1)
    lease(ledger.submit(ask(), 0.5, 0))
    decision = ledger._decide(ask(), fleet.targets_for(M, 0.5), 0, 0.5, 0)
    assert holders(decision) == [0]
    assert not pays(decision, [0], fleet.targets_for(M, 0.5), 1, 5.0, 0.5)
    assert repr(ledger._chooser) == "<Chooser <Arbiter 0 claims>>"
    assert repr(ledger._room) == "<WaitRoom 0 waiting>"


# -- waiters that stop fitting


def test_a_waiter_that_fits_nowhere_any_more_is_refused_as_if_it_came_now() -> None:
    fleet, ledger = world(1)
    held = lease(ledger.submit(ask(), 0.5, 0))
    long = [ticket(ledger.submit(ask(prompt_tokens=6000), 0.5, 0)).id for _ in range(2)]
    short = ticket(ledger.submit(ask(), 0.5, 0)).id
    publish(fleet, "gpu-1", 1.0, warm(1, running=1) | {Signal.CONTEXT_LENGTH: 1000})
    news = ledger.kick(1.0, 0)
    assert expired(news) == dict.fromkeys(long, "does_not_fit")
    said = refusal(ledger.submit(ask(prompt_tokens=6000), 1.0, 0))
    assert {item.refusal for item in news if not hasattr(item, "lease")} == {said}  # type: ignore[union-attr]
    assert granted(ledger.release(held, 2.0, 0)) == [short]


def test_a_long_prompt_that_must_wait_holds_up_no_short_one_of_its_key() -> None:
    fleet = fleet_of(spec("small"), spec("large"))
    publish(fleet, "small", 0.0, warm(1) | {Signal.CONTEXT_LENGTH: 4000}, plan=LLAMACPP)
    publish(fleet, "large", 0.0, warm(1) | {Signal.CONTEXT_LENGTH: 64000}, plan=LLAMACPP)
    _, ledger = world(1)
    ledger = type(ledger)(fleet)
    first = lease(ledger.submit(ask(prompt_tokens=30000), 0.5, 0))
    assert first.backend == "large"
    second = lease(ledger.submit(ask(), 0.5, 0))
    long = ticket(ledger.submit(ask(prompt_tokens=30000), 0.5, 0))
    short = ticket(ledger.submit(ask(), 0.5, 0))
    assert granted(ledger.release(second, 1.0, 0)) == [short.id]
    assert granted(ledger.release(first, 2.0, 0)) == [long.id]
