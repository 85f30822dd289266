"""Who used what: cells of days, and the last minute.

Entries of both begin with the origin that counted. Cells: `[origin, day, key, model, requests, prompt tokens, cached
tokens, completion tokens, unmetered]`; minutes: `[origin, key, second, requests]`. Forbidden here: adding anything up.
"""

from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any, ClassVar

from pharos.core.usage import Count, UsageBook
from pharos.core.usage.cells import Entry
from pharos.peer.section import FRAME, Section

Wall = Callable[[], float]


class Cells(Section):
    """Usage by day."""

    name: ClassVar[str] = "cells"

    def __init__(self, book: UsageBook, wall: Wall, settle: Callable[[], None] = lambda: None) -> None:
        """`settle`: has requests counted that ended and were not counted yet."""
        self._book = book
        self._wall = wall
        self._settle = settle

    def changes(self, now: float) -> list[Any]:
        """See `Section.changes`: own cells only."""
        del now
        self._settle()
        changed = self._book.cells.changed()
        return [_written(entry) for entry in changed] if changed else changed

    def again(self, now: float) -> list[Any]:
        """See `Section.again`: own cells of today and yesterday, in case midnight has just passed."""
        del now
        yesterday = self._book.day(self._wall()).number - 1
        return [_written(entry) for entry in self._book.cells.own(yesterday)]

    def full(self, now: float) -> Iterator[list[Any]]:
        """See `Section.full`: all cells of all origins."""
        del now
        self._settle()
        cells = self._book.cells.full()
        while some := [_written(entry) for entry in islice(cells, FRAME)]:
            yield some

    def take(self, origin: str, entries: list[Any], now: float, *, is_restored: bool) -> None:
        """See `Section.take`."""
        del origin, now, is_restored
        take = self._book.cells.take
        for entry in entries:
            match entry:
                case [str(whose), int(day), str(key), str(model), int(a), int(b), int(c), int(d), int(e), *_]:
                    take(whose, (day, key, model), Count(a, b, c, d, e))
                case _:
                    continue


class Minutes(Section):
    """Requests of the last minute. They are not in snapshots: a minute is over before one is read."""

    name: ClassVar[str] = "minutes"

    def __init__(self, book: UsageBook, wall: Wall) -> None:
        self._book = book
        self._wall = wall

    def changes(self, now: float) -> list[Any]:
        """See `Section.changes`."""
        del now
        changed = self._book.minutes.changed()
        return [[origin, key, second, count] for origin, (key, second), count in changed] if changed else []

    def again(self, now: float) -> list[Any]:
        """See `Section.again`."""
        del now
        return [[origin, key, second, count] for origin, (key, second), count in self._book.minutes.full(self._wall())]

    def take(self, origin: str, entries: list[Any], now: float, *, is_restored: bool) -> None:
        """See `Section.take`."""
        del origin, now, is_restored
        wall = self._wall()
        for entry in entries:
            match entry:
                case [str(whose), str(key), int(second), int(count), *_]:
                    self._book.minutes.take(whose, (key, second), count, wall)
                case _:
                    continue


def _written(entry: Entry) -> list[Any]:
    origin, (day, key, model), count = entry
    return [
        origin, day, key, model,
        count.requests, count.prompt_tokens, count.cached_tokens, count.completion_tokens, count.unmetered,
    ]  # fmt: skip
