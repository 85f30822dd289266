"""The rule that an unknown never helps, as a property of every signal."""

import msgspec
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from pharos.core.policy import Candidate, Score
from pharos.core.policy.estimate import presumed, presumed_capacity, upper_median
from tests.core.policy.given import FIELDS, candidate, fleets, pick

SIGNALS = ["running", "waiting", "capacity", "kv_usage", "prefill_s_per_token", "load_s", "service_s", "base_s"]


def score(crowd: list[Candidate], which: int, prompt: int, **changed: object) -> Score:
    crowd = list(crowd)
    crowd[which] = msgspec.structs.replace(crowd[which], **changed)
    return pick(*crowd, prompt=prompt, matched={which: 700}).scores[which]


@pytest.mark.parametrize("signal", SIGNALS)
@given(crowd=fleets(least=2), prompt=st.integers(0, 5000), data=st.data())
def test_losing_a_signal_never_makes_a_target_look_better_than_the_median_of_its_fleet(
    signal: str, crowd: list[Candidate], prompt: int, data: st.DataObject
) -> None:
    which = data.draw(st.integers(0, len(crowd) - 1))
    others = [getattr(c, signal) for c in crowd if c.target_id != which]
    median = sorted(v for v in others if v is not None)
    assume(median)
    # Of two middle values the one that makes it look worse is presumed, so the better one bounds it from below.
    bound = median[len(median) // 2] if signal == "capacity" else median[(len(median) - 1) // 2]
    known = data.draw(FIELDS[signal].filter(lambda value: value is not None))
    lost = score(crowd, which, prompt, **{signal: None})
    before = score(crowd, which, prompt, **{signal: known})
    as_median = score(crowd, which, prompt, **{signal: bound})
    assert lost.total_s >= min(before.total_s, as_median.total_s) - 1e-9
    assert lost.wait_s >= as_median.wait_s - 1e-9
    if not lost.feasible:
        assert not before.feasible


@given(crowd=fleets(), prompt=st.integers(0, 5000), data=st.data())
def test_losing_the_residency_never_helps(crowd: list[Candidate], prompt: int, data: st.DataObject) -> None:
    which = data.draw(st.integers(0, len(crowd) - 1))
    crowd[which] = msgspec.structs.replace(crowd[which], reports_residency=True)
    lost = score(crowd, which, prompt, warm=None)
    cold, loaded = score(crowd, which, prompt, warm=False), score(crowd, which, prompt, warm=True)
    assert lost.total_s == cold.total_s >= loaded.total_s
    assert lost.feasible == cold.feasible


@given(count=st.integers(1, 4), prompt=st.integers(0, 5000))
def test_a_target_that_lost_everything_is_not_chosen_before_a_free_one_that_is_as_fast(count: int, prompt: int) -> None:
    blank = dict.fromkeys(SIGNALS) | {"warm": None, "reports_residency": True, "loading": False}
    silent = candidate(0, **blank, ours=0)
    idle = [candidate(i, running=0, waiting=0, ours=0) for i in range(1, count + 1)]
    assert pick(silent, *idle, prompt=prompt).target_id != 0


def test_the_median_of_nothing_is_unknown() -> None:
    assert upper_median([None]) is None
    assert upper_median([3, None, 1]) == 3
    assert presumed([], 2, 7) == 7
    assert presumed([1, 2], 2, 7) == 7, "nobody asks"
    assert presumed([3, 1], 3, 7) == 3
    assert presumed_capacity([], 2) == 2
    assert presumed_capacity([8], 2) == 2
    assert presumed_capacity([1, 8], 2) == 1


def test_what_nobody_knows_is_the_assumption_and_never_nothing() -> None:
    blank = candidate(
        warm=None,
        prefill_s_per_token=None,
        load_s=None,
        service_s=None,
        running=None,
        waiting=None,
        capacity=None,
        ours=2,
    )
    only = pick(blank).scores[0]
    assert (only.prefill_s, only.load_s, only.wait_s) == (pytest.approx(5.0), 10.0, 2.5)
