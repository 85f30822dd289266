import itertools
import tracemalloc
from collections.abc import Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pharos.core.usage import OTHER, CellKey, Cells, Count
from pharos.core.usage import cells as cells_module
from pharos.core.usage.cells import LONGEST_NAME, MOST, MOST_MODELS, Entry

DAY = 740_000
counts = st.builds(Count, *[st.integers(0, 50)] * 5)
cell_keys = st.tuples(st.integers(DAY, DAY + 2), st.sampled_from(["alice", "bob"]), st.sampled_from(["m", "n"]))
entries = st.tuples(st.sampled_from(["x", "y", "z"]), cell_keys, counts)


def state(cells: Cells) -> dict[tuple[str, CellKey], Count]:
    return {(origin, cell): count for origin, cell, count in cells.full()}


def pour(into: Cells, what: Iterable[Entry]) -> None:
    for origin, cell, count in what:
        into.take(origin, cell, count)


def sums(cells: Cells) -> dict[tuple[str, int, str], Count]:
    return {
        (by, day, name): count
        for by in ("key", "model")
        for day in range(DAY, DAY + 3)
        for name, count in cells.of_day(day, by).items()
    }  # fmt: skip


# --- merging


@given(st.lists(entries, max_size=12), st.randoms(use_true_random=False))
def test_reports_may_come_in_any_order_and_twice(reports: list[Entry], chance: object) -> None:
    straight, mixed = Cells("me"), Cells("me")
    pour(straight, reports)
    twice = reports * 2
    chance.shuffle(twice)  # type: ignore[attr-defined]
    pour(mixed, twice)
    assert state(straight) == state(mixed)
    assert sums(straight) == sums(mixed)


@given(counts, counts, counts)
def test_merging_two_counts_depends_on_neither_order_nor_grouping_nor_number(a: Count, b: Count, c: Count) -> None:
    assert a.merged(b) == b.merged(a)
    assert a.merged(b.merged(c)) == a.merged(b).merged(c)
    assert a.merged(a) == a


@given(st.lists(entries, max_size=12))
def test_totals_are_the_sum_of_all_cells(reports: list[Entry]) -> None:
    cells = Cells("me")
    pour(cells, reports)
    for key in ("alice", "bob"):
        held = [count for (_, (_, owner, _)), count in state(cells).items() if owner == key]
        whole = Count()
        for count in held:
            whole = whole.plus(count)
        assert cells.total(DAY, DAY + 2).get(key, Count()) == whole


@given(st.lists(st.tuples(st.integers(0, 2), cell_keys, st.integers(0, 9)), max_size=15), st.data())
def test_instances_that_hear_each_other_at_last_agree_whatever_was_lost_before(
    requests: list[tuple[int, CellKey, int]], data: st.DataObject
) -> None:
    fleet = [Cells("a"), Cells("b"), Cells("c")]
    for who, (day, key, model), tokens in requests:
        fleet[who].add(day, key, model, prompt_tokens=tokens)
        delta = fleet[who].changed()
        for other in fleet:
            if data.draw(st.booleans()):
                pour(other, delta)
    for one, other in itertools.permutations(fleet, 2):
        pour(other, one.full())
    assert state(fleet[0]) == state(fleet[1]) == state(fleet[2])
    assert sum(c.requests for c in fleet[0].total(DAY, DAY + 2).values()) == len(requests)
    assert sum(c.tokens for c in fleet[0].total(DAY, DAY + 2).values()) == sum(tokens for *_, tokens in requests)


def test_an_older_report_of_a_cell_is_no_news() -> None:
    cells = Cells("me")
    assert cells.take("x", (DAY, "alice", "m"), Count(2, 10))
    assert not cells.take("x", (DAY, "alice", "m"), Count(1, 5))
    assert not cells.take("x", (DAY, "alice", "m"), Count(2, 10))
    assert cells.take("x", (DAY, "alice", "m"), Count(3, 12))
    assert cells.tokens(DAY, "alice") == 12


def test_nobody_else_knows_better_what_this_run_has_counted() -> None:
    cells = Cells("me")
    cells.add(DAY, "alice", "m", prompt_tokens=1)
    assert not cells.take("me", (DAY, "alice", "m"), Count(9, 9))
    assert cells.tokens(DAY, "alice") == 1


def test_what_an_earlier_run_counted_comes_back_as_somebody_elses() -> None:
    before = Cells("run 1")
    before.add(DAY, "alice", "m", prompt_tokens=7, completion_tokens=3)
    after = Cells("run 2")
    pour(after, before.full())
    after.add(DAY, "alice", "m", prompt_tokens=5)
    assert after.tokens(DAY, "alice") == 15
    assert after.of_day(DAY)["alice"].requests == 2


# --- counting


def test_what_a_reply_did_not_tell_is_unmetered_and_not_nothing() -> None:
    cells = Cells("me")
    cells.add(DAY, "alice", "m")
    cells.add(DAY, "alice", "m", prompt_tokens=4, cached_tokens=2, completion_tokens=0)
    cells.add(DAY, "alice", "m", completion_tokens=6)
    assert cells.of_day(DAY) == {"alice": Count(3, 4, 2, 6, 1)}
    assert cells.of_day(DAY, "model") == {"m": Count(3, 4, 2, 6, 1)}
    assert cells.of_day(DAY + 1) == {}
    assert cells.tokens(DAY, "nobody") == 0


def test_only_own_cells_that_grew_are_told_and_told_whole() -> None:
    cells = Cells("me")
    assert cells.changed() == []
    cells.add(DAY, "alice", "m", prompt_tokens=1)
    cells.add(DAY, "alice", "m", prompt_tokens=2)
    cells.take("x", (DAY, "alice", "m"), Count(1))
    assert cells.changed() == [("me", (DAY, "alice", "m"), Count(2, 3))]
    assert cells.changed() == []
    cells.add(DAY + 1, "bob", "n", prompt_tokens=5)
    assert cells.changed() == [("me", (DAY + 1, "bob", "n"), Count(1, 5))]
    assert [cell for _, cell, _ in cells.own(DAY + 1)] == [(DAY + 1, "bob", "n")]
    assert {origin for origin, _, _ in cells.own(DAY)} == {"me"}


def test_cells_may_be_added_while_all_are_read() -> None:
    cells = Cells("me")
    for day in range(3):
        cells.add(DAY + day, "alice", "m")
    reading = cells.full()
    assert next(reading)[1][0] == DAY
    cells.add(DAY + 1, "bob", "m")
    cells.add(DAY, "bob", "m")
    cells.keep(DAY + 1, DAY + 2)
    assert [(cell[0], cell[1]) for _, cell, _ in reading] == [
        (DAY + 1, "alice"),
        (DAY + 1, "bob"),
        (DAY + 2, "alice"),
    ]


# --- bounds


def test_names_made_up_by_clients_share_one_cell_beyond_a_bound() -> None:
    cells = Cells("me")
    for number in range(10_000):
        cells.add(DAY, "alice", f"made-up-{number}", prompt_tokens=1)
    assert len(cells) == MOST_MODELS + 1
    assert cells.of_day(DAY, "model")[OTHER].requests == 10_000 - MOST_MODELS
    assert cells.tokens(DAY, "alice") == 10_000
    cells.add(DAY, "alice", "made-up-3")
    assert cells.of_day(DAY, "model")["made-up-3"].requests == 2
    cells.add(DAY + 1, "alice", "made-up-9999")
    assert "made-up-9999" in cells.of_day(DAY + 1, "model")


@pytest.mark.parametrize("count", [Count(-1), Count(1, -1), Count(1, 0, 0, MOST + 1), Count(1, 0, 0, 0, -5)])
def test_a_count_that_nobody_can_have_counted_is_refused(count: Count) -> None:
    cells = Cells("me")
    assert not cells.take("x", (DAY, "alice", "m"), count)
    assert cells.refused == 1
    assert state(cells) == {}
    assert cells.days() == []


def test_names_are_kept_once_for_all_days() -> None:
    cells = Cells("me")
    for day in (DAY, DAY + 1, DAY + 2):
        cells.take("x", (day, "alice", "m"), Count(1))
    assert len({id(where) for held in cells._days.values() for where in held}) == 1
    cells.keep(DAY + 9, DAY + 9)
    assert cells._names == {}


def test_a_peer_cannot_fill_the_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cells_module, "MOST_CELLS", 2)
    cells = Cells("me")
    for number in range(5):
        cells.take("x", (DAY, f"k{number}", "m"), Count(1))
    assert len(state(cells)) == 2
    assert cells.refused == 3
    assert cells.take("x", (DAY, "k0", "m"), Count(2)), "what is known may grow"
    cells.add(DAY, "own", "m")
    assert cells.of_day(DAY)["own"].requests == 1
    cells.keep(DAY + 1, DAY + 1)
    assert cells.take("x", (DAY + 1, "k0", "m"), Count(1)), "what is forgotten makes room"
    assert not cells.take("x", (DAY + 1, "k" * (LONGEST_NAME + 1), "m"), Count(1))


def test_forgotten_days_do_not_come_back() -> None:
    cells = Cells("me")
    for day in (DAY, DAY + 1, DAY + 9):
        cells.add(day, "alice", "m", prompt_tokens=1)
        cells.take("x", (day, "alice", "m"), Count(1, 4))
    cells.keep(DAY + 1, DAY + 3)
    assert not cells.take("x", (DAY, "alice", "m"), Count(2, 8))
    assert not cells.take("x", (DAY + 4, "alice", "m"), Count(2, 8))
    assert cells.total(DAY, DAY + 9) == {"alice": Count(2, 5)}
    assert [cell[0] for _, cell, _ in cells.changed()] == [DAY + 1]
    assert cells.days() == [DAY + 1]
    assert repr(cells) == "<Cells me 2>"


def test_400_days_of_20_keys_and_10_models_take_a_few_tens_of_mb() -> None:
    cells = Cells("me")
    tracemalloc.start()
    try:
        for day, key, model in itertools.product(range(400), range(20), range(10)):
            cells.take("x", (DAY + day, f"key {key}", f"model {model}"), Count(1000 + day, 10**6, 10**5, 10**5))
        held, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert len(cells) == 80_000
    assert held < 40 * 1024**2
