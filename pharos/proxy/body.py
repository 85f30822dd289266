"""Reads a request's body: bounded, reserved against the bytes all requests may hold together, never kept by aiohttp.

Nothing is parsed here. Only bytes that came are reserved: a length that is merely stated costs nobody else a place.
"""

import asyncio
import io
from typing import Protocol

from aiohttp.web_protocol import RequestPayloadError

from pharos.proxy.errors import ClientFault, PharosFault, body_too_large
from pharos.proxy.turn import as_task

RETRY_AFTER_S = 1
IDLE_S = 30.0
"""Seconds without one byte of an announced body, after which its client is told so and its connection closed."""

SLOW_FACTOR = 60
"""So many times the seconds of `IDLE_S` a body may take, and a second more for each of its bytes of `SLOWEST`."""
SLOWEST = 1024
"""Bytes a second. Whoever sends one byte in half a minute would hold a connection for days."""


class Payload(Protocol):
    """aiohttp's reader of the body."""

    def is_eof(self) -> bool:
        """Whether the body has come whole, read or not."""

    def at_eof(self) -> bool:
        """Whether all of it was read."""

    async def readany(self) -> bytes:
        """The next piece; empty at the end."""

    def read_nowait(self) -> bytes:
        """All that has come and was not read."""


class Buffers:
    """The bytes of request bodies in memory, all requests together."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.used = 0

    def __repr__(self) -> str:
        return f"<Buffers {self.used}/{self.limit}>"


class Uploads:
    """The bodies that are coming."""

    def __init__(self) -> None:
        self.fault: PharosFault | None = None
        """What their clients are told once nothing is taken any more."""
        self._limits: set[asyncio.Timeout] = set()

    def __repr__(self) -> str:
        return f"<Uploads {len(self._limits)}>"

    def end(self, fault: PharosFault) -> None:
        """Wait for none of them any more, nor for those that come."""
        self.fault = fault
        now = asyncio.get_running_loop().time()
        for limit in self._limits:
            limit.reschedule(now)

    async def more(self, payload: Payload, seconds: float) -> bytes:
        """Wait for the next piece of one. Raises TimeoutError after so many seconds, and `fault`."""
        if self.fault is not None:
            raise self.fault
        async with asyncio.timeout(seconds) as limit:
            self._limits.add(limit)
            try:
                return await payload.readany()
            finally:
                self._limits.discard(limit)


class Reservation:
    """One request's part of the buffers. Give it back once; more does nothing."""

    __slots__ = ("_buffers", "size")

    def __init__(self, buffers: Buffers) -> None:
        self._buffers = buffers
        self.size = 0

    def __repr__(self) -> str:
        return f"<Reservation {self.size}>"

    def grow_to(self, size: int) -> None:
        """Reserve up to `size` bytes in all. Raises PharosFault when that is too much for all together."""
        more = size - self.size
        if more <= 0:
            return
        if self._buffers.used + more > self._buffers.limit:
            raise PharosFault(
                503,
                "buffers_full",
                "too many request bytes are waiting in memory, try again shortly",
                retry_after_s=RETRY_AFTER_S,
            )
        self._buffers.used += more
        self.size = size

    def settle(self, size: int) -> None:
        """Hold `size` bytes from now on, more or fewer. Raises as `grow_to`."""
        self.grow_to(size)
        self._buffers.used -= self.size - size
        self.size = size

    def release(self) -> None:
        """Give the bytes back."""
        self._buffers.used -= self.size
        self.size = 0


def read_at_once(payload: Payload, limit: int, reservation: Reservation) -> bytes:
    """Read a body that has come whole, as nearly all have. Raises as `read`."""
    try:
        body = payload.read_nowait()
    except RequestPayloadError as error:
        raise _broken() from error
    if len(body) > limit:
        raise body_too_large(limit)
    reservation.grow_to(len(body))
    return body


async def read(
    payload: Payload,
    length: int | None,
    limit: int,
    reservation: Reservation,
    uploads: Uploads,
    idle_s: float = IDLE_S,
) -> bytes:
    """Read the body to its end. `length` as the client states it, already checked; `None` when chunked.

    Raises ClientFault (413, 408 after `idle_s` without a byte or far too few of them, or 400 when the framing breaks)
    and PharosFault (503).
    """
    loop = asyncio.get_running_loop()
    slow_at = loop.time() + SLOW_FACTOR * idle_s
    whole: io.BytesIO | None = None
    size = 0
    try:
        while not payload.at_eof():
            part = payload.read_nowait() if payload.is_eof() else await _more(payload, uploads, idle_s)
            size += len(part)
            if loop.time() > slow_at + size / SLOWEST and not payload.is_eof():
                raise ClientFault(408, "request_timeout", "the request body came too slowly: send it again")
            if size > limit:
                raise body_too_large(limit)
            reservation.grow_to(size)
            if len(part) == length:
                return part  # all of it in one piece, as nearly always
            if whole is None:
                whole = io.BytesIO()  # gives its bytes without a copy, where joining would hold all of them twice
            whole.write(part)
    except RequestPayloadError as error:
        raise _broken() from error
    return b"" if whole is None else whole.getvalue()


def _broken() -> ClientFault:
    return ClientFault(400, "bad_framing", "the request body is broken")


async def _more(payload: Payload, uploads: Uploads, idle_s: float) -> bytes:
    await as_task()
    try:
        return await uploads.more(payload, idle_s)
    except TimeoutError:
        if uploads.fault is not None:
            raise uploads.fault from None
        raise ClientFault(
            408, "request_timeout", f"no byte of the request body came for {idle_s:g} s: send it again"
        ) from None
