"""Keys of a higher priority go first while requests wait, and the others do not wait for ever."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pharos.core.sched.fairqueue import Answer, FairQueue
from pharos.core.sched.line import PASSED_FOR_S, Waiter
from tests.core.sched.given import ask, granted, ticket, world
from tests.core.sched.given import lease as leased


def queue(*waiters: tuple[str, int], at: tuple[float, ...] = (), work_s: float = 1.0) -> FairQueue:
    """Waiters with ids 1, 2 …: key and its priority; `at`: when the first ones came, the others at 0."""
    made = FairQueue()
    for number, (key, priority) in enumerate(waiters, 1):
        came = at[number - 1] if number <= len(at) else 0.0
        made.add(Waiter(number, ask(key, "x", priority=priority), came, None, work_s=work_s))
    return made


def serve(made: FairQueue, slots: int = 10**6, now: float = 0.0) -> list[int]:
    order: list[int] = []

    def offer(waiter: Waiter, *_: bool) -> Answer:
        if len(order) == slots:
            return Answer.FULL
        order.append(waiter.id)
        made.accounts.charge(waiter.submit.key, waiter.work_s)
        return Answer.GRANTED

    made.serve(offer, now)
    return order


def test_a_higher_priority_goes_first_whatever_was_given_before() -> None:
    made = queue(("low", 0), ("low", 0), ("high", 5), ("high", 5), ("high", 5), ("lowest", -5))
    assert [serve(made, slots=1) for _ in range(6)] == [[3], [4], [5], [1], [2], [6]]


def test_keys_of_one_priority_share_by_weight_as_ever() -> None:
    assert serve(queue(("a", 1), ("a", 1), ("b", 1), ("b", 1), ("c", 0))) == [1, 3, 2, 4, 5]


def test_one_that_has_waited_long_counts_as_one_of_the_highest() -> None:
    made = queue(("low", 0), ("low", 0), *[("high", 9)] * 4, at=(0.0, PASSED_FOR_S - 1))
    now = PASSED_FOR_S
    assert serve(made, now=now) == [1, 3, 4, 5, 6, 2], "the old one has its turn, the new one behind it has not"


def test_one_that_is_old_takes_turns_with_the_highest_and_does_not_rule_them() -> None:
    made = queue(*[("low", 0)] * 6, *[("high", 9)] * 6)
    order = serve(made, slots=6, now=PASSED_FOR_S)
    assert sum(number <= 6 for number in order) == 3


def test_without_priorities_age_changes_nothing_between_keys() -> None:
    made = queue(("a", 0), ("b", 0), ("a", 0), ("b", 0), at=(0.0, 1e3, 0.0, 1e3))
    assert serve(made, now=1e3) == [1, 2, 3, 4]


def test_what_nobody_of_a_higher_priority_can_use_goes_to_the_others() -> None:
    made = FairQueue()
    made.add(Waiter(1, ask("high", "busy", priority=3), 0.0, None))
    made.add(Waiter(2, ask("low", "free"), 0.0, None))
    took: list[int] = []

    def offer(waiter: Waiter, *_: bool) -> Answer:
        if waiter.submit.model == "busy":
            return Answer.FULL
        took.append(waiter.id)
        return Answer.GRANTED

    made.accounts.charge("low", 0.0)
    made.serve(offer, 0.0)
    assert took == [2]


def test_an_old_one_that_prefers_to_wait_is_asked_once_in_a_pass() -> None:
    made = queue(("low", 0), ("high", 1), at=(0.0, PASSED_FOR_S))
    asked: list[int] = []

    def offer(waiter: Waiter, *_: bool) -> Answer:
        asked.append(waiter.id)
        return Answer.WAITS

    made.serve(offer, PASSED_FOR_S)
    assert sorted(asked) == [1, 2]


@given(
    st.lists(
        st.tuples(st.sampled_from("abc"), st.sampled_from([0.0, 30.0, 60.0]), st.floats(0.01, 100.0)),
        min_size=1, max_size=30,
    )
)  # fmt: skip
def test_what_is_told_of_who_is_before_is_what_happens(waiters: list[tuple[str, float, float]]) -> None:
    priorities = {"a": 0, "b": 0, "c": 2}
    made = FairQueue()
    for number, (key, at, work_s) in enumerate(sorted(waiters, key=lambda one: one[1]), 1):
        made.add(Waiter(number, ask(key, "x", priority=priorities[key]), at, None, work_s=work_s))
    now = 30.0 + PASSED_FOR_S
    told = {waiter.id: len(made.ahead_of(waiter, now)) for waiter in made}
    assert serve(made, now=now) == sorted(told, key=lambda number: told[number])


@pytest.mark.parametrize(("priority", "first"), [(0, 1), (1, 2)])
def test_the_ledger_grants_a_free_slot_by_priority(priority: int, first: int) -> None:
    _, ledger = world(1)
    running = leased(ledger.submit(ask("someone"), 0.0, 0))
    tickets = [
        ticket(ledger.submit(ask("low"), 1.0, 0)).id,
        ticket(ledger.submit(ask("high", priority=priority), 2.0, 0)).id,
    ]
    place = ledger.place(tickets[0], 2.0)
    assert place is not None
    assert place.position == (1 if priority == 0 else 2)
    assert granted(ledger.release(running, 3.0, 0)) == [tickets[first - 1]]
