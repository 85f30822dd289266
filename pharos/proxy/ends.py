"""The first and the last bytes of something that is too large to keep: a reply in one piece, or one line of a stream.

Forbidden here: I/O; keeping more than three times `LIMIT`.
"""

from typing import Final

LIMIT: Final = 64 * 1024
"""Bytes up to which something is kept whole, and the length of each end of what is larger."""


class Ends:
    """Takes bytes one piece after the other."""

    __slots__ = ("_head", "_tail", "size")

    def __init__(self) -> None:
        self._head = bytearray()
        self._tail = bytearray()
        """Empty up to the limit: then all of it is the head."""
        self.size = 0

    def __repr__(self) -> str:
        return f"<Ends of {self.size} bytes>"

    @property
    def is_whole(self) -> bool:
        """Whether all of it is kept, as the head."""
        return self.size <= LIMIT

    @property
    def head(self) -> bytes:
        """Its first bytes."""
        return bytes(self._head)

    @property
    def tail(self) -> bytes:
        """Its last bytes."""
        return bytes(self._tail[-LIMIT:]) if self._tail else bytes(self._head)

    def add(self, data: bytes) -> None:
        """Take the next piece."""
        before, self.size = self.size, self.size + len(data)
        if self.size > LIMIT:
            if before <= LIMIT:
                self._tail += self._head
            self._tail += data[-LIMIT:]
            if len(self._tail) > 2 * LIMIT:
                del self._tail[:-LIMIT]
        if before < LIMIT:
            self._head += data[: LIMIT - before]
