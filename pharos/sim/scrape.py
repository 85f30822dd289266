"""What a scraper would read from a modelled engine, published as it would: rounds, intervals, the age of each value.

Each kind tells what its recipe reads of it, by the probes of that recipe; nothing else. Forbidden here: judging.
"""

from collections.abc import Iterator

from pharos.core.engine import recipes
from pharos.core.engine.follow import Followed
from pharos.core.engine.plan import Plan, Round
from pharos.core.engine.probe import FULL_INTERVAL_S, LOAD_INTERVAL_S, SCRAPED, FeedKind, Probe
from pharos.core.fleet import BackendSpec
from pharos.core.signals import BACKEND, LOAD_SIGNALS, Key, Reading, Residency, Signal, Value
from pharos.sim.engine import Engine
from pharos.sim.spec import EngineSpec, Kind

GB = 10**9

TELLS: dict[Kind, frozenset[Signal]] = {
    "llamacpp": frozenset({Signal.RESIDENCY, Signal.CAPACITY, Signal.RUNNING, Signal.WAITING}),
    "llamacpp-router": frozenset(
        {Signal.RESIDENCY, Signal.SIZE_BYTES, Signal.CAPACITY, Signal.RUNNING, Signal.WAITING}
    ),
    "ollama": frozenset({Signal.RESIDENCY, Signal.SIZE_BYTES, Signal.VRAM_BYTES}),
    "vllm": frozenset({Signal.RESIDENCY, Signal.RUNNING, Signal.WAITING}),
    "openai": frozenset(),
}
"""What of the modelled state each kind tells beside its models, as its recipe reads it."""
ONE_FOR_ALL = frozenset({"llamacpp", "vllm"})
"""Kinds whose process has one model and speaks of the whole of it."""


def backend_spec(engine: EngineSpec) -> BackendSpec:
    """The engine as a configuration would describe it."""
    slots = engine.slots if engine.claimed_slots is None else engine.claimed_slots
    return BackendSpec(
        engine.name,
        f"http://{engine.name}",
        kind=engine.kind,
        capacity=slots if engine.told_capacity else None,
        memory_bytes=None if engine.memory_gb is None else int(engine.memory_gb * GB),
    )


def plan_of(kind: Kind, *, follows: bool = False) -> Plan:
    """The plan that reads all that the model of this kind tells. `follows`: its events, too, if it has any."""
    tells = TELLS[kind] | {Signal.MODELS}
    active: dict[Signal, Probe] = {}
    for probe in recipes.by_kind(kind).probes:
        if probe.signal in tells and probe.feed.kind in SCRAPED and probe.when is None:
            active.setdefault(probe.signal, probe)
    followed = [probe for probe in recipes.by_kind(kind).probes if follows and _tells_changes(probe)]
    return Plan(kind, "config", None, (*active.values(), *followed), ())


def event_of(engine: Engine, plan: Plan, model: str, now: float) -> Followed | None:
    """What the engine's event about a model tells; `None` when it sends none."""
    probe = next((probe for probe in plan.active if _tells_changes(probe)), None)
    if probe is None:
        return None
    value = _of_model(engine, Signal.RESIDENCY, model)
    return Followed({(Signal.RESIDENCY, model): Reading(value, now, probe.name, None, probe.rank)})


def read(engine: Engine, plan: Plan, now: float, *, full: bool) -> Round:
    """Ask an engine now. `full`: more than the load signals."""
    readings: dict[Key, Reading] = {}
    answered: set[tuple[str, str]] = set()
    for probe in plan.active:
        if probe.feed.kind not in SCRAPED:
            continue
        is_load = probe.signal in LOAD_SIGNALS
        if not full and not is_load:
            continue
        interval = LOAD_INTERVAL_S if is_load else FULL_INTERVAL_S
        answered.add((probe.name, BACKEND))
        for model, value in _values(engine, probe.signal):
            readings[probe.signal, model] = Reading(value, now, probe.name, interval)
    return Round(readings, (), frozenset(signal for signal, _ in readings), frozenset(answered))


def _values(engine: Engine, signal: Signal) -> Iterator[tuple[str, Value]]:
    names = [model.name for model in engine.spec.models]
    if signal is Signal.MODELS:
        yield BACKEND, tuple(names)
        return
    if engine.spec.kind in ONE_FOR_ALL:
        yield BACKEND, _of_model(engine, signal, names[0])
        return
    for model in engine.spec.models:
        is_there = model.name in engine.lanes
        if signal is Signal.SIZE_BYTES:
            yield model.name, int(model.size_gb * GB)
        elif signal is Signal.VRAM_BYTES:
            if is_there:
                yield model.name, int(model.size_gb * GB)
        elif signal is Signal.RESIDENCY or is_there:
            yield model.name, _of_model(engine, signal, model.name)


def _tells_changes(probe: Probe) -> bool:
    return probe.signal is Signal.RESIDENCY and probe.feed.kind is FeedKind.SSE


def _of_model(engine: Engine, signal: Signal, model: str) -> Value:
    if signal is Signal.CAPACITY:
        return engine.spec.slots
    if signal is Signal.RUNNING:
        return engine.running(model)
    if signal is Signal.WAITING:
        return engine.waiting(model)
    lane = engine.lanes.get(model)
    if lane is None:
        return Residency.COLD
    if lane.ready:
        return Residency.LOADED
    # Ollama of today lists no model that loads: to its readers it is cold until it is there.
    return Residency.COLD if engine.spec.kind == "ollama" else Residency.LOADING
