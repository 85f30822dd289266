"""Which backends there are: the wanted set against the present one, the last removed ones kept, target ids given out.

Forbidden here: anything about their state beyond coming and going.
"""

import heapq

import msgspec

from pharos.core.fleet.backend import Backend, BackendSpec, Slots, State, Target

REMOVED_KEPT = 32
"""So many removed backends keep their state: a restarted container is missing from the list for a moment."""


class Changes(msgspec.Struct, frozen=True):
    """What a new set of backends changed."""

    added: tuple[Backend, ...]
    """New ones, and known ones that came back."""
    removed: tuple[Backend, ...]
    """They get no new request; those in flight finish."""


class Roster:
    """Present and lately removed backends, and all their targets by model."""

    def __init__(self) -> None:
        self.present: dict[str, Backend] = {}
        self.removed: dict[BackendSpec, Backend] = {}
        """Oldest first."""
        self.by_model: dict[str, list[Target]] = {}
        """Targets of the present backends."""
        self._backends_made = 0
        self._ids_made = 0
        self._free_ids: list[int] = []
        self._retiring: list[Target] = []
        """Forgotten, but some of our requests still run there: their ids must not be given out yet."""

    def change(self, specs: tuple[BackendSpec, ...], now: float) -> Changes:
        """Make the wanted set the present one. Raises `ValueError` when two backends have one name."""
        wanted = {spec.name: spec for spec in specs}
        if len(wanted) != len(specs):
            raise ValueError("two backends have the same name")
        gone = [b for b in self.present.values() if wanted.get(b.name) != b.spec]
        for backend in gone:
            self._remove(backend, now)
        added = [self._add(spec) for spec in specs if spec.name not in self.present]
        self.present = {spec.name: self.present[spec.name] for spec in specs}
        while len(self.removed) > REMOVED_KEPT:
            self._retiring += self.removed.pop(next(iter(self.removed))).targets.values()
        return Changes(tuple(added), tuple(gone))

    def register(self, backend: Backend, model: str, *, shared_queue: bool) -> Target:
        """Make a target of a model that a backend lists for the first time."""
        target_id = self._take_id()
        slots = backend.slots if shared_queue else None
        if slots is None:
            slots = Slots(physical=target_id)
        if shared_queue:
            backend.slots = slots
        target = Target(target_id, backend, model, slots)
        backend.targets[model] = target
        self.by_model.setdefault(model, []).append(target)
        return target

    def _add(self, spec: BackendSpec) -> Backend:
        backend = self.removed.pop(spec, None)
        if backend is None:
            backend = Backend(self._backends_made, spec)
            self._backends_made += 1
        backend.removed, backend.removed_at = False, None
        self.present[spec.name] = backend
        for target in backend.targets.values():
            self.by_model.setdefault(target.model, []).append(target)
        return backend

    def _remove(self, backend: Backend, now: float) -> None:
        del self.present[backend.name]
        self.removed[backend.spec] = backend
        backend.removed, backend.removed_at = True, now
        # Whatever comes back under this spec is a new process until it has answered.
        backend.state, backend.error = State.UNKNOWN, None
        for target in backend.targets.values():
            targets = self.by_model[target.model]
            targets.remove(target)
            if not targets:
                del self.by_model[target.model]

    def _take_id(self) -> int:
        for target in self._retiring:
            if target.slots.inflight == 0:
                heapq.heappush(self._free_ids, target.id)
        self._retiring = [target for target in self._retiring if target.slots.inflight > 0]
        if self._free_ids:
            return heapq.heappop(self._free_ids)
        self._ids_made += 1
        return self._ids_made - 1
