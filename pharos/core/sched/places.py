"""How long those who wait will probably wait: what a client is told of its place, and when to come back.

# ops: first_free_s, drain_s · goal: a look at each target of the model; nothing per waiter
# plan: the first slot frees as the requests there are expected to end; from then on the work ahead goes through all
# warning: an estimate by assumed speeds is good enough for `Retry-After`, and is no ETA

Forbidden here: changing anything.
"""

import math
from collections.abc import Sequence

import msgspec

from pharos.core.assumptions import ASSUMPTIONS
from pharos.core.fleet import Target
from pharos.core.policy import Params
from pharos.core.sched.copies import slots_of
from pharos.core.sched.progress import first_end
from pharos.core.signals import Residency

RETRY_AFTER_S = int(ASSUMPTIONS["retry_after_s"].value)
MAX_RETRY_AFTER_S = 60
"""Longer than this nobody should be told to stay away: the estimate is not that good."""


class Place(msgspec.Struct, frozen=True):
    """Where a request stands in the queue."""

    position: int
    """Among those that wait for the same model, in the order in which they are served as things stand; the first is 1.
    """
    eta_s: float | None
    """Seconds until it is probably served; `None`: nobody knows."""


def drain_s(targets: Sequence[Target], work_s: float, now: float, params: Params) -> float | None:
    """Seconds until a slot of these targets is free for one that has so much work ahead; `None`: they have no slots."""
    each = {target.slots: target for target in targets}.values()
    slots = sum([slots_of(target, now) for target in each])
    if not slots:
        return None
    return min([_first_free_s(target, now, params) for target in each]) + work_s / slots


def eta_s(targets: Sequence[Target], work_s: float, now: float, params: Params) -> float | None:
    """The same for people: `None` also while no speed was learned."""
    if all(target.stats.service_s.value is None for target in targets):
        return None
    return drain_s(targets, work_s, now, params)


def retry_after_s(targets: Sequence[Target], work_s: float, now: float, params: Params) -> int:
    """Whole seconds until so much work is probably done."""
    seconds = drain_s(targets, work_s, now, params)
    return RETRY_AFTER_S if seconds is None else min(max(math.ceil(seconds), 1), MAX_RETRY_AFTER_S)


def _first_free_s(target: Target, now: float, params: Params) -> float:
    view, slots, stats = target.view(now), target.slots, target.stats
    load_s, count = 0.0, slots_of(target, now)
    if view.residency is Residency.COLD and not target.in_use:
        load_s = stats.load_s.value if stats.load_s.value is not None else params.load_s
    if max(slots.inflight + slots.peers, view.running if view.running is not None else 0) < count:
        return load_s
    end = first_end(slots.progress, now)
    if end is not None:
        return end - now + load_s
    service_s = stats.service_s.value if stats.service_s.value is not None else params.service_s
    return service_s / count + load_s
