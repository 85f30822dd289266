import pytest

from pharos.core.policy.reason import why_it_won
from pharos.core.policy.types import Score


def score(wait_s: float = 0.0, load_s: float = 0.0, prefill_s: float = 0.0, occupancy: float = 0.0) -> Score:
    total = wait_s + load_s + prefill_s
    return Score(
        0, "a", wait_s, load_s, prefill_s, 0.0, total, feasible=True, why_not="", free=True, occupancy=occupancy
    )


@pytest.mark.parametrize(
    ("winner", "other", "matched", "why"),
    [
        (score(), None, 0, "only_choice"),
        (score(), score(), 0, "tied"),
        (score(), score(occupancy=0.5), 0, "least_loaded"),
        (score(), score(load_s=1.0), 0, "warm"),
        (score(), score(load_s=1.0, prefill_s=2.0), 700, "cache"),
        (score(), score(load_s=1.0, prefill_s=2.0), 0, "fastest"),
        (score(), score(wait_s=2.0, prefill_s=1.0), 700, "least_loaded"),
        (score(load_s=1.0), score(wait_s=5.0), 0, "least_loaded"),
        (score(prefill_s=1.0), score(load_s=5.0), 0, "warm"),
    ],
)
def test_the_reason_is_the_part_of_the_cost_that_made_the_difference(
    winner: Score, other: Score | None, matched: int, why: str
) -> None:
    assert why_it_won(winner, other, matched) == why
