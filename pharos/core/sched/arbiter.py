"""Whose turn it is on an engine that cannot hold all of its models at once: requests are batched by model.

# ops: may_load, claim, open_to · goal: nothing for requests that load nothing while nobody claims an engine
# plan: a model keeps its engine while requests wait for it, and for a moment after its last one; who has waited for as
#   long as a few loads take claims the engine, which then takes nobody else's requests until that model is loaded
# warning: a claim is for a model at one context size: another size of the same model takes turns with it, too

Never is a model pushed out that has requests in flight: the policy takes such loads for not feasible. Forbidden here:
granting.
"""

import math
from collections.abc import Callable, Iterable, Sequence

from pharos.core.assumptions import ASSUMPTIONS
from pharos.core.fleet import Backend, Slots, Target
from pharos.core.policy import Params
from pharos.core.sched.candidates import fits, is_limited
from pharos.core.sched.lease import Submit
from pharos.core.signals import Residency

TURN_LOADS = ASSUMPTIONS["turn_loads"].value
LINGER_LOADS = ASSUMPTIONS["linger_loads"].value

Kind = tuple[str, int | None]
"""A model (clients' name) and the context size asked for (`None`: any)."""


def kind_of(sub: Submit) -> Kind:
    """What a request needs in memory."""
    return (sub.model, sub.context_tokens)


class Arbiter:
    """Turns, by engine."""

    def __init__(self, waits: Callable[[str], Iterable[Submit]], params: Params) -> None:
        """`waits`: who waits for a model."""
        self._waits = waits
        self._params = params
        self.claims: dict[Backend, Kind] = {}
        """Engines that are kept for a kind."""

    def __repr__(self) -> str:
        return f"<Arbiter {len(self.claims)} claims>"

    def open_to(self, kind: Kind, targets: Sequence[Target]) -> list[Target]:
        """Those that are not kept for others."""
        claims = self.claims
        return [target for target in targets if claims.get(target.backend, kind) == kind]

    def may_load(self, target: Target, kind: Kind, now: float) -> float | None:
        """Whether a load there pushes nobody out whose turn it is: `None`, else until when to wait at the least.

        Infinite: until something happens.
        """
        if self.claims.get(target.backend) == kind:
            return None
        kept = self._kept(target, kind, now)
        if not kept:
            return None
        if target.slots in kept:  # the same model at another context size
            return kept[target.slots]
        has_room = not is_limited(target.backend, now) or fits(target, [target], now, kept) is not False
        return None if has_room else min(kept.values())

    def claim(self, kind: Kind, oldest_at: float, targets: Iterable[Target], now: float) -> float:
        """Keep an engine for a kind that has waited long enough for one that has none; when to look again.

        `oldest_at`: when the first of its waiters came. Infinite: nothing to look for.
        """
        if kind in self.claims.values():
            return math.inf
        due = {target: self._due(target, oldest_at) for target in targets if self._takes_turns(target, now)}
        ripe = [target for target, at in due.items() if at <= now]
        if not ripe:
            return min(due.values(), default=math.inf)
        self.claims[min(ripe, key=lambda target: target.backend.inflight).backend] = kind
        return now

    def _takes_turns(self, target: Target, now: float) -> bool:
        backend = target.backend
        return backend not in self.claims and (is_limited(backend, now) or target.loaded_for is not None)

    def _due(self, target: Target, oldest_at: float) -> float:
        """When the turn of what is in memory there ends for those who wait since then."""
        began = target.backend.load_sent_at
        since = oldest_at if began is None else max(oldest_at, began + self._load_s(target))
        return since + TURN_LOADS * self._load_s(target)

    def granted(self, target: Target, kind: Kind, now: float, *, is_load: bool) -> None:
        """A request of that kind got a slot there: whoever claims an engine for it has one now."""
        if is_load:
            target.backend.load_sent_at = now
            target.backend.stamp += 1  # its other models may have to go
        if self.claims:
            self.claims = {backend: claimed for backend, claimed in self.claims.items() if claimed != kind}

    def drop_idle(self, now: float) -> None:
        """End claims for which nobody waits any more, and those on backends that are not up."""
        self.claims = {
            backend: kind
            for backend, kind in self.claims.items()
            if backend.is_up(now) and any(kind_of(sub) == kind for sub in self._waits(kind[0]))
        }

    def _kept(self, target: Target, kind: Kind, now: float) -> dict[Slots, float]:
        """Queues of what is in memory there, not of that kind and in its turn; until when it is so at the least."""
        kept: dict[Slots, float] = {}
        for other in target.backend.targets.values():
            size = None
            if other.slots is target.slots:
                size = other.loaded_for
                if kind[1] is None or size is None or size == kind[1]:
                    continue
            residency = other.view(now).residency
            if residency is not Residency.LOADED and residency is not Residency.LOADING and not other.in_use:
                continue
            if any(size is None or sub.context_tokens in {None, size} for sub in self._waits(other.model)):
                kept[other.slots] = math.inf
            elif other.slots not in kept and (until := self._lingers_until(other)) > now:
                kept[other.slots] = until
        return kept

    def _lingers_until(self, target: Target) -> float:
        """Until when an engine waits for the next request of a model that just had one, within its turn."""
        ended, began = target.slots.last_end_at, target.backend.load_sent_at
        if ended is None or began is None:
            return -math.inf
        load_s = self._load_s(target)
        return min(ended + LINGER_LOADS * load_s, began + (1 + TURN_LOADS) * load_s)

    def _load_s(self, target: Target) -> float:
        known = target.stats.load_s.value
        return known if known is not None else self._params.load_s
