"""What other instances have in flight and in their queues: their latest reports, each until it is too old.

# ops: own, take, forget, expire · goal: one report of each instance per tick, O(targets that are named)
# plan: a report replaces the last one of its origin; sums stand at the targets, where candidates are made from them
# warning: a report is as old as a tick: two instances may give the same last slot away, and the engine queues one

Forbidden here: sending, and granting: who takes a report in kicks the ledger, since a slot may have come free.
"""

from collections import Counter
from collections.abc import Mapping

import msgspec

from pharos.core.assumptions import ASSUMPTIONS
from pharos.core.fleet import Fleet, Slots, Target

SILENT_S = ASSUMPTIONS["peer_silent_s"].value


class Report(msgspec.Struct, frozen=True):
    """All that one instance has in hand now, by names that every instance knows."""

    inflight: Mapping[tuple[str, str], int] = {}
    """Backend and model (clients' name) to requests in flight there; those that have none are left out."""
    waiting: Mapping[str, int] = {}
    """Model to requests in the queue."""


class Held(msgspec.Struct):
    """The latest report of one origin, and when it came."""

    at: float
    inflight: dict[Target, int]
    waiting: Mapping[str, int]


class Elsewhere:
    """Reports of all other instances, summed."""

    def __init__(self, fleet: Fleet) -> None:
        self._fleet = fleet
        self._held: dict[str, Held] = {}
        self._targets: set[Target] = set()
        self._slots: set[Slots] = set()
        """Where requests of others were counted last."""
        self.waiting: dict[str, int] = {}
        """By model, requests that wait in other instances."""

    def __repr__(self) -> str:
        return f"<Elsewhere {len(self._held)} origins, {sum(self.waiting.values())} waiting>"

    def own(self, waiting: Mapping[str, int]) -> Report:
        """What this instance has to tell. `waiting`: its queue, by model."""
        found = {
            (backend.name, target.model): target.inflight
            for backend in self._fleet.backends.values()
            for target in backend.targets.values()
            if target.inflight > 0
        }
        return Report(found, dict(waiting))

    def take(self, origin: str, report: Report, now: float) -> None:
        """Let an origin's report replace its last one. Targets and models that are not known here are left out."""
        inflight: dict[Target, int] = {}
        for (name, model), count in report.inflight.items():
            backend = self._fleet.backends.get(name)
            target = backend.targets.get(model) if backend is not None else None
            if target is not None and count > 0:
                inflight[target] = count
        waiting = {model: count for model, count in report.waiting.items() if count > 0}
        self._held[origin] = Held(now, inflight, waiting)
        self._sum(now)

    def forget(self, origin: str) -> None:
        """An origin left: nothing of it is there any more."""
        if self._held.pop(origin, None) is not None:
            self._sum()

    def expire(self, now: float) -> None:
        """Forget those that have been silent for too long."""
        for origin in [origin for origin, held in self._held.items() if now - held.at > SILENT_S]:
            self.forget(origin)

    def _sum(self, now: float | None = None) -> None:
        """Add the reports up. `now`: of one that came; `None`: one is gone, and when its requests end nobody knows."""
        targets: Counter[Target] = Counter()
        waiting: Counter[str] = Counter()
        for held in self._held.values():
            targets.update(held.inflight)
            waiting.update(held.waiting)
        slots: Counter[Slots] = Counter()
        for target, count in targets.items():
            slots[target.slots] += count
        for target in {*targets, *self._targets}:
            if target.peers != targets[target]:
                target.peers = targets[target]
                target.slots.turns += 1
        for one in {*slots, *self._slots}:  # a target may have other slots than at the last report
            if one.peers != slots[one]:
                if now is not None and slots[one] < one.peers:
                    # Some have ended: what was read of the engine before still counts them.
                    one.last_end_at = now if one.last_end_at is None else max(one.last_end_at, now)
                one.peers = slots[one]
                one.turns += 1
        self._targets, self._slots, self.waiting = set(targets), set(slots), dict(waiting)
