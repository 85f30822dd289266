"""Targets as candidates: what the engine says and what we have in flight there, put together.

Forbidden here: filling in unknowns (the policy does), except that a model's size is the same on every backend.
"""

from collections.abc import Sequence

from pharos.core.fleet import Target, View
from pharos.core.policy import Candidate
from pharos.core.policy.estimate import upper_median
from pharos.core.signals import Residency

LOADED, LOADING = Residency.LOADED, Residency.LOADING


def gather(
    targets: Sequence[Target], router_ahead: int, now: float, others: Sequence[Target] | None = None
) -> list[Candidate]:
    """See each target as a candidate for a request with so many waiting ahead of it; same order.

    `others`: all targets of the model where these are only some of them.
    """
    candidates = []
    for target in targets:
        view, backend, slots, stats = target.view(now), target.backend, target.slots, target.stats
        spec, reports, ours, ended = backend.spec, backend.reports_residency, slots.inflight, slots.last_end_at
        running, waiting, capacity, residency = view.running, view.waiting, view.capacity, view.residency
        if capacity is None:
            capacity = spec.capacity if spec.capacity is not None else backend.usual_capacity
        if ended is not None:
            # Asked before one of our requests ended: the counts still hold the slot that it gave back.
            if view.running_at is not None and view.running_at < ended:
                running = ours
            if view.waiting_at is not None and view.waiting_at < ended:
                waiting = 0
        warm = None if residency is None else residency is LOADED
        # A load is under way when the engine says so, or when requests of ours are there before the model is.
        loading = not warm and (residency is LOADING or (reports and target.inflight > 0))
        must_fit = not warm and not loading and spec.memory_bytes is not None
        candidates.append(
            Candidate(
                target.id,
                spec.name,
                ours,
                running,
                waiting,
                capacity,
                router_ahead,
                warm,
                reports,
                loading,
                view.kv_usage,
                0,
                stats.prefill_s_per_token.value,
                stats.load_s.value,
                stats.service_s.value,
                fits(target, targets if others is None else others, now) if must_fit else None,
            )
        )
    return candidates


def fits(target: Target, others: Sequence[Target], now: float) -> bool | None:
    """Whether loading the model leaves those in memory that have requests in flight; `None` when nobody knows its size.

    Idle models make room. A busy one of unknown size is taken to leave none: it is only waited for. `others`: targets
    of the same model, whose median size stands for an unknown one.
    """
    memory = target.backend.spec.memory_bytes
    others_here = target.backend.targets.values()
    busy = {t.served: t for t in others_here if t.inflight > 0 and t.slots is not target.slots}  # once by any name
    if memory is None or not busy:
        return True  # nothing in use could be evicted, so whether there is room is the engine's own affair
    held = [_held_bytes(t.view(now)) for t in busy.values()]
    size = target.view(now).size_bytes
    if size is None:
        size = upper_median([t.view(now).size_bytes for t in others])
    if None in held:
        return False
    return size + sum([h for h in held if h is not None]) <= memory if size is not None else None


def _held_bytes(view: View) -> int | None:
    return view.vram_bytes if view.vram_bytes is not None else view.size_bytes
