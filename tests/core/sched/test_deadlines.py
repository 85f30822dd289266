from hypothesis import given
from hypothesis import strategies as st

from pharos.core.sched.deadlines import SLACK, Deadlines
from tests.core.fleet.given import publish, warm
from tests.core.sched.given import ask, lease, ticket, world


def test_the_earliest_comes_first_and_what_changed_or_went_is_forgotten() -> None:
    times: dict[int, float] = {1: 5.0, 2: 3.0, 3: 4.0}
    deadlines = Deadlines(times.get)
    assert deadlines.next() is None
    for number in times:
        deadlines.set(number, len(times))
    assert deadlines.next() == 3.0
    times[2] = 9.0
    deadlines.set(2, 3)
    del times[3]
    assert deadlines.next() == 5.0
    assert deadlines.due(4.9) == []
    assert deadlines.due(9.0) == [1, 2]
    assert deadlines.next() is None


def test_one_without_a_deadline_leaves_no_entry() -> None:
    deadlines = Deadlines({}.get)
    deadlines.set(1, 1)
    assert len(deadlines) == 0


def test_entries_of_those_who_went_do_not_pile_up() -> None:
    times: dict[int, float] = {}
    deadlines = Deadlines(times.get)
    for number in range(10_000):
        times[number] = 600.0 + number
        deadlines.set(number, 1)
        del times[number]
    assert len(deadlines) <= SLACK + 2


def test_one_that_was_set_twice_expires_once() -> None:
    deadlines = Deadlines({1: 5.0}.get)
    deadlines.set(1, 1)
    deadlines.set(1, 1)
    assert deadlines.due(5.0) == [1]


@given(st.dictionaries(st.integers(0, 50), st.integers(0, 100)), st.integers(0, 100))
def test_all_that_are_due_come_out_in_order_and_no_other(times: dict[int, int], now: int) -> None:
    deadlines = Deadlines(times.get)
    for number in times:
        deadlines.set(number, len(times))
    due = deadlines.due(now)
    assert sorted(due) == sorted(number for number, at in times.items() if at <= now)
    assert [times[number] for number in due] == sorted(times[number] for number in due)


def test_a_slot_that_came_free_is_looked_at_before_anybody_waits_too_long() -> None:
    fleet, ledger = world(1, max_wait_s=60.0)
    lease(ledger.submit(ask(), 0.5, 0))
    ticket(ledger.submit(ask("alice"), 0.5, 0))
    assert ledger.next_deadline() == 60.5
    publish(fleet, "gpu-1", 1.0, warm(2, running=1))
    ticket(ledger.submit(ask("bob"), 1.1, 0))
    assert ledger.next_deadline() == 1.1
