"""Whole runs: nothing is lost, the same seed gives the same, and what one knows beforehand comes out."""

from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pharos.sim import workload
from pharos.sim.asks import Session
from pharos.sim.fleets import FLEETS
from pharos.sim.run import POLICY_NAMES, Outcome, Plan, run
from pharos.sim.spec import FleetSpec, ModelSpec
from tests.sim.given import Fixed, M, N, ask, fleet, grown, spec, swapping

OTHERS = [name for name in POLICY_NAMES if name not in {"cost", "least-load"}]


def outcome(policy: str, engines: FleetSpec, *sessions: Session, **more: Any) -> Outcome:
    return run(Plan(engines, policy, 1000.0, **more), sessions)


@st.composite
def engine_fleets(draw: st.DrawFn) -> FleetSpec:
    kinds = st.sampled_from(["llamacpp", "llamacpp-router", "ollama", "vllm", "openai"])
    engines = []
    for number in range(draw(st.integers(1, 3))):
        kind = draw(kinds)
        several = kind in {"llamacpp-router", "ollama"}
        engines.append(
            spec(
                f"e{number}",
                kind=kind,
                models=(ModelSpec(M, 4.0), ModelSpec(N, 4.0)) if several else (ModelSpec(M, 4.0),),
                memory_gb=draw(st.sampled_from([5.0, 9.0])) if several else None,
                slots=draw(st.integers(1, 3)),
                slowdown=draw(st.sampled_from([0.0, 0.3])),
                load_s=draw(st.sampled_from([0.0, 3.0])),
                shared_cache_tokens=draw(st.sampled_from([None, 50_000])),
                host_cache_tokens=draw(st.sampled_from([0, 20_000])),
                scrape_s=draw(st.sampled_from([0.0, 0.5, 4.0])),
                told_capacity=draw(st.booleans()),
            )
        )
    return fleet(*engines)


@pytest.mark.parametrize("policy", POLICY_NAMES)
@given(engines=engine_fleets(), seed=st.integers(0, 5), instances=st.sampled_from([1, 3]), users=st.integers(1, 9))
@settings(max_examples=8, deadline=None)
def test_every_request_ends_every_slot_comes_back_and_tokens_add_up(
    policy: str, engines: FleetSpec, seed: int, instances: int, users: int
) -> None:
    mix = workload.Mix(users, engines.models)
    found = run(Plan(engines, policy, 90.0, seed, instances), workload.sessions(mix, seed))
    assert found.held == 0
    assert len(found.samples) + found.refused == found.asked
    assert not found.refused
    for sample in found.samples:
        assert 0 <= sample.cached_tokens < sample.prompt_tokens
        assert 0 <= sample.wait_s <= sample.ttft_s <= sample.wait_s + sample.work_s + 1e-9


@pytest.mark.parametrize("policy", POLICY_NAMES)
@pytest.mark.parametrize("instances", [1, 3])
def test_the_same_seed_gives_the_same_and_another_one_does_not(policy: str, instances: int) -> None:
    def once(seed: int) -> bytes:
        mix = workload.Mix(6, FLEETS["cold"].models)
        plan = Plan(FLEETS["cold"], policy, 120.0, seed, instances)
        return msgspec.json.encode(run(plan, workload.sessions(mix, seed)))

    assert once(1) == once(1)
    assert once(1) != once(2)


@pytest.mark.parametrize("policy", POLICY_NAMES)
def test_one_request_on_an_idle_engine_takes_what_the_engine_takes(policy: str) -> None:
    found = outcome(policy, fleet(spec()), Fixed((1.0, ask(1, 2))))
    (sample,) = found.samples
    assert (sample.arrived_at, sample.wait_s) == (1.0, 0.0)
    assert sample.ttft_s == pytest.approx(0.2)
    assert sample.work_s == pytest.approx(1.2)
    assert (found.asked, found.loads) == (1, 0)


@pytest.mark.parametrize("policy", POLICY_NAMES)
def test_a_cold_model_is_loaded_and_waited_for(policy: str) -> None:
    found = outcome(policy, fleet(swapping()), Fixed((1.0, ask(1))))
    assert found.loads == 1
    assert found.samples[0].ttft_s == pytest.approx(10.1)


def test_a_session_asks_again_only_after_its_reply_and_its_pause() -> None:
    found = outcome("cost", fleet(spec()), Fixed((0.0, ask(1)), (5.0, ask(2))))
    assert [sample.arrived_at for sample in found.samples] == pytest.approx([0.0, 6.1])


def test_nobody_asks_after_the_end_of_the_run_and_who_asked_before_is_answered() -> None:
    plan = Plan(fleet(spec()), "cost", 5.0)
    found = run(plan, [Fixed((4.9, ask(1)), (0.0, ask(2))), Fixed((5.1, ask(3)))])
    assert found.asked == len(found.samples) == 1


def test_pharos_holds_back_what_an_engine_has_no_slot_for_and_the_others_send_it_all() -> None:
    flood = [Fixed((0.0, ask(number))) for number in range(1, 7)]
    for policy in POLICY_NAMES:
        found = outcome(policy, fleet(spec(slots=2)), *flood)
        assert sorted(sample.wait_s for sample in found.samples) == pytest.approx([0, 0, 1.1, 1.1, 2.2, 2.2])
        flood = [Fixed((0.0, ask(number))) for number in range(1, 7)]


def test_the_next_turn_goes_where_the_conversation_is_cached() -> None:
    for policy in ("cost", "prefix"):
        engines = fleet(*(spec(f"e{number}", kind="vllm", shared_cache_tokens=50_000) for number in range(4)))
        turns = [ask(1, 2, 3, tokens=400, reply=11)]
        for number in range(8):
            turns.append(grown(turns[-1], 100 + number, reply=11))
        found = outcome(policy, engines, Fixed(*((2.0, turn) for turn in turns)))
        assert [sample.cached_tokens > 0 for sample in found.samples] == [False, *[True] * 8]


def test_round_robin_takes_turns_and_least_conn_the_idle_one() -> None:
    engines = fleet(spec("a", slots=1), spec("b", slots=1, decode_s_per_token=0.001))
    rounds = outcome("round-robin", engines, *(Fixed((at, ask(at + 1))) for at in range(4)))
    assert [sample.work_s for sample in sorted(rounds.samples, key=lambda s: s.arrived_at)] == pytest.approx(
        [1.1, 0.2, 1.1, 0.2]
    )
    least = outcome("least-conn", engines, Fixed((0.0, ask(1, reply=10_001))), *(Fixed((at, ask(at))) for at in (5, 6)))
    assert sum(sample.work_s < 1 for sample in least.samples) == 2


def test_an_overloaded_engine_loses_its_matches_to_the_least_loaded_one() -> None:
    """SMG's rule: matched, unless its requests exceed the mean by at least 4 and by half."""
    warm = ask(1, 2, tokens=500)
    engines = fleet(spec("a", slots=1), spec("b", slots=1))
    flood = [Fixed((5.0 + number / 100, grown(warm, 50 + number, tokens=10))) for number in range(12)]
    found = outcome("prefix", engines, Fixed((0.0, warm)), *flood)
    spilled = [sample for sample in found.samples[1:] if not sample.cached_tokens]
    assert spilled


def test_instances_learn_from_each_other_what_caches_hold() -> None:
    engines = fleet(*(spec(f"e{number}", kind="vllm", shared_cache_tokens=50_000) for number in range(3)))

    def hits(sync_s: float) -> int:
        turns = [ask(1, 2, 3, tokens=400, reply=11)]
        for number in range(11):
            turns.append(grown(turns[-1], 100 + number, reply=11))
        found = outcome("cost", engines, Fixed(*((2.0, turn) for turn in turns)), instances=3, sync_s=sync_s)
        return sum(sample.cached_tokens > 0 for sample in found.samples)

    assert hits(0.2) == 11
    assert hits(500.0) < 11


def test_a_fast_engine_gets_more_than_a_slow_one() -> None:
    slow = spec("slow", prefill_s_per_token=0.01, decode_s_per_token=0.05)
    sessions = [Fixed(*((0.5, ask(1000 * user + turn, tokens=300)) for turn in range(20))) for user in range(3)]
    found = outcome("cost", fleet(spec("fast", slots=4), slow), *sessions)
    assert sum(sample.ttft_s < 1 for sample in found.samples) > 50
