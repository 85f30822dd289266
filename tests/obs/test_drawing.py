import math

import pytest

from pharos.obs import drawing


@pytest.mark.parametrize(
    ("capacity", "running", "ours", "bar"),
    [
        (4, 3, 1, "OXX-"),
        (4, None, 1, "O---"),
        (2, 5, 9, "OO"),
        (3, 0, 0, "---"),
        (None, 3, 1, ""),
        (64, 64, 1, "O" + "X" * 31),
        (64, 0, 0, "-" * 32),
    ],
)
def test_the_slot_bar_shows_ours_those_of_others_and_free_ones(
    capacity: int | None, running: int | None, ours: int, bar: str
) -> None:
    drawn = drawing.slots({"capacity": capacity, "running": running, "queue_inflight": ours, "queue_peers": 0})
    assert "".join({"ours": "O", "others": "X", "free": "-"}[slot] for slot in drawn) == bar


def test_requests_of_peers_take_slots_that_the_engine_has_not_told_of_yet() -> None:
    target = {"capacity": 4, "running": None, "queue_inflight": 1, "queue_peers": 2}
    assert drawing.slots(target) == ["ours", "others", "others", "free"]


def test_a_curve_has_a_gap_where_nothing_is_known() -> None:
    drawn = drawing.curve([None, 1.0, None, 2.0, 4.0])
    assert drawn is not None
    assert drawn["lines"] == ["M30 22 h.01", "M70 12 L90 2"]
    assert (drawn["x"], drawn["y"]) == ("90", "2")
    assert drawing.curve([None, None]) is None
    assert drawing.curve([]) is None


def test_a_flat_curve_lies_in_the_middle_and_no_time_is_below_a_millisecond() -> None:
    assert drawing.curve([3.0, 3.0]) == {"lines": ["M25 12 L75 12"], "x": "75", "y": "12"}
    assert drawing.curve([0.0, 0.001]) == {"lines": ["M25 12 L75 12"], "x": "75", "y": "12"}


def test_a_young_curve_fills_its_box() -> None:
    assert drawing.since_the_first([None] * 50 + [1.0] * 10) == [None] * 8 + [1.0] * 10
    assert drawing.since_the_first([0] * 20 + [1] * 40) == [1] * 40
    assert drawing.since_the_first([0, 0, 1]) == [0, 0, 1]
    assert drawing.since_the_first([None] * 60) == [None] * 18


def test_columns_stand_for_all_values_but_zero() -> None:
    assert drawing.columns([0, 5, 10, 0]) == [("25", "12", "19", "12"), ("50", "0", "19", "24")]
    assert drawing.columns([]) == []
    assert drawing.columns([1, 10_000])[0][3] == "1", "something is seen of the least one"


def test_a_share_of_something_unknown_has_no_length() -> None:
    assert [drawing.share(*pair) for pair in ((1, 4), (9, 4), (None, 4), (3, None), (3, 0))] == [
        "25", "100", "0", "0", "0",
    ]  # fmt: skip


def test_the_parts_of_a_cost_stand_one_behind_the_other() -> None:
    cheap = {"wait_s": 0.0, "load_s": 0.0, "prefill_s": 0.5, "kv_s": 0.0}
    dear = {"wait_s": 1.0, "load_s": 2.0, "prefill_s": 0.5, "kv_s": 0.5}
    never = {"wait_s": math.inf, "load_s": 0.0, "prefill_s": 0.5, "kv_s": 0.0}
    longest = drawing.longest_s([cheap, dear, never])
    assert longest == 4.0
    assert drawing.stacked(dear, longest) == [
        ("wait", "0", "25"), ("load", "25", "50"), ("prefill", "75", "12.5"), ("kv", "87.5", "12.5"),
    ]  # fmt: skip
    assert drawing.stacked(never, longest) == [("prefill", "0", "12.5")]
    assert drawing.stacked(cheap, 0.0) == []
    assert drawing.longest_s([never]) == 0.0
