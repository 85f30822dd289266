"""Goes through a recipe's probes and settles which of them read a backend.

Forbidden here: fetching, and asking for what would disturb the engine.
"""

from collections.abc import Sequence

import msgspec

from pharos.core.engine.attempt import (
    Dropped,
    attempt,
    dropped,
    effects_of,
    first_found,
    guard_holds,
    is_asleep,
    withheld,
)
from pharos.core.engine.probe import DropReason, FeedKind, Page, Pages, Probe, SideEffect
from pharos.core.engine.recipe import Recipe, is_ok
from pharos.core.signals import Found, Signal

_NEVER = frozenset({SideEffect.LOADS, SideEffect.DRAINS})


class Planner:
    """Goes through the probes in order of trust and keeps the first that works for each signal."""

    def __init__(
        self, recipe: Recipe, probes: Sequence[Probe], pages: Pages, version: str | None, *, logs: bool
    ) -> None:
        self.found: dict[str, Found] = {}
        self.dropped: list[Dropped] = []
        self.withheld: list[Dropped] = []
        self._pages = pages
        self._version = version
        self._logs = logs
        self._probes = probes
        self._readers: dict[Signal, str] = {}
        self._hopes: dict[Signal, str] = {}
        self._followed: set[str] = set()
        self._unanswered: set[Signal] = set()
        self._answered: set[Signal] = set()
        self._asleep = is_asleep(first_found(probes, Signal.RESIDENCY, pages, version))
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
        if probe.signal in self._readers:
            self._drop(probe, DropReason.REDUNDANT, f"{self._readers[probe.signal]} reads it")
        elif probe.feed.kind is FeedKind.LOG:
            if self._logs:
                self._followed.add(probe.name)
            else:
                self._drop(probe, DropReason.NO_LOG_FEED)
        elif self._effects[probe.feed.path] in _NEVER:
            self._drop(probe, DropReason.SIDE_EFFECT, f"a read {self._effects[probe.feed.path].value}")
        elif not guard_holds(probe, self._version):
            told = self._version if self._version is not None else "the version is not known"
            self._drop(probe, DropReason.VERSION_GUARD, told)
        elif probe.feed.path in self._pages:
            self._read(probe, self._pages[probe.feed.path])
        else:
            self._unasked(probe)

    def active(self) -> tuple[Probe, ...]:
        """Return the plan's probes, with the side effect that their path has in this version of the engine."""
        hopes = {name for signal, name in self._hopes.items() if signal not in self._readers}
        kept = {*self._readers.values(), *hopes, *self._followed}
        self.dropped += [one for one in self.withheld if one.probe not in kept]
        self.withheld = [one for one in self.withheld if one.probe in kept]
        return tuple(self._as_here(probe) for probe in self._probes if probe.name in kept)

    def read(self) -> frozenset[Signal]:
        """Signals that have a value now or are known to have none."""
        return frozenset({*self._readers, *(self._answered - self._unanswered)})

    def _read(self, probe: Probe, page: Page) -> None:
        outcome = attempt(probe, page)
        (self._unanswered if page.status is None else self._answered).add(probe.signal)
        if not isinstance(outcome, Dropped):
            self.found[probe.name] = outcome
            self._readers[probe.signal] = probe.name
            return
        self.dropped.append(outcome)
        if outcome.will_pass:
            self._hopes.setdefault(probe.signal, probe.name)

    def _unasked(self, probe: Probe) -> None:
        """Nothing is known of a page that was not asked for: hope for the first probe of a signal."""
        effect = self._effects[probe.feed.path]
        self._unanswered.add(probe.signal)
        if self._hopes.setdefault(probe.signal, probe.name) != probe.name:
            self._drop(probe, DropReason.REDUNDANT, f"{self._hopes[probe.signal]} is planned")
        elif effect is SideEffect.PINS or (effect is SideEffect.WAKES and self._asleep is not False):
            self.withheld.append(withheld(probe, asleep=self._asleep))
        else:
            self.dropped.append(
                dropped(probe, DropReason.FETCH_ERROR, f"{probe.feed.path} was not asked", will_pass=True)
            )

    def _drop(self, probe: Probe, reason: DropReason, detail: str = "") -> None:
        self.dropped.append(dropped(probe, reason, detail))

    def _as_here(self, probe: Probe) -> Probe:
        if probe.feed.kind is FeedKind.LOG or probe.feed.side_effect is self._effects[probe.feed.path]:
            return probe
        return msgspec.structs.replace(
            probe, feed=msgspec.structs.replace(probe.feed, side_effect=self._effects[probe.feed.path])
        )
