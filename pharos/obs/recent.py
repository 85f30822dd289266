"""The last requests, newest first, for the status page. In memory only."""

from collections import deque
from collections.abc import Iterator

from pharos.proxy.done import Done

KEPT = 200
"""Requests that `pharos explain` finds without a log of decisions."""


class Recent:
    """Remembers the last `size` finished requests."""

    def __init__(self, size: int = KEPT) -> None:
        self._records: deque[Done] = deque(maxlen=size)

    def add(self, done: Done) -> None:
        """Take one in; the oldest goes."""
        self._records.appendleft(done)

    def __iter__(self) -> Iterator[Done]:
        return iter(self._records)

    def __len__(self) -> int:
        return len(self._records)

    def __repr__(self) -> str:
        return f"<Recent {len(self._records)} of {self._records.maxlen}>"
