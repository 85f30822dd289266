"""Every way to say no, in words for the caller. Forbidden here: deciding when."""

import math

from pharos.core.assumptions import ASSUMPTIONS
from pharos.core.fleet import Target
from pharos.core.sched.lease import Refusal

RETRY_AFTER_S = int(ASSUMPTIONS["retry_after_s"].value)
MAX_RETRY_AFTER_S = 60
"""Longer than this nobody should be told to stay away: the estimate is not that good."""


def unknown_model(model: str) -> Refusal:
    """No backend lists it."""
    return Refusal("unknown_model", None, f"The model '{model}' does not exist: no backend lists it.")


def unavailable(model: str) -> Refusal:
    """Backends list it, or may, but none is up."""
    return Refusal("unavailable", RETRY_AFTER_S, f"No backend that serves the model '{model}' is up.")


def still_absent(model: str, waited_s: float) -> Refusal:
    """Its backends were up lately, and did not come back in time."""
    text = f"No backend that serves the model '{model}' came back within {waited_s:.0f} s."
    return Refusal("wait_too_long", RETRY_AFTER_S, text)


def waited_too_long(model: str, waited_s: float, retry_after_s: int) -> Refusal:
    """`queue.max_wait` is over."""
    text = f"No slot for the model '{model}' became free within {waited_s:.0f} s."
    return Refusal("wait_too_long", retry_after_s, text)


def queue_full(waiting: int, retry_after_s: int) -> Refusal:
    """`queue.size` is reached."""
    return Refusal("queue_full", retry_after_s, f"The queue is full: {waiting} requests are waiting.")


def nowhere_else(model: str) -> Refusal:
    """A retry finds nobody else; the caller passes on the answer it holds."""
    return Refusal("nowhere_else", None, f"No other backend that serves the model '{model}' can take the request.")


def retry_after(targets: list[Target], waiting: int, now: float, service_else_s: float, capacity_else: int) -> int:
    """Whole seconds until so many waiters are probably served by these targets."""
    slots = 0
    known = [t.stats.service_s.value for t in targets if t.stats.service_s.value is not None]
    service_s = sum(known) / len(known) if known else service_else_s
    for target in {t.physical: t for t in targets}.values():
        capacity = target.view(now).capacity
        if capacity is None:
            capacity = target.backend.spec.capacity
        slots += max(capacity if capacity is not None else capacity_else, 1)
    if not slots:
        return RETRY_AFTER_S
    return min(max(math.ceil((waiting + 1) * service_s / slots), 1), MAX_RETRY_AFTER_S)
