import pytest

from pharos.core.prefix import Outcome, PendingOps, PrefixOp, outcome


def op(*hashes: int) -> PrefixOp:
    return PrefixOp(1, hashes, 5.0)


def test_operations_are_handed_out_once_in_their_order() -> None:
    pending = PendingOps()
    pending.add(op(1))
    pending.add(op(2))
    assert len(pending) == 2
    assert pending.take_all() == [op(1), op(2)]
    assert pending.take_all() == []


def test_a_full_list_drops_and_counts() -> None:
    pending = PendingOps(most_ops=2)
    for link in range(5):
        pending.add(op(link))
    assert repr(pending) == "<PendingOps 2 waiting, 3 dropped>"
    assert pending.take_all() == [op(0), op(1)]
    pending.add(op(9))
    assert pending.take_all() == [op(9)]
    assert pending.dropped == 3


def test_long_chains_fill_it_sooner_and_short_ones_still_fit() -> None:
    pending = PendingOps(most_hashes=4)
    pending.add(op(1, 2, 3))
    pending.add(op(4, 5))
    pending.add(op(6))
    assert pending.take_all() == [op(1, 2, 3), op(6)]
    pending.add(op(1, 2, 3, 4))
    assert (len(pending), pending.dropped) == (1, 1)


@pytest.mark.parametrize(
    ("predicted", "cached", "expected"),
    [
        (100, 50, "predicted_hit"),
        (100, 300, "predicted_hit"),
        (100, 49, "wrong_prediction"),
        (100, 0, "wrong_prediction"),
        (100, None, "unknown"),
        (0, None, "unknown"),
        (0, 1, "unpredicted_hit"),
        (0, 0, "miss"),
    ],
)
def test_a_prediction_is_right_from_half_of_it_on(predicted: int, cached: int | None, expected: Outcome) -> None:
    assert outcome(predicted, cached) == expected
