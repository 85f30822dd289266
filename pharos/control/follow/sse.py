"""Events that an engine pushes: the parser of their format (bytes in, events out) and the request that opens them.

The format is the HTML standard's event stream: fields `event` and `data` count, several data lines are one text, lines
end with LF, CRLF or CR, lines that start with a colon are comments, and what the end of the stream cuts is no event.

Forbidden here: reading what an event means, and keeping or quoting it.
"""

import asyncio
import socket
import ssl
from collections.abc import AsyncGenerator, AsyncIterator, Iterator, Sequence
from contextlib import aclosing, asynccontextmanager, contextmanager, suppress
from http import HTTPStatus
from typing import Final

import aiohttp
import msgspec
from multidict import CIMultiDict

from pharos.clock import Clock, monotonic
from pharos.control.bucket import Bucket
from pharos.control.fetch import fault_of
from pharos.control.follow.fault import Fault, FeedError
from pharos.core.engine.probe import FetchFault

MAX_EVENT: Final = 4 * 1024 * 1024
"""Bytes of one event; the longest seen is llama-swap's first one, with the log it has kept."""
CONNECT_S: Final = 5.0
HEAD_S: Final = 10.0
"""Seconds within which the head of the answer comes; it does not wait for the first event."""

SLICE: Final = 8 * 1024
"""Bytes that are looked at before others may get the loop."""
QUIET_RATE: Final = 64 * 1024
"""Bytes a second without an event that are borne for long: comments that keep a connection alive are far fewer."""
REST: Final = 3.0
"""Rests this many times as long as looking at a slice took."""
NOTICED_S: Final = 0.0005
"""Seconds of work that are worth a rest."""

_BOM: Final = b"\xef\xbb\xbf"
_LF, _CR = 0x0A, 0x0D
_KEEP_ALIVE: Final = tuple(
    (getattr(socket, name), value)
    for name, value in (("TCP_KEEPIDLE", 15), ("TCP_KEEPINTVL", 5), ("TCP_KEEPCNT", 3))
    if hasattr(socket, name)
)
"""A machine that is gone is noticed after 15 + 3 × 5 s."""
_FAULTS: Final = {
    FetchFault.RESET: Fault.CUT,
    FetchFault.NOT_HTTP: Fault.UNREADABLE,
}


class SseEvent(msgspec.Struct, frozen=True):
    """One event of a stream."""

    event: str
    """Its name; empty when it has none, which stands for `message`."""
    data: bytes
    """Its data lines, joined by LF."""


class EventParser:
    """Finds the events of one stream, from its first byte on, however it is cut."""

    def __init__(self, limit: int = MAX_EVENT) -> None:
        """`limit`: bytes of the fields of one event that are held; comments do not count."""
        self.limit = limit
        """See above."""
        self._tail = bytearray()
        """The line that has not ended."""
        self._name = b""
        self._data: list[bytes] = []
        self._size = 0
        """Bytes of the present event's lines that have ended."""
        self._is_comment = False
        """Whether the line that has not ended is a comment, which is not kept."""
        self._is_first = True
        self._after_cr = False

    def __repr__(self) -> str:
        return f"<EventParser {self._size + len(self._tail)} bytes of an event>"

    def feed(self, data: bytes) -> list[SseEvent]:
        """Take the next bytes in; return the events that end in them.

        Raises `FeedError` when an event is longer than the limit: it may have been one that matters.
        """
        events: list[SseEvent] = []
        if not data:
            return events
        if self._after_cr and data[0] == _LF:
            data = data[1:]
        for piece in data.splitlines(keepends=True):
            is_ended = piece[-1] in (_LF, _CR)
            self._take(piece.rstrip(b"\r\n") if is_ended else piece)
            if is_ended and (event := self._end_line()) is not None:
                events.append(event)
        self._after_cr = data.endswith(b"\r")
        return events

    def _take(self, piece: bytes) -> None:
        if self._is_comment or (not self._tail and piece.startswith(b":")):
            self._is_comment = True
            return
        self._tail += piece
        if self._size + len(self._tail) > self.limit:
            raise FeedError(Fault.TOO_LARGE, f"an event is longer than {self.limit} bytes")

    def _end_line(self) -> SseEvent | None:
        """Take the line in that ends here; return the event that it ends."""
        line = bytes(self._tail)
        self._tail.clear()
        if self._is_first:
            self._is_first = False
            line = line.removeprefix(_BOM)
        if self._is_comment or line.startswith(b":"):
            self._is_comment = False
        elif not line:
            return self._end_event()
        else:
            self._size += len(line)
            self._field(*line.split(b":", 1))
        return None

    def _field(self, name: bytes, value: bytes = b"") -> None:
        value = value.removeprefix(b" ")
        if name == b"data":
            self._data.append(value)
        elif name == b"event":
            self._name = value

    def _end_event(self) -> SseEvent | None:
        name, data = self._name, self._data
        self._name, self._data, self._size = b"", [], 0
        return SseEvent(name.decode("utf-8", "replace"), b"\n".join(data)) if data else None


@asynccontextmanager
async def open_events(
    session: aiohttp.ClientSession,
    url: str,
    path: str,
    *,
    headers: Sequence[tuple[str, str]] = (),
    tls: ssl.SSLContext | None = None,
    silence_s: float | None = None,
    max_event: int = MAX_EVENT,
) -> AsyncIterator[AsyncIterator[SseEvent]]:
    """Open the event stream at `url` + `path`; what is entered gives its events.

    `headers` are added to the session's own; `tls`: `None` trusts what the system trusts. After `silence_s` seconds
    without a byte the stream counts as dead (`None`: no deadline, for engines that say nothing while nothing changes; a
    machine that is gone is noticed all the same). Raises `FeedError`, on entering and while events are read; a redirect
    is an error, since it leads to another program.
    """
    with _errors():
        response = await _ask(session, url + path, headers, tls, silence_s)
    try:
        _check(response)
        _keep_alive(response)
        async with aclosing(_events(response, EventParser(max_event))) as events:
            yield events
    finally:
        response.close()


async def _ask(
    session: aiohttp.ClientSession,
    url: str,
    headers: Sequence[tuple[str, str]],
    tls: ssl.SSLContext | None,
    silence_s: float | None,
) -> aiohttp.ClientResponse:
    wanted = CIMultiDict({"Accept": "text/event-stream", "Cache-Control": "no-store"})
    wanted.update(headers)
    timeout = aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_S, sock_read=silence_s)
    async with asyncio.timeout(HEAD_S):
        return await session.get(
            url, headers=wanted, ssl=tls if tls is not None else True, timeout=timeout, allow_redirects=False
        )


def _check(response: aiohttp.ClientResponse) -> None:
    status = response.status
    packing = response.headers.get("Content-Encoding", "identity").lower()
    if status in {HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN}:
        raise FeedError(Fault.UNAUTHORIZED, f"the engine answers {status}: it wants a credential")
    if status in {HTTPStatus.NOT_FOUND, HTTPStatus.METHOD_NOT_ALLOWED, HTTPStatus.NOT_IMPLEMENTED}:
        raise FeedError(Fault.NOT_FOUND, f"the engine answers {status}: it has no such path")
    if status == HTTPStatus.SERVICE_UNAVAILABLE:
        raise FeedError(Fault.STARTING)
    if status != HTTPStatus.OK:
        raise FeedError(Fault.STATUS, f"the engine answers {status}")
    if response.content_type.lower() != "text/event-stream" or packing != "identity":
        raise FeedError(Fault.WRONG_TYPE, "the engine answers with something that is no event stream")


def _keep_alive(response: aiohttp.ClientResponse) -> None:
    """Let the system ask a silent peer every few seconds whether it is still there."""
    connection = response.connection
    sock = connection.transport.get_extra_info("socket") if connection is not None and connection.transport else None
    if sock is None:
        return
    with suppress(OSError):
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for option, value in _KEEP_ALIVE:
            sock.setsockopt(socket.IPPROTO_TCP, option, value)


async def _events(
    response: aiohttp.ClientResponse, parser: EventParser, clock: Clock = monotonic
) -> AsyncGenerator[SseEvent, None]:
    most = parser.limit + QUIET_RATE  # the longest event comes in as many bytes before it ends
    quiet = Bucket(QUIET_RATE, most, clock())
    while True:
        with _errors():
            data = await response.content.readany()
        if not data:
            return
        for start in range(0, len(data), SLICE):
            began = clock()
            events = parser.feed(data[start : start + SLICE])
            spent = clock() - began
            for event in events:
                yield event
            if events:
                quiet = Bucket(QUIET_RATE, most, clock())
            elif quiet.available(clock()) < SLICE:
                raise FeedError(Fault.TOO_LARGE, "it sends too much that is no event")
            else:
                quiet.take(len(data[start : start + SLICE]), clock())
            if spent >= NOTICED_S:  # bytes that make work without an event give the loop back as well
                await asyncio.sleep(REST * spent)
        await asyncio.sleep(0)


@contextmanager
def _errors() -> Iterator[None]:
    """Turn the HTTP client's errors into ours."""
    try:
        yield
    except (aiohttp.ClientError, OSError, ValueError, RuntimeError) as error:
        fault = fault_of(error)
        if fault is FetchFault.TIMEOUT:
            raise FeedError(Fault.SILENT) from None
        raise FeedError(_FAULTS.get(fault, Fault.NO_CONNECTION), fault.value) from None
