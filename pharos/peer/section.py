"""A section: one kind of shared state, with who owns it; and all of them together.

Forbidden here: what an entry means, which only its section knows.
"""

import logging
from collections.abc import Iterable, Iterator
from typing import Any, ClassVar, Final, NamedTuple

import msgspec

from pharos.peer import wire

FRAME: Final = 2_000
"""Entries of one frame at most: building or merging one takes a few milliseconds, and others are served between two."""

log = logging.getLogger(__name__)


class Section:
    """One kind of shared state. Entries are lists, texts, numbers, bytes and truth values.

    Whatever `take` is given may come late, twice, in any order, or not at all; it ignores what it does not know.
    """

    name: ClassVar[str]
    """On the wire; never changed, and never given to another kind of entries."""
    is_latest: ClassVar[bool] = False
    """Whether what an instance tells replaces all that it told before: then older news are left out."""

    def changes(self, now: float) -> list[Any]:
        """What has changed here since the last call; asked at every tick, so cheap. Empty: nothing."""
        raise NotImplementedError

    def again(self, now: float) -> list[Any]:
        """What is told anew every few seconds, since peers may have missed it. Empty: nothing."""
        del now
        return []

    def full(self, now: float) -> Iterator[list[Any]]:
        """All that a new instance should know, in frames of at most `FRAME` entries, the most important ones first."""
        del now
        yield from ()

    def take(self, origin: str, entries: list[Any], now: float, *, is_restored: bool) -> None:
        """Merge what an instance told. `is_restored`: it comes out of a snapshot or a file, and may be old."""
        raise NotImplementedError

    def forget(self, origin: str, now: float) -> None:
        """An instance has left or fallen silent: what it said of the moment is void."""


class Piece(NamedTuple):
    """Encoded entries of a section, ready to be sent to any number of peers."""

    name: str
    raw: msgspec.Raw
    entries: int
    is_latest: bool

    @property
    def size(self) -> int:
        """Bytes."""
        return len(self.raw) + len(self.name) + 8


class Sections:
    """All sections, by name."""

    def __init__(self, sections: Iterable[Section]) -> None:
        self._by_name = {section.name: section for section in sections}
        self.faults = 0
        """Pieces that could not be taken in, ever."""

    def __repr__(self) -> str:
        return f"<Sections {', '.join(self._by_name)}>"

    def changes(self, now: float) -> list[Piece]:
        """What has changed since the last call."""
        return [piece for one in self._by_name.values() for piece in _pieces(one, one.changes(now))]

    def again(self, now: float) -> list[Piece]:
        """What peers may have missed."""
        return [piece for one in self._by_name.values() for piece in _pieces(one, one.again(now))]

    def frames(self, now: float) -> Iterator[wire.Frame]:
        """All of it; others may be served between two frames."""
        for section in self._by_name.values():
            for entries in section.full(now):
                yield wire.Frame(section=section.name, entries=wire.encode_entries(entries))

    def take(self, origin: str, name: str, raw: msgspec.Raw, now: float, *, is_restored: bool = False) -> int:
        """Merge a piece; how many entries it had. What cannot be understood is counted and left out."""
        section = self._by_name.get(name)
        if section is None:
            return 0
        try:
            entries = wire.decode_entries(raw)
            section.take(origin, entries, now, is_restored=is_restored)
        except Exception as fault:  # noqa: BLE001 - entries of a peer must not end the task that takes them
            self.faults += 1
            if self.faults & (self.faults - 1) == 0:  # the first, and each time it has doubled
                log.warning(
                    "peers: entries of section %s were left out (%s), %d times", name, type(fault).__name__, self.faults
                )
            return 0
        return len(entries)

    def is_latest(self, name: str) -> bool:
        """Whether a section's news replace older ones."""
        section = self._by_name.get(name)
        return section is not None and section.is_latest

    def forget(self, origin: str, now: float) -> None:
        """An instance has left or fallen silent."""
        for section in self._by_name.values():
            section.forget(origin, now)


def _pieces(section: Section, entries: list[Any]) -> Iterator[Piece]:
    if section.is_latest:
        steps: Iterable[list[Any]] = [entries] if entries else []
    else:
        steps = (entries[at : at + FRAME] for at in range(0, len(entries), FRAME))
    for some in steps:
        yield Piece(section.name, wire.encode_entries(some), len(some), section.is_latest)
