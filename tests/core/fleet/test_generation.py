import msgspec
import pytest

from pharos.core.decisions import DECISIONS
from pharos.core.engine import recipes
from pharos.core.engine.plan import Plan
from pharos.core.fleet import Event
from pharos.core.fleet.events import short
from pharos.core.fleet.generation import _MEANING
from pharos.core.signals import ABILITIES, BACKEND, Reading, Residency, Signal, Value
from tests.core.fleet.given import (
    EVERYTHING,
    LLAMACPP,
    OPENAI,
    M,
    backend,
    fleet_of,
    found,
    probe_of,
    publish,
    spec,
    target,
)

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


def test_of_the_round_that_shows_a_new_version_only_the_version_holds() -> None:
    fleet = fleet_of(spec())
    plan = msgspec.structs.replace(LLAMACPP, version="b1")
    told: dict[Signal | tuple[Signal, str], Value] = {Signal.VERSION: "b1", Signal.WAITING: 3, Signal.CAPACITY: 4}
    publish(fleet, "gpu-1", 1.0, told, plan=plan)
    assert target(fleet).view(1.0).waiting == 3
    later = told | {Signal.VERSION: "b2", Signal.WAITING: 0}
    assert bumps(publish(fleet, "gpu-1", 2.0, later, plan=plan)) == ["new_version"]
    assert list(backend(fleet).readings) == [(Signal.VERSION, BACKEND)]
    publish(fleet, "gpu-1", 3.0, later, plan=msgspec.structs.replace(plan, version="b2"))
    assert target(fleet).view(3.0).waiting == 0


def test_what_only_some_versions_tell_rightly_waits_for_the_version_of_a_new_process() -> None:
    fleet = fleet_of(spec())
    guarded = msgspec.structs.replace(LLAMACPP.active[0], name=probe_of(Signal.WAITING), when=lambda _: True)
    plan = msgspec.structs.replace(LLAMACPP, version="b1", active=(guarded,))
    work = {Signal.WORK_DONE: 9.0, Signal.RUNNING: 1, Signal.WAITING: 3}
    publish(fleet, "gpu-1", 1.0, {Signal.VERSION: "b1", **work}, plan=plan)
    publish(fleet, "gpu-1", 2.0, work, plan=plan)
    assert target(fleet).view(2.0).waiting == 3
    again = work | {Signal.WORK_DONE: 0.0, Signal.WAITING: 0}
    assert bumps(publish(fleet, "gpu-1", 3.0, again, plan=plan)) == ["restarted"]
    assert (target(fleet).view(3.0).running, target(fleet).view(3.0).waiting) == (1, None)
    publish(fleet, "gpu-1", 4.0, {Signal.VERSION: "b1", **again}, plan=plan)
    assert target(fleet).view(4.0).waiting == 0


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


# Marks: what shows that a process or a cache was lost.


@pytest.mark.parametrize(
    ("signal", "before", "after", "reasons"),
    [
        (Signal.PROCESS, "1700000000", "1700000000", []),
        (Signal.PROCESS, "1700000000", "1700000050", ["restarted"]),
        (Signal.WORK_DONE, 900.0, 900.0, []),
        (Signal.WORK_DONE, 900.0, 950.0, []),
        (Signal.WORK_DONE, 900.0, 12.0, ["restarted"]),
        (Signal.CACHED_TOKENS, 900, 500, []),
        (Signal.CACHED_TOKENS, 0, 0, []),
        (Signal.CACHED_TOKENS, 900, 0, ["cache_lost"]),
        (Signal.CACHED_TOKENS, 0, 900, []),
        (Signal.WORK_DONE, "x", 1.0, []),
        (Signal.WORK_DONE, ("x",), 1.0, []),
    ],
)
@pytest.mark.parametrize("of", [BACKEND, M])
def test_a_mark_shows_a_lost_process_or_cache(
    signal: Signal, before: Value, after: Value, reasons: list[str], of: str
) -> None:
    fleet = fleet_of(spec())
    publish(fleet, "gpu-1", 1.0, {(signal, of): before})
    assert bumps(publish(fleet, "gpu-1", 2.0, {(signal, of): after})) == reasons
    assert bumps(publish(fleet, "gpu-1", 3.0, {(signal, of): after})) == []
    assert target(fleet).generation == len(reasons)


def test_a_restart_shown_by_two_marks_counts_once_and_forgets_what_was_read() -> None:
    fleet = fleet_of(spec())
    old = {Signal.PROCESS: "1", Signal.WORK_DONE: 90.0, Signal.CAPACITY: 4, Signal.RESIDENCY: LOADED}
    publish(fleet, "gpu-1", 1.0, old)
    events = publish(fleet, "gpu-1", 2.0, {Signal.PROCESS: "2", Signal.WORK_DONE: 1.0, Signal.RUNNING: 0})
    assert bumps(events) == ["restarted"]
    view = target(fleet).view(2.0)
    assert (view.capacity, view.residency, view.running) == (None, None, 0)


def test_a_restart_of_one_model_leaves_the_others_alone() -> None:
    fleet = fleet_of(spec())
    first = {(Signal.WORK_DONE, "x"): 90.0, (Signal.RUNNING, "x"): 1, (Signal.RUNNING, "y"): 2}
    publish(fleet, "gpu-1", 1.0, first, models=("x", "y"))
    backend(fleet).counts_cached = True
    events = publish(fleet, "gpu-1", 2.0, {(Signal.WORK_DONE, "x"): 1.0}, models=("x", "y"))
    assert bumps(events) == ["restarted"]
    assert [target(fleet, model=name).generation for name in "xy"] == [1, 0]
    assert not backend(fleet).counts_cached, "it may have been started with other settings"
    assert [target(fleet, model=name).view(2.0).running for name in "xy"] == [None, 2]


def test_a_model_that_leaves_memory_has_no_load_any_more() -> None:
    fleet = fleet_of(spec())
    publish(fleet, "gpu-1", 1.0, {(Signal.RESIDENCY, M): LOADED, (Signal.RUNNING, M): 1})
    publish(fleet, "gpu-1", 1.5, {(Signal.RESIDENCY, M): COLD})
    assert target(fleet).view(1.5).running is None


RELOADS = msgspec.structs.replace(LLAMACPP, kind="reloads")


@pytest.mark.parametrize(("plan", "rank", "reasons"), [(RELOADS, 0, ["reloaded"]), (RELOADS, 1, []), (LLAMACPP, 0, [])])
def test_a_loaded_model_with_another_context_was_loaded_anew_where_that_is_how_it_changes(
    monkeypatch: pytest.MonkeyPatch, plan: Plan, rank: int, reasons: list[str]
) -> None:
    reloading = msgspec.structs.replace(recipes.by_kind("openai"), kind="reloads", context_in_residency=True)
    monkeypatch.setitem(recipes.RECIPES, "reloads", reloading)
    fleet = fleet_of(spec())
    for at, size in ((1.0, 4096), (2.0, 4096), (3.0, 8192)):
        read = found({(Signal.RESIDENCY, M): LOADED, Signal.MODELS: (M,)}, at)
        context = {(Signal.CONTEXT_LENGTH, M): Reading(size, at, "test", 5.0, rank)}
        both = msgspec.structs.replace(read, readings={**read.readings, **context})
        events = fleet.publish(backend(fleet), plan, both, at, full=True, started_at=at)
    assert bumps(events) == reasons


def test_a_reply_that_shows_all_caches_lost_counts_for_every_name_of_the_queue() -> None:
    fleet = fleet_of(spec())
    publish(fleet, "gpu-1", 1.0, models=("x", "y"))
    assert bumps(fleet.cache_lost(target(fleet, model="x"))) == ["cache_lost", "cache_lost"]
    other = fleet_of(spec())
    publish(other, "gpu-1", 1.0, models=("x", "y"), plan=OPENAI)
    assert bumps(other.cache_lost(target(other, model="x"))) == ["cache_lost"]


def test_another_name_of_a_loaded_queue_is_loaded_where_queues_are_what_is_loaded() -> None:
    fleet = fleet_of(spec())
    plan = Plan("ollama", "config", None, LLAMACPP.active, ())
    groups: dict[tuple[Signal, str], Value] = {
        (Signal.PHYSICAL_GROUP, "a"): "file",
        (Signal.PHYSICAL_GROUP, "alias"): "file",
        (Signal.PHYSICAL_GROUP, "b"): "other",
    }
    residency: dict[tuple[Signal, str], Value] = {(Signal.RESIDENCY, BACKEND): COLD, (Signal.RESIDENCY, "a"): LOADED}
    publish(fleet, "gpu-1", 1.0, {**groups, **residency}, models=("a", "alias", "b"), plan=plan)
    seen = {model: target(fleet, model=model).view(1.0).residency for model in ("a", "alias", "b")}
    assert seen == {"a": LOADED, "alias": LOADED, "b": COLD}
    fleet.replied(target(fleet, model="alias"), 1.5)
    assert bumps(publish(fleet, "gpu-1", 2.0, residency, models=("a", "alias", "b"), plan=plan)) == []
    gone = {(Signal.RESIDENCY, BACKEND): COLD}
    assert bumps(publish(fleet, "gpu-1", 3.0, gone, models=("a", "alias", "b"), plan=plan)) == ["unloaded", "unloaded"]


def test_a_name_of_any_length_takes_little_of_a_line() -> None:
    assert short("a" * 60) == "a" * 60
    assert short("a" * 3000) == "a" * 59 + "…"


def test_another_process_is_not_known_to_lack_or_to_be_loading_anything() -> None:
    ollama = Plan("ollama", "config", None, LLAMACPP.active, ())
    fleet = fleet_of(spec())
    values = {(Signal.CAPABILITIES, M): ("completion",), (Signal.RESIDENCY, M): LOADING}
    publish(fleet, "gpu-1", 1.0, values | {Signal.VERSION: "1"}, plan=ollama)
    it = target(fleet)
    fleet.dispatched(it, 1.5, 4096)
    fleet.ended(it, it.slots, 1.6)
    assert "vision" in it.unable
    assert (it.loading_since, it.loaded_for) == (1.0, 4096)
    publish(fleet, "gpu-1", 2.0, {Signal.VERSION: "2"}, plan=ollama)
    assert (it.unable, it.loading_at, it.loaded_for) == (frozenset(), None, None)


def test_abilities_that_a_kind_tells_of_are_words_that_are_known_and_have_a_probe() -> None:
    told = {kind: recipe for kind, recipe in recipes.RECIPES.items() if recipe.tells_abilities}
    assert {"llamacpp", "ollama", "sglang"} <= told.keys()
    for recipe in told.values():
        assert recipe.tells_abilities <= ABILITIES
        assert any(probe.signal is Signal.CAPABILITIES for probe in recipe.probes)
