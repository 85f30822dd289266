"""One probe on one page, and what follows from the answers: version, sleep, side effects, readings.

Forbidden here: choosing between probes; the planner does.
"""

from collections.abc import Iterable, Mapping

import msgspec

from pharos.core.engine.probe import DropReason, FeedKind, Page, Pages, Probe, ProbeError, SideEffect
from pharos.core.engine.recipe import is_ok
from pharos.core.signals import BACKEND, Found, Key, Reading, Residency, Signal

_SEVERITY = (
    SideEffect.NONE,
    SideEffect.HEAVY,
    SideEffect.WAKES,
    SideEffect.PINS,
    SideEffect.LOADS,
    SideEffect.DRAINS,
)
_REASONS = {
    401: DropReason.UNAUTHORIZED,
    403: DropReason.UNAUTHORIZED,
    404: DropReason.NOT_FOUND,
    405: DropReason.NOT_FOUND,
    501: DropReason.NOT_FOUND,
    503: DropReason.STARTING,
}
_PASSING = frozenset({408, 425, 429, 500, 502, 503, 504})
"""Statuses that do not show that a probe cannot work here."""


class Dropped(msgspec.Struct, frozen=True):
    """A probe that gave nothing, and why."""

    probe: str
    signal: Signal
    reason: DropReason
    detail: str = ""
    will_pass: bool = False
    """It shows nothing about the probe: the engine was starting, busy or did not answer."""


def attempt(probe: Probe, page: Page) -> Found | Dropped:
    """Let a probe read a page."""
    if page.status is None:
        fault = page.fault.value if page.fault is not None else ""
        return dropped(probe, DropReason.FETCH_ERROR, fault, will_pass=True)
    if not is_ok(page):
        reason = _REASONS.get(page.status, DropReason.STATUS)
        told = f"{probe.feed.path} answers {page.status}"
        return dropped(probe, reason, told, will_pass=page.status in _PASSING)
    try:
        found = probe.parse(page)
    except ProbeError as error:
        return dropped(probe, error.reason, error.detail)
    return found or dropped(probe, DropReason.NO_VALUE)


def dropped(probe: Probe, reason: DropReason, detail: str = "", *, will_pass: bool = False) -> Dropped:
    """Say that a probe gave nothing."""
    return Dropped(probe=probe.name, signal=probe.signal, reason=reason, detail=detail, will_pass=will_pass)


def first_found(probes: Iterable[Probe], signal: Signal, pages: Pages, version: str | None) -> Found:
    """What the most trusted working probe reads of one signal; nothing when none does."""
    for probe in probes:
        page = pages.get(probe.feed.path) if probe.feed.kind is FeedKind.GET else None
        if probe.signal is signal and page is not None and guard_holds(probe, version):
            outcome = attempt(probe, page)
            if not isinstance(outcome, Dropped):
                return outcome
    return {}


def version_of(probes: Iterable[Probe], pages: Pages) -> str | None:
    """Return the engine's version as its most trusted probe reads it."""
    found = first_found(probes, Signal.VERSION, pages, None).get(BACKEND)
    return found if isinstance(found, str) else None


def guard_holds(probe: Probe, version: str | None) -> bool:
    """Whether a probe's version guard, if any, lets it run: never while the version is unknown."""
    return probe.when is None or (version is not None and probe.when(version))


def is_asleep(residency: Mapping[str, object]) -> bool | None:
    """Whether a model sleeps, by model name -> residency; `None` when nothing is known."""
    return any(state is Residency.COLD for state in residency.values()) if residency else None


def withheld(probe: Probe, *, asleep: bool | None) -> Dropped:
    """Say why a planned probe is not read now."""
    detail = "read only while requests from here run"
    if probe.feed.side_effect is SideEffect.WAKES:
        detail = (
            "the model sleeps, and a read would wake it"
            if asleep
            else "it is not known whether the model sleeps: a read might wake it"
        )
    return dropped(probe, DropReason.SIDE_EFFECT, detail, will_pass=True)


def effects_of(probes: Iterable[Probe]) -> dict[str, SideEffect]:
    """Path -> the strongest side effect that a probe on it declares: an operator's probe shares the path's effect."""
    effects: dict[str, SideEffect] = {}
    for probe in probes:
        if probe.feed.kind is FeedKind.GET:
            before = effects.get(probe.feed.path, SideEffect.NONE)
            effects[probe.feed.path] = max(before, probe.feed.side_effect, key=_SEVERITY.index)
    return effects


def readings_of(
    active: Iterable[Probe], found: Mapping[str, Found], pages: Pages, now: float, intervals: Mapping[str, float]
) -> dict[Key, Reading]:
    """Merge: each signal has one reader in a plan, and every value keeps its page's time and its probe."""
    readings: dict[Key, Reading] = {}
    probes = tuple(active)
    usual = intervals_of(probes)
    for probe in probes:
        path = probe.feed.path
        for model, value in found.get(probe.name, {}).items():
            interval = intervals.get(path, usual[path])
            at = min(pages[path].sent_at, now)
            readings[probe.signal, model] = Reading(value=value, at=at, probe=probe.name, interval_s=interval)
    return readings


def intervals_of(probes: Iterable[Probe]) -> dict[str, float]:
    """Path -> seconds between reads: as often as the most eager of its probes wants."""
    intervals: dict[str, float] = {}
    for probe in probes:
        if probe.feed.kind is FeedKind.GET:
            path = probe.feed.path
            intervals[path] = min(intervals.get(path, probe.interval_s), probe.interval_s)
    return intervals
