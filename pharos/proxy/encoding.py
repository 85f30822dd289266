"""Unpacks request bodies that came with a Content-Encoding: bounded in memory, in time, and in what they may become.

# ops: codings, unpack_at_once, unpack · goal: a small lie about a large body costs little, whoever tells it
# plan: small bodies at once, all others in steps in a thread; the last coding that was applied comes off first
# warning: a body is not done where its bytes end but where each of its codings says so

Forbidden here: a long step on the event loop; reading what a body says.
"""

import asyncio
import io
import sys
import zlib
from collections.abc import Callable, Iterable, Sequence
from typing import Final, Protocol

from pharos.proxy.body import Reservation
from pharos.proxy.errors import ClientFault

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

ACCEPTED: Final = b"gzip, deflate, zstd"
"""What is unpacked, as `Accept-Encoding` names it beside a 415 (RFC 9110 §15.5.16)."""
UNSUPPORTED: Final = "unsupported_encoding"
"""Code of that 415."""
MOST_CODINGS: Final = 3
"""One over another. Clients use one."""
MOST_MEMBERS: Final = 256
"""Members of a gzip body, frames of a zstd body. Each takes a decompressor of its own, however little it holds."""
WINDOW_LOG: Final = 23
"""Largest window of zstd: 8 MiB, which RFC 9659 lets senders use over HTTP. A frame may ask for 2 GiB."""
AT_ONCE: Final = 256 * 1024
"""Bytes up to which a body is unpacked on the event loop: a millisecond."""
_AT_ONCE_PACKED: Final = 64 * 1024
_AT_ONCE_MEMBERS: Final = 4
_SLICE: Final = 64 * 1024
"""Packed bytes given to a decompressor at once."""
_PIECE: Final = 64 * 1024
"""Unpacked bytes taken from it at once."""
_STEP: Final = 1024 * 1024
"""Unpacked bytes between two looks at the limits."""


class _Decompressor(Protocol):
    """One member of a body: what it has not taken of its input, it keeps."""

    @property
    def eof(self) -> bool:
        """Whether it has ended."""

    @property
    def needs_input(self) -> bool:
        """Whether nothing more comes out of what it has."""

    @property
    def unused_data(self) -> bytes:
        """Input behind its end."""

    def decompress(self, data: bytes | memoryview, max_length: int) -> bytes:
        """Take input, give output."""


class _Zlib:
    """zlib's, with the manners of zstd's."""

    def __init__(self, bits: int) -> None:
        self._it = zlib.decompressobj(bits)
        self.needs_input = True

    @property
    def eof(self) -> bool:
        return self._it.eof

    @property
    def unused_data(self) -> bytes:
        return self._it.unused_data

    def decompress(self, data: bytes | memoryview, max_length: int) -> bytes:
        got = self._it.decompress(data if self.needs_input else self._it.unconsumed_tail, max_length)
        self.needs_input = len(got) < max_length
        return got


def _gzip(_body: bytes) -> _Decompressor:
    return _Zlib(16 + zlib.MAX_WBITS)


def _deflate(body: bytes) -> _Decompressor:
    """The format of zlib, which the name means in HTTP, or the bare stream, as some clients send."""
    is_zlib = len(body) > 1 and body[0] & 0x8F == zlib.DEFLATED and (body[0] << 8 | body[1]) % 31 == 0
    return _Zlib(zlib.MAX_WBITS if is_zlib else -zlib.MAX_WBITS)


def _zstd(_body: bytes) -> _Decompressor:
    return zstd.ZstdDecompressor(options={zstd.DecompressionParameter.window_log_max: WINDOW_LOG})


_MAKERS: Final[dict[str, Callable[[bytes], _Decompressor]]] = {
    "gzip": _gzip, "x-gzip": _gzip, "deflate": _deflate, "zstd": _zstd,
}  # fmt: skip
_ALONE: Final = frozenset({"deflate"})
"""Codings of which a body has one member only."""


class _ManyError(Exception):
    """More members than were allowed."""


class _Packed:
    """A body with one coding to take off."""

    def __init__(self, coding: str, body: bytes, most_members: int) -> None:
        self._make = _MAKERS[coding]
        self._may_repeat = coding not in _ALONE
        self._body = body
        self._at = 0
        self._behind = b""
        """What came behind the end of a member."""
        self._it = self._make(body)
        self._members_left = most_members - 1

    def fill(self, whole: io.BytesIO, most: int) -> int:
        """Write the next bytes there, at most so many and a piece; gives their count, less than `most` at the end.

        Raises ClientFault (400) and _ManyError.
        """
        count = 0
        try:
            while count < most and (got := self._read()):
                count += whole.write(got)
        except (zlib.error, zstd.ZstdError) as error:
            raise _broken("it is damaged, is no such coding, or needs a window over 8 MiB") from error
        return count

    def _read(self) -> bytes:
        """The next bytes; none at the end."""
        while True:
            it = self._it
            if it.eof:
                if not self._goes_on():
                    return b""
                continue
            data: bytes | memoryview = b""
            if it.needs_input:
                data = self._next()
                if not data:
                    raise _broken("its end is missing")
            got = it.decompress(data, _PIECE)
            if got:
                return got

    def _next(self) -> bytes | memoryview:
        if self._behind:
            data, self._behind = self._behind, b""
            return data
        at = self._at
        self._at += _SLICE
        return memoryview(self._body)[at : self._at]

    def _goes_on(self) -> bool:
        """Whether another member follows the one that has ended."""
        self._behind = self._it.unused_data
        if not self._behind and self._at >= len(self._body):
            return False
        if not self._may_repeat:
            raise _broken("other bytes follow its end")
        if self._members_left == 0:
            raise _ManyError
        self._members_left -= 1
        self._it = self._make(self._body)
        return True


def codings(values: Iterable[str]) -> tuple[str, ...]:
    """What was done to a body, in its order, by the values of all its Content-Encoding headers; `()`: nothing.

    Raises ClientFault (415).
    """
    names = [name.strip(" \t").lower() for name in ",".join(values).split(",")]
    done = tuple(name for name in names if name not in ("", "identity"))
    if not all(name in _MAKERS for name in done):
        raise _unsupported("This Content-Encoding is not known here")
    if len(done) > MOST_CODINGS:
        raise _unsupported(f"At most {MOST_CODINGS} codings, one over another, are taken off a body")
    return done


def unpack_at_once(packed: bytes, done: Sequence[str], limit: int) -> bytes | None:
    """Undo the codings `done` to a small body; `None` when it takes too long to be done on the event loop.

    Raises ClientFault: 413 when it becomes larger than `limit`, 400 when it is broken.
    """
    body = packed
    for coding in reversed(done):
        if len(body) > _AT_ONCE_PACKED:
            return None
        whole = io.BytesIO()
        try:
            size = _Packed(coding, body, _AT_ONCE_MEMBERS).fill(whole, AT_ONCE)
        except _ManyError:
            return None
        if size > limit:
            raise _too_large(limit)
        if size >= AT_ONCE:
            return None
        body = whole.getvalue()
    return body


async def unpack(packed: bytes, done: Sequence[str], limit: int, reservation: Reservation) -> bytes:
    """Undo the codings `done` to a body, in threads. Raises as `unpack_at_once`, and PharosFault (503).

    The reservation, which holds the packed body, grows with what comes out; the caller settles it.
    """
    body, held = packed, len(packed)
    for coding in reversed(done):
        source, whole, size = _Packed(coding, body, MOST_MEMBERS), io.BytesIO(), 0
        is_open = True
        while is_open:
            try:
                more = await asyncio.to_thread(source.fill, whole, _STEP)
            except _ManyError:
                raise _broken(f"it has more than {MOST_MEMBERS} members") from None
            size += more
            if size > limit:
                raise _too_large(limit)
            reservation.grow_to(held + size)
            is_open = more >= _STEP
        body = whole.getvalue()
        held = len(packed) + size
    return body


def _unsupported(what: str) -> ClientFault:
    return ClientFault(415, UNSUPPORTED, f"{what}: send the body plain, or as {ACCEPTED.decode()}.")


def _broken(why: str) -> ClientFault:
    return ClientFault(400, "invalid_encoding", f"The compressed request body cannot be unpacked: {why}.")


def _too_large(limit: int) -> ClientFault:
    return ClientFault(
        413,
        "request_too_large",
        f"The request body is over {limit} bytes when it is unpacked: shorten it, or raise `limits.body`.",
    )
