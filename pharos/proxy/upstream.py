"""Kept connections to engines: one HTTP/1.1 exchange at a time on each, parsed by httptools, handed on once per read.

Nothing is decided here about clients, retries or engines. Framing is tracked here, because httptools has no end-of-file
call, reports a 1xx as a message, gives trailers as headers and never refuses an endless header.
"""

import asyncio
import enum
import ssl
from collections.abc import Callable, Sequence
from typing import Protocol, cast

import httptools

from pharos.clock import Clock
from pharos.proxy.chunks import is_whole
from pharos.proxy.dial import dial
from pharos.proxy.head import NO_BODY
from pharos.proxy.steady import Flow
from pharos.proxy.upload import SLICE, Upload

SILENT_LIMIT = 256 * 1024
"""Most bytes read in a row that give no body: longer heads, trailers and chunk extensions are no HTTP reply."""
COPIED = 8 * 1024
"""Bytes of a request's body up to which a copy costs less than sending it in parts."""
IDLE_LIMIT = 256
"""Connections kept per backend while nothing runs on them: as many as an engine usually serves at once."""
IDLE_S = 60.0
"""Seconds after which a kept connection is not used again."""
FIRST_STATUS = 100
LAST_STATUS = 599
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
        "_status", "_take_chunk", "_transport", "_until_close", "_upload", "connected_at", "idle_since",
        "on_body", "url", "was_refused", "was_silent",
    )  # fmt: skip

    def __init__(self, url: str, release: Callable[["Connection"], None], connected_at: float) -> None:
        self.url = url
        self.connected_at = connected_at
        """When the connection was asked for: what fails on it says nothing about an engine that came up later."""
        self.idle_since = connected_at
        self._release = release
        self._transport: asyncio.Transport | None = None
        self._exchange: Exchange | None = None
        self._upload: Upload | None = None
        """The request's body, when it is too large to be sent at once."""
        self.was_refused = self.was_silent = False
        """Whether the connection ended before the engine had taken the whole request; had sent one byte of a reply."""
        self._paused = False
        self._closing = False
        self._parser: httptools.HttpResponseParser | None = None
        """Kept from one exchange to the next as long as replies end as they should."""
        self._parts: list[bytes] = []
        self.on_body = self._parts.append  # httptools calls it from C; the list is cleared, never replaced
        self._reset()

    def __repr__(self) -> str:
        state = "closed" if self.is_closed else "idle" if self._exchange is None else "busy"
        return f"<Connection {self.url} {state}>"

    def _reset(self) -> None:
        self._headers: list[tuple[bytes, bytes]] = []
        self._flow: Flow | None = None
        self._status = self._silent = 0
        self._length: int | None = None
        self._take_chunk: Flow | None = None
        self._has_head = self._is_head_given = self._complete = self._interim = self._until_close = self._kept = False

    @property
    def is_closed(self) -> bool:
        """Whether nothing can be sent on it any more."""
        return self._transport is None or self._closing or self._transport.is_closing()

    @property
    def is_sent(self) -> bool:
        """Whether the whole request was handed to the transport."""
        return self._upload is None or self._upload.is_sent

    # --- the request

    def begin(self, exchange: Exchange, head: bytes, *body: bytes | memoryview) -> None:
        """Send a request, its body in one part or several; the reply goes to `exchange`."""
        assert self._transport is not None  # noqa: S101 - only open connections are given out
        self._reset()
        self._exchange = exchange
        if self._parser is None:
            self._parser = httptools.HttpResponseParser(self)
        if _sent_at_once(self._transport, head, body):
            return
        self._transport.write(head)
        self._upload = Upload(self._transport, body, is_paused=self._paused)
        self._upload.send_more()

    def pause_writing(self) -> None:
        """Called by the transport: the engine reads slower than we send."""
        self._paused = True
        if self._upload is not None:
            self._upload.is_paused = True

    def resume_writing(self) -> None:
        """Called by the transport: room again."""
        self._paused = False
        if self._upload is not None:
            self._upload.is_paused = False
            self._upload.send_more()

    def flow_to(self, flow: Flow, take_chunk: Flow) -> None:
        """From now on hand body bytes of this reply to `flow`; the last ones still go to the exchange's `on_read`.

        Reads that may be one whole chunk go to `take_chunk`, framing included; others it gives to `parse`.
        """
        self._flow = flow
        self._take_chunk = take_chunk

    def parse(self, read: bytes) -> None:
        """This read is for the parser after all, and so are the next."""
        if self._transport is not None:
            self._transport.set_protocol(self)
        self.data_received(read)

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
        self._exchange = self._flow = self._take_chunk = None
        self._parser = None  # it refers back to us
        self._closing = True
        self._end_upload()
        if self._transport is not None:
            self._transport.abort()

    def _end_upload(self) -> None:
        if self._upload is not None:
            self._upload.let_go()
            self._upload = None

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
        if not FIRST_STATUS <= status <= LAST_STATUS:
            raise ValueError("no status of HTTP")
        if status < FIRST_FINAL:
            self._interim = True
            self._headers.clear()
            return
        self._status = status
        self._kept = self._parser.should_keep_alive()
        chunked = False
        for name, value in self._headers:
            low = name.lower()
            if low == b"content-length":
                self._length = int(value)
            elif low == b"transfer-encoding":
                if chunked or value.lower() != b"chunked":
                    raise ValueError("a coding that is not undone here")
                chunked = True
        self._has_head = True
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
        is_one = len(parts) == 1
        body = parts[0] if is_one else b"".join(parts)
        parts.clear()
        if body:
            self._silent = 0
            if self._flow is not None and not self._complete and not broken:
                if is_one and is_whole(data, body) and self._transport is not None and self._take_chunk is not None:
                    self._transport.set_protocol(cast("asyncio.BaseProtocol", _Short(self, self._take_chunk)))
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
        self._exchange = self._flow = self._take_chunk = None
        exchange.on_read(body, complete=True)  # first: these bytes may fill the client's transport, which pauses us
        if reusable and self.is_sent and not self.is_closed:
            self._end_upload()
            self.resume_reading()
            self._release(self)
        else:
            self.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        """The connection is over: the end of a close-delimited reply, or an early one."""
        self.was_refused = not self.is_sent
        if exc is not None and self._upload is not None and (late := self._upload.unread(SILENT_LIMIT)):
            self.data_received(late)  # an answer to the head, which the failed write of the body overtook
        self._end_upload()
        self.was_silent = self._silent == 0 and not self._has_head
        exchange, self._exchange = self._exchange, None
        self._transport = self._flow = self._take_chunk = None
        self._parser = None
        self._closing = True
        if exchange is None:
            self._release(self)
        elif exc is None and self._until_close and self._is_head_given:
            exchange.on_read(b"", complete=True)
        else:
            exchange.on_lost(Lost.CLOSED)


class _Short:
    """Stands in for a connection at its transport while the parser stands between two chunks of a reply that flows.

    A read that is one whole chunk passes the parser by: it is where it was.
    """

    __slots__ = ("connection_lost", "data_received", "eof_received", "pause_writing", "resume_writing")

    def __init__(self, connection: Connection, take_chunk: Flow) -> None:
        self.data_received = take_chunk
        self.connection_lost = connection.connection_lost
        self.eof_received = connection.eof_received
        self.pause_writing = connection.pause_writing
        self.resume_writing = connection.resume_writing


def _sent_at_once(transport: asyncio.Transport, head: bytes, body: Sequence[bytes | memoryview]) -> bool:
    """Hand a request to the transport whole, if it is not too large for that."""
    size = sum(map(len, body))
    if size <= COPIED:
        transport.write(b"".join((head, *body)))  # several parts would take the transport's long way
    elif size <= SLICE:
        transport.writelines((head, *body))  # one send, without a copy of the body
    else:
        return False
    return True


class Pool:
    """Connections kept open per backend, the youngest used first."""

    def __init__(self, connect_s: float, clock: Clock) -> None:
        self.connect_s = connect_s
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

    async def fresh(self, url: str, key: str, tls: ssl.SSLContext | None) -> Connection:
        """A new connection, to be kept under `key`; `tls` as in `dial`. Raises DialError."""
        now = self._clock()
        return await dial(url, lambda: Connection(key, self._released, now), self.connect_s, tls)

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
