"""What is kept of a fleet between requests is what a look at all of it would show."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pharos.core.fleet import Backend, Feedback, Fleet
from pharos.core.policy import Crowd, Params
from pharos.core.sched.candidates import gather
from pharos.core.sched.crowds import FEW, KEPT_MODELS, Crowds
from pharos.core.sched.progress import revise
from pharos.core.signals import Residency, Signal
from tests.core.fleet.given import LLAMACPP, OLLAMA_LIKE, OPENAI, M, fleet_of, publish, spec, target, warm

PARAMS = Params()
COUNT = 2 * FEW
PLANS = (LLAMACPP, OPENAI, OLLAMA_LIKE)
LEARNED = Feedback(ok=True, cold=False, ttft_s=1.0, duration_s=2.0, prompt_tokens=1000, cached_tokens=0)

values = st.fixed_dictionaries(
    {},
    optional={
        Signal.RESIDENCY: st.sampled_from(Residency),
        Signal.RUNNING: st.integers(0, 4),
        Signal.WAITING: st.integers(0, 2),
        Signal.CAPACITY: st.integers(1, 4),
        Signal.KV_USAGE: st.floats(0, 1),
        Signal.SIZE_BYTES: st.integers(1, 12),
        Signal.GPU_TOTAL_BYTES: st.integers(8, 16),
        Signal.GPU_USED_BYTES: st.integers(0, 16),
        Signal.CONTEXT_LENGTH: st.integers(1, 9),
        Signal.CAPABILITIES: st.sampled_from([("completion",), ("completion", "vision")]),
    },
)
happenings = st.tuples(
    st.sampled_from(["read", "read", "ejected", "down", "begun", "begun", "ended", "replied", "learned", "later"]),
    st.integers(0, 4),
    st.sampled_from([M, "other"]),
    values,
)


def backends(*, limited: int = 0) -> Fleet:
    """Warm, idle backends that list two models; the first ones have a limit of memory."""
    specs = [spec(f"gpu-{i}", memory_bytes=10 if i < limited else None) for i in range(COUNT)]
    fleet = fleet_of(*specs)
    for i in range(COUNT):
        publish(fleet, f"gpu-{i}", 0.0, warm(4), models=(M, "other"), plan=PLANS[i % 3])
    return fleet


def look(fleet: Fleet, crowds: Crowds, now: float, model: str = M) -> Crowd:
    return crowds.of(model, fleet.targets_for(model, now), now)


def happen(fleet: Fleet, what: str, backend: Backend, model: str, told: dict[Signal, object], now: float) -> None:
    it = backend.targets[model]
    if what == "read":
        plan = PLANS[backend.id % 3]
        publish(fleet, backend.name, now, told, models=(M, "other"), plan=plan, full=True)  # type: ignore[arg-type]
    elif what == "ejected":
        fleet.eject(backend, "died", now, connected_at=now)
    elif what == "down":
        fleet.unreachable(backend, "gone")
    elif what == "begun":
        fleet.dispatched(it, now, 4096 if backend.id % 2 else None)
        it.slots.progress[len(it.slots.progress)] = (now, 3.0 + backend.id)
    elif what == "ended":
        busy = [t for b in fleet.backends.values() for t in b.targets.values() if t.inflight]
        for it in busy[:1]:
            fleet.ended(it, it.slots, now)
    elif what == "replied":
        fleet.replied(it, now)
    elif what == "learned":
        fleet.learn(it, LEARNED)


@given(
    st.lists(st.lists(happenings, min_size=1, max_size=4), max_size=12), st.integers(0, 3), st.sampled_from([0.0, 0.3])
)
def test_whatever_happens_the_crowd_is_the_one_that_a_fresh_look_makes(
    script: list[list[tuple[str, int, str, dict[Signal, object]]]], limited: int, pace: float
) -> None:
    fleet, crowds, now = backends(limited=limited), Crowds(PARAMS), 0.5
    for several in script:
        for what, place, model, told in several:
            happen(fleet, what, fleet.backends[f"gpu-{place}"], model, told, now)
            now += 4.0 if what == "later" else pace
        targets = fleet.targets_for(M, now)
        crowd = crowds.of(M, targets, now)
        assert crowd.candidates == gather(targets, 0, now)
        assert crowd.standings == Crowd(crowd.candidates, PARAMS).standings


def test_nothing_is_looked_at_again_while_nothing_happens() -> None:
    fleet, crowds = backends(), Crowds(PARAMS)
    assert look(fleet, crowds, 1.0) is look(fleet, crowds, 1.5)
    assert look(fleet, crowds, 1.0) is look(fleet, crowds, 1.0)


def test_only_the_target_that_something_happened_to_is_looked_at_again() -> None:
    fleet, crowds = backends(), Crowds(PARAMS)
    before = look(fleet, crowds, 1.0)
    fleet.dispatched(target(fleet, "gpu-4"))
    after = look(fleet, crowds, 1.0)
    assert [i for i in range(COUNT) if after.candidates[i] is not before.candidates[i]] == [4]
    assert (before.candidates[4].ours, after.candidates[4].ours) == (0, 1)


def test_when_much_happened_all_are_looked_at_again() -> None:
    fleet, crowds = backends(), Crowds(PARAMS)
    before = look(fleet, crowds, 1.0)
    for i in range(COUNT // FEW + 1):
        fleet.dispatched(target(fleet, f"gpu-{i}"))
    after = look(fleet, crowds, 1.0)
    assert not any(after.candidates[i] is before.candidates[i] for i in range(COUNT))
    assert [c.ours for c in after.candidates[:4]] == [1, 1, 1, 0]


@pytest.mark.parametrize("what", ["read", "ejected", "begun", "ended", "replied", "learned"])
def test_whatever_happens_to_a_target_is_noticed(what: str) -> None:
    fleet, crowds = backends(), Crowds(PARAMS)
    publish(fleet, "gpu-2", 0.5, {Signal.RESIDENCY: Residency.COLD}, models=None, plan=OLLAMA_LIKE)
    fleet.dispatched(target(fleet, "gpu-2"))
    before = look(fleet, crowds, 1.0)
    happen(fleet, what, fleet.backends["gpu-2"], M, {Signal.CAPACITY: 9}, 1.0)
    if what == "ejected":
        assert len(look(fleet, crowds, 1.0)) == COUNT - 1
    else:
        assert look(fleet, crowds, 1.0).candidates[2] != before.candidates[2]


def test_a_reading_that_was_asked_for_earlier_ages_out_earlier() -> None:
    fleet, crowds = backends(), Crowds(PARAMS)
    look(fleet, crowds, 1.0)
    publish(fleet, "gpu-2", 1.0, {Signal.RUNNING: 2}, models=None, plan=OLLAMA_LIKE, at=-1.0)
    assert look(fleet, crowds, 1.5).candidates[2].running == 2
    assert look(fleet, crowds, 2.5).candidates[2].running is None


@pytest.mark.parametrize("now", [3.1, 0.5])
def test_a_reading_that_ages_out_and_a_clock_that_goes_back_make_all_look_new(now: float) -> None:
    fleet, crowds = backends(), Crowds(PARAMS)
    before = look(fleet, crowds, 1.0)
    assert before.candidates[0].running == 0
    after = look(fleet, crowds, now)
    assert after.candidates[0].running == (None if now > 3.0 else 0)
    assert after is not before


def test_a_load_is_held_against_what_else_is_in_use_each_time() -> None:
    fleet, crowds = backends(limited=3), Crowds(PARAMS)
    cold = {(Signal.RESIDENCY, M): Residency.COLD, (Signal.RESIDENCY, "other"): Residency.LOADED, Signal.SIZE_BYTES: 6}
    publish(fleet, "gpu-2", 0.0, cold, models=(M, "other"), plan=OLLAMA_LIKE)
    assert look(fleet, crowds, 1.0).candidates[2].fits_if_cold is True
    fleet.dispatched(target(fleet, "gpu-2", "other"))
    assert look(fleet, crowds, 1.0).candidates[2].fits_if_cold is False


def test_a_request_that_takes_longer_than_expected_makes_its_target_look_new() -> None:
    fleet, crowds = backends(), Crowds(PARAMS)
    it = target(fleet, "gpu-2")
    for lease_id in range(4):
        fleet.dispatched(it, 1.0)
        it.slots.progress[lease_id] = (1.0, 1.0)
    assert look(fleet, crowds, 1.5).candidates[2].frees_at == 2.0
    assert look(fleet, crowds, 2.1).candidates[2].frees_at == 2.5
    revise(it.slots, 3, 1.3)
    assert look(fleet, crowds, 2.1).candidates[2].frees_at == pytest.approx(2.3)


def test_a_limit_of_memory_that_becomes_known_counts_from_then_on() -> None:
    fleet, crowds = backends(), Crowds(PARAMS)
    cold = {(Signal.RESIDENCY, M): Residency.COLD, (Signal.RESIDENCY, "other"): Residency.LOADED, Signal.SIZE_BYTES: 6}
    publish(fleet, "gpu-2", 0.0, cold, models=(M, "other"), plan=OLLAMA_LIKE)
    assert look(fleet, crowds, 1.0).candidates[2].fits_if_cold is None
    publish(fleet, "gpu-2", 1.0, {Signal.GPU_TOTAL_BYTES: 10}, models=None, plan=OLLAMA_LIKE)
    assert look(fleet, crowds, 1.0).candidates[2].fits_if_cold is True
    fleet.dispatched(target(fleet, "gpu-2", "other"))
    assert look(fleet, crowds, 1.0).candidates[2].fits_if_cold is False


def test_few_targets_are_not_remembered_and_of_many_models_the_last_ones_are() -> None:
    fleet = fleet_of(*[spec(f"gpu-{i}") for i in range(FEW)])
    models = tuple(f"m{i}" for i in range(KEPT_MODELS + 1))
    for i in range(FEW):
        publish(fleet, f"gpu-{i}", 0.0, warm(4), models=models if i else (*models, "rare"))
    crowds = Crowds(PARAMS)
    first, last = look(fleet, crowds, 1.0, models[0]), [look(fleet, crowds, 1.0, m) for m in models[1:]][-1]
    assert look(fleet, crowds, 1.0, models[-1]) is last
    assert look(fleet, crowds, 1.0, models[0]) is not first
    assert look(fleet, crowds, 1.0, "rare") is not look(fleet, crowds, 1.0, "rare")
