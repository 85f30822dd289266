"""Virtual time: what happens when, in order. Forbidden here: knowing what happens."""

import heapq
from collections.abc import Callable

Event = Callable[[], None]


class Timeline:
    """Events by their time; those of one moment happen in the order in which they were planned."""

    __slots__ = ("_heap", "_planned", "now")

    def __init__(self) -> None:
        self.now = 0.0
        """Seconds since the beginning."""
        self._heap: list[tuple[float, int, Event]] = []
        self._planned = 0

    def __len__(self) -> int:
        return len(self._heap)

    def at(self, time: float, event: Event) -> None:
        """Plan an event; one of the past happens next."""
        self._planned += 1
        heapq.heappush(self._heap, (max(time, self.now), self._planned, event))

    def after(self, delay: float, event: Event) -> None:
        """Plan an event so many seconds from now."""
        self.at(self.now + delay, event)

    def step(self) -> bool:
        """Let the next event happen; false when there is none."""
        if not self._heap:
            return False
        self.now, _, event = heapq.heappop(self._heap)
        event()
        return True

    def __repr__(self) -> str:
        return f"<Timeline {self.now:.3f} s, {len(self._heap)} planned>"
