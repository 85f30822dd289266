import pytest
from hypothesis import given
from hypothesis import strategies as st

from pharos.core.prefix import Source, slots


def slot(target: int, used: int, mark: int = 0, source: Source = "local") -> int:
    return slots.pack(target, mark, used, source)


def told(value: int) -> list[tuple[int, int, int, str]]:
    """(target, used, mark, source) of each slot."""
    return [
        (
            one >> slots.TARGET_AT & slots.TARGET,
            one >> slots.USED_AT,
            one >> slots.MARK_AT & slots.MARK,
            slots.SOURCES[one & slots.SOURCE],
        )
        for one in slots.split(value)
    ]


@given(
    st.integers(0, slots.TARGET),
    st.integers(0, slots.MARK),
    st.integers(1, slots.ticks(1e18)),
    st.sampled_from(slots.SOURCES),
)
def test_a_slot_keeps_what_it_is_made_of(target: int, mark: int, used: int, source: Source) -> None:
    assert told(slots.pack(target, mark, used, source)) == [(target, used, mark, source)]


@pytest.mark.parametrize("target", [-1, slots.TARGET + 1])
def test_a_target_with_a_number_that_has_no_room_is_refused(target: int) -> None:
    with pytest.raises(ValueError, match="number of a target"):
        slot(target, 1)


def test_times_that_have_no_room_are_the_nearest_that_have() -> None:
    assert slots.ticks(-5.0) == slots.ticks(0.0) == 1
    assert slots.ticks(1.234) == 123
    assert slots.ticks(1e30) == (1 << 38) - 1
    assert slots.ticks(1_900_000_000.0) == 190_000_000_000


def test_the_least_recently_used_of_five_goes() -> None:
    value = slot(1, 10)
    for target, used in ((2, 5), (3, 20), (4, 30), (5, 40)):
        value = slots.put(value, slot(target, used))
    assert [(target, used) for target, used, _, _ in told(value)] == [(5, 40), (4, 30), (3, 20), (1, 10)]
    assert slots.put(value, slot(6, 1)) == value


@pytest.mark.parametrize("others", [(), (7,), (7, 8)])
def test_of_two_slots_of_one_target_the_later_counts(others: tuple[int, ...]) -> None:
    value = slot(1, 10, mark=64)
    for other in others:
        value = slots.put(value, slot(other, 50))
    assert (1, 11, 64, "peer") in told(slots.put(value, slot(1, 11, 64, "peer")))
    assert slots.put(value, slot(1, 9, 128, "peer")) == value


def test_on_a_tie_the_first_arrival_keeps_its_source_and_the_last_its_generation() -> None:
    value = slots.put(slot(1, 10, mark=64, source="peer"), slot(1, 10, mark=128, source="local"))
    assert told(value) == [(1, 10, 128, "peer")]


def test_a_slot_of_the_target_that_had_the_number_before_gives_way_however_late_it_is() -> None:
    value = slots.put(slot(1, 10, mark=slots.mark(3, 0)), slot(1, 5, mark=slots.mark(0, 1)))
    assert told(value) == [(1, 5, slots.mark(0, 1), "local")]


def test_a_target_is_taken_out_unless_it_was_used_later() -> None:
    value = slots.put(slot(1, 10), slot(2, 20))
    assert slots.without(value, 1) == (slot(2, 20), 10)
    assert slots.without(value, 2, until=20) == (slot(1, 10), 20)
    assert slots.without(value, 2, until=19) == (value, -1)
    assert slots.without(value, 3) == (value, -1)
    assert slots.without(slot(1, 10), 1) == (0, 10)


puts = st.lists(st.tuples(st.integers(0, 6), st.integers(0, 9)), min_size=1, max_size=14)


@given(puts, st.randoms(use_true_random=False))
def test_slots_put_in_any_order_and_twice_are_the_same_in_the_end(puts: list[tuple[int, int]], random: object) -> None:
    def after(order: list[tuple[int, int]]) -> int:
        value = slot(*order[0])
        for one in order[1:]:
            value = slots.put(value, slot(*one))
        return value

    shuffled = puts + puts
    random.shuffle(shuffled)  # type: ignore[attr-defined]
    assert after(shuffled) == after(puts)


@given(st.lists(st.integers(1, slots.SLOT), max_size=4))
def test_an_entry_comes_apart_as_it_was_put_together(given_slots: list[int]) -> None:
    assert slots.split(slots.join(given_slots)) == given_slots
