"""Bytes that tell whether a piece of a stream must be read. No I/O, no state.

Text of the model cannot hold them: in JSON its quotes are escaped.
"""

from typing import Final

import msgspec

DONE_MARK: Final = b"[DONE]"
USAGE: Final = b'"usage"'
TIMINGS: Final = b'"timings"'
ERROR: Final = b'"error"'
ESCAPE: Final = b"\\u"
NO_USAGE: Final = (b'"usage":null', b'"usage": null')

Late = tuple[bytes, bytes, bytes, bytes]


class Signs(msgspec.Struct, frozen=True):
    """What matters in the streams of one protocol."""

    late: Late
    """All that matters once the first token was seen. The first is `USAGE`, which does not matter before a null.

    Four for every protocol: each event is searched for each, and a loop over them would cost more than they do.
    """
    early: tuple[bytes, ...] = ()
    """What matters before: what may be output too, and escapes, as names in records that are read may hold them."""
    ends: tuple[bytes, ...] = (b"\n\n", b"\r\n\r\n")
    """How a read ends that ends an event."""

    chunk_ends: tuple[bytes, ...] = (b"\n\n\r\n", b"\r\n\r\n\r\n")
    """The same in a read that is one whole chunk, its own CRLF included."""


def matters(data: bytes, late: Late) -> bool:
    """Whether bytes may hold usage, an error or the end; `late`: the protocol's."""
    find = data.rfind  # half the time of `find`
    if find(late[1]) >= 0 or find(late[2]) >= 0 or find(late[3]) >= 0:
        return True
    named = data.count(USAGE)
    return named > 0 and named != sum(map(data.count, NO_USAGE))
