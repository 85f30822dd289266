"""The plan: which probes of a recipe answer on one backend, what a round of them read, and what to fetch next.

Forbidden here: fetching, and per-version branches. An upgrade of an engine only changes which probes resolve.
"""

from collections.abc import Mapping, Sequence
from typing import Literal

import msgspec

from pharos.core.engine.attempt import (
    Dropped,
    attempt,
    effects_of,
    first_found,
    guard_holds,
    intervals_of,
    is_asleep,
    readings_of,
    version_of,
    withheld,
)
from pharos.core.engine.planner import Planner
from pharos.core.engine.probe import FeedKind, Pages, Probe, SideEffect
from pharos.core.engine.recipe import Recipe
from pharos.core.signals import BACKEND, Found, Key, Reading, Signal

KindSource = Literal["config", "detected"]

__all__ = [
    "Dropped",
    "KindSource",
    "Plan",
    "Round",
    "asleep_in",
    "due_paths",
    "intervals_of",
    "needs_resolve",
    "next_paths",
    "resolve",
    "scrape",
    "why_unknown",
]

DUE_FROM = 0.9
"""Share of its interval after which a path is due: rounds come with jitter, and one just short of the interval
counts."""


class Plan(msgspec.Struct, frozen=True, eq=False):
    """The probes that work on one backend: at most one scraped probe for each signal."""

    kind: str
    kind_source: KindSource
    version: str | None
    active: tuple[Probe, ...]
    """Own probes first, then in the recipe's order."""
    dropped: tuple[Dropped, ...]
    trusted: frozenset[str] = frozenset()
    """Active probes that could not be tried when planning: the engine slept, or did not answer in time."""

    def same_probes(self, other: "Plan") -> bool:
        """Whether both read the same signals in the same way."""
        return self.kind == other.kind and [p.name for p in self.active] == [p.name for p in other.active]

    def __repr__(self) -> str:
        return f"<Plan {self.kind} {self.version} {len(self.active)} active, {len(self.dropped)} dropped>"


class Round(msgspec.Struct, frozen=True):
    """What one round of fetches gave."""

    readings: Mapping[Key, Reading]
    failed: tuple[Dropped, ...]
    """Planned probes that gave nothing."""
    read: frozenset[Signal]
    """Signals whose feed answered: what has no reading here is unknown from now on. Others keep their old values,
    which age."""
    withheld: tuple[Dropped, ...] = ()
    """Planned probes that were not asked, because that would disturb the engine now (only told when planning)."""


def due_paths(
    plan: Plan, last_read: Mapping[str, float], now: float, *, asleep: bool | None, ours_running: bool = False
) -> tuple[str, ...]:
    """Paths to fetch now; `last_read` is path -> when it was last asked, in seconds on the clock of `now`.

    Call twice in a round: first with `asleep=None` (not known in this round), which leaves out what would wake the
    engine but asks for its residency when something of that sort is due; then with `asleep_in` of what came.
    `ours_running`: requests of ours are running there, so that a read which keeps a model loaded does no harm. Heavy
    paths are read when planning only.
    """
    due = [
        path
        for path, interval in intervals_of(plan.active).items()
        if path not in last_read or now - last_read[path] >= DUE_FROM * interval
    ]
    effects = effects_of(plan.active)
    wanted = [path for path in due if effects[path] is SideEffect.NONE]
    waking = [path for path in due if effects[path] is SideEffect.WAKES]
    if ours_running:
        wanted += [path for path in due if effects[path] is SideEffect.PINS]
    if waking and asleep is None:
        wanted += [
            p.feed.path
            for p in plan.active
            if p.signal is Signal.RESIDENCY and effects.get(p.feed.path) is SideEffect.NONE
        ]
    if asleep is False:
        wanted += waking
    return tuple(dict.fromkeys(wanted))


def asleep_in(readings: Mapping[Key, Reading]) -> bool | None:
    """Whether a round shows a sleeping model; `None` when it does not tell."""
    return is_asleep(
        {model: reading.value for (signal, model), reading in readings.items() if signal is Signal.RESIDENCY}
    )


def next_paths(recipe: Recipe, own: Sequence[Probe], pages: Pages) -> tuple[str, ...]:
    """Paths still to fetch before `resolve`, () when there are none; call again with what came (faults included).

    Harmless paths come first. Of the others only those that are needed (no earlier probe reads the signal) and allowed:
    heavy ones, and once the residency is known and not cold those that would wake the model.
    """
    probes = [p for p in (*own, *recipe.probes) if p.feed.kind is FeedKind.GET]
    effects = effects_of(probes)
    harmless = [path for path, effect in effects.items() if effect is SideEffect.NONE and path not in pages]
    if harmless:
        return tuple(harmless)
    version = version_of(probes, pages)
    allowed = {SideEffect.HEAVY}
    if is_asleep(first_found(probes, Signal.RESIDENCY, pages, version)) is False:
        allowed.add(SideEffect.WAKES)
    wanted: dict[str, None] = {}
    settled: set[Signal] = set()
    for probe in probes:
        path = probe.feed.path
        if probe.signal in settled or not guard_holds(probe, version):
            continue
        if path in pages:
            if not isinstance(attempt(probe, pages[path]), Dropped):
                settled.add(probe.signal)
        elif effects[path] in allowed:
            wanted[path] = None
            settled.add(probe.signal)
    return tuple(wanted)


def resolve(
    recipe: Recipe,
    own: Sequence[Probe],
    pages: Pages,
    *,
    kind_source: KindSource,
    logs: bool,
    now: float,
    intervals: Mapping[str, float] | None = None,
) -> tuple[Plan, Round]:
    """Choose the probes that work on a backend from the pages that `next_paths` asked for, and read them.

    `logs`: the backend has a log feed. `intervals`: path -> scheduled seconds between reads, if not the probes' own.
    A probe that could not be tried (the engine sleeps, gave no answer, is starting) is planned on trust when nothing
    else reads its signal.
    """
    probes = (*own, *recipe.probes)
    version = version_of(probes, pages)
    planner = Planner(recipe, probes, pages, version, logs=logs)
    for probe in probes:
        planner.consider(probe)
    active = planner.active()
    found = {probe.name: planner.found[probe.name] for probe in active if probe.name in planner.found}
    names = {probe.name for probe in active}
    plan = Plan(
        kind=recipe.kind,
        kind_source=kind_source,
        version=version,
        active=active,
        dropped=tuple(one for one in planner.dropped if one.probe not in names),
        trusted=frozenset(
            probe.name for probe in active if probe.feed.kind is FeedKind.GET and probe.name not in found
        ),
    )
    timing = intervals if intervals is not None else {}
    tried = Round(
        readings=readings_of(active, found, pages, now, timing),
        failed=tuple(one for one in planner.dropped if one.probe in names),
        read=planner.read(),
        withheld=tuple(planner.withheld),
    )
    return plan, tried


def scrape(plan: Plan, pages: Pages, now: float, intervals: Mapping[str, float] | None = None) -> Round:
    """Read the planned probes whose paths were fetched in this round.

    A path without an HTTP reply leaves its signals as they are, to age; any reply that cannot be read makes them
    unknown.
    """
    found: dict[str, Found] = {}
    failed: list[Dropped] = []
    read: set[Signal] = set()
    for probe in plan.active:
        page = pages.get(probe.feed.path) if probe.feed.kind is FeedKind.GET else None
        if page is None:
            continue
        if page.status is not None:
            read.add(probe.signal)
        outcome = attempt(probe, page)
        if isinstance(outcome, Dropped):
            failed.append(outcome)
        else:
            found[probe.name] = outcome
    timing = intervals if intervals is not None else {}
    readings = readings_of(plan.active, found, pages, now, timing)
    return Round(readings=readings, failed=tuple(failed), read=frozenset(read))


def needs_resolve(plan: Plan, latest: Round) -> bool:
    """Whether a round shows that the plan no longer fits.

    So it is when the version changed, a probe failed for a reason that does not pass by itself, or one that was
    planned on trust was read for the first time.
    """
    version = latest.readings.get((Signal.VERSION, BACKEND))
    if version is not None and version.value != plan.version:
        return True
    if not all(one.will_pass for one in latest.failed):
        return True
    return any(reading.probe in plan.trusted for reading in latest.readings.values())


def why_unknown(plan: Plan, signal: Signal, *, asleep: bool | None) -> Dropped | None:
    """Why a signal has no value; `None` when no probe of this kind reads it, or it is yet to be read."""
    for probe in plan.active:
        if probe.signal is signal and probe.feed.kind is FeedKind.GET:
            may_wake = probe.feed.side_effect is SideEffect.WAKES and asleep is not False
            return withheld(probe, asleep=asleep) if may_wake else None
    reasons = [one for one in plan.dropped if one.signal is signal]
    return reasons[0] if reasons else None
