"""What the fleet has to say for the log and the counters, and when it stays silent.

A backend that fails says so once, and once when it answers again. Forbidden here: logging itself.
"""

from typing import Literal

import msgspec

from pharos.core.fleet.backend import Backend, State
from pharos.core.signals import BACKEND, Signal


class Event(msgspec.Struct, frozen=True):
    """Something worth a log line; counted too when it has an outcome."""

    stage: str
    """A stage of the decision table."""
    outcome: str
    """An outcome of that stage, or empty when this is only a log line."""
    backend: str
    level: Literal["debug", "info", "warning"]
    text: str


_SAME_TROUBLE = frozenset({State.DOWN, State.EJECTED})
"""To a person both are one thing: it is dead."""

_TROUBLE: dict[State, tuple[Literal["info", "warning"], str]] = {
    State.DOWN: ("warning", "{name} is down: {why}"),
    State.EJECTED: ("warning", "{name} is down: {why}; it gets no requests until it answers a scrape"),
    State.STARTING: ("info", "{name} is starting: {why}"),
    State.BUSY: ("warning", "{name} does not answer scrapes in time: {why}; it still gets requests, its signals age"),
    State.UNRECOGNISED: ("warning", "{name} answers, but not like an engine known here: {why}"),
}

_NAMED = 6
"""Models that a line names."""


LONGEST_NAME = 60
"""Characters of a model's name in a line."""


def short(name: str) -> str:
    """Return a name as lines show it: an engine may call its models whatever it likes."""
    return name if len(name) <= LONGEST_NAME else name[: LONGEST_NAME - 1] + "…"


def trouble(backend: Backend, state: State, why: str) -> list[Event]:
    """Put a backend into a state in which it is not simply up; the event is there only when that is news."""
    before = backend.state
    backend.state, backend.error = state, why
    if before is state or (before in _SAME_TROUBLE and state in _SAME_TROUBLE):
        return []
    level, text = _TROUBLE[state]
    return [Event("scrape", "", backend.name, level, text.format(name=backend.name, why=why))]


def recovery(backend: Backend) -> list[Event]:
    """Put a backend that answered into the state up; the event is there only when that is news."""
    before = backend.state
    backend.state, backend.error = State.UP, None
    if before is State.UP:
        return []
    kind = backend.plan.kind if backend.plan is not None else "unknown kind"
    version = f" {backend.version}" if backend.version is not None else ""
    is_first = before is State.UNKNOWN or backend.stamp <= 1  # a round that it answers counts one up
    verb = "is up" if is_first else "answers again"
    models = [short(target.model) for target in backend.targets.values() if target.listed]
    more = f" and {len(models) - _NAMED} more" if len(models) > _NAMED else ""
    serving = ", ".join(models[:_NAMED]) + more if models else "no model yet"
    capacity = backend.readings.get((Signal.CAPACITY, BACKEND))
    slots = "" if capacity is None else f", {capacity.value} {'slot' if capacity.value == 1 else 'slots'}"
    return [Event("scrape", "", backend.name, "info", f"{backend.name} {verb}: {kind}{version}, {serving}{slots}")]
