"""Kept connections to engines: one HTTP/1.1 exchange at a time on each, parsed by httptools, handed on once per read.

Nothing is decided here about clients, retries or engines. Framing is tracked here, because httptools has no end-of-file
call, reports a 1xx as a message, gives trailers as headers and never refuses an endless header.
"""

import asyncio
import contextlib
import enum
import os
import socket
from collections.abc import Callable
from typing import Protocol, cast

import httptools

from pharos.clock import Clock
from pharos.proxy.dial import dial
from pharos.proxy.head import NO_BODY

SLICE = 256 * 1024
"""Bytes of a request body handed to the transport at once, so that it holds no second copy of a big one."""
SILENT_LIMIT = 256 * 1024
"""Most bytes read in a row that give no body: longer heads, trailers and chunk extensions are no HTTP reply."""
IDLE_LIMIT = 64
"""Connections kept per backend while nothing runs on them."""
IDLE_S = 60.0
"""Seconds after which a kept connection is not used again."""
FIRST_STATUS = 100
FIRST_FINAL = 200


class Lost(enum.Enum):
    """Why an exchange ended without the end of a reply."""

    CLOSED = "closed"
    BAD_REPLY = "bad reply"


class Exchange(Protocol):
    """Who gets a reply."""

    def on_head(self, status: int, headers: list[tuple[bytes, bytes]], length: int | None) -> None:
        """The head of the final reply came; `length` as the engine states it."""

    def on_read(self, body: bytes, *, complete: bool) -> None:
        """One read from the engine gave these bytes of the body; `complete` when the reply ended with them."""

    def on_lost(self, why: Lost) -> None:
        """The connection ended, or cannot be understood, before the reply was complete."""


class Connection(asyncio.Protocol):
    """One connection to one engine."""

    __slots__ = (
        "_closing", "_complete", "_exchange", "_flow", "_has_head", "_headers", "_interim",
        "_is_head_given", "_kept", "_length", "_parser", "_parts", "_paused", "_release", "_silent",
        "_spare", "_status", "_transport", "_unsent", "_until_close", "connected_at", "idle_since",
        "on_body", "url", "was_refused",
    )  # fmt: skip

    def __init__(self, url: str, release: Callable[["Connection"], None], connected_at: float) -> None:
        self.url = url
        self.connected_at = connected_at
        """When the connection was asked for: what fails on it says nothing about an engine that came up later."""
        self.idle_since = connected_at
        self._release = release
        self._transport: asyncio.Transport | None = None
        self._exchange: Exchange | None = None
        self._unsent: list[memoryview] = []
        """Parts of the request's body that are still to be handed to the transport, the last one first."""
        self.was_refused = False
        """Whether the connection ended before the engine had taken the whole request."""
        self._spare: socket.socket | None = None
        """A second hold on the socket while a large body goes out: what the engine sent outlives a failed write."""
        self._paused = False
        self._closing = False
        self._parts: list[bytes] = []
        self.on_body = self._parts.append  # httptools calls it from C; the list is cleared, never replaced
        self._reset()

    def __repr__(self) -> str:
        state = "closed" if self.is_closed else "idle" if self._exchange is None else "busy"
        return f"<Connection {self.url} {state}>"

    def _reset(self) -> None:
        self._parser: httptools.HttpResponseParser | None = None
        self._headers: list[tuple[bytes, bytes]] = []
        self._flow: Callable[[bytes], None] | None = None
        self._status = 0
        self._length: int | None = None
        self._silent = 0
        self._has_head = self._is_head_given = self._complete = self._interim = False
        self._until_close = self._kept = False

    @property
    def is_closed(self) -> bool:
        """Whether nothing can be sent on it any more."""
        return self._transport is None or self._closing or self._transport.is_closing()

    @property
    def is_sent(self) -> bool:
        """Whether the whole request was handed to the transport."""
        return not self._unsent

    # --- the request

    def begin(self, exchange: Exchange, head: bytes, *body: bytes | memoryview) -> None:
        """Send a request, its body in one part or several; the reply goes to `exchange`."""
        assert self._transport is not None  # noqa: S101 - only open connections are given out
        self._reset()
        self._exchange = exchange
        self._parser = httptools.HttpResponseParser(self)
        if sum(map(len, body)) <= SLICE:
            self._transport.write(b"".join((head, *body)))
            return
        self._transport.write(head)
        self._spare = _second_hold(self._transport)
        self._unsent = [memoryview(part) for part in reversed(body)]
        self._send_more()

    def _send_more(self) -> None:
        while self._unsent and not self._paused and not self.is_closed and self._transport is not None:
            part = self._unsent.pop()
            if len(part) > SLICE:
                self._unsent.append(part[SLICE:])
            self._transport.write(part[:SLICE])

    def pause_writing(self) -> None:
        """Called by the transport: the engine reads slower than we send."""
        self._paused = True

    def resume_writing(self) -> None:
        """Called by the transport: room again."""
        self._paused = False
        self._send_more()

    def flow_to(self, flow: Callable[[bytes], None]) -> None:
        """From now on hand body bytes of this reply to `flow`; the last ones still go to the exchange's `on_read`."""
        self._flow = flow

    # --- back-pressure from the client

    def pause_reading(self) -> None:
        """Stop reading the reply: its client is slower than the engine."""
        if not self.is_closed and self._transport is not None:
            self._transport.pause_reading()

    def resume_reading(self) -> None:
        """Read on."""
        if not self.is_closed and self._transport is not None:
            self._transport.resume_reading()

    # --- the end of it

    def abort(self) -> None:
        """Close at once; the exchange, if any, hears nothing more."""
        self._exchange = self._flow = None
        self._parser = None  # it refers back to us
        self._unsent = []
        self._closing = True
        self._let_spare_go()
        if self._transport is not None:
            self._transport.abort()

    def _let_spare_go(self) -> None:
        if self._spare is not None:
            self._spare.close()
            self._spare = None

    def _fail(self, why: Lost) -> None:
        exchange = self._exchange
        self.abort()
        if exchange is not None:
            exchange.on_lost(why)

    # --- what httptools calls

    def on_message_begin(self) -> None:
        """A message starts. Stops the parser at a second final one: its body would be taken for part of the first."""
        if self._complete:
            raise ValueError("a reply that nobody asked for")
        self._interim = False

    def on_header(self, name: bytes, value: bytes) -> None:
        """One header, or one trailer when the head is over."""
        if not self._has_head:
            self._headers.append((name, value))

    def on_headers_complete(self) -> None:
        """The head is whole: settle the framing."""
        if self._complete or self._parser is None:
            return
        status = self._parser.get_status_code()
        if status < FIRST_STATUS:
            raise ValueError("no status of HTTP")
        if status < FIRST_FINAL:
            self._interim = True
            self._headers.clear()
            return
        self._status = status
        self._has_head = True
        self._kept = self._parser.should_keep_alive()
        chunked = False
        for name, value in self._headers:
            low = name.lower()
            if low == b"content-length":
                self._length = int(value)
            elif low == b"transfer-encoding":
                chunked = True
        if chunked:
            self._length = None
        self._until_close = not chunked and self._length is None and status not in NO_BODY

    def on_message_complete(self) -> None:
        """The message is whole; a 1xx only announces another one."""
        if self._interim:
            self._interim = False
            self._parts.clear()  # it has no body: what it gave as one belongs to no reply
        elif self._has_head:
            self._complete = True

    # --- what the transport calls

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Called once, by the loop."""
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        """One read: parse it, hand on what it gave in one piece."""
        exchange = self._exchange
        if exchange is None or self._parser is None:
            self.abort()  # bytes that nobody asked for
            return
        broken = False
        try:
            self._parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade, ValueError):
            broken = True
        parts = self._parts
        body = parts[0] if len(parts) == 1 else b"".join(parts)
        parts.clear()
        if body:
            self._silent = 0
            if self._flow is not None and not self._complete and not broken:
                self._flow(body)
                return
        else:
            self._silent += len(data)
            broken = broken or self._silent > SILENT_LIMIT
        self._hand_on(exchange, body, broken=broken)

    def _hand_on(self, exchange: Exchange, body: bytes, *, broken: bool) -> None:
        if self._has_head:
            if not self._is_head_given:
                self._is_head_given = True
                exchange.on_head(self._status, self._headers, self._length)
            if self._complete:
                self._end(exchange, body, reusable=self._kept and not broken)
                return
            if body or not broken:
                exchange.on_read(body, complete=False)
        if broken and self._exchange is exchange:
            self._fail(Lost.BAD_REPLY)

    def _end(self, exchange: Exchange, body: bytes, *, reusable: bool) -> None:
        self._exchange = self._flow = None
        self._parser = None
        if reusable and not self._unsent and not self.is_closed:
            self._let_spare_go()
            self.resume_reading()
            self._release(self)
        else:
            self.abort()
        exchange.on_read(body, complete=True)

    def eof_received(self) -> None:
        """The engine sends no more. Answering nothing closes the transport."""

    def connection_lost(self, exc: Exception | None) -> None:
        """The connection is over: the end of a close-delimited reply, or an early one."""
        self.was_refused = bool(self._unsent)
        if exc is not None and self._spare is not None and (late := _unread(self._spare)):
            self.data_received(late)  # an answer to the head, which the failed write of the body overtook
        self._let_spare_go()
        exchange, self._exchange = self._exchange, None
        self._transport = self._flow = None
        self._parser = None
        self._unsent = []
        self._closing = True
        if exchange is None:
            self._release(self)
        elif exc is None and self._until_close and self._is_head_given:
            exchange.on_read(b"", complete=True)
        else:
            exchange.on_lost(Lost.CLOSED)


def _second_hold(transport: asyncio.Transport) -> socket.socket | None:
    if transport.get_extra_info("sslcontext") is not None:
        return None  # its bytes are not the reply's
    spare = socket.socket(fileno=os.dup(transport.get_extra_info("socket").fileno()))
    spare.settimeout(0)
    return spare


def _unread(sock: socket.socket) -> bytes:
    """What came and was not read, up to `SILENT_LIMIT` bytes."""
    with contextlib.suppress(OSError):
        return sock.recv(SILENT_LIMIT)
    return b""


class Pool:
    """Connections kept open per backend, the youngest used first."""

    def __init__(self, connect_s: float, clock: Clock) -> None:
        self._connect_s = connect_s
        self._clock = clock
        self._idle: dict[str, list[Connection]] = {}

    def __repr__(self) -> str:
        return f"<Pool {sum(map(len, self._idle.values()))} idle>"

    def idle(self, url: str) -> int:
        """How many connections to this backend wait for work."""
        return len(self._idle.get(url, ()))

    def take(self, url: str) -> Connection | None:
        """A kept connection that is not known to be dead."""
        idle = self._idle.get(url)
        oldest = self._clock() - IDLE_S
        while idle:
            connection = idle.pop()
            if not connection.is_closed and connection.idle_since >= oldest:
                return connection
            connection.abort()
        return None

    async def fresh(self, url: str) -> Connection:
        """A new connection. Raises DialError."""
        now = self._clock()
        return await dial(url, lambda: Connection(url, self._released, now), self._connect_s)

    def close_idle(self, url: str) -> None:
        """The engine behind it is gone or restarted: its kept connections are worth nothing."""
        for connection in self._idle.pop(url, []):
            connection.abort()

    def close(self) -> None:
        """Close every idle connection; the busy ones belong to their exchanges."""
        for url in list(self._idle):
            self.close_idle(url)

    def _released(self, connection: Connection) -> None:
        idle = self._idle.setdefault(connection.url, [])
        if connection.is_closed:
            if connection in idle:
                idle.remove(connection)
        elif len(idle) >= IDLE_LIMIT:
            connection.abort()
        else:
            connection.idle_since = self._clock()
            idle.append(connection)
