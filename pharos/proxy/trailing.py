"""Whether a body in chunks ended plainly, or may have had trailers. No I/O.

aiohttp keeps the last trailer of a body and gives it to the next request of that connection as a header. Nothing of it
shows beforehand, hence the bytes are looked at: what did not surely end without trailers must be the last request.
"""

from collections.abc import Iterable
from typing import Final, Protocol

from aiohttp.http_parser import RawRequestMessage

PLAIN_END: Final = b"\r\n0\r\n\r\n"
"""How a body without trailers ends, from the end of what stands before its last chunk. No header line is a mere 0."""


class Body(Protocol):
    """aiohttp's reader of a body."""

    def is_eof(self) -> bool:
        """Whether it has come whole."""


class Trailing:
    """The bodies in chunks of one connection."""

    __slots__ = ("_last_bytes", "_open", "is_doubtful")

    def __init__(self) -> None:
        self._open: Body | None = None
        """The body that is coming."""
        self._last_bytes = b""
        self.is_doubtful = False
        """Whether some body may have had trailers."""

    def __repr__(self) -> str:
        return f"<Trailing {'doubtful' if self.is_doubtful else 'plain'}>"

    def take(self, data: bytes, came: Iterable[tuple[object, Body]]) -> None:
        """Take one read, and the requests whose heads ended in it."""
        before = self._last_bytes if self._open is not None else b"\r"  # of a head whose end was cut
        self._last_bytes = (before + data)[-len(PLAIN_END) :]
        for message, body in came:
            if self._open is not None:
                self.is_doubtful = True  # where it ended in this read is not known
            self._open = body if isinstance(message, RawRequestMessage) and message.chunked else None
        if self._open is not None and self._open.is_eof():
            self._open = None
            self.is_doubtful = self.is_doubtful or self._last_bytes != PLAIN_END
