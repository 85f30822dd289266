"""The plan: which probes of a recipe answer on one backend, what a round of them read, and what to fetch next.

Forbidden here: fetching, and per-version branches. An upgrade of an engine only changes which probes resolve.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Literal

import msgspec

from pharos.core.engine import asking
from pharos.core.engine.asking import Situation, feed_key, intervals_of
from pharos.core.engine.attempt import Dropped, Outcome, is_asleep, outcomes, version_of, withheld
from pharos.core.engine.drift import likely_successor
from pharos.core.engine.own import as_minded
from pharos.core.engine.planner import Planner
from pharos.core.engine.probe import SCRAPED, DropReason, Pages, Probe, SideEffect
from pharos.core.engine.recipe import Recipe, is_ok
from pharos.core.signals import BACKEND, Key, Reading, Residency, Signal

KindSource = Literal["config", "detected"]

__all__ = [
    "Dropped",
    "KindSource",
    "Plan",
    "Round",
    "Situation",
    "asleep_in",
    "due_paths",
    "intervals_of",
    "needs_resolve",
    "next_paths",
    "residency_in",
    "resolve",
    "scrape",
    "why_unknown",
]


class Plan(msgspec.Struct, frozen=True, eq=False):
    """The probes that work on one backend: of each signal one scraped probe, and those declared to stay beside it."""

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
    """Signals whose feed answered."""
    answered: frozenset[tuple[str, str]] = frozenset()
    """Probes whose feed answered, each with the model that was asked about (`BACKEND`: all). What such a probe told
    before and does not tell here is unknown from now on; other values stay, and age."""
    withheld: tuple[Dropped, ...] = ()
    """Planned probes that were not asked, because that would disturb the engine now (only told when planning)."""


def due_paths(
    plan: Plan, last_read: Mapping[str, float], now: float, situation: Situation | None = None
) -> tuple[str, ...]:
    """Requests to make now, for the probes of the plan: see `asking.due_paths`."""
    return asking.due_paths(plan.active, last_read, now, situation if situation is not None else Situation())


def next_paths(recipe: Recipe, own: Sequence[Probe], pages: Pages, *, may_keep_awake: bool = True) -> tuple[str, ...]:
    """Requests still to make before `resolve`: see `asking.next_paths`."""
    probes = (*as_minded(own, recipe), *recipe.probes)
    return asking.next_paths(probes, pages, may_keep_awake=may_keep_awake, provable=recipe.harmless_once)


def asleep_in(readings: Mapping[Key, Reading]) -> bool | None:
    """Whether a round shows a sleeping model; `None` when it does not tell."""
    return is_asleep(residency_in(readings))


def residency_in(readings: Mapping[Key, Reading]) -> dict[str, Residency]:
    """Model (or `BACKEND`) to residency, as far as the readings tell."""
    return {
        model: reading.value
        for (signal, model), reading in readings.items()
        if signal is Signal.RESIDENCY and isinstance(reading.value, Residency)
    }


def resolve(
    recipe: Recipe,
    own: Sequence[Probe],
    pages: Pages,
    *,
    kind_source: KindSource,
    logs: bool,
    now: float,
    intervals: Mapping[str, float] | None = None,
    before: Plan | None = None,
) -> tuple[Plan, Round]:
    """Choose the probes that work on a backend from the pages that `next_paths` asked for, and read them.

    `logs`: the backend has a log feed. `intervals`: feed -> scheduled seconds between reads, if not the probes' own.
    A probe that could not be tried (the engine sleeps, gave no answer, is starting) is planned on trust when nothing
    else reads its signal; unless the plan `before`, for the same version, had found that it does not work.
    """
    probes = (*as_minded(own, recipe), *recipe.probes)
    version = version_of(probes, pages)
    is_same = before is not None and (before.kind, before.version) == (recipe.kind, version)
    known = {one.probe: one for one in before.dropped} if is_same and before is not None else {}
    planner = Planner(recipe, probes, pages, version, logs=logs, before=known)
    for probe in probes:
        planner.consider(probe)
    active = planner.active()
    made = {probe.name: planner.found.get(probe.name, []) for probe in active}
    working = {name for name, read in made.items() if any(one.failure is None for one in read)}
    plan = Plan(
        kind=recipe.kind,
        kind_source=kind_source,
        version=version,
        active=active,
        dropped=_with_successors(
            [one for one in planner.dropped if one.probe not in made], probes, planner.found, active
        ),
        trusted=frozenset(p.name for p in active if p.feed.kind in SCRAPED and p.name not in working),
    )
    tried = Round(
        readings=_readings(active, made, now, intervals),
        failed=tuple(one for one in planner.dropped if one.probe in made),
        read=planner.read(),
        answered=_answered(made),
        withheld=tuple(planner.withheld),
    )
    return plan, tried


def scrape(
    plan: Plan,
    pages: Pages,
    now: float,
    intervals: Mapping[str, float] | None = None,
    models: Sequence[str] = (),
) -> Round:
    """Read the planned probes whose feeds were fetched in this round; `models` are those that were asked about.

    A feed without an HTTP reply leaves its signals as they are, to age; any reply that cannot be read makes them
    unknown.
    """
    made = {probe.name: outcomes(probe, pages, models) for probe in plan.active if probe.feed.kind in SCRAPED}
    answered = _answered(made)
    names = {name for name, _ in answered}
    return Round(
        readings=_readings(plan.active, made, now, intervals),
        failed=tuple(one.failure for read in made.values() for one in read if one.failure is not None),
        read=frozenset(probe.signal for probe in plan.active if probe.name in names),
        answered=answered,
    )


def needs_resolve(plan: Plan, latest: Round) -> bool:
    """Whether a round shows that the plan no longer fits.

    So it is when the version changed, a probe failed for a reason that does not pass by itself, or one that was
    planned on trust was read for the first time. Probes whose feed keeps a model loaded show nothing: a new plan would
    not try them either.
    """
    untried = {probe.name for probe in plan.active if probe.feed.side_effect is SideEffect.PINS}
    version = latest.readings.get((Signal.VERSION, BACKEND))
    if version is not None and version.value != plan.version:
        return True
    working = {reading.probe for reading in latest.readings.values()}
    if any(not one.will_pass and one.probe not in working | untried for one in latest.failed):
        return True
    return any(name in plan.trusted for name in working - untried)


def why_unknown(plan: Plan, signal: Signal, *, asleep: bool | None, ours: bool = True) -> Dropped | None:
    """Why a signal has no value; `None` when no probe of this kind reads it, or it is yet to be read.

    `ours`: requests of ours run there, so that what they keep awake is read.
    """
    for probe in plan.active:
        if probe.signal is signal and probe.feed.kind in SCRAPED and not probe.beside:  # those tell only sometimes
            effect = probe.feed.side_effect
            may_not = effect is SideEffect.PINS or (effect is SideEffect.WAKES and (asleep is not False or not ours))
            return withheld(probe, asleep=asleep) if may_not else None
    reasons = [one for one in plan.dropped if one.signal is signal]
    return reasons[0] if reasons else None


def _with_successors(
    gone: Sequence[Dropped], probes: Sequence[Probe], made: Mapping[str, Sequence[Outcome]], active: Sequence[Probe]
) -> tuple[Dropped, ...]:
    """Say what may have replaced the fields of probes whose signals nothing reads now."""
    known = {probe.signal for probe in active}
    taken = {probe.wants for probe in probes if probe.wants}
    by_name = {probe.name: probe for probe in probes}
    told = []
    for one in gone:
        pages = [read.page for read in made.get(one.probe, ()) if is_ok(read.page)]
        if one.signal not in known and one.reason is DropReason.NO_VALUE and pages:
            successor = likely_successor(by_name[one.probe], pages[0], taken)
            told.append(msgspec.structs.replace(one, successor=successor) if successor else one)
        else:
            told.append(one)
    return tuple(told)


def _answered(made: Mapping[str, Sequence[Outcome]]) -> frozenset[tuple[str, str]]:
    return frozenset((name, one.model) for name, read in made.items() for one in read if one.page.status is not None)


def _readings(
    active: Iterable[Probe],
    made: Mapping[str, Sequence[Outcome]],
    now: float,
    intervals: Mapping[str, float] | None,
) -> dict[Key, Reading]:
    """Merge: every value keeps its page's time and its probe; of two for one model the more trusted one stands."""
    readings: dict[Key, Reading] = {}
    probes = tuple(active)
    usual = intervals_of(probes)
    timing = intervals if intervals is not None else {}
    for probe in probes:
        for one in made.get(probe.name, ()):
            key = feed_key(probe.feed)
            interval = max(timing.get(key, usual[key]), probe.lag_s)
            at = min(one.page.sent_at, now) - probe.lag_s
            for model, value in one.found.items():
                before = readings.get((probe.signal, model))
                if before is None or probe.rank < before.rank:
                    readings[probe.signal, model] = Reading(
                        value=value, at=at, probe=probe.name, interval_s=interval, rank=probe.rank
                    )
    return readings
