"""Requests of the last 60 s by key, counted by many instances without agreement: see cells.py, of which this is kin.

# ops: add, count, take · goal: O(1) within one second, O(seconds of the window) when a new one begins
# plan: a cell per origin, key and second; a window per key sums them over the origins, and is swept once a second
# warning: seconds are of the wall clock, which instances share: a clock that is off makes the window as inexact

Forbidden here: reading a clock, and knowing what a quota allows.
"""

import math
from collections.abc import Iterator
from typing import Final

WINDOW_S: Final = 60
MOST_KEYS: Final = 10_000
"""Keys of other instances that are kept."""
MOST: Final = 2**31
"""No sound count is greater."""

MinuteKey = tuple[str, int]
"""Name of the key, second since 1970."""
Entry = tuple[str, MinuteKey, int]
"""Origin, which cell, and what it has counted in all."""


class _Window:
    """What one key asked for in the last minute."""

    __slots__ = ("by_second", "cells", "swept", "total")

    def __init__(self) -> None:
        self.cells: dict[tuple[int, str], int] = {}
        """By second and origin."""
        self.by_second: dict[int, int] = {}
        self.total = 0
        self.swept: int | None = None
        """The second for which `total` holds."""

    def sweep(self, second: int) -> None:
        """Drop what has left the window, and what a clock that was put back has left far ahead."""
        if second == self.swept:
            return
        self.swept = second
        gone = [s for s in self.by_second if not second - WINDOW_S < s <= second + WINDOW_S]
        if gone:
            for old in gone:
                self.total -= self.by_second.pop(old)
            left = self.by_second
            self.cells = {where: count for where, count in self.cells.items() if where[0] in left}

    def put(self, second: int, origin: str, count: int) -> None:
        """Set what an origin has counted in a second, which is more than before."""
        more = count - self.cells.get((second, origin), 0)
        self.cells[second, origin] = count
        self.by_second[second] = self.by_second.get(second, 0) + more
        self.total += more


class Minutes:
    """Requests by key in the last minute."""

    def __init__(self, origin: str) -> None:
        """`origin`: as for `Cells`."""
        self.origin = origin
        self._windows: dict[str, _Window] = {}
        self._changed: set[MinuteKey] = set()

    def __repr__(self) -> str:
        return f"<Minutes {self.origin} {len(self._windows)} keys>"

    def __len__(self) -> int:
        return sum(len(window.cells) for window in self._windows.values())

    def add(self, key: str, now: float) -> None:
        """Count one request. `now`: seconds since 1970."""
        second = math.floor(now)
        window = self._windows.get(key)
        if window is None:
            window = self._windows[key] = _Window()
        window.sweep(second)
        window.put(second, self.origin, window.cells.get((second, self.origin), 0) + 1)
        self._changed.add((key, second))

    def count(self, key: str, now: float) -> int:
        """Requests of a key in the last 60 s, over all origins."""
        window = self._windows.get(key)
        if window is None:
            return 0
        window.sweep(math.floor(now))
        return window.total

    def wait_s(self, key: str, limit: int, now: float) -> float:
        """Seconds until fewer than `limit` requests are in the window, if no more come; 0: so it is now."""
        total = self.count(key, now)
        if total < limit:
            return 0.0
        by_second = self._windows[key].by_second
        for second in sorted(by_second):
            total -= by_second[second]
            if total < limit:
                return second + WINDOW_S - now
        return float(WINDOW_S)  # a limit that nothing satisfies

    def clear_s(self, key: str, now: float) -> float:
        """Seconds until no request is in the window, if no more come."""
        return max(self._windows[key].by_second) + WINDOW_S - now if self.count(key, now) else 0.0

    def take(self, origin: str, cell: MinuteKey, count: int, now: float) -> bool:
        """Merge what another instance has counted. Whether that was news. May come late, twice and in any order."""
        key, at = cell
        second = math.floor(now)
        if origin == self.origin or not (second - WINDOW_S < at <= second + WINDOW_S) or not 0 < count <= MOST:
            return False
        window = self._windows.get(key)
        if window is None:
            if len(self._windows) >= MOST_KEYS:
                self.forget(now)
            if len(self._windows) >= MOST_KEYS:
                return False
            window = self._windows[key] = _Window()
        window.sweep(second)
        if count <= window.cells.get((at, origin), 0):
            return False
        window.put(at, origin, count)
        return True

    def changed(self) -> list[Entry]:
        """Own cells that have grown since the last call and are still in their window."""
        if not self._changed:
            return []
        changed, self._changed = self._changed, set()
        found = []
        for key, second in changed:
            window = self._windows.get(key)
            count = None if window is None else window.cells.get((second, self.origin))
            if count is not None:
                found.append((self.origin, (key, second), count))
        return found

    def full(self, now: float) -> Iterator[Entry]:
        """All own cells that are in the window. They are not for files: a minute is over before one is read."""
        second = math.floor(now)
        for key, window in list(self._windows.items()):
            window.sweep(second)
            for (at, origin), count in list(window.cells.items()):
                if origin == self.origin:
                    yield origin, (key, at), count

    def forget(self, now: float) -> None:
        """Drop keys that asked for nothing in the last minute."""
        second = math.floor(now)
        for key, window in list(self._windows.items()):
            window.sweep(second)
            if not window.cells:
                del self._windows[key]
