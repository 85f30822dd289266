"""What each candidate would cost, in seconds. Both policies read these scores.

Cost = wait + load + prefill + KV pressure. An unknown never helps: it becomes the median of the candidates that
know, then an assumption, and never 0. Forbidden here: choosing.
"""

from collections.abc import Iterable, Sequence
from typing import TypeVar

from pharos.core.policy.types import Candidate, Params, RouteRequest, Score

N = TypeVar("N", int, float)

NO_FREE_SLOT = "no free slot"
WOULD_EVICT = "loading it would evict a model that is in use"


def upper_median(values: Iterable[N | None]) -> N | None:
    """Median of the known values, the greater one of two; `None` when nothing is known."""
    known = sorted([value for value in values if value is not None])
    return known[len(known) // 2] if known else None


def presumed(known: list[N], count: int, otherwise: N) -> N:
    """What an unknown value is taken for, given the known ones of so many candidates.

    Sorts only when something is both unknown and known elsewhere: this is the hot path.
    """
    if not known or len(known) == count:
        return otherwise
    known.sort()
    return known[len(known) // 2]


def presumed_capacity(known: list[int], assumed: int) -> int:
    """Slots of a candidate that does not tell: few, as more would make it look better."""
    known.sort()
    return min(assumed, known[(len(known) - 1) // 2]) if known else assumed


def estimate(req: RouteRequest, candidates: Sequence[Candidate], params: Params) -> list[Score]:
    """Score every candidate, in their order. Feasible ones only lack a slot at worst."""
    count = len(candidates)
    running_else = presumed([v for c in candidates if (v := c.running) is not None], count, 0)
    waiting_else = presumed([v for c in candidates if (v := c.waiting) is not None], count, 0)
    kv_else = presumed([share for c in candidates if (share := c.kv_usage) is not None], count, 0.0)
    rate_else = presumed(
        [s for c in candidates if (s := c.prefill_s_per_token) is not None], count, params.prefill_s_per_token
    )
    load_else = presumed([s for c in candidates if (s := c.load_s) is not None], count, params.load_s)
    service_else = presumed([s for c in candidates if (s := c.service_s) is not None], count, params.service_s)
    capacity_else = presumed_capacity([v for c in candidates if (v := c.capacity) is not None], params.capacity)
    prompt, kv_from = req.prompt_tokens, params.kv_pressure_from
    scores = []
    for c in candidates:
        ours, running, waiting, capacity = c.ours, c.running, c.waiting, c.capacity
        is_full = False
        if capacity is None:
            capacity = capacity_else
            is_full = (waiting if waiting is not None else waiting_else) > 0  # then an engine that queues is full
        occupied = running if running is not None else running_else
        if occupied < ours:  # noqa: PLR1730 - 64 calls of max() would be a tenth of the pick
            occupied = ours
        is_full = is_full or occupied >= capacity
        slots = capacity if capacity > 0 else 1
        wait_s = load_s = kv_s = 0.0
        free = feasible = True
        if is_full:
            # Presumed to be full is not known to be full: the policy may still fill the slots that are ours to fill.
            tells = (running is not None and occupied >= capacity) or (c.capacity is None and waiting)
            free = not tells and ours < capacity
            ahead = (waiting if waiting is not None else waiting_else) + c.router_ahead + 1
            wait_s = ahead / slots * (c.service_s if c.service_s is not None else service_else)
        warm = c.warm
        if not warm and not c.loading and (warm is not None or c.reports_residency):
            load_s = c.load_s if c.load_s is not None else load_else
            feasible = c.fits_if_cold is not False
        rate = c.prefill_s_per_token
        if rate is None:
            rate = rate_else
        matched = c.matched_tokens
        if matched:
            matched = min(matched, prompt)
            kv_usage = c.kv_usage if c.kv_usage is not None else kv_else
            if kv_usage > kv_from:
                kv_s = matched * rate * min((kv_usage - kv_from) / (1 - kv_from), 1.0)
        prefill_s = (prompt - matched) * rate
        why_not = ("" if free else NO_FREE_SLOT) if feasible else WOULD_EVICT
        total_s = wait_s + load_s + prefill_s + kv_s
        scores.append(
            Score(
                c.target_id, c.name, wait_s, load_s, prefill_s, kv_s, total_s, feasible, why_not, free, occupied / slots
            )
        )
    return scores
