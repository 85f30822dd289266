from hypothesis import given
from hypothesis import strategies as st

from pharos.core.fleet import Feedback, Fleet, State
from pharos.core.fleet.roster import UNLISTED_KEPT
from pharos.core.signals import Signal
from tests.core.fleet.given import OPENAI, backend, fleet_of, publish, spec, target, warm

KEPT = 32


def names(backends: object) -> list[str]:
    return [b.name for b in backends]  # type: ignore[attr-defined]


def test_an_unchanged_spec_keeps_its_backend_and_a_changed_one_starts_anew() -> None:
    fleet = fleet_of(spec("a"), spec("b"))
    a, b = backend(fleet, "a"), backend(fleet, "b")
    changes = fleet.set_backends([spec("b", capacity=2), spec("a")], 1.0)
    assert (names(changes.added), names(changes.removed)) == (["b"], ["b"])
    assert backend(fleet, "a") is a
    assert backend(fleet, "b") is not b
    assert list(fleet.backends) == ["b", "a"]


def test_a_removed_backend_that_comes_back_gets_its_state_back_but_must_answer_first() -> None:
    fleet = fleet_of(spec())
    publish(fleet, "gpu-1", 1.0, warm(3))
    it, backend_before = target(fleet), backend(fleet)
    fleet.learn(it, Feedback(ok=True, cold=False, duration_s=3.0))
    assert names(fleet.set_backends([], 2.0).removed) == ["gpu-1"]
    assert fleet.targets_for(it.model, 2.0) == []
    assert (backend_before.removed, backend_before.removed_at) == (True, 2.0)
    assert names(fleet.set_backends([spec()], 3.0).added) == ["gpu-1"]
    assert target(fleet) is it
    assert it.stats.service_s.value == 3.0
    assert it.view(3.0).capacity == 3
    assert backend(fleet).state is State.UNKNOWN
    assert fleet.targets_for(it.model, 3.0) == []
    publish(fleet, "gpu-1", 4.0, warm(3))
    assert fleet.targets_for(it.model, 4.0) == [it]


def remove_others(fleet: Fleet, count: int) -> None:
    for n in range(count):
        fleet.set_backends([spec(f"other-{n}")], 9.0)


def test_the_last_32_removed_backends_are_kept() -> None:
    fleet = fleet_of(spec())
    publish(fleet, "gpu-1", 1.0)
    it = target(fleet)
    remove_others(fleet, KEPT)
    fleet.set_backends([spec()], 10.0)
    assert target(fleet) is it
    remove_others(fleet, KEPT + 1)
    fleet.set_backends([spec()], 11.0)
    assert backend(fleet).targets == {}


def test_ids_of_forgotten_targets_are_given_out_again_once_nothing_runs_there() -> None:
    fleet = fleet_of(spec("a"), spec("b"))
    publish(fleet, "a", 1.0, models=("x",))
    publish(fleet, "b", 1.0, models=("x",))
    busy = target(fleet, "b", "x")
    fleet.dispatched(busy)
    remove_others(fleet, KEPT + 2)
    fleet.set_backends([spec("c")], 10.0)
    publish(fleet, "c", 11.0, models=("x", "y"))
    assert [t.id for t in backend(fleet, "c").targets.values()] == [0, 2]
    fleet.ended(busy, busy.slots, 12.0)
    publish(fleet, "c", 13.0, models=("x", "y", "z"))
    assert target(fleet, "c", "z").id == 1


@given(st.lists(st.sets(st.integers(0, 40), max_size=12), max_size=12))
def test_ids_are_unique_among_all_kept_targets_whatever_comes_and_goes(lists: list[set[int]]) -> None:
    fleet = Fleet()
    for step, wanted in enumerate(lists):
        fleet.set_backends([spec(f"b{n}") for n in sorted(wanted)], float(step))
        for n in wanted:
            publish(fleet, f"b{n}", float(step), models=("x", "y"))
        kept = [t.id for b in fleet._kept() for t in b.targets.values()]
        assert len(kept) == len(set(kept))
        assert len(fleet._roster.removed) <= KEPT
        assert max(kept, default=0) < 2 * (KEPT + 12 + 12)
        for model in ("x", "y"):
            assert {t.backend.name for t in fleet.targets_for(model, float(step))} == set(fleet.backends)


def test_models_that_left_the_list_are_forgotten_when_there_are_many_of_them() -> None:
    fleet = fleet_of(spec())
    groups = {(Signal.PHYSICAL_GROUP, "r0-0"): "first", (Signal.PHYSICAL_GROUP, "r9-0"): "last"}
    for number in range(10):
        names = tuple(f"r{number}-{index}" for index in range(UNLISTED_KEPT // 2))
        publish(fleet, "gpu-1", float(number), groups, models=names, plan=OPENAI)
        if number == 0:
            fleet.dispatched(target(fleet, model="r0-1"))
    it = backend(fleet)
    assert len(it.targets) == UNLISTED_KEPT + UNLISTED_KEPT // 2 + 1
    assert it.targets["r0-1"].inflight == 1
    assert "r0-0" not in it.targets
    assert not fleet.targets_listed("r0-0")
    assert list(it.queues) == ["last"]
    ids = [one.id for one in it.targets.values()]
    assert len(set(ids)) == len(ids)
    assert max(ids) < 2 * len(ids)
