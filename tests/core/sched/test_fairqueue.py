from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from pharos.core.sched.fairqueue import Answer, FairQueue, Waiter
from tests.core.sched.given import ask

GRANTED, WAITS, BLOCKED = Answer.GRANTED, Answer.WAITS, Answer.BLOCKED


def queue(*waiters: tuple[str, str] | tuple[str, str, int], retry: frozenset[int] = frozenset()) -> FairQueue:
    """Waiters with ids 1, 2 …: key, model and weight of each."""
    made = FairQueue()
    for number, (key, model, *weight) in enumerate(waiters, 1):
        sub = ask(key, model, weight=weight[0] if weight else 1, retry=number in retry)
        made.add(Waiter(number, sub, 0.0, None))
    return made


def serve(made: FairQueue, slots: int = 10**6, closed: str = "") -> list[int]:
    """Grant so many slots; the models in `closed` have none."""
    order: list[int] = []

    def offer(waiter: Waiter) -> Answer:
        if waiter.submit.model in closed or len(order) == slots:
            return BLOCKED
        order.append(waiter.id)
        return GRANTED

    made.serve(offer)
    return order


def test_an_empty_queue_offers_nothing() -> None:
    assert serve(FairQueue()) == []


def test_a_line_is_served_in_its_order() -> None:
    assert serve(queue(("a", "x"), ("a", "y"), ("a", "x"))) == [1, 2, 3]


def test_keys_take_turns() -> None:
    assert serve(queue(("a", "x"), ("a", "x"), ("b", "x"), ("b", "x"), ("c", "x"))) == [1, 3, 5, 2, 4]


def test_a_heavy_key_keeps_its_turn_until_its_weight_is_spent() -> None:
    assert serve(queue(*[("a", "x", 2)] * 4, *[("b", "x")] * 2)) == [1, 2, 5, 3, 4, 6]


def test_turns_hold_when_slots_free_one_at_a_time() -> None:
    made = queue(*[("a", "x", 2)] * 4, *[("b", "x")] * 2)
    assert [serve(made, slots=1) for _ in range(6)] == [[1], [2], [5], [3], [4], [6]]
    assert len(made) == 0


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

    made.serve(offer)
    assert asked == [1, 3, 4]
    assert [waiter.id for waiter in made] == [1, 2]


def test_a_model_without_a_slot_is_asked_for_once_in_a_pass() -> None:
    made = queue(*[(key, "x") for key in "abcdef"])
    asked: list[int] = []

    def offer(waiter: Waiter) -> Answer:
        asked.append(waiter.id)
        return BLOCKED

    made.serve(offer)
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


@given(st.dictionaries(st.sampled_from("abcd"), st.integers(1, 5), min_size=2), st.integers(1, 60))
def test_while_all_keys_have_waiters_grants_follow_the_weights(weights: dict[str, int], slots: int) -> None:
    made = FairQueue()
    for number in range(400):
        key = sorted(weights)[number % len(weights)]
        made.add(Waiter(number, ask(key, "x", weight=weights[key]), 0.0, None))
    keys = {waiter.id: waiter.submit.key for waiter in made}
    counts = Counter(keys[number] for _ in range(slots) for number in serve(made, slots=1))
    turns = [counts[key] / weight for key, weight in weights.items()]
    assert max(turns) - min(turns) <= 1


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
