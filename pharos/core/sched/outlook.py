"""Whether waiting is worth it: for a model that no backend serves now, and for a waiter whose time is over.

Forbidden here: changing anything.
"""

from pharos.core.assumptions import ASSUMPTIONS
from pharos.core.fleet import Fleet
from pharos.core.sched import refusals
from pharos.core.sched.fairqueue import Waiter
from pharos.core.sched.lease import Refusal

ABSENT_SEEN_S = ASSUMPTIONS["absent_seen_s"].value
"""A model whose backends were all heard of longer ago than this is not waited for."""


def outlook(fleet: Fleet, model: str, now: float) -> Refusal | None:
    """Say why a model that no backend serves now is not worth waiting for; `None` when it may come back soon."""
    seen_at = fleet.last_up(model)
    if seen_at is not None and now - seen_at <= ABSENT_SEEN_S:
        return None
    if fleet.knows(model) is None:
        return None if fleet.is_starting() else refusals.unavailable(model)
    return refusals.unavailable(model) if fleet.backends_serving(model) else refusals.unknown_model(model)


def too_late(waiter: Waiter, now: float, retry_after_s: int) -> Refusal:
    """What to tell a waiter whose time is over."""
    sub, waited_s = waiter.submit, now - waiter.at
    if not sub.absent_ok:
        return refusals.nowhere_else(sub.model)
    if waiter.absent_until is not None and waiter.absent_until <= now:
        return refusals.still_absent(sub.model, waited_s)
    return refusals.waited_too_long(sub.model, waited_s, retry_after_s)
