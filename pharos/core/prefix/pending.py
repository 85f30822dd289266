"""What peers have yet to be told: a bounded list. What does not fit is dropped and counted; it costs them a miss.

Forbidden here: sending.
"""

from typing import Final

from pharos.core.prefix.chain import PrefixOp

MOST_OPS: Final = 10_000
MOST_HASHES: Final = 250_000
"""Hashes in all operations together: a chain may have thousands, and the list must stay within some 14 MB."""


class PendingOps:
    """Operations in the order in which they happened."""

    __slots__ = ("_hashes", "_most_hashes", "_most_ops", "_ops", "dropped")

    def __init__(self, most_ops: int = MOST_OPS, most_hashes: int = MOST_HASHES) -> None:
        self._ops: list[PrefixOp] = []
        self._hashes = 0
        self._most_ops = most_ops
        self._most_hashes = most_hashes
        self.dropped = 0
        """Operations that found the list full, ever."""

    def __repr__(self) -> str:
        return f"<PendingOps {len(self._ops)} waiting, {self.dropped} dropped>"

    def __len__(self) -> int:
        return len(self._ops)

    def add(self, op: PrefixOp) -> None:
        """Append an operation, or drop it when the list is full."""
        count = self._hashes + len(op.hashes)
        if len(self._ops) >= self._most_ops or count > self._most_hashes:
            self.dropped += 1
            return
        self._ops.append(op)
        self._hashes = count

    def take_all(self) -> list[PrefixOp]:
        """Hand out what waits; the list is empty afterwards."""
        ops, self._ops, self._hashes = self._ops, [], 0
        return ops
