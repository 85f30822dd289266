"""A request goes only where it fits: by its length, by what it needs, and by the context size that it asks for."""

import pytest

from pharos.core.policy import Candidate, Decision
from tests.core.policy.given import candidate, pick

VISION = frozenset({"vision"})
PLAIN = frozenset({"tools"})


def loaded(place: int = 0, context: int = 4096, **changed: object) -> Candidate:
    return candidate(place, context_tokens=context, loaded_for=context, is_soft=True, **changed)


@pytest.mark.parametrize("policy", ["cost", "least-load"])
def test_a_prompt_well_above_the_context_is_not_sent_there(policy: str) -> None:
    short, long = candidate(0, context_tokens=1000), candidate(1, running=3, context_tokens=100_000)
    decision = pick(short, long, prompt=2000, policy=policy)
    assert decision.target_id == 1
    assert (decision.scores[0].feasible, decision.scores[0].why_not) == (False, "its context holds 1000 tokens")


def test_a_prompt_that_may_be_shorter_than_it_looks_is_sent() -> None:
    assert pick(candidate(context_tokens=1000), prompt=1600).target_id == 0
    assert pick(candidate(context_tokens=1000), prompt=1601).target_id is None
    assert pick(candidate(context_tokens=None), prompt=10**6).target_id == 0, "an unknown limit is none"


def test_a_request_that_no_context_holds_never_fits_and_the_largest_is_named() -> None:
    decision = pick(candidate(0, context_tokens=1000), candidate(1, context_tokens=2000), prompt=10**6)
    assert (decision.enqueue, decision.never) == (True, "the largest context holds 2000 tokens")
    assert pick(candidate(context_tokens=1000), prompt=10**6).never == "its context holds 1000 tokens"
    assert pick(candidate(0, context_tokens=1000), candidate(1, running=4), prompt=10**6).never is None
    assert pick(candidate()).never is None


@pytest.mark.parametrize("policy", ["cost", "least-load"])
def test_a_model_that_lacks_what_the_request_needs_is_not_asked(policy: str) -> None:
    blind, seeing = candidate(0, unable=VISION), candidate(1, running=3)
    decision = pick(blind, seeing, needs=VISION, policy=policy)
    assert (decision.target_id, decision.scores[0].why_not) == (1, "cannot do vision")
    assert pick(blind, needs=PLAIN, policy=policy).target_id == 0
    assert pick(blind, needs=VISION, policy=policy).never == "cannot do vision"


def test_what_stands_between_is_told_of_each() -> None:
    decision = pick(candidate(0, unable=VISION), candidate(1, context_tokens=10), needs=VISION)
    assert decision.never == "cannot do vision; its context holds 10 tokens"
    assert decision.reason == "waits: cannot do vision"


def test_a_free_slot_that_this_request_does_not_fit_is_free_for_others() -> None:
    decision = pick(candidate(0, unable=VISION), candidate(1, running=4), needs=VISION)
    assert (decision.target_id, decision.awaited, decision.any_free) == (None, 1, True)


def asking(*crowd: Candidate, context: int | None, **more: object) -> Decision:
    return pick(*crowd, context_tokens=context, **more)  # type: ignore[arg-type]


def test_a_model_loaded_with_another_context_must_be_loaded_anew() -> None:
    decision = asking(loaded(0, 32768), loaded(1, 4096), context=4096)
    assert decision.target_id == 1
    assert [score.load_s for score in decision.scores] == [8.0, 0.0]
    assert decision.reason == "warm, est 1.0 s vs 9.0 s on gpu-0 (warm)"
    assert decision.why == "warm"


def test_of_a_load_for_another_context_nobody_tells_how_long_it_takes_either() -> None:
    only = asking(loaded(0, 32768, load_s=None), context=4096, matched={0: 900})
    assert only.scores[0].load_s == 10.0
    assert only.scores[0].prefill_s == pytest.approx(1.0), "what was cached goes with it"
    assert only.reason == "warm, loaded anew for another context, est 11.0 s"


def test_it_is_not_loaded_anew_while_it_is_in_use() -> None:
    decision = asking(loaded(0, 32768, ours=1), context=4096)
    assert (decision.target_id, decision.enqueue, decision.never) == (None, True, None)
    assert decision.scores[0].why_not == "loading it with the context asked for would evict it while it is in use"
    assert asking(loaded(0, 32768, ours=1), loaded(1, 4096, running=3), context=4096).target_id == 1


@pytest.mark.parametrize(
    "changed",
    [{"loaded_for": 4096}, {"loaded_for": None}, {"warm": False}, {"is_soft": False}],
    ids=["the same", "unknown", "not in memory", "an engine that does not load for it"],
)
def test_nothing_is_loaded_anew_where_that_is_not_needed(changed: dict[str, object]) -> None:
    fields: dict[str, object] = {"is_soft": True, "loaded_for": 32768, "context_tokens": 32768} | changed
    before = pick(candidate(**fields)).scores[0]
    assert asking(candidate(**fields), context=4096).scores[0] == before


def test_a_load_for_the_same_context_is_joined_and_one_for_another_is_not() -> None:
    loading = candidate(0, warm=False, loading=True, ours=1, is_soft=True, loaded_for=4096)
    assert asking(loading, context=4096).target_id == 0
    assert asking(loading, context=32768).target_id is None


def test_an_engine_that_cuts_long_prompts_gets_them_only_when_nobody_else_can_take_them() -> None:
    assert pick(loaded(0, 1000), candidate(1, running=3), prompt=5000).target_id == 1
    decision = pick(loaded(0, 1000), candidate(1, context_tokens=2000), prompt=5000)
    assert (decision.target_id, decision.never) == (0, None)
    assert asking(loaded(0, 1000, ours=0, warm=False), context=8192, prompt=5000).target_id == 0
