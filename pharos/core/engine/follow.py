"""Turns what a followed feed brings, log lines or events of a stream, into readings of the plan's probes on it.

Forbidden here: keeping a line or an event. Only captured values leave.
"""

from collections.abc import Iterable, Sequence

import msgspec

from pharos.core.engine.attempt import Dropped, dropped
from pharos.core.engine.probe import SCRAPED, Feed, Follower, Page, Probe, ProbeError
from pharos.core.signals import Found, Key, Reading


class Followed(msgspec.Struct, frozen=True):
    """What one line or event told."""

    readings: dict[Key, Reading]
    failed: tuple[Dropped, ...] = ()
    """Probes that met something of theirs which they cannot read: whatever they told before is unknown now."""


NOTHING = Followed({})


def followed_feeds(active: Iterable[Probe]) -> tuple[Feed, ...]:
    """Return the feeds of a plan that are followed, each once."""
    return tuple(dict.fromkeys(probe.feed for probe in active if probe.feed.kind not in SCRAPED))


class Follow:
    """The probes on one connection of one feed. A new connection needs a new one of these."""

    def __init__(self, active: Iterable[Probe], feed: Feed, models: Sequence[str]) -> None:
        self._line_probes: list[Probe] = []
        self._followers: dict[str, tuple[Probe, Follower]] = {}
        for probe in active:
            if probe.feed != feed:
                continue
            if probe.follow is None:
                self._line_probes.append(probe)
            else:
                self._followers[probe.name] = (probe, probe.follow(tuple(models)))

    def line(self, data: bytes, now: float) -> Followed:
        """Let the log probes look at one line; `now` in seconds on the caller's clock."""
        found: list[tuple[Probe, Found]] = []
        failed: list[Dropped] = []
        for probe in self._line_probes:
            try:
                found.append((probe, probe.parse(Page(status=200, body=data, sent_at=now))))
            except ProbeError as error:
                failed.append(dropped(probe, error.reason, error.detail))
        return _told(found, failed, now)

    def event(self, name: str, data: bytes, now: float) -> Followed:
        """Let the readers of the stream look at one event. One that fails says nothing more on this connection."""
        found: list[tuple[Probe, Found]] = []
        failed: list[Dropped] = []
        for probe, follower in tuple(self._followers.values()):
            try:
                found.append((probe, follower.feed(name, data)))
            except ProbeError as error:
                failed.append(dropped(probe, error.reason, error.detail))
                del self._followers[probe.name]
        return _told(found, failed, now)

    def __repr__(self) -> str:
        return f"<Follow {len(self._line_probes) + len(self._followers)} probes>"


def _told(found: Sequence[tuple[Probe, Found]], failed: Sequence[Dropped], now: float) -> Followed:
    readings: dict[Key, Reading] = {}
    for probe, values in found:
        for model, value in values.items():
            before = readings.get((probe.signal, model))
            if before is None or probe.rank < before.rank:
                readings[probe.signal, model] = Reading(
                    value=value, at=now, probe=probe.name, interval_s=None, rank=probe.rank
                )
    return Followed(readings, tuple(failed)) if readings or failed else NOTHING
