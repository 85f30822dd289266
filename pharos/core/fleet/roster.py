"""Which backends there are: the wanted set against the present one, the last removed ones kept, target ids given out.

Forbidden here: anything about their state beyond coming and going.
"""

import heapq
from collections.abc import Callable

import msgspec

from pharos.core.fleet.backend import Backend, BackendSpec, Slots, State, Target
from pharos.core.fleet.stats import Stats

REMOVED_KEPT = 32
"""So many removed backends keep their state: a restarted container is missing from the list for a moment."""

UNLISTED_KEPT = 300
"""So many models that left a backend's list keep their state: one may come back."""


class Changes(msgspec.Struct, frozen=True):
    """What a new set of backends changed."""

    added: tuple[Backend, ...]
    """New ones, and known ones that came back."""
    removed: tuple[Backend, ...]
    """They get no new request; those in flight finish."""
    turned: tuple[Backend, ...] = ()
    """Present ones that are drained by their spec from now on, or no longer."""


class Roster:
    """Present and lately removed backends, and all their targets by model."""

    def __init__(self) -> None:
        self._on_reuse: Callable[[int], None] = lambda _: None
        self.by_id: dict[int, Target] = {}
        """All that have an id, forgotten ones until another one gets theirs."""
        self.present: dict[str, Backend] = {}
        self.removed: dict[BackendSpec, Backend] = {}
        """Oldest first."""
        self.by_model: dict[str, list[Target]] = {}
        """Targets of the present backends."""
        self.cordoned: set[str] = set()
        """Names of backends that an operator drained: it holds whatever else of them changes."""
        self._backends_made = 0
        self._ids_made = 0
        self._free_ids: list[int] = []
        self._retiring: list[Target] = []
        """Forgotten, but some of our requests still run there: their ids must not be given out yet."""

    def tell_of_reuse(self, told: Callable[[int], None]) -> None:
        """Have this told the id of a forgotten target when another one gets it, before that is used."""
        self._on_reuse = told

    def generation_of(self, target_id: int) -> int | None:
        """The generation of the target that has the id; `None`: none has it."""
        target = self.by_id.get(target_id)
        return target.generation if target is not None else None

    def change(self, specs: tuple[BackendSpec, ...], now: float) -> Changes:
        """Make the wanted set the present one. Raises `ValueError` when two backends have one name."""
        wanted = {spec.name: spec for spec in specs}
        if len(wanted) != len(specs):
            raise ValueError("two backends have the same name")
        gone = [b for b in self.present.values() if not _is_same(wanted.get(b.name), b.spec)]
        for backend in gone:
            self._remove(backend, now)
        turned = [b for b in self.present.values() if wanted[b.name].drain is not b.spec.drain]
        for backend in turned:
            backend.spec = wanted[backend.name]
            backend.settle()
        added = [self._add(spec, now) for spec in specs if spec.name not in self.present]
        self.present = {spec.name: self.present[spec.name] for spec in specs}
        while len(self.removed) > REMOVED_KEPT:
            self._retiring += self.removed.pop(next(iter(self.removed))).targets.values()
        self.cordoned &= {b.name for b in (*self.present.values(), *self.removed.values())}
        return Changes(tuple(added), tuple(gone), tuple(turned))

    def offer(self, backend: Backend, model: str, served: str, group: str | None) -> None:
        """Have a target for a model that a backend lists, in the right queue.

        `served`: the engine's name of it. Several models that are one to the engine share a queue. `group`: the name of
        the queue, shared by all models of that name; `None`: as far as is known one of its own.
        """
        target = backend.targets.get(model)
        if target is None:
            target = self._register(backend, model, served, group)
        elif target.served != served:
            _rename(target, served)
        if group is not None and (backend.queues.get(group) is not target.slots or target.group != group):
            _regroup(target, group)

    def forget_unlisted(self, backend: Backend) -> None:
        """Forget the oldest models that a present backend no longer lists, when there are many of them.

        Those with requests of ours stay.
        """
        gone = [one for one in backend.targets.values() if not one.listed and one.inflight == 0]
        if len(gone) <= UNLISTED_KEPT:
            return
        for target in gone[:-UNLISTED_KEPT]:
            del backend.targets[target.model]
            self._unlist(target)
            self._retiring.append(target)
        groups = {one.group for one in backend.targets.values()}
        for name in [name for name in backend.queues if name not in groups]:
            del backend.queues[name]

    def _register(self, backend: Backend, model: str, served: str, group: str | None) -> Target:
        target_id = self._take_id()
        slots = backend.queues.get(group) if group is not None else None
        if slots is None:
            slots = _twin_slots(backend, served) or Slots(physical=target_id)
        if group is not None:
            backend.queues.setdefault(group, slots)
        target = self.by_id[target_id] = Target(target_id, backend, model, served, slots)
        target.group = group
        backend.targets[model] = target
        self.by_model.setdefault(model, []).append(target)
        return target

    def _add(self, spec: BackendSpec, now: float) -> Backend:
        backend = self.removed.pop(spec.undrained(), None)
        if backend is None:
            backend = Backend(self._backends_made, spec)
            self._backends_made += 1
        backend.since, backend.spec = now, spec
        backend.removed, backend.removed_at = False, None
        backend.cordoned = spec.name in self.cordoned
        backend.settle()
        self.present[spec.name] = backend
        for target in backend.targets.values():
            self.by_model.setdefault(target.model, []).append(target)
        return backend

    def _remove(self, backend: Backend, now: float) -> None:
        del self.present[backend.name]
        self.removed[backend.spec.undrained()] = backend
        backend.removed, backend.removed_at = True, now
        backend.settle()
        # Whatever comes back under this spec is a new process until it has answered.
        backend.state, backend.error = State.UNKNOWN, None
        for target in backend.targets.values():
            self._unlist(target)

    def _unlist(self, target: Target) -> None:
        targets = self.by_model[target.model]
        targets.remove(target)
        if not targets:
            del self.by_model[target.model]

    def _take_id(self) -> int:
        for target in self._retiring:
            if target.slots.inflight == 0 and target.inflight == 0:
                heapq.heappush(self._free_ids, target.id)
        self._retiring = [target for target in self._retiring if target.slots.inflight > 0 or target.inflight > 0]
        if self._free_ids:
            free = heapq.heappop(self._free_ids)
            self._on_reuse(free)
            return free
        self._ids_made += 1
        return self._ids_made - 1


def _is_same(wanted: BackendSpec | None, there: BackendSpec) -> bool:
    """Whether a backend stays the one it is; drained or not is no difference."""
    return wanted is not None and (wanted == there or wanted.undrained() == there.undrained())


def _twin_slots(backend: Backend, served: str) -> Slots | None:
    """The slots of what is the same model to the engine, under another name of clients."""
    return next((one.slots for one in backend.targets.values() if one.served == served), None)


def _rename(target: Target, served: str) -> None:
    """Have a target stand for another model of its engine; requests in flight stay where they are counted."""
    slots = _twin_slots(target.backend, served) or Slots(physical=target.id)
    target.served = served
    target.group = target.last_context = target.loading_at = target.context_asked = None
    target.unable = frozenset()
    target.stats = Stats()
    target.proven.clear()
    target.says_done = False
    _move(target, slots)


def _regroup(target: Target, group: str) -> None:
    """Have a target join the queue of this name from now on; requests in flight stay where they are counted."""
    queues = target.backend.queues
    slots = queues.get(group)
    if slots is None:
        sharing = [one for one in target.backend.targets.values() if one.slots is target.slots]
        is_own = all(one.served == target.served for one in sharing)
        slots = queues[group] = target.slots if is_own else Slots(physical=target.id)
    target.group = group
    _move(target, slots)


def _move(target: Target, slots: Slots) -> None:
    # Counted on from both, so that whoever keeps what a target looked like sees that it has changed.
    slots.turns = max(slots.turns, target.slots.turns) + 1
    target.slots = slots
