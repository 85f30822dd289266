"""Goes through a recipe's probes and settles which of them read a backend.

Forbidden here: fetching, and asking for what would disturb the engine.
"""

from collections.abc import Mapping, Sequence

import msgspec

from pharos.core.engine.asking import effects_of, feed_key, listed_models, residency_in
from pharos.core.engine.attempt import Dropped, Outcome, dropped, guard_holds, is_asleep, outcomes, withheld
from pharos.core.engine.probe import SCRAPED, DropReason, FeedKind, Pages, Probe, SideEffect
from pharos.core.engine.recipe import Recipe, is_ok
from pharos.core.signals import Signal

_NEVER = frozenset({SideEffect.LOADS, SideEffect.DRAINS})


class Planner:
    """Goes through the probes in order of trust and keeps the first that works for each signal, and those beside it."""

    def __init__(
        self,
        recipe: Recipe,
        probes: Sequence[Probe],
        pages: Pages,
        version: str | None,
        *,
        logs: bool,
        before: Mapping[str, Dropped],
    ) -> None:
        """`before`: what the last plan for this very version dropped, by probe: it holds where nothing was asked."""
        self.found: dict[str, list[Outcome]] = {}
        """Active or not: what each probe that was asked made of its pages."""
        self.dropped: list[Dropped] = []
        self.withheld: list[Dropped] = []
        self._pages = pages
        self._version = version
        self._logs = logs
        self._before = before
        self._probes = probes
        self._readers: dict[Signal, str] = {}
        self._hopes: dict[Signal, str] = {}
        self._kept: set[str] = set()
        """Followed ones, and those beside a reader."""
        self._unanswered: set[Signal] = set()
        self._answered: set[Signal] = set()
        self._asleep = is_asleep(residency_in(probes, pages, version))
        self.models = listed_models(probes, pages, version)
        proven = {
            path
            for path, proof in recipe.harmless_once.items()
            if path in pages and is_ok(pages[path]) and proof(pages[path])
        }
        self._effects = {
            path: SideEffect.NONE if path in proven else effect for path, effect in effects_of(probes).items()
        }

    def consider(self, probe: Probe) -> None:
        """Keep the probe, drop it, or plan it on trust."""
        kind = probe.feed.kind
        if probe.signal in self._readers and not probe.beside:
            self._drop(probe, DropReason.REDUNDANT, f"{self._readers[probe.signal]} reads it")
        elif kind is FeedKind.LOG and not self._logs:
            self._drop(probe, DropReason.NO_LOG_FEED)
        elif not guard_holds(probe, self._version):
            told = self._version if self._version is not None else "the version is not known"
            self._drop(probe, DropReason.VERSION_GUARD, told)
        elif kind not in SCRAPED:
            self._kept.add(probe.name)
        elif self._effects[feed_key(probe.feed)] in _NEVER:
            self._drop(probe, DropReason.SIDE_EFFECT, f"a read {self._effects[feed_key(probe.feed)].value}")
        else:
            read = outcomes(probe, self._pages, self.models)
            if read:
                self._read(probe, read)
            else:
                self._unasked(probe)

    def active(self) -> tuple[Probe, ...]:
        """Return the plan's probes, with the side effect that their path has in this version of the engine."""
        hopes = {name for signal, name in self._hopes.items() if signal not in self._readers}
        kept = {*self._readers.values(), *hopes, *self._kept}
        self.dropped += [one for one in self.withheld if one.probe not in kept]
        self.withheld = [one for one in self.withheld if one.probe in kept]
        return tuple(self._as_here(probe) for probe in self._probes if probe.name in kept)

    def read(self) -> frozenset[Signal]:
        """Signals that have a value now or are known to have none."""
        return frozenset({*self._readers, *(self._answered - self._unanswered)})

    def _read(self, probe: Probe, read: list[Outcome]) -> None:
        """Judge a probe by its pages: one that works is enough, and one that may work later is hope."""
        self.found[probe.name] = read
        is_answered = any(one.page.status is not None for one in read)
        (self._answered if is_answered else self._unanswered).add(probe.signal)
        failures = [one.failure for one in read if one.failure is not None]
        if len(failures) < len(read):
            if probe.beside:
                self._kept.add(probe.name)
            else:
                self._readers[probe.signal] = probe.name
            return
        passing = [one for one in failures if one.will_pass]
        self.dropped.append(passing[0] if passing else failures[0])
        if passing:
            self._hope(probe)

    def _unasked(self, probe: Probe) -> None:
        """Nothing is known of a page that was not asked for: hope for the first probe of a signal."""
        effect = self._effects[feed_key(probe.feed)]
        self._unanswered.add(probe.signal)
        if probe.name in self._before:
            self.dropped.append(self._before[probe.name])
        elif not self._hope(probe):
            self._drop(probe, DropReason.REDUNDANT, f"{self._hopes[probe.signal]} is planned")
        elif effect is SideEffect.PINS or (effect is SideEffect.WAKES and self._asleep is not False):
            self.withheld.append(withheld(probe, asleep=self._asleep))
        elif probe.feed.per_model:
            none_listed = "no model is listed" if not self.models else "no model is in memory"
            self.dropped.append(dropped(probe, DropReason.FETCH_ERROR, none_listed, will_pass=True))
        else:
            self.dropped.append(
                dropped(probe, DropReason.FETCH_ERROR, f"{probe.feed.path} was not asked", will_pass=True)
            )

    def _hope(self, probe: Probe) -> bool:
        """Plan a probe on trust; whether it is."""
        if probe.beside:
            self._kept.add(probe.name)
            return True
        return self._hopes.setdefault(probe.signal, probe.name) == probe.name

    def _drop(self, probe: Probe, reason: DropReason, detail: str = "") -> None:
        self.dropped.append(dropped(probe, reason, detail))

    def _as_here(self, probe: Probe) -> Probe:
        if probe.feed.kind not in SCRAPED or probe.feed.side_effect is self._effects[feed_key(probe.feed)]:
            return probe
        return msgspec.structs.replace(
            probe, feed=msgspec.structs.replace(probe.feed, side_effect=self._effects[feed_key(probe.feed)])
        )
