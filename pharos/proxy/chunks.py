"""A read that is one whole chunk of a chunked reply, told by its own bytes: engines send each event as one. No I/O.

Such a read can go to the client as it came. Only the form that everybody writes counts: a length in lower case hex
without leading zeros, and no extension.
"""

from typing import Final

LONGEST: Final = 1024
"""Bytes of a chunk, framing included, from which on it is not looked for: events of one token are far shorter."""
END: Final = b"\r\n"
_NEVER: Final = b"\n"


def _start(size: int) -> bytes:
    """How a chunk of so many bytes begins, framing included."""
    for digits in range(1, len(b"%x" % LONGEST) + 1):
        length = size - digits - 2 * len(END)
        if length > 0 and len(b"%x" % length) == digits:
            return b"%x\r\n" % length
    return _NEVER


STARTS: Final = tuple(map(_start, range(LONGEST)))
"""By the bytes of a read: how it begins when it is a whole chunk. One must begin there, and the read end in `END`."""


def framed(data: bytes) -> bytes:
    """Bytes as one chunk."""
    return b"%x\r\n%b\r\n" % (len(data), data)


def is_whole(read: bytes, body: bytes) -> bool:
    """Whether a read surely was one whole chunk, of which the parser gave `body` in one piece.

    The bytes alone do not tell: inside a chunk they may be its data. But then the read would begin with `body`.
    """
    size = len(read)
    if size >= LONGEST or not read.endswith(END) or read.startswith(body):
        return False
    start = STARTS[size]
    return read.startswith(start) and len(start) + len(body) + len(END) == size
