"""Decisions that were logged come out the same again, whatever they were made of."""

import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pharos.core.policy import POLICIES, Decision, Params, RouteRequest
from pharos.obs.decision_record import DecisionRow, decode, encode, row, salted
from pharos.proxy.done import Done
from pharos.sim.replay import read, replay
from pharos.sim.trace import TraceError
from tests.core.policy.given import FIELDS, candidate, pick

CROWDS = st.lists(st.fixed_dictionaries(FIELDS), min_size=1, max_size=6)
REQUESTS = st.builds(
    RouteRequest,
    prompt_tokens=st.integers(0, 5000),
    seed=st.integers(0, 2**63 - 1),
    matched=st.builds(lambda tokens: ((0, tokens),), st.integers(0, 3000)),
    max_tokens=st.none() | st.integers(0, 1000),
    expected_tokens=st.none() | st.floats(0, 1000),
    context_tokens=st.none() | st.integers(1, 9000),
    now=st.floats(0, 10**6),
)


def logged(decision: Decision, policy: str = "cost", target: str | None = None) -> DecisionRow:
    done = Done("r", "/v1/chat/completions", 1.0, choice=decision, target=target)
    found = decode(encode(row(done, policy, salted(b"s"))))
    assert found is not None
    return found


@pytest.mark.parametrize("policy", POLICIES)
@given(crowd=CROWDS, asked=REQUESTS)
@settings(max_examples=60)
def test_a_logged_decision_is_made_again(policy: str, crowd: list[dict[str, object]], asked: RouteRequest) -> None:
    made = POLICIES[policy](asked, [candidate(number, **fields) for number, fields in enumerate(crowd)], Params())
    found = replay([logged(made, policy)], policy)
    assert (found.same, found.decisions) == ((1, 1) if made.chosen is not None else (0, 0))


def test_decisions_of_another_policy_say_so() -> None:
    crowd = [candidate(0, ours=2, running=2, prefill_s_per_token=0.0001), candidate(1, prefill_s_per_token=0.01)]
    found = replay([logged(pick(*crowd, policy="least-load"), "least-load")], "cost")
    assert (found.same, found.differs) == (0, {"least-load chose for it": 1})
    assert {rank.policy: rank.same for rank in found.ranks} == {"cost": 0, "least-load": 1, "any": 0}
    assert found.ranks[0].policy == "cost"
    assert found.ranks[0].mean_s < found.ranks[-1].mean_s


def test_a_request_that_took_no_slot_is_told_apart() -> None:
    full = pick(candidate(0, ours=4, running=4))
    assert full.chosen is None
    visit = Decision(full.req, full.crowd, full.totals, chosen=0)
    found = replay([logged(visit)], "cost")
    assert found.same == 0
    assert next(iter(found.differs)).startswith("it would wait")


def test_a_policy_that_changed_before_the_request_ended_is_found_out() -> None:
    crowd = [candidate(0, ours=2, running=2, prefill_s_per_token=0.0001), candidate(1, prefill_s_per_token=0.01)]
    found = replay([logged(pick(*crowd, policy="least-load"), "cost")], "cost")
    assert found.differs == {"least-load would have chosen so, and may have": 1}


def test_a_choice_that_no_policy_would_make_names_both() -> None:
    made = pick(candidate(0), candidate(1, ours=1, running=1, prefill_s_per_token=1.0))
    other = Decision(made.req, made.crowd, made.totals, chosen=1)
    assert replay([logged(other, target="m@gpu-1")], "cost").differs == {"gpu-0 and not m@gpu-1": 1}


def test_requests_that_were_refused_are_counted_apart() -> None:
    refused = decode(encode(row(Done("r", "/", 1.0), "cost", salted(b""))))
    assert refused is not None
    found = replay([refused, logged(pick(candidate(0)))], "cost")
    assert (found.decisions, found.same, found.without) == (1, 1, 1)
    assert replay([refused], "cost").ranks[0].mean_s == float("inf")


def test_broken_lines_are_named_or_left_out(tmp_path: Path) -> None:
    path = tmp_path / "log"
    good = encode(logged(pick(candidate(0))))
    path.write_bytes(
        b'{"pharos_decisions":1,"version":"0","at":1}\n'
        + good
        + b"{\n"
        + b'{"request_id":1}\n'
        + b'{"x":' * 9999
        + b"\n"
        + good
    )
    with pytest.raises(TraceError, match=r"line 3: .*; line 4: .*; line 5: .*--skip-bad"):
        read(path, skip_bad=False)
    rows, skipped = read(path, skip_bad=True)
    assert (len(rows), skipped) == (2, 3)
    path.write_text(json.dumps({"pharos_decisions": 1, "version": "0", "at": 1.0}))
    with pytest.raises(TraceError, match="no decision"):
        read(path, skip_bad=True)
