"""Targets as candidates: what the engine says and what we have in flight there, put together.

Forbidden here: filling in unknowns (the policy does), except that a model's size is the same on every backend.
"""

import math
from collections.abc import Container, Sequence

from pharos.core.fleet import Backend, Slots, Target, View
from pharos.core.policy import Candidate
from pharos.core.policy.estimate import upper_median
from pharos.core.sched.progress import first_end
from pharos.core.signals import BACKEND, Residency, Signal

LOADED, LOADING = Residency.LOADED, Residency.LOADING
AT_ONCE = (Signal.MODELS_AT_ONCE, BACKEND)
GPU_TOTAL, GPU_USED = (Signal.GPU_TOTAL_BYTES, BACKEND), (Signal.GPU_USED_BYTES, BACKEND)


def gather(
    targets: Sequence[Target], router_ahead: int, now: float, others: Sequence[Target] | None = None
) -> list[Candidate]:
    """See each target as a candidate for a request with so many waiting ahead of it; same order.

    `others`: all targets of the model where these are only some of them.
    """
    candidates = []
    for target in targets:
        view, backend, slots, stats = target.view(now), target.backend, target.slots, target.stats
        spec, reports, peers, ended = backend.spec, backend.reports_residency, slots.peers, slots.last_end_at
        ours = slots.inflight + peers
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
        if warm and backend.load_sent_at is not None and _was_pushed_out(target, now):
            warm = False
        # A load is under way when the engine says so, or when requests of ours are there before the model is.
        loading = not warm and (residency is LOADING or (reports and (target.inflight > 0 or target.peers > 0)))
        must_fit = not warm and not loading and is_limited(backend, now)
        may_wait = capacity is None or ours >= capacity or (running is not None and running >= capacity)
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
                stats.prefill_s_per_token.value,
                stats.load_s.value,
                stats.service_s.value,
                fits(target, targets if others is None else others, now) if must_fit else None,
                stats.base_s.value,
                target.loading_since if loading else None,
                first_end(slots.progress, now) if may_wait and ours else None,
                view.context_length,
                backend.reloads_for_context,
                target.loaded_for,
                target.unable,
                peers,
            )
        )
    return candidates


def _was_pushed_out(target: Target, now: float) -> bool:
    """Whether a load that we caused since its model was seen in memory has taken its place there."""
    sent_at, loaded_at = target.backend.load_sent_at, target.loaded_at
    if sent_at is None or target.in_use or (loaded_at is not None and loaded_at > sent_at):
        return False
    told = target.backend.readings.get((Signal.RESIDENCY, target.served))
    if told is not None and told.at > sent_at:
        return False
    others = target.backend.targets.values()
    since = {other.slots for other in others if other.loaded_at is not None and other.loaded_at > sent_at}
    return is_limited(target.backend, now) and fits(target, [target], now, since) is False


def is_limited(backend: Backend, now: float) -> bool:
    """Whether it is known how much it can hold at once, by configuration or by the engine: memory, or models."""
    return (
        backend.spec.memory_bytes is not None or GPU_TOTAL in backend.readings or most_models(backend, now) is not None
    )


def most_models(backend: Backend, now: float) -> int | None:
    """How many models it holds in memory at once at most; `None` when that is not known.

    A kind that is said to hold few is believed until more were seen there together.
    """
    told = backend.readings.get(AT_ONCE)
    if told is not None and isinstance(told.value, int) and told.is_fresh(now):
        return told.value
    usual = backend.usual_models
    return usual if usual is not None and backend.most_loaded <= usual else None


def memory_of(backend: Backend, now: float) -> int | None:
    """Bytes that its models may hold together; `None` when nobody tells.

    What the engine's GPUs hold beyond its own models is somebody else's, and stays.
    """
    if backend.spec.memory_bytes is not None:
        return backend.spec.memory_bytes
    total, used = backend.readings.get(GPU_TOTAL), backend.readings.get(GPU_USED)
    if total is None or not isinstance(total.value, int) or not total.is_fresh(now):
        return None
    if used is None or not isinstance(used.value, int) or not used.is_fresh(now):
        return total.value
    views = [target.view(now) for target in {t.served: t for t in backend.targets.values()}.values()]
    held = [_held_bytes(view) for view in views if view.residency is LOADED or view.residency is LOADING]
    if None in held:
        return total.value  # which part of it is whose cannot be told
    return total.value - max(used.value - sum([h for h in held if h is not None]), 0)


def fits(target: Target, others: Sequence[Target], now: float, kept: Container[Slots] = ()) -> bool | None:
    """Whether loading the model leaves those in memory that have requests in flight; `None` when nobody knows its size.

    Idle models make room. A busy one of unknown size is taken to leave none: it is only waited for. `others`: targets
    of the same model, whose median size stands for an unknown one. `kept`: queues that count as if they were busy.
    """
    busy = {  # once by any name
        t.served: t
        for t in target.backend.targets.values()
        if (t.in_use or t.slots in kept) and t.slots is not target.slots
    }
    if not busy:
        return True  # nothing in use could be evicted, so whether there is room is the engine's own affair
    most = most_models(target.backend, now)
    if most is not None and (len({t.slots for t in busy.values()}) >= most or _oldest_is_busy(target, most, now)):
        return False
    memory = memory_of(target.backend, now)
    if memory is None:
        return True
    held = [_held_bytes(t.view(now)) for t in busy.values()]
    size = target.view(now).size_bytes
    if size is None:
        size = upper_median([t.view(now).size_bytes for t in others])
    if None in held:
        return False
    return size + sum([h for h in held if h is not None]) <= memory if size is not None else None


def displaces(target: Target, now: float) -> bool:
    """Whether loading its model may push out another one that is there now, idle or not; true when nobody can tell."""
    there = {
        other.slots
        for other in target.backend.targets.values()
        if other.slots is not target.slots and (other.in_use or other.view(now).residency in {LOADED, LOADING})
    }
    return bool(there) and not (is_limited(target.backend, now) and fits(target, [target], now, there))


def _oldest_is_busy(target: Target, most: int, now: float) -> bool:
    """Whether a load may push out a model in use though an idle one is there.

    llama.cpp's router drops the model whose last request began longest ago, even while that runs.
    """
    loaded = {
        t.slots: t
        for t in target.backend.targets.values()
        if t.slots is not target.slots and (t.in_use or t.view(now).residency in {LOADED, LOADING})
    }
    if len(loaded) < most:
        return False
    ends = [slots.last_end_at for slots in loaded if not slots.inflight and not slots.peers]
    idle_since = -math.inf if None in ends else min([end for end in ends if end is not None], default=math.inf)
    return any(t.in_use and (t.began_at is None or t.began_at <= idle_since) for t in loaded.values())


def _held_bytes(view: View) -> int | None:
    return view.vram_bytes if view.vram_bytes is not None else view.size_bytes
