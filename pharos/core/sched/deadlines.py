"""When waiters expire: a heap that forgets lazily. Forbidden here: deciding what an expiry means."""

import heapq
from collections.abc import Callable

SLACK = 64
"""Entries of waiters that are gone are tolerated up to so many, or as many as there are waiters."""


class Deadlines:
    """Earliest first. An entry counts only while `current(id)` still names its time."""

    def __init__(self, current: Callable[[int], float | None]) -> None:
        self._current = current
        """When a waiter expires as things stand; `None`: never, or it is gone."""
        self._heap: list[tuple[float, int]] = []

    def __len__(self) -> int:
        return len(self._heap)

    def set(self, waiter_id: int, waiting: int) -> None:
        """Note a waiter's present deadline; call it whenever that changes. `waiting`: how many wait in all."""
        at = self._current(waiter_id)
        if at is None:
            return
        heapq.heappush(self._heap, (at, waiter_id))
        if len(self._heap) > 2 * waiting + SLACK:
            self._heap = [entry for entry in self._heap if self._current(entry[1]) == entry[0]]
            heapq.heapify(self._heap)

    def next(self) -> float | None:
        """The earliest deadline; `None` when nobody ever expires."""
        while self._heap:
            at, waiter_id = self._heap[0]
            if self._current(waiter_id) == at:
                return at
            heapq.heappop(self._heap)
        return None

    def due(self, now: float) -> list[int]:
        """Take out who has expired by `now`, earliest first, each once."""
        expired: dict[int, None] = {}  # one that was set twice to the same time has two entries
        while (at := self.next()) is not None and at <= now:
            expired[heapq.heappop(self._heap)[1]] = None
        return list(expired)
