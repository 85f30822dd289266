"""A crowd that is kept while some of its candidates change is the crowd that would be made of them all anew."""

import math

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pharos.core.policy import POLICIES, Candidate, Crowd, Decision, RouteRequest
from tests.core.policy.given import FIELDS, PARAMS, candidate, fleets, requests

changes = st.lists(
    st.dictionaries(
        st.integers(0, 3),
        st.lists(st.sampled_from(sorted(FIELDS)), min_size=1).flatmap(
            lambda names: st.fixed_dictionaries({name: FIELDS[name] for name in names})
        ),
        max_size=2,
    ),
    min_size=1,
    max_size=4,
)


def told(decision: Decision) -> tuple[object, ...]:
    """All that a decision says."""
    return (
        decision.target_id,
        decision.enqueue,
        decision.predicted_s,
        decision.any_free,
        decision.why,
        decision.reason,
        decision.scores,
    )


@given(
    crowd=fleets(),
    changes=changes,
    request=requests,
    policy=st.sampled_from(["cost", "least-load"]),
)
def test_a_crowd_changed_step_by_step_is_judged_as_one_made_anew(
    crowd: list[Candidate], changes: list[dict[int, dict[str, object]]], request: RouteRequest, policy: str
) -> None:
    kept = Crowd(crowd, PARAMS)
    for change in changes:
        fresh = {i: msgspec.structs.replace(crowd[i], **fields) for i, fields in change.items() if i < len(crowd)}
        crowd = [fresh.get(i, c) for i, c in enumerate(crowd)]
        kept = kept.changed(fresh)
        assert kept.candidates == crowd
        anew = Crowd(crowd, PARAMS)
        assert (kept.standings, sorted(kept.moving), kept.longest) == (anew.standings, anew.moving, anew.longest)
        assert told(POLICIES[policy](request, kept, PARAMS)) == told(POLICIES[policy](request, crowd, PARAMS))


@given(crowd=fleets(), request=requests, policy=st.sampled_from(["cost", "least-load"]))
def test_the_totals_that_a_policy_ranks_are_those_it_explains(
    crowd: list[Candidate], request: RouteRequest, policy: str
) -> None:
    decision = POLICIES[policy](request, crowd, PARAMS)
    assert list(decision.totals) == pytest.approx([s.total_s if s.feasible else math.inf for s in decision.scores])


def test_a_decision_is_explained_by_what_it_was_made_from_whatever_changed_since() -> None:
    crowd = Crowd([candidate(0, prefill_s_per_token=None), candidate(1, prefill_s_per_token=0.002)], PARAMS)
    decision = POLICIES["cost"](RouteRequest(1000, 0), crowd, PARAMS)
    before = told(decision)
    after = crowd.changed({1: candidate(1, prefill_s_per_token=0.009, running=1)})
    assert after.standings[0].s_per_token == 0.009, "what the one that does not know is taken for moved too"
    assert told(decision) == before


def test_a_change_looks_only_at_what_it_changes() -> None:
    crowd = Crowd([candidate(0), candidate(1, load_s=None, warm=False), candidate(2, load_s=3.0)], PARAMS)
    after = crowd.changed({2: candidate(2, load_s=4.0)})
    assert after.standings[0] is crowd.standings[0]
    assert (crowd.standings[1].load_s, after.standings[1].load_s) == (8.0, 8.0)
    assert repr(after) == "<Crowd 3 candidates, 3 open>"
