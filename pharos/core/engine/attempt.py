"""One probe on one page, and what follows from the answers: version, sleep, readings.

Forbidden here: choosing between probes; the planner does.
"""

from collections.abc import Iterable, Mapping, Sequence

import msgspec

from pharos.core.engine.probe import SCRAPED, DropReason, Page, Pages, Probe, ProbeError, SideEffect
from pharos.core.engine.recipe import is_ok
from pharos.core.signals import BACKEND, Found, Residency, Signal, Value

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

MOST_MODELS = 5000
"""Models that one backend may have: what grows with them is done again and again."""


class Dropped(msgspec.Struct, frozen=True):
    """A probe that gave nothing, and why."""

    probe: str
    signal: Signal
    reason: DropReason
    detail: str = ""
    will_pass: bool = False
    """It shows nothing about the probe: the engine was starting, busy or did not answer."""
    successor: str = ""
    """A name in the body that may have replaced what the probe looks for; empty when none is like it."""


class Outcome(msgspec.Struct, frozen=True):
    """What one probe made of one page."""

    model: str
    """Whose page it is; `BACKEND` when it speaks of all."""
    page: Page
    found: Mapping[str, Value]
    """Model (or `BACKEND`) to value; empty when it gave nothing."""
    failure: Dropped | None


def attempt(probe: Probe, page: Page) -> Found | Dropped:
    """Let a probe read a page."""
    if page.status is None:
        fault = page.fault.value if page.fault is not None else ""
        return dropped(probe, DropReason.FETCH_ERROR, fault, will_pass=True)
    if not is_ok(page):
        reason = _REASONS.get(page.status, DropReason.STATUS)
        told = f"{probe.feed.path} answers {page.status}"
        will_pass = page.status in _PASSING or page.status in probe.feed.passing
        return dropped(probe, reason, told, will_pass=will_pass)
    try:
        found = probe.parse(page)
    except ProbeError as error:
        return dropped(probe, error.reason, error.detail, will_pass=error.will_pass)
    if len(found) > MOST_MODELS or any(isinstance(told, tuple) and len(told) > MOST_MODELS for told in found.values()):
        return dropped(probe, DropReason.PARSE_ERROR, f"more than {MOST_MODELS} models")
    return found if found or probe.may_be_empty else dropped(probe, DropReason.NO_VALUE)


def outcomes(probe: Probe, pages: Pages, models: Sequence[str]) -> list[Outcome]:
    """Let a probe read each of its pages that came; those of a per-model feed are filed under their model."""
    made = []
    for model in models if probe.feed.per_model else (BACKEND,):
        page = pages.get(probe.feed.ask(model))
        if page is None:
            continue
        read = attempt(probe, page)
        if isinstance(read, Dropped):
            made.append(Outcome(model, page, {}, read))
        else:
            of_one = {model: read[BACKEND]} if BACKEND in read else {}
            made.append(Outcome(model, page, of_one if probe.feed.per_model else read, None))
    return made


def dropped(probe: Probe, reason: DropReason, detail: str = "", *, will_pass: bool = False) -> Dropped:
    """Say that a probe gave nothing."""
    return Dropped(probe=probe.name, signal=probe.signal, reason=reason, detail=detail, will_pass=will_pass)


def first_found(probes: Iterable[Probe], signal: Signal, pages: Pages, version: str | None) -> Found:
    """What the most trusted working probe of the whole backend reads of one signal; nothing when none does."""
    for probe in probes:
        if probe.signal is not signal or probe.feed.kind not in SCRAPED or probe.feed.per_model:
            continue
        page = pages.get(probe.feed.ask())
        if page is not None and guard_holds(probe, version):
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
    if probe.feed.side_effect is SideEffect.WAKES and asleep is not False:
        detail = (
            "the model sleeps, and a read would wake it"
            if asleep
            else "it is not known whether the model sleeps: a read might wake it"
        )
    return dropped(probe, DropReason.SIDE_EFFECT, detail, will_pass=True)
