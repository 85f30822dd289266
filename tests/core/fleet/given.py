"""Fleets for tests, built the way the scraper builds them: by publishing rounds."""

from collections.abc import Mapping

from pharos.core.engine import recipes
from pharos.core.engine.plan import Plan, Round
from pharos.core.engine.probe import LOAD_INTERVAL_S
from pharos.core.fleet import Backend, BackendSpec, Event, Fleet, Target
from pharos.core.signals import BACKEND, LOAD_SIGNALS, Key, Reading, Residency, Signal, Value

M = "qwen2.5:3b"
EVERYTHING = frozenset(Signal)
LLAMACPP = Plan("llamacpp", "config", None, recipes.by_kind("llamacpp").probes, ())
"""Shares one queue among its names, reports residency."""
OPENAI = Plan("openai", "config", None, recipes.by_kind("openai").probes, ())
"""A queue per name, reports no residency."""
OLLAMA_LIKE = Plan("openai", "config", None, LLAMACPP.active, ())
"""A queue per name, reports residency."""

Values = Mapping[Signal | Key, Value]


def spec(name: str = "gpu-1", **more: object) -> BackendSpec:
    return BackendSpec(name, f"http://{name}:8080", **more)  # type: ignore[arg-type]


def fleet_of(*specs: BackendSpec, now: float = 0.0) -> Fleet:
    fleet = Fleet()
    fleet.set_backends(specs, now)
    return fleet


def found(values: Values, at: float, read: frozenset[Signal] | None = None) -> Round:
    readings = {}
    for what, value in values.items():
        key = what if isinstance(what, tuple) else (what, BACKEND)
        interval = LOAD_INTERVAL_S if key[0] in LOAD_SIGNALS else 5.0
        readings[key] = Reading(value, at, probe_of(key[0]), interval)
    signals = read if read is not None else frozenset(key[0] for key in readings)
    return Round(readings, (), signals, frozenset((probe_of(signal), BACKEND) for signal in signals))


def probe_of(signal: Signal) -> str:
    """The one probe of these tests that reads a signal."""
    return f"test {signal.value}"


def publish(
    fleet: Fleet,
    name: str,
    now: float,
    values: Values | None = None,
    *,
    models: tuple[str, ...] | None = (M,),
    plan: Plan = LLAMACPP,
    full: bool = True,
    started_at: float | None = None,
    at: float | None = None,
    read: frozenset[Signal] | None = None,
) -> list[Event]:
    all_values: dict[Signal | Key, Value] = {} if models is None else {Signal.MODELS: models}
    all_values |= dict(values or {})
    return fleet.publish(
        fleet.backends[name],
        plan,
        found(all_values, at if at is not None else now, read),
        now,
        full=full,
        started_at=started_at if started_at is not None else now,
    )


def warm(capacity: int = 1, **more: Value) -> dict[Signal | Key, Value]:
    """A loaded, idle engine with so many slots."""
    values: dict[Signal | Key, Value] = {
        Signal.RESIDENCY: Residency.LOADED,
        Signal.CAPACITY: capacity,
        Signal.RUNNING: 0,
        Signal.WAITING: 0,
    }
    return values | {Signal(name): value for name, value in more.items()}


def target(fleet: Fleet, name: str = "gpu-1", model: str = M) -> Target:
    return fleet.backends[name].targets[model]


def backend(fleet: Fleet, name: str = "gpu-1") -> Backend:
    return fleet.backends[name]
