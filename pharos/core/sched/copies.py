"""Whether those who wait for a model pay for one more copy of it: the wait that it takes off them against its load.

Each request alone would load a model wherever that is sooner, and a burst would load it everywhere. Forbidden here:
state, and the first copy of a model (nobody can do without).
"""

import heapq
import math
from collections.abc import Sequence
from typing import Literal

from pharos.core.assumptions import ASSUMPTIONS
from pharos.core.fleet import Target
from pharos.core.policy import Decision
from pharos.core.sched.candidates import displaces

MARGIN = ASSUMPTIONS["second_copy_margin"].value
ASSUMED_CAPACITY = int(ASSUMPTIONS["capacity"].value)
LoadReason = Literal["cold_start", "second_copy", "new_context"]
MOST_COUNTED = 100
"""Waiters; so many pay for any load."""


def holders(decision: Decision) -> list[int]:
    """Places that have the model, or are loading it, as the request needs it: what it can wait for without a load."""
    crowd = decision.crowd
    unfit = crowd.fits(decision.req)
    both = zip(crowd.candidates, crowd.standings, strict=True)
    return [
        i
        for i, (c, its) in enumerate(both)
        if (c.warm or c.loading or not c.reports_residency) and its.feasible and i not in unfit
    ]


def why_loaded(decision: Decision) -> LoadReason:
    """Why the chosen place has to load the model: an outcome of the decision table's stage "load"."""
    if decision.reloads:
        return "new_context"
    return "second_copy" if holders(decision) else "cold_start"


def pays(
    decision: Decision,
    held: Sequence[int],
    targets: Sequence[Target],
    waiting: int,
    work_s: float,
    now: float,
    regret_s: float = 0.0,
) -> bool:
    """Whether so many waiters gain more by loading the model at the chosen place than that takes.

    `held`: places that have it; `targets`: the candidates, in their order; `work_s`: what all those waiters will
    probably take; `regret_s`: what others waited before them for want of one more copy.
    """
    place = decision.chosen
    if place is None:
        return False
    crowd, req = decision.crowd, decision.req
    its = crowd.score(place, req)
    each_s = work_s / max(waiting, 1)
    without: list[float] = []
    for i in held:
        known = crowd.candidates[i].service_s
        score = crowd.score(i, req)
        slower_s = score.prefill_s + score.kv_s - its.prefill_s - its.kv_s
        free_in = slots_free_in(targets[i], score.load_s, known if known is not None else each_s, now)
        without += [seconds + slower_s for seconds in free_in]
    more = [its.load_s] * slots_of(targets[place], now)
    if regret_s and displaces(targets[place], now):
        regret_s = 0.0  # who is pushed out would wait as long one day
    return regret_s + gained_s(without, more, min(waiting, MOST_COUNTED), each_s) > its.load_s * MARGIN


def spare(decision: Decision, targets: Sequence[Target], regret_s: float, now: float) -> int | None:
    """The place where one more copy would be loaded soonest for a request that waits, pushing out no other model.

    `None`: there is no such place, or what was waited before (`regret_s`) does not pay for it.
    """
    crowd, best, least = decision.crowd, None, math.inf
    unfit = crowd.fits(decision.req)
    for i, (c, its) in enumerate(zip(crowd.candidates, crowd.standings, strict=True)):
        is_cold = c.reports_residency and not c.warm and not c.loading
        if not (is_cold and its.free and its.feasible) or i in unfit or regret_s <= its.load_s * MARGIN:
            continue
        if decision.totals[i] < least and not displaces(targets[i], now):
            best, least = i, decision.totals[i]
    return best


def gained_s(free_in: Sequence[float], more_in: Sequence[float], waiting: int, service_s: float) -> float:
    """Seconds that more slots take off the waits of all. `free_in`, `more_in`: seconds until each slot is free."""
    without, with_more = list(free_in), [*free_in, *more_in]
    heapq.heapify(without)
    heapq.heapify(with_more)
    gain = 0.0
    for _ in range(waiting):
        late, soon = without[0], with_more[0]
        heapq.heapreplace(without, late + service_s)
        heapq.heapreplace(with_more, soon + service_s)
        gain += late - soon
    return gain


def slots_free_in(target: Target, load_s: float, service_s: float, now: float) -> list[float]:
    """Seconds until each slot is free, the first to be so first. `load_s`: what is left of a load under way."""
    view, slots = target.view(now), target.slots
    ours = sorted([max(began + whole - now, load_s) for began, whole in slots.progress.values()])
    ours += [load_s + service_s] * (slots.inflight + slots.peers - len(ours))
    foreign = max((view.running if view.running is not None else 0) - slots.inflight - slots.peers, 0)
    busy = ours + [load_s + service_s] * foreign
    return ([load_s] * (slots_of(target, now) - len(busy)) + busy) or [service_s]


def slots_of(target: Target, now: float) -> int:
    """Slots of its queue as far as anyone knows, one at least."""
    capacity = target.view(now).capacity
    if capacity is None:
        spec, usual = target.backend.spec.capacity, target.backend.usual_capacity
        capacity = spec if spec is not None else usual if usual is not None else ASSUMED_CAPACITY
    return max(capacity, 1)
