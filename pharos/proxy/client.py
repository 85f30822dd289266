"""A client's connection: aiohttp accepts and parses, everything after that is ours.

aiohttp must never write a byte here: it would not know what was already sent. Nothing that a client sent is logged.
"""

import asyncio
import logging
import secrets
import traceback
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any, cast

from aiohttp import web
from aiohttp.http_exceptions import LineTooLong
from aiohttp.http_parser import RawRequestMessage
from aiohttp.web_protocol import RequestHandler, RequestPayloadError
from aiohttp.web_request import BaseRequest

from pharos.proxy.errors import ClientFault, PharosError, PharosFault, internal_error, render, shape_for
from pharos.proxy.head import status_line
from pharos.proxy.incoming import JSON
from pharos.proxy.serving import LINGER_S, Serving
from pharos.proxy.settings import ProxySettings
from pharos.proxy.turn import Turn

if TYPE_CHECKING:
    from aiohttp.streams import StreamReader

    from pharos.proxy.relay import Relay

log = logging.getLogger(__name__)

SPARE = 64
"""Connections beyond the limit, so that health checks and metrics are answered when the limit is reached."""
SPARE_HEAD_S = 2.0
"""Seconds such a connection has to ask."""
PAUSED_S = 0.5
"""Seconds for which a client that sends faster than it is served is not read, hence could leave unseen."""
DISCARD_LIMIT = 64 * 1024 * 1024
"""Bytes read away behind a request in work; a client that sends more is parted from."""
MAX_HEADERS = 256
TOO_BIG = ClientFault(431, "headers_too_large", "The request line and its headers are too large: shorten them.")
BROKEN = ClientFault(400, "bad_request", "This is no valid HTTP request.")
FULL = PharosFault(503, "too_many_connections", "Too many connections are open: try again shortly.", retry_after_s=1)
FAULT = internal_error()


Serve = Callable[["ClientConnection", RawRequestMessage, "StreamReader"], Coroutine[Any, Any, None]]
"""Answers one request: see `Serving._begin`."""


class ClientConnection(Serving):
    """One client's connection: back-pressure and hang-ups reach the relay from here, in the same turn of the loop."""

    __slots__ = (
        "_body", "_discarded", "_head_bytes", "_head_timer", "_listener", "_paused_timer", "is_spare", "relay", "wire",
    )  # fmt: skip

    def __init__(self, listener: "Listener", **options: Any) -> None:  # noqa: ANN401 - aiohttp\'s own
        self._listener = listener
        self._head_bytes = 0
        self._body: StreamReader | None = None
        self._head_timer: asyncio.TimerHandle | None = None
        self._paused_timer: asyncio.TimerHandle | None = None
        self._discarded = -1
        """Bytes read away since nothing more is parsed; negative: all is parsed."""
        self.is_spare = False
        """Whether it is one beyond the limit."""
        self.wire: asyncio.Transport | None = None
        self.relay: Relay | None = None
        super().__init__(listener, **options)

    @property
    def is_idle(self) -> bool:
        """Whether no request is in work, waits, or has come in part."""
        return self._turn is None and not self._messages and self._head_bytes == 0

    @property
    def is_half_sent(self) -> bool:
        """Whether all it has is the beginning of a request's head."""
        return self._turn is None and not self._messages and self._head_bytes > 0

    @property
    def is_busy(self) -> bool:
        """Whether a request is in work."""
        return self._turn is not None

    @property
    def is_flushed(self) -> bool:
        """Whether the client's transport holds nothing that must still be sent."""
        return self.wire is None or self.wire.get_write_buffer_size() == 0

    def abort(self) -> None:
        """Part at once; what the client has not taken is lost."""
        if self.wire is not None:
            self.wire.abort()

    async def drained(self) -> None:
        """Wait until the client has taken most of what was written."""
        if self._paused and self.transport is not None:
            await self._drain_helper()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """A client came; one too many is told so, unless it may be a health check."""
        self.wire = cast("asyncio.Transport", transport)
        listener = self._listener
        over = len(listener.connections) - listener.limit
        if over >= SPARE:
            self._force_close = True
            _dismiss(self.wire, FULL)
            return
        self.is_spare = over >= 0
        super().connection_made(transport)
        self._expect_head(SPARE_HEAD_S if self.is_spare else listener.first_head_s)

    def connection_lost(self, exc: BaseException | None) -> None:
        """The client is gone: its engine shall stop now, not when a cancelled task gets its turn."""
        if self.relay is not None:
            self.relay.client_left()
        self._force_close = True
        if self._turn is not None:
            self._turn.cancel()
        self._stop_timers()
        super().connection_lost(exc)
        self.wire = None

    def eof_received(self) -> None:
        """A client that shut its sending side counts as gone. Answering nothing closes the transport."""
        if self.relay is not None:
            self.relay.client_left()
            if self.wire is not None:
                self.wire.abort()

    def resume_reading(self, resume_parser: bool = True) -> None:  # noqa: FBT001, FBT002 - aiohttp's signature
        """Read on. aiohttp asks after each piece of a body that was taken, and would parse nothing anew each time."""
        if self._reading_paused or self._buffer_paused:
            super().resume_reading(resume_parser)

    def pause_reading(self) -> None:
        """A body comes faster than it is read: of the request in work, or of one that waits behind it."""
        super().pause_reading()
        self._watch_pause()

    def _pause_reading_for_buffer(self) -> None:
        """Too many requests wait behind the one in work."""
        super()._pause_reading_for_buffer()
        self._watch_pause()

    def _watch_pause(self) -> None:
        if self._paused_timer is None and self.wire is not None and self._discarded < 0:
            timer = self._loop.call_later(PAUSED_S, self._paused_long, self._turn)
            self._paused_timer = timer

    def _paused_long(self, turn: Turn | None) -> None:
        """Unread, a client can leave unseen while its engine works: read on, but serve nothing more of it.

        A pause for the body of the request in work is left alone: that body is being read.
        """
        self._paused_timer = None
        if self.wire is None or not self._messages or not (self._buffer_paused or self._reading_paused):
            return
        if turn is None or turn is not self._turn:
            self._watch_pause()  # requests end all the time: no harm yet
            return
        self._discarded = 0
        self._messages.clear()
        self.close()  # the reply in work is finished first
        self._buffer_paused = self._reading_paused = False
        self._resume_transport_reading()

    def pause_writing(self) -> None:
        """The client reads slower than its engine writes."""
        super().pause_writing()
        if self.relay is not None:
            self.relay.pause()

    def resume_writing(self) -> None:
        """The client has caught up."""
        super().resume_writing()
        if self.relay is not None:
            self.relay.resume()

    def data_received(self, data: bytes) -> None:
        """Bytes of the client: bounded while they give no request, and a body that breaks off is told to its reader."""
        if self._discarded >= 0:
            self._discarded += len(data)
            if self._discarded > DISCARD_LIMIT:
                self.abort()
            return
        known, body = self._request_count, self._body
        super().data_received(data)
        if self._request_count > known:
            self._head_bytes = 0
            if self._head_timer is not None:
                self._head_timer.cancel()
                self._head_timer = None
            if self._messages:
                newest, self._body = self._messages[-1]
                if body is not None and not body.is_eof() and not isinstance(newest, RawRequestMessage):
                    body.set_exception(RequestPayloadError("broken"))  # aiohttp leaves its reader waiting
        elif data and (body is None or body.is_eof()) and not self._close:
            self._head_bytes += len(data)
            if self._head_timer is None:
                self._expect_head(self._listener.first_head_s)
            if self._head_bytes > self._listener.header_limit:
                self._refuse_head()
        if self._messages and self._turn is None:
            self._begin_soon()

    def _expect_head(self, seconds: float) -> None:
        self._head_timer = self._loop.call_later(seconds, self._no_head)

    def _no_head(self) -> None:
        """No whole head came in time."""
        self._head_timer = None
        if self.is_busy:
            self.close()  # nothing more is parsed; the request in work is finished first
        else:
            self.force_close()

    def _stop_timers(self) -> None:
        for timer in (self._head_timer, self._paused_timer):
            if timer is not None:
                timer.cancel()
        self._head_timer = self._paused_timer = None

    def _refuse_head(self) -> None:
        is_waiting = self._turn is None and not self._messages
        self.close()  # nothing more is parsed; a request in work is finished first
        if is_waiting and self.wire is not None:
            _dismiss(self.wire, TOO_BIG)

    def _refuse(self, error: BaseException | None) -> None:
        """Answer what never became a request, in our shape, echoing nothing of it."""
        is_big = isinstance(error, LineTooLong) or (error is not None and "Too many headers" in str(error))
        if self.wire is not None:
            self.wire.write(_bare(TOO_BIG if is_big else BROKEN))

    def _begin(self, message: RawRequestMessage, payload: "StreamReader") -> Coroutine[Any, Any, None]:
        """What answers a request."""
        return self._listener.serve(self, message, payload)

    def log_exception(self, *args: Any, **kwargs: Any) -> None:  # noqa: ANN401, ARG002 - aiohttp's signature
        """Say what kind of fault it was and where: its text may quote what a client sent."""
        error = kwargs.get("exc_info")
        if isinstance(error, BaseException):
            log_fault("while serving a client", error)


def log_fault(where: str, error: BaseException) -> None:
    """Log a fault of Pharos without its text."""
    log.error(
        "a fault of Pharos %s: %s\n%s", where, type(error).__name__, "".join(traceback.format_tb(error.__traceback__))
    )


def _bare(fault: PharosError) -> bytes:
    """A whole reply for a client whose request is not known."""
    body = render(fault, shape_for("/", {}))
    lines = [
        status_line(fault.status),
        b"Content-Type: ", JSON, b"\r\n",
        b"Content-Length: %d\r\n" % len(body),
        b"X-Request-Id: ", secrets.token_hex(16).encode(), b"\r\n",
    ]  # fmt: skip
    if fault.retry_after_s is not None:
        lines.append(b"Retry-After: %d\r\n" % fault.retry_after_s)
    lines += (b"Connection: close\r\n\r\n", body)
    return b"".join(lines)


def _dismiss(wire: asyncio.Transport, fault: PharosError) -> None:
    """Answer and close, but read on for a moment: closing on unread bytes would reset before the client has it."""
    wire.write(_bare(fault))
    if wire.can_write_eof():
        wire.write_eof()
    asyncio.get_running_loop().call_later(LINGER_S, wire.close)


async def _never(request: BaseRequest) -> web.StreamResponse:
    """What aiohttp would call for a request."""
    raise NotImplementedError


class Listener(web.Server):
    """Makes a `ClientConnection` for each client."""

    def __init__(self, serve: Serve, settings: ProxySettings) -> None:
        super().__init__(
            _never,
            handler_cancellation=True,
            access_log=None,
            auto_decompress=False,
            keepalive_timeout=settings.idle_s,
            tcp_keepalive=False,  # inherited from the listening socket: see dial.watch
            lingering_time=LINGER_S,
            max_line_size=settings.header_bytes,
            max_field_size=settings.header_bytes,
            max_headers=MAX_HEADERS,
        )
        self.serve = serve
        self.limit = settings.connections
        self.first_head_s = settings.first_head_s
        self.header_limit = settings.header_bytes

    def __call__(self) -> RequestHandler:
        """Called by the loop for each connection. Wrong options must raise: aiohttp would drop all of them."""
        return ClientConnection(self, loop=self._loop, **self._kwargs)
