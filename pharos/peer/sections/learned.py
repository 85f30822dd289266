"""What requests taught of speeds, lengths and estimates: in snapshots only, since instances learn much the same.

Entries: `[kind, key, seconds since 1970, value]`, as `core.fleet.inherit` has them. Forbidden here: judging them.
"""

from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any, ClassVar

from pharos.core.fleet.inherit import Inheritance
from pharos.peer.section import FRAME, Section


class Learned(Section):
    """Words of others on what this instance has not learned itself."""

    name: ClassVar[str] = "learned"

    def __init__(self, inheritance: Inheritance, wall: Callable[[], float]) -> None:
        self._inheritance = inheritance
        self._wall = wall

    def changes(self, now: float) -> list[Any]:
        """See `Section.changes`: nothing."""
        del now
        return []

    def again(self, now: float) -> list[Any]:
        """See `Section.again`: nothing; a good moment to use what has been told."""
        del now
        self._inheritance.retry()
        return []

    def full(self, now: float) -> Iterator[list[Any]]:
        """See `Section.full`."""
        del now
        words = self._inheritance.export(self._wall())
        while some := [*islice(words, FRAME)]:
            yield some

    def take(self, origin: str, entries: list[Any], now: float, *, is_restored: bool) -> None:
        """See `Section.take`."""
        del origin, now, is_restored
        wall = self._wall()
        for entry in entries:
            match entry:
                case [str(kind), list(key), int() | float() as at, float() | list() as value, *_]:
                    if all(part is None or isinstance(part, (str, int)) for part in key):
                        self._inheritance.take(kind, tuple(key), float(at), value, wall)
                case _:
                    continue
