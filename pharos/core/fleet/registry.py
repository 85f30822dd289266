"""The fleet: every backend, what each round of scraping, request and change of the list makes of it.

Forbidden here: fetching, picking, and saying one thing twice (see `events`).
"""

from collections.abc import Mapping

import msgspec

from pharos.core.engine import recipes
from pharos.core.engine.follow import Followed
from pharos.core.engine.plan import Plan, Round
from pharos.core.engine.probe import Feed
from pharos.core.fleet.backend import BUSY_FOR_S, Backend, BackendSpec, Slots, State, Target
from pharos.core.fleet.calibration import Calibration
from pharos.core.fleet.cordon import Cordons
from pharos.core.fleet.doubt import doubt
from pharos.core.fleet.events import Event, recovery, trouble
from pharos.core.fleet.generation import (
    believed,
    lose_cache,
    note_abilities,
    note_context,
    note_marks,
    note_plan,
    note_residency,
    note_together,
    note_unlisted,
    note_version,
    of_queues,
    unguarded,
)
from pharos.core.fleet.lengths import OutputLengths
from pharos.core.fleet.names import Aliases, canonical, offered
from pharos.core.fleet.roster import Changes, Roster
from pharos.core.fleet.stats import Feedback, learn
from pharos.core.fleet.tokens import TokensPerByte
from pharos.core.signals import BACKEND, LOAD_SIGNALS, Key, Reading, Residency, Signal

STRANGERS = 1000
"""Followed values kept of names that are not known (yet): a line may come before the list that has its model."""


class Fleet:
    """All backends and targets. Every method is atomic; those that change state return what is worth saying."""

    def __init__(self, aliases: Aliases | None = None) -> None:
        """`aliases`: those of all backends; others count from each backend's next list of models on."""
        self.aliases: Aliases = aliases if aliases is not None else {}
        self._roster = Roster()
        self._awaited: set[int] | None = None
        self.tokens = TokensPerByte()
        self.tokens_per_byte, self.prompt_tokens = self.tokens.of, self.tokens.count
        """Of a model; and estimated tokens of so many bytes of a prompt for it."""
        self.generation_of, self.tell_of_reuse = self._roster.generation_of, self._roster.tell_of_reuse
        self.lengths, self.calibration = OutputLengths(), Calibration()
        self.cordons = Cordons(self._roster)

    # -- the list of backends

    @property
    def backends(self) -> dict[str, Backend]:
        """Present backends by name, in the order of the list."""
        return self._roster.present

    @property
    def is_ready(self) -> bool:
        """Whether each backend of the first list has ended a round, dead ones included. Never false again."""
        return self._awaited is not None and not self._awaited

    def set_backends(self, specs: list[BackendSpec] | tuple[BackendSpec, ...], now: float) -> Changes:
        """Take the wanted list over. Raises `ValueError` when two backends have one name.

        A spec equal to one of the last 32 removed gets its state back: targets, averages, readings with their age.
        """
        changes = self._roster.change(tuple(specs), now)
        if self._awaited is None:
            self._awaited = {backend.id for backend in changes.added}
        self._awaited -= {backend.id for backend in changes.removed}
        kept = {(target.model, b.name) for b in self._kept() for target in b.targets.values()}
        self.tokens.keep({model for model, _ in kept})
        self.calibration.keep(kept)
        return changes

    # -- what scraping found

    def publish(
        self, backend: Backend, plan: Plan, found: Round, now: float, *, full: bool, started_at: float
    ) -> list[Event]:
        """Take in a round that the engine answered. `full`: it read more than the load signals.

        A round that was started before the backend was ejected may tell of the process that died: it is left out.
        """
        self._end_round(backend)
        if backend.removed or started_at <= backend.ejected_at:
            return []
        events = note_plan(backend, plan)
        found = msgspec.structs.replace(found, readings=believed(plan, found.readings))
        version = found.readings.get((Signal.VERSION, BACKEND))
        events += note_version(backend, str(version.value) if version is not None else plan.version)
        backend.dialect = recipes.by_kind(plan.kind).dialect(backend.version)
        events += note_marks(backend, found.readings)
        readings = of_queues(backend, plan, unguarded(backend, plan, found.readings))
        found = msgspec.structs.replace(found, readings=readings)
        answered = found.answered
        backend.told.forget(
            lambda key, one: (
                key not in found.readings and ((one.probe, BACKEND) in answered or (one.probe, key[1]) in answered)
            )
        )
        backend.told.take(found.readings, now)
        events += self._take_models(backend, plan, found)
        for target in backend.targets.values():
            events += note_residency(target, backend.readings)
            events += note_context(target, found.readings)
            note_abilities(target, backend.readings)
        note_together(backend, found.readings)
        events += doubt(backend)
        backend.stamp += 1
        backend.last_load_at = now
        if full:
            backend.last_full_at = now
        if backend.state is not State.UP and backend.state is not State.BUSY:
            backend.up_since = started_at
            backend.counts_cached = False
        self.heard(backend, now)
        return events + recovery(backend)

    def followed(self, backend: Backend, told: Followed, now: float) -> list[Event]:
        """Take in what a line of the log or an event of a stream told."""
        if backend.removed:
            return []
        broken = {one.probe for one in told.failed}
        if broken:
            backend.told.forget(lambda _, one: one.probe in broken)
        backend.told.take(_with_room(backend, told.readings), now)
        _note_faults(backend, {one.probe for one in told.readings.values()}, "")
        events = [event for target in backend.targets.values() for event in note_residency(target, backend.readings)]
        backend.stamp += 1
        return events

    def feed_lost(self, backend: Backend, feed: Feed, why: str = "") -> None:
        """The log or stream broke off: what only it told is unknown now. `why`: empty when nothing is wrong with it."""
        plan = backend.plan
        names = {probe.name for probe in plan.active if probe.feed == feed} if plan is not None else set()
        backend.told.forget(lambda _, one: one.probe in names)
        _note_faults(backend, names, why)
        backend.stamp += 1

    def cache_lost(self, target: Target) -> list[Event]:
        """A reply showed that the engine dropped all its caches: nothing of any prompt there is cached any more."""
        return lose_cache(target)

    def unreachable(self, backend: Backend, why: str) -> list[Event]:
        """No connection. What was read ages out."""
        self._end_round(backend)
        state = State.EJECTED if backend.state is State.EJECTED else State.DOWN
        return trouble(backend, state, why) if not backend.removed else []

    def starting(self, backend: Backend) -> list[Event]:
        """The engine answers that it is still loading (503)."""
        self._end_round(backend)
        return trouble(backend, State.STARTING, "it is loading its model (503)") if not backend.removed else []

    def unrecognised(self, backend: Backend, why: str) -> list[Event]:
        """Something answers there, but its kind cannot be told."""
        self._end_round(backend)
        return trouble(backend, State.UNRECOGNISED, why) if not backend.removed else []

    def timed_out(self, backend: Backend, now: float) -> list[Event]:
        """Connected, no answer in time: busy as long as something else is heard of it, then down."""
        self._end_round(backend)
        if backend.removed or backend.state is State.EJECTED:
            return []
        why = "no answer in time"
        is_heard = backend.heard_at is not None and now - backend.heard_at <= BUSY_FOR_S
        if is_heard and (backend.state is State.UP or backend.state is State.BUSY):
            return trouble(backend, State.BUSY, why)
        return trouble(backend, State.DOWN, why)

    # -- what requests found

    def eject(self, backend: Backend, why: str, now: float, *, connected_at: float) -> list[Event]:
        """A request found it dead. A connection from before it last came up tells of an older process: ignored."""
        if backend.removed or (backend.up_since is not None and connected_at < backend.up_since):
            return []
        backend.ejected_at = now
        backend.told.forget(lambda key, _: key[0] in LOAD_SIGNALS)  # what ran there is gone with the process
        backend.stamp += 1
        return trouble(backend, State.EJECTED, why)

    def heard(self, backend: Backend, now: float) -> None:
        """Something came from the engine: a page, or a byte of one of our replies."""
        backend.heard_at = now if backend.heard_at is None else max(backend.heard_at, now)

    def dispatched(self, target: Target, now: float | None = None, context: int | None = None) -> None:
        """One of our requests takes a slot of a target. `context`: the context size that it asks for, if any."""
        target.begin(now, context)

    def ended(self, target: Target, slots: Slots, now: float) -> None:
        """It gave that slot back, however it ended. `slots`: the ones it took."""
        target.inflight -= 1
        slots.inflight -= 1
        slots.turns += 1
        slots.last_end_at = now if slots.last_end_at is None else max(slots.last_end_at, now)

    def replied(self, target: Target, now: float) -> None:
        """A successful reply shows the model in memory until a newer residency reading says otherwise."""
        target.loaded_at = now
        if target.backend.reports_residency:
            target.last_residency = Residency.LOADED
        target.backend.stamp += 1
        self.heard(target.backend, now)

    def learn(self, target: Target, feedback: Feedback) -> None:
        """Take a finished request into the target's averages and the model's tokens per byte."""
        learn(target.stats, feedback)
        target.backend.stamp += 1
        if feedback.cached_tokens is not None:
            target.backend.counts_cached = True
        if feedback.ok:
            self.tokens.add(target.model, feedback.prompt_tokens, feedback.bytes_prompt)

    # -- questions

    def resolve(self, name: str) -> str:
        """The one name of a model, from any spelling that clients may use: what keys, records and counts go by."""
        return canonical(name)

    def targets_for(self, model: str, now: float) -> list[Target]:
        """Targets that list the model, on backends that are up."""
        return [t for t in self._roster.by_model.get(model, ()) if t.listed and t.backend.is_up(now)]

    def has_choice(self, model: str) -> bool:
        """Whether more than one target has the model, up or not."""
        return len(self._roster.by_model.get(model, ())) > 1

    def targets_listed(self, model: str) -> list[Target]:
        """Targets that list the model, on present backends that are up or not."""
        return [t for t in self._roster.by_model.get(model, ()) if t.listed]

    def models(self, now: float) -> list[str]:
        """Models that a backend which is up lists, in the order of the backends and of their lists."""
        ups = [b for b in self._roster.present.values() if b.is_up(now)]
        return list(dict.fromkeys(t.model for b in ups for t in b.targets.values() if t.listed))

    def knows(self, model: str) -> bool | None:
        """Whether a backend, present or lately removed, lists the model; `None` while some list was never read."""
        if self.targets_listed(model) or any(t.listed for t in self._removed_targets(model)):
            return True
        return None if self.unread() else False

    def unread(self) -> list[Backend]:
        """Present backends whose list of models was never read."""
        return [b for b in self._roster.present.values() if not b.models_read]

    def last_up(self, model: str) -> float | None:
        """When a backend that lists the model, present or lately removed, was last heard of."""
        targets = [*self._roster.by_model.get(model, ()), *self._removed_targets(model)]
        times = [t.backend.heard_at for t in targets if t.listed and t.backend.heard_at is not None]
        return max(times, default=None)

    def is_starting(self) -> bool:
        """Whether a present backend may still turn out to serve anything: starting, or not yet asked."""
        waiting_for = (State.UNKNOWN, State.STARTING)
        return any(b.state in waiting_for for b in self.unread())

    def __repr__(self) -> str:
        return f"<Fleet {len(self.backends)} backends, {sum(map(len, self._roster.by_model.values()))} targets>"

    # -- inside

    def _kept(self) -> list[Backend]:
        return [*self._roster.present.values(), *self._roster.removed.values()]

    def _removed_targets(self, model: str) -> list[Target]:
        return [b.targets[model] for b in self._roster.removed.values() if model in b.targets]

    def _end_round(self, backend: Backend) -> None:
        if self._awaited:
            self._awaited.discard(backend.id)

    def _take_models(self, backend: Backend, plan: Plan, found: Round) -> list[Event]:
        reading = found.readings.get((Signal.MODELS, BACKEND))
        if reading is None or not isinstance(reading.value, tuple):
            return []
        backend.models_read = True
        names = offered(reading.value, plan.kind, backend.spec.aliases, self.aliases)
        events = note_unlisted(backend, names)
        for model, served in names.items():
            self._roster.offer(backend, model, served, _queue_of(backend, plan, served))
        self._roster.forget_unlisted(backend)
        return events


def _queue_of(backend: Backend, plan: Plan, served: str) -> str | None:
    """Name of the queue that a model's requests join; `None`: as far as is known one of its own."""
    if recipes.by_kind(plan.kind).shared_queue:
        return BACKEND
    reading = backend.readings.get((Signal.PHYSICAL_GROUP, served))
    return reading.value if reading is not None and isinstance(reading.value, str) else None


def _with_room(backend: Backend, readings: Mapping[Key, Reading]) -> Mapping[Key, Reading]:
    """Leave out values of names that are neither a model nor a queue there, once there are too many of them."""
    there = backend.readings
    if len(there) + len(readings) <= STRANGERS + len(Signal) * len(backend.targets):
        return readings
    known = {BACKEND, *backend.queues, *(target.served for target in backend.targets.values())}
    return {key: reading for key, reading in readings.items() if key in there or key[1] in known}


def _note_faults(backend: Backend, probes: set[str], why: str) -> None:
    """Take in why the feed of some probes cannot be followed; empty: nothing is wrong with it."""
    for probe in probes:
        if why:
            backend.feed_faults[probe] = why
        else:
            backend.feed_faults.pop(probe, None)
