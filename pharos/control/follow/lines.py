"""Bytes in, lines out: cut anywhere, bounded, no line longer than anybody looks at.

Forbidden here: I/O, and looking into a line.
"""

from pharos.core.engine.logline import MAX_LINE

_LF, _CR = b"\n", b"\r"


class LineSplitter:
    """Splits one stream of bytes at LF or CRLF.

    The end of a stream ends no line: what came of the last one may be the half of a number.
    """

    def __init__(self, limit: int = MAX_LINE) -> None:
        """`limit`: bytes of the longest line given, its end not counted; longer ones are left out."""
        self._limit = limit
        self._tail = bytearray()
        """The line that has not ended: at most `limit` bytes and the CR of a CRLF."""
        self._is_skipping = False

    def __repr__(self) -> str:
        state = "skipping" if self._is_skipping else f"{len(self._tail)} bytes"
        return f"<LineSplitter {state}>"

    def feed(self, data: bytes) -> list[bytes]:
        """Take the next bytes in; return the lines that end in them, without their ends."""
        *ended, rest = data.split(_LF)
        lines = [line for piece in ended if (line := self._end(piece)) is not None]
        self._keep(rest)
        return lines

    def _end(self, piece: bytes) -> bytes | None:
        """Return the line that ends with `piece`; `None` when it is too long."""
        line = bytes(self._tail) + piece if self._tail else piece
        self._tail.clear()
        if self._is_skipping:
            self._is_skipping = False
            return None
        line = line.removesuffix(_CR)
        return line if len(line) <= self._limit else None

    def _keep(self, rest: bytes) -> None:
        if self._is_skipping:
            return
        if len(self._tail) + len(rest) > self._limit + len(_CR):
            self._tail.clear()
            self._is_skipping = True
        else:
            self._tail += rest
