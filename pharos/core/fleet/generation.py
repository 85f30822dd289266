"""When what an engine has cached for a model is gone: the target's generation counts up and old prefix entries die.

Forbidden here: guessing. A residency that was never known, or only became unknown, bumps nothing.
"""

from collections.abc import Mapping

from pharos.core.engine.plan import Plan
from pharos.core.fleet.backend import Backend, Target
from pharos.core.fleet.events import Event
from pharos.core.signals import BACKEND, Key, Reading, Residency, Signal

UNLOADED = {(Residency.LOADED, Residency.COLD), (Residency.LOADED, Residency.LOADING)}
"""Last known residency and new one: the model left memory in between (one that loads again did, too)."""

_MEANING = {
    "unloaded": "{model} on {name} left memory",
    "unlisted": "{name} no longer lists {model}",
    "new_version": "{name} has a new version: caches of {model} are taken for gone",
}


def bump(target: Target, reason: str) -> Event:
    """Count a target's generation up, for a reason of the decision table."""
    target.generation += 1
    text = _MEANING[reason].format(model=target.model, name=target.backend.name)
    return Event("generation", reason, target.backend.name, "info", text)


def note_plan(backend: Backend, plan: Plan) -> list[Event]:
    """Take a plan in. One of another kind means another program: nothing read from the old one holds."""
    before = backend.plan
    if before is plan:
        return []
    backend.plan = plan
    backend.reports_residency = any(probe.signal is Signal.RESIDENCY for probe in plan.active)
    if before is None or before.kind == plan.kind:
        return []
    backend.slots = None
    return _forget_process(backend, plan.version)


def note_version(backend: Backend, version: str | None) -> list[Event]:
    """Take a version in; a change from a known one makes everything read from the old process unknown."""
    if version is None or version == backend.version:
        return []
    if backend.version is None:
        backend.version = version
        return []
    return _forget_process(backend, version)


def note_unlisted(backend: Backend, listed: tuple[str, ...]) -> list[Event]:
    """Mark the targets that the engine's list no longer has."""
    events = []
    for target in backend.targets.values():
        is_listed = target.served in listed
        if target.listed and not is_listed:
            target.loaded_at = target.last_residency = None
            events.append(bump(target, "unlisted"))
        target.listed = is_listed
    return events


def note_residency(target: Target, readings: Mapping[Key, Reading]) -> list[Event]:
    """Compare a target's newest residency reading with what was last known of it."""
    reading = readings.get((Signal.RESIDENCY, target.served), readings.get((Signal.RESIDENCY, BACKEND)))
    if reading is None or not isinstance(reading.value, Residency):
        return []
    if target.loaded_at is not None and reading.at < target.loaded_at:
        return []  # asked before a reply showed the model loaded: the next one has the last word
    before, target.last_residency = target.last_residency, reading.value
    return [bump(target, "unloaded")] if (before, reading.value) in UNLOADED else []


def _forget_process(backend: Backend, version: str | None) -> list[Event]:
    """Drop what was read from a process that another one has replaced."""
    backend.version = version
    backend.readings.clear()
    for target in backend.targets.values():
        target.loaded_at = target.last_residency = None
    return [bump(target, "new_version") for target in backend.targets.values()]
