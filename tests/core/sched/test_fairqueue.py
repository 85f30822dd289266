"""The fair queue by itself: who is next, by what keys were given and by how long requests take."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pharos.core.sched.fairqueue import LOOKS, Answer, FairQueue
from pharos.core.sched.line import PASSED_FOR_S, Waiter
from tests.core.sched.given import ask

GRANTED, WAITS, BLOCKED = Answer.GRANTED, Answer.WAITS, Answer.BLOCKED


def queue(*waiters: tuple[str, str] | tuple[str, str, int], retry: frozenset[int] = frozenset()) -> FairQueue:
    """Waiters with ids 1, 2 …: key, model and weight of each; each takes a second."""
    made = FairQueue()
    for number, (key, model, *weight) in enumerate(waiters, 1):
        sub = ask(key, model, weight=weight[0] if weight else 1, retry=number in retry)
        made.add(Waiter(number, sub, 0.0, None))
    return made


def lengths(*waiters: tuple[str, float]) -> FairQueue:
    """Waiters with ids 1, 2 …: key and seconds of each."""
    made = FairQueue()
    for number, (key, work_s) in enumerate(waiters, 1):
        made.add(Waiter(number, ask(key, "x"), 0.0, None, work_s=work_s))
    return made


def serve(made: FairQueue, slots: int = 10**6, closed: str = "", now: float = 0.0) -> list[int]:
    """Grant so many slots; the models in `closed` have none."""
    order: list[int] = []

    def offer(waiter: Waiter) -> Answer:
        if waiter.submit.model in closed or len(order) == slots:
            return BLOCKED
        order.append(waiter.id)
        made.accounts.charge(waiter.submit.key, waiter.work_s)
        return GRANTED

    made.serve(offer, now)
    return order


def test_an_empty_queue_offers_nothing() -> None:
    assert serve(FairQueue()) == []


def test_a_line_is_served_in_its_order() -> None:
    assert serve(queue(("a", "x"), ("a", "y"), ("a", "x"))) == [1, 2, 3]


def test_keys_take_turns() -> None:
    assert serve(queue(("a", "x"), ("a", "x"), ("b", "x"), ("b", "x"), ("c", "x"))) == [1, 3, 5, 2, 4]


def test_a_key_that_weighs_twice_as_much_gets_twice_as_much() -> None:
    assert serve(queue(*[("a", "x", 2)] * 4, *[("b", "x")] * 2)) == [1, 5, 2, 6, 3, 4]


def test_turns_hold_when_slots_free_one_at_a_time() -> None:
    made = queue(*[("a", "x", 2)] * 4, *[("b", "x")] * 2)
    assert [serve(made, slots=1) for _ in range(6)] == [[1], [5], [2], [6], [3], [4]]
    assert len(made) == 0


def test_seconds_count_and_not_requests() -> None:
    made = lengths(("long", 8.0), ("long", 8.0), *[("short", 1.0)] * 10)
    assert serve(made) == [1, *range(3, 11), 2, 11, 12]


def test_what_a_request_took_counts_once_it_has_ended() -> None:
    made = lengths(*[("wrong", 1.0)] * 3, *[("right", 1.0)] * 12)
    assert serve(made, 1) == [1]
    made.settle("wrong", 1.0, 5.0)
    assert serve(made, 5) == [4, 5, 6, 7, 8]
    assert serve(made, 1) == [2], "of two that had as much, the one that was served longer ago"
    for _ in range(4):
        made.settle("right", 1.0, 9.0)
    assert serve(made, 1) == [3], "6 seconds, and the other one 37"


def test_one_that_comes_back_has_saved_nothing_up() -> None:
    made = lengths(*[("busy", 1.0)] * 30)
    for _ in range(20):
        serve(made, 1)
        made.settle("busy", 1.0, 1.0)
    for number in range(100, 110):
        made.add(Waiter(number, ask("back", "x"), 0.0, None))
    assert serve(made, 6) == [21, 100, 22, 101, 23, 102]


def test_one_that_leaves_in_debt_finds_it_when_it_comes_back() -> None:
    made = lengths(("a", 9.0), *[("b", 1.0)] * 20)
    assert serve(made, 4) == [1, 2, 3, 4]
    made.settle("a", 9.0, 9.0)
    made.add(Waiter(100, ask("a", "x"), 0.0, None))
    assert serve(made, 6) == [5, 6, 7, 8, 9, 10]
    assert serve(made, 1) == [100], "b has had as much by now"


def test_when_nobody_waits_nobody_owes_but_for_what_still_runs() -> None:
    made = lengths(("a", 9.0), ("b", 1.0))
    serve(made)
    made.settle("b", 1.0, 50.0)
    made.add(Waiter(10, ask("a", "x"), 0.0, None))
    made.add(Waiter(11, ask("b", "x"), 0.0, None))
    assert serve(made, 1) == [11]
    serve(made)
    for key, charged_s in (("a", 9.0), ("a", 1.0), ("b", 1.0)):
        made.settle(key, charged_s, 3.0)
    assert len(made.accounts) == 0
    assert repr(made.accounts) == "<Accounts of 0 keys>"


def test_a_short_request_passes_long_ones_of_its_key_until_they_are_old() -> None:
    made = lengths(("a", 8.0), ("a", 9.0), ("a", 0.2), ("a", 0.3))
    assert serve(made, 2, now=1.0) == [3, 4], "those of one size keep their order"
    made.add(Waiter(5, ask("a", "x"), 2.0, None, work_s=0.2))
    assert serve(made, now=PASSED_FOR_S) == [1, 2, 5]


def test_a_short_request_passes_nobody_of_another_key() -> None:
    assert serve(lengths(("a", 8.0), ("b", 0.2))) == [1, 2]


def test_long_ones_for_one_model_are_passed_by_a_short_one_for_another() -> None:
    made = FairQueue()
    for number, (model, work_s) in enumerate((("x", 8.0), ("y", 0.2), ("y", 0.2)), 1):
        made.add(Waiter(number, ask("a", model), float(number), None, work_s=work_s))
    assert serve(made, 1, now=3.0) == [2]
    assert serve(made, now=1.0 + PASSED_FOR_S) == [1, 3]


def test_gone_waiters_do_not_pile_up_in_a_group() -> None:
    made = lengths(("a", 100.0))
    for number in range(2, 1000):
        made.add(Waiter(number, ask("a", "x"), 0.0, None, work_s=200.0))
        made.remove(number)
    [group] = made._lines["a"].groups.values()
    assert len(group._by_length) < 100
    assert [waiter.id for waiter in group] == [1]
    made.add(Waiter(1001, ask("a", "x"), 0.0, None, work_s=1.0))
    made.remove(1001)
    assert serve(made) == [1]


def test_who_is_served_before_is_told_in_that_order() -> None:
    made = queue(("a", "x"), ("a", "x"), ("b", "x"), ("b", "x"), ("a", "y"), ("c", "x", 4), retry=frozenset({2}))
    order = {number: len(made.ahead_of(waiter, 0.0)) + 1 for number in (1, 2, 3, 4, 6) if (waiter := made.get(number))}
    assert order == {2: 1, 3: 2, 6: 3, 1: 4, 4: 5}
    assert serve(made, closed="y") == [2, 3, 6, 1, 4]


def test_a_blocked_model_never_blocks_another() -> None:
    made = queue(("a", "x"), ("a", "y"), ("b", "x"), ("b", "y"))
    assert serve(made, closed="x") == [2, 4]
    assert made.models() == ["x"]


def test_a_key_that_is_passed_over_keeps_its_turn() -> None:
    made = queue(("a", "x"), ("b", "y"), ("b", "x"))
    assert serve(made, closed="x") == [2]
    assert serve(made, slots=1) == [1]


def test_one_that_prefers_to_wait_is_not_passed_in_its_own_line_but_in_others() -> None:
    made = queue(("a", "x"), ("a", "x"), ("a", "y"), ("b", "x"))
    asked: list[int] = []

    def offer(waiter: Waiter) -> Answer:
        asked.append(waiter.id)
        return WAITS if waiter.id == 1 else GRANTED

    made.serve(offer, 0.0)
    assert asked == [1, 3, 4]
    assert [waiter.id for waiter in made] == [1, 2]


def test_who_prefers_to_wait_is_passed_by_one_behind_it_whom_what_is_free_suits_better() -> None:
    made = queue(*[("a", "x")] * 4, ("b", "x"))
    asked: list[tuple[str, int]] = []

    def offer(waiter: Waiter) -> Answer:
        asked.append(("first", waiter.id))
        return WAITS

    def behind(waiter: Waiter) -> Answer:
        asked.append(("behind", waiter.id))
        return GRANTED if waiter.id == 3 else WAITS

    made.serve(offer, 0.0, behind)
    assert [waiter.id for waiter in made] == [1, 2, 4, 5]
    assert asked == [
        *[("first", 1), ("behind", 2), ("behind", 3)],
        ("first", 5),
        *[("first", 1), ("behind", 2), ("behind", 4)],
    ]
    assert made.serve(lambda _: BLOCKED, 0.0) is None


def test_the_last_of_a_key_may_go_before_its_first_and_only_a_few_are_asked() -> None:
    made = queue(*[("a", "x")] * 30)
    asked: list[int] = []

    def behind(waiter: Waiter) -> Answer:
        asked.append(waiter.id)
        return WAITS

    made.serve(lambda _: WAITS, 0.0, behind)
    assert asked == list(range(2, 2 + LOOKS))


@pytest.mark.parametrize("is_retry", [False, True])
def test_who_is_old_or_a_retry_is_passed_by_nobody(is_retry: bool) -> None:  # noqa: FBT001 - a parameter
    made = queue(("a", "x"), ("a", "x"), retry=frozenset({1, 2} if is_retry else ()))
    asked: list[int] = []

    def behind(waiter: Waiter) -> Answer:
        asked.append(waiter.id)
        return GRANTED

    made.serve(lambda _: WAITS, 0.0 if is_retry else PASSED_FOR_S, behind)
    assert asked == []
    assert len(made) == 2


def test_a_model_without_a_slot_is_asked_for_once_in_a_pass() -> None:
    made = queue(*[(key, "x") for key in "abcdef"])
    asked: list[int] = []

    def offer(waiter: Waiter) -> Answer:
        asked.append(waiter.id)
        return BLOCKED

    made.serve(offer, 0.0)
    assert asked == [1]


def test_a_retry_goes_before_its_line_and_behind_earlier_retries() -> None:
    made = queue(("a", "x"), ("a", "x"), ("a", "x"), ("a", "y"), ("b", "x"), retry=frozenset({2, 3}))
    assert serve(made) == [2, 5, 3, 1, 4]


def test_a_cancelled_waiter_is_gone_and_with_its_last_one_the_line() -> None:
    made = queue(("a", "x"), ("b", "x"))
    assert made.remove(1) is not None
    assert made.remove(1) is None
    assert made.get(1) is None
    assert 2 in made
    assert (made.count("x"), made.count("nope")) == (1, 0)
    assert serve(made) == [2]
    assert made.of_model("x") == []


def test_a_changed_weight_counts_from_then_on() -> None:
    made = queue(("a", "x", 5), ("a", "x", 1), ("a", "x", 1), ("b", "x"))
    assert serve(made) == [1, 4, 2, 3]
    assert serve(queue(("a", "x", 0), ("a", "x", -3), ("b", "x"))) == [1, 3, 2]


def test_a_waiter_expires_at_the_earlier_of_its_deadlines() -> None:
    assert Waiter(1, ask(), 0.0, None).until is None
    assert Waiter(1, ask(), 0.0, 9.0, absent_until=5.0).until == 5.0
    assert Waiter(1, ask(), 0.0, 9.0).until == 9.0


seconds = st.floats(0.01, 30.0)


@given(
    st.dictionaries(st.sampled_from("abcd"), st.tuples(st.integers(1, 5), seconds, seconds), min_size=2),
    st.integers(1, 120),
)
def test_while_all_keys_wait_they_get_engine_seconds_by_their_weights(
    keys: dict[str, tuple[int, float, float]], slots: int
) -> None:
    """Whatever was expected of their requests: weight, seconds expected and taken by each request, per key."""
    made, given_s, number = FairQueue(), Counter[str](), 0

    def fill() -> None:
        nonlocal number
        for key, (weight, expected_s, _) in keys.items():
            while len([waiter for waiter in made if waiter.submit.key == key]) < 2:
                number += 1
                made.add(Waiter(number, ask(key, "x", weight=weight), 0.0, None, work_s=expected_s))

    fill()
    for _ in range(slots):
        waiting = {waiter.id: waiter.submit.key for waiter in made}
        [served] = serve(made, 1)
        key = waiting[served]
        made.settle(key, keys[key][1], keys[key][2])
        given_s[key] += keys[key][2]
        fill()
    turns = [given_s[key] / weight for key, (weight, _, _) in keys.items()]
    most = max(taken_s / weight for weight, _, taken_s in keys.values())
    assert max(turns) - min(turns) <= most + 1e-6, "nobody is behind by more than one request"


@given(st.lists(st.tuples(st.sampled_from("ab"), seconds, st.none() | seconds), min_size=1, max_size=30))
def test_charges_settle_to_what_was_taken(requests: list[tuple[str, float, float | None]]) -> None:
    """Key, seconds expected and taken of each; `None`: it still runs."""
    made = lengths(*[(key, expected_s) for key, expected_s, _ in requests], ("c", 1.0))
    accounts = {key: made._lines[key].account for key in {key for key, _, _ in requests}}
    made.add(Waiter(1000, ask("c", "closed"), 0.0, None))
    serve(made, closed="closed")
    for key, expected_s, taken_s in requests:
        if taken_s is not None:
            made.settle(key, expected_s, taken_s)
    for key, account in accounts.items():
        settled = [taken_s for whose, _, taken_s in requests if whose == key and taken_s is not None]
        out = [expected_s for whose, expected_s, taken_s in requests if whose == key and taken_s is None]
        assert account.settled_s == pytest.approx(sum(settled))
        assert account.out_s == pytest.approx(sum(out))
        assert account.running == len(out)


@given(st.lists(st.tuples(st.sampled_from("abc"), st.floats(0.01, 100.0), st.booleans()), min_size=1, max_size=40))
def test_what_is_told_of_who_is_before_is_what_happens(waiters: list[tuple[str, float, bool]]) -> None:
    made = FairQueue()
    for number, (key, work_s, is_retry) in enumerate(waiters, 1):
        made.add(Waiter(number, ask(key, "x", retry=is_retry), 0.0, None, work_s=work_s))
    told = {waiter.id: len(made.ahead_of(waiter, 0.0)) for waiter in made}
    work_s = made.work_s("x")
    assert work_s == pytest.approx(sum(length for _, length, _ in waiters))
    assert serve(made) == sorted(told, key=lambda number: told[number])
    assert sorted(told.values()) == list(range(len(waiters)))
    assert made.work_s("x") == 0.0


@given(
    st.lists(st.tuples(st.sampled_from("ab"), st.sampled_from("xyz")), max_size=30),
    st.lists(st.tuples(st.sets(st.sampled_from("xyz")), st.integers(0, 5), st.none() | st.integers(1, 30)), max_size=8),
)
def test_whatever_is_blocked_or_cancelled_lines_stay_in_order_and_nobody_is_lost(
    waiters: list[tuple[str, str]], passes: list[tuple[set[str], int, int | None]]
) -> None:
    made = queue(*waiters)
    left = dict(enumerate(waiters, 1))
    for closed, slots, cancelled in passes:
        order = serve(made, slots, "".join(closed))
        for number in order:
            older = [n for n, kind in left.items() if kind == left[number] and n < number]
            assert not older
            del left[number]
        if len(order) < slots:
            assert all(model in closed for _, model in left.values())
        if cancelled is not None:
            assert (made.remove(cancelled) is None) == (left.pop(cancelled, None) is None)
        assert sorted(waiter.id for waiter in made) == sorted(left)
    assert sorted(serve(made)) == sorted(left)
