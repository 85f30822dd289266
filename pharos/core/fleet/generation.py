"""When what an engine has cached for a model is gone: the target's generation counts up and old prefix entries die.

Forbidden here: guessing. A residency that was never known, or only became unknown, bumps nothing.
"""

from collections.abc import Mapping

from pharos.core.assumptions import ASSUMPTIONS
from pharos.core.engine import recipes
from pharos.core.engine.plan import Plan
from pharos.core.fleet.backend import Backend, Mark, Target
from pharos.core.fleet.events import Event, short
from pharos.core.signals import BACKEND, LOAD_SIGNALS, MARKS, Key, Reading, Residency, Signal, Value

UNLOADED = {(Residency.LOADED, Residency.COLD), (Residency.LOADED, Residency.LOADING)}
"""Last known residency and new one: the model left memory in between (one that loads again did, too)."""

_MEANING = {
    "unloaded": "{model} on {name} left memory",
    "unlisted": "{name} no longer lists {model}",
    "new_version": "{name} has a new version: caches of {model} are taken for gone",
    "restarted": "the engine of {name} was started again: caches of {model} are gone",
    "reloaded": "{name} loaded {model} anew, with another context size",
    "cache_lost": "{name} dropped what it had cached for {model}",
}


def bump(target: Target, reason: str) -> Event:
    """Count a target's generation up, for a reason of the decision table."""
    target.generation += 1
    text = _MEANING[reason].format(model=short(target.model), name=target.backend.name)
    return Event("generation", reason, target.backend.name, "info", text)


def note_plan(backend: Backend, plan: Plan) -> list[Event]:
    """Take a plan in. One of another kind means another program: nothing read from the old one holds."""
    before = backend.plan
    if before is plan:
        return []
    backend.plan = plan
    backend.reports_residency = any(probe.signal is Signal.RESIDENCY for probe in plan.active)
    backend.slots_by_queue = recipes.by_kind(plan.kind).slots_by_queue
    backend.reloads_for_context = recipes.by_kind(plan.kind).context_in_residency
    usual = recipes.by_kind(plan.kind).usual_capacity
    backend.usual_capacity = None if usual is None else int(ASSUMPTIONS[usual].value)
    backend.usual_models = recipes.by_kind(plan.kind).usual_models
    names = {probe.name for probe in plan.active}
    backend.told.forget(lambda _, reading: reading.probe not in names)
    if before is None or before.kind == plan.kind:
        return []
    backend.queues.clear()
    backend.lost_probes.clear()
    backend.most_loaded = 0
    return _forget_process(backend, plan.version, "new_version")


def note_version(backend: Backend, version: str | None) -> list[Event]:
    """Take a version in; a change from a known one makes everything read from the old process unknown."""
    if version is None or version == backend.version:
        return []
    if backend.version is None:
        backend.version = version
        return []
    return _forget_process(backend, version, "new_version")


def believed(plan: Plan, found: Mapping[Key, Reading]) -> Mapping[Key, Reading]:
    """The readings of a round that hold: of one that shows another version than its plan was made for, the version."""
    version = found.get((Signal.VERSION, BACKEND))
    if version is None or plan.version is None or version.value == plan.version:
        return found
    return {(Signal.VERSION, BACKEND): version}


def unguarded(backend: Backend, plan: Plan, found: Mapping[Key, Reading]) -> Mapping[Key, Reading]:
    """Leave out what only some versions tell rightly, while the version of this process has not been read."""
    guarded = {probe.name for probe in plan.active if probe.when is not None}
    version = (Signal.VERSION, BACKEND)
    if not guarded or version in found or version in backend.readings:
        return found
    return {key: reading for key, reading in found.items() if reading.probe not in guarded}


def of_queues(backend: Backend, plan: Plan, found: Mapping[Key, Reading]) -> Mapping[Key, Reading]:
    """Add the residency of each queue that a name of it shows loaded, on engines where all its names are so together.

    The other names of the queue need not be told: an engine may list one of several names of what it has in memory.
    """
    if not recipes.by_kind(plan.kind).queue_is_loaded:
        return found
    queues: dict[Key, Reading] = {}
    for (signal, model), reading in found.items():
        key = (Signal.PHYSICAL_GROUP, model)
        group = found.get(key, backend.readings.get(key)) if reading.value is Residency.LOADED else None
        if signal is Signal.RESIDENCY and group is not None and isinstance(group.value, str):
            queues[signal, group.value] = reading
    return {**found, **queues}


def note_unlisted(backend: Backend, offered: Mapping[str, str]) -> list[Event]:
    """Mark the targets that the engine's list no longer has.

    `offered`: clients' names of what it has, and its own name of each. A target whose name means another model of the
    engine now starts anew, too.
    """
    events = []
    for target in backend.targets.values():
        is_listed = target.model in offered
        if target.listed and offered.get(target.model) != target.served:
            target.loaded_at = target.last_residency = None
            events.append(bump(target, "unlisted"))
        target.listed = is_listed
    return events


def note_residency(target: Target, readings: Mapping[Key, Reading]) -> list[Event]:
    """Compare the residency reading that counts for a target with what was last known of it.

    `readings`: all of its backend's. Those of one round may tell of some models, and of the others as of the rest only.
    """
    whose = (target.served, *((target.group,) if target.group is not None else ()), BACKEND)
    reading = next((one for model in whose if (one := readings.get((Signal.RESIDENCY, model))) is not None), None)
    if reading is None or not isinstance(reading.value, Residency):
        return []
    if target.loaded_at is not None and reading.at < target.loaded_at:
        return []  # asked before a reply showed the model loaded: the next one has the last word
    before, target.last_residency = target.last_residency, reading.value
    if reading.value is not Residency.LOADING:
        target.loading_at = None
    elif target.loading_at is None:
        target.loading_at = reading.at
    if reading.value is not Residency.LOADED:
        target.last_context = None
        if not target.inflight:  # else a request of ours may be loading it for what it asked
            target.context_asked = None
    if (before, reading.value) not in UNLOADED:
        return []
    _forget_load(target.backend, target.served)
    return [bump(target, "unloaded")]


def note_together(backend: Backend, readings: Mapping[Key, Reading]) -> None:
    """Keep how many models one round saw in memory together; those of one queue are one."""
    loaded = {
        target.slots
        for target in backend.targets.values()
        if (reading := readings.get((Signal.RESIDENCY, target.served))) is not None
        and reading.value is Residency.LOADED
    }
    backend.most_loaded = max(backend.most_loaded, len(loaded))


def note_context(target: Target, readings: Mapping[Key, Reading]) -> list[Event]:
    """Compare a loaded model's context length with the last one, on engines that reload a model to change it."""
    plan = target.backend.plan
    reading = readings.get((Signal.CONTEXT_LENGTH, target.served))
    if plan is None or reading is None or not isinstance(reading.value, int) or reading.rank > 0:
        return []
    if not recipes.by_kind(plan.kind).context_in_residency or target.last_residency is not Residency.LOADED:
        return []
    before, target.last_context = target.last_context, reading.value
    asked = target.context_asked
    if asked is not None and asked[1] < reading.at:
        given = reading.value if asked[2] is None and reading.value < asked[0] else asked[2]
        target.context_asked = (*asked[:2], given) if given == reading.value else None
    return [bump(target, "reloaded")] if before is not None and before != reading.value else []


def note_abilities(target: Target, readings: Mapping[Key, Reading]) -> None:
    """Keep what a model was said to lack; silence of an engine that does not tell of an ability says nothing."""
    plan = target.backend.plan
    reading = readings.get((Signal.CAPABILITIES, target.served), readings.get((Signal.CAPABILITIES, BACKEND)))
    if plan is not None and reading is not None and isinstance(reading.value, tuple):
        target.unable = recipes.by_kind(plan.kind).tells_abilities.difference(reading.value)


def note_marks(backend: Backend, readings: Mapping[Key, Reading]) -> list[Event]:
    """Compare marks with their last values: another process, a counter that fell, or caches that became empty.

    Call it before the round's readings are taken in: those of the old process are forgotten here.
    """
    events: list[Event] = []
    for key in sorted((key for key in readings if key[0] in MARKS), key=lambda key: key[0] is not Signal.PROCESS):
        reading = readings[key]
        if not isinstance(reading.value, str | int | float):
            continue
        before = backend.marks.get(key)
        reason = _loss(key[0], before.value, reading.value) if before is not None else None
        if reason is not None:
            events += _lose(backend, key[1], reason)
        if before is None or before.value != reading.value:
            backend.marks[key] = Mark(reading.value, reading.at)
    return events


def lose_cache(target: Target) -> list[Event]:
    """Count up every target of the queue that this one belongs to: its engine dropped all its caches."""
    sharing = [other for other in target.backend.targets.values() if other.slots is target.slots]
    return [bump(other, "cache_lost") for other in sharing]


def _loss(signal: Signal, before: Value, now: Value) -> str | None:
    """What a change of a mark means: a reason of the decision table, or `None`."""
    if signal is Signal.PROCESS:
        return "restarted" if now != before else None
    if isinstance(before, str | tuple) or isinstance(now, str | tuple):
        return None
    if signal is Signal.WORK_DONE:
        return "restarted" if now < before else None
    return "cache_lost" if before > 0 and now == 0 else None


def _lose(backend: Backend, model: str, reason: str) -> list[Event]:
    """Bump the targets that a mark speaks of; one restart shown by two marks counts once."""
    targets = [target for target in backend.targets.values() if model in (BACKEND, target.served)]
    if reason == "cache_lost":
        return [bump(target, reason) for target in targets]
    if model == BACKEND:
        return _forget_process(backend, backend.version, reason)
    backend.counts_cached = False
    for key in [key for key in backend.marks if key[1] == model]:
        del backend.marks[key]
    _forget_load(backend, model)
    return [bump(target, reason) for target in targets]


def _forget_load(backend: Backend, model: str) -> None:
    """Drop one model's load, which went with its process."""
    backend.told.forget(lambda key, _: key[0] in LOAD_SIGNALS and key[1] == model)


def _forget_process(backend: Backend, version: str | None, reason: str) -> list[Event]:
    """Drop what was read from a process that another one has replaced."""
    backend.version = version
    backend.counts_cached = False
    backend.told.clear()
    backend.marks.clear()
    backend.doubts.clear()
    for target in backend.targets.values():
        target.loaded_at = target.last_residency = target.last_context = None
        target.loading_at = target.context_asked = None
        target.unable = frozenset()
    return [bump(target, reason) for target in backend.targets.values()]
