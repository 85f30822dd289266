"""Whether waiting is worth it: without a backend, for a request that fits none, for a waiter whose time is over.

Forbidden here: changing anything.
"""

from collections.abc import Sequence

from pharos.core.assumptions import ASSUMPTIONS
from pharos.core.fleet import Fleet, Target
from pharos.core.policy import Decision
from pharos.core.sched import refusals
from pharos.core.sched.lease import Refusal, Submit
from pharos.core.sched.line import Waiter

ABSENT_SEEN_S = ASSUMPTIONS["absent_seen_s"].value
"""A model whose backends were all heard of longer ago than this is not waited for; nor is a backend that for so long
told no list of its models, though others did, a reason to take each mistyped name for one that may come.
"""


def outlook(fleet: Fleet, model: str, now: float) -> Refusal | None:
    """Say why a model that no backend serves now is not worth waiting for; `None` when it may come back soon."""
    seen_at = fleet.last_up(model)
    if seen_at is not None and now - seen_at <= ABSENT_SEEN_S:
        return None
    if fleet.knows(model) is None:
        return None if fleet.is_starting() else _untold(fleet, model, now)
    return absent(fleet, model) if fleet.targets_listed(model) else refusals.unknown_model(model)


def absent(fleet: Fleet, model: str) -> Refusal:
    """What to say when none of those that list a model is up."""
    return refusals.unavailable(model, [target.backend for target in fleet.targets_listed(model)])


def _untold(fleet: Fleet, model: str, now: float) -> Refusal:
    """What to say while some backend that does not answer never told its models."""
    unread = fleet.unread()
    are_late = all(now - backend.since > ABSENT_SEEN_S for backend in unread)
    if are_late and len(unread) < len(fleet.backends):
        return refusals.unknown_model(model, tuple(backend.name for backend in unread))
    return refusals.not_told(model, unread)


def misfit(fleet: Fleet, sub: Submit, decision: Decision, up: Sequence[Target]) -> Refusal | None:
    """Say why no target that is up can ever take a request; `None` when one can. `up`: all of its model's.

    A retry that holds an engine's answer is only told that nobody else is there.
    """
    why = decision.never if decision.chosen is None else None
    if why is None:
        return None
    if sub.exclude or not sub.absent_ok:
        return refusals.nowhere_else(sub.model)
    return refusals.does_not_fit(sub.model, why, are_all=len(up) == len(fleet.targets_listed(sub.model)))


def too_late(waiter: Waiter, now: float, retry_after_s: int) -> Refusal:
    """What to tell a waiter whose time is over."""
    sub, waited_s = waiter.submit, now - waiter.at
    if not sub.absent_ok:
        return refusals.nowhere_else(sub.model)
    if waiter.absent_until is not None and waiter.absent_until <= now:
        return refusals.still_absent(sub.model, waited_s)
    return refusals.waited_too_long(sub.model, waited_s, retry_after_s)
