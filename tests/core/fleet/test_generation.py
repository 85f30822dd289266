import pytest

from pharos.core.decisions import DECISIONS
from pharos.core.fleet import Event
from pharos.core.fleet.generation import _MEANING
from pharos.core.signals import Residency, Signal
from tests.core.fleet.given import EVERYTHING, LLAMACPP, OPENAI, M, backend, fleet_of, publish, spec, target

LOADED, LOADING, COLD = Residency.LOADED, Residency.LOADING, Residency.COLD


def bumps(events: list[Event]) -> list[str]:
    return [event.outcome for event in events if event.stage == "generation"]


@pytest.mark.parametrize(
    ("before", "after", "reasons"),
    [
        (LOADED, COLD, ["unloaded"]),
        (LOADED, LOADING, ["unloaded"]),
        (LOADED, LOADED, []),
        (COLD, LOADED, []),
        (COLD, LOADING, []),
        (LOADING, LOADED, []),
        (LOADING, COLD, []),
    ],
)
def test_a_model_that_leaves_memory_loses_its_cache(before: Residency, after: Residency, reasons: list[str]) -> None:
    fleet = fleet_of(spec())
    publish(fleet, "gpu-1", 1.0, {Signal.RESIDENCY: before})
    assert bumps(publish(fleet, "gpu-1", 2.0, {Signal.RESIDENCY: after})) == reasons
    assert target(fleet).generation == len(reasons)


def test_an_unknown_in_between_does_not_hide_an_unload() -> None:
    fleet = fleet_of(spec())
    publish(fleet, "gpu-1", 1.0, {(Signal.RESIDENCY, M): LOADED})
    assert bumps(publish(fleet, "gpu-1", 2.0, {}, read=EVERYTHING)) == []
    assert target(fleet).view(2.0).residency is None
    assert bumps(publish(fleet, "gpu-1", 3.0, {(Signal.RESIDENCY, M): COLD})) == ["unloaded"]


def test_a_reply_that_showed_the_model_loaded_counts_as_loaded() -> None:
    fleet = fleet_of(spec())
    publish(fleet, "gpu-1", 1.0, {Signal.RESIDENCY: COLD})
    fleet.replied(target(fleet), 2.0)
    assert bumps(publish(fleet, "gpu-1", 3.0, {Signal.RESIDENCY: COLD}, at=1.5)) == [], "asked before the reply"
    assert target(fleet).view(3.0).residency is LOADED
    assert bumps(publish(fleet, "gpu-1", 4.0, {Signal.RESIDENCY: COLD})) == ["unloaded"]
    assert target(fleet).view(4.0).residency is COLD


def test_a_reply_says_nothing_of_residency_where_the_engine_does_not_report_it() -> None:
    fleet = fleet_of(spec())
    publish(fleet, "gpu-1", 1.0, plan=OPENAI)
    fleet.replied(target(fleet), 2.0)
    assert target(fleet).last_residency is None


def test_a_model_that_leaves_the_list_loses_its_cache_once_and_may_come_back() -> None:
    fleet = fleet_of(spec())
    publish(fleet, "gpu-1", 1.0, models=("x", "y"))
    assert bumps(publish(fleet, "gpu-1", 2.0, models=("y",))) == ["unlisted"]
    assert bumps(publish(fleet, "gpu-1", 3.0, models=("y",))) == []
    assert fleet.models(3.0) == ["y"]
    assert fleet.targets_for("x", 3.0) == []
    it = target(fleet, model="x")
    assert bumps(publish(fleet, "gpu-1", 4.0, models=("x", "y"))) == []
    assert fleet.targets_for("x", 4.0) == [it]
    assert it.generation == 1


def test_a_new_version_takes_every_cache_and_every_old_reading_with_it() -> None:
    fleet = fleet_of(spec())
    publish(fleet, "gpu-1", 1.0, {Signal.VERSION: "b1", Signal.CAPACITY: 4}, models=("x", "y"))
    events = publish(fleet, "gpu-1", 2.0, {Signal.VERSION: "b2"}, models=("x", "y"))
    assert bumps(events) == ["new_version", "new_version"]
    assert target(fleet, model="x").view(2.0).capacity is None
    assert backend(fleet).version == "b2"


def test_a_version_that_becomes_known_or_is_not_read_is_no_new_version() -> None:
    fleet = fleet_of(spec())
    publish(fleet, "gpu-1", 1.0)
    assert bumps(publish(fleet, "gpu-1", 2.0, {Signal.VERSION: "b1"})) == []
    assert bumps(publish(fleet, "gpu-1", 3.0)) == []
    assert bumps(publish(fleet, "gpu-1", 4.0, {Signal.VERSION: "b1"})) == []


def test_another_kind_of_engine_is_another_process() -> None:
    fleet = fleet_of(spec())
    publish(fleet, "gpu-1", 1.0, {Signal.CAPACITY: 4}, plan=LLAMACPP)
    assert bumps(publish(fleet, "gpu-1", 2.0, plan=OPENAI)) == ["new_version"]
    assert target(fleet).view(2.0).capacity is None
    publish(fleet, "gpu-1", 3.0, models=(M, "x"), plan=OPENAI)
    assert target(fleet, model="x").slots is not target(fleet).slots


def test_a_residency_of_the_wrong_type_is_left_out() -> None:
    fleet = fleet_of(spec())
    publish(fleet, "gpu-1", 1.0, {Signal.RESIDENCY: "gone"})
    assert target(fleet).last_residency is None


def test_every_reason_is_in_the_decision_table() -> None:
    assert set(_MEANING) == set(DECISIONS["generation"])
