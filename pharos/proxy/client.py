"""A client's connection: aiohttp accepts and parses, everything after that is ours.

aiohttp must never write a byte here: it would not know what was already sent. Nothing that a client sent is logged.
"""

import asyncio
import logging
import traceback
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any, cast

from aiohttp import web
from aiohttp.http_parser import RawRequestMessage
from aiohttp.web_protocol import RequestHandler, RequestPayloadError
from aiohttp.web_request import BaseRequest

from pharos.proxy import unmade
from pharos.proxy.cors import Cors
from pharos.proxy.errors import internal_error
from pharos.proxy.head import named_by_connection
from pharos.proxy.serving import LINGER_S, Serving
from pharos.proxy.settings import ProxySettings
from pharos.proxy.trailing import Trailing
from pharos.proxy.turn import Turn

if TYPE_CHECKING:
    from aiohttp.streams import StreamReader

    from pharos.proxy.answer import Answer
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
FAULT = internal_error()


Serve = Callable[["ClientConnection", RawRequestMessage, "StreamReader"], Coroutine[Any, Any, None]]
"""Answers one request: see `Serving._begin`."""


class ClientConnection(Serving):
    """One client's connection: back-pressure and hang-ups reach the relay from here, in the same turn of the loop."""

    __slots__ = (
        "_answer", "_body", "_discarded", "_head_bytes", "_head_timer", "_listener", "_paused_timer", "_start",
        "_started_at", "_trailing", "is_spare", "relay", "wire",
    )  # fmt: skip

    def __init__(self, listener: "Listener", **options: Any) -> None:  # noqa: ANN401 - aiohttp\'s own
        self._listener = listener
        self._head_bytes = 0
        self._start = b""
        """How a head begins that came in several reads."""
        self._started_at = -1
        """So many requests had come before that one."""
        self._body: StreamReader | None = None
        self._head_timer: asyncio.TimerHandle | None = None
        self._paused_timer: asyncio.TimerHandle | None = None
        self._discarded = -1
        """Bytes read away since nothing more is parsed; negative: all is parsed."""
        self._trailing: Trailing | None = None  # until a body in chunks comes
        self._answer: Answer | None = None
        """To the last request behind which something may be hidden."""
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
            unmade.dismiss(self.wire, unmade.FULL, LINGER_S, cors=listener.cors)
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
        self.wire = self._answer = None

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
        is_held = self._buffer_paused or self._reading_paused
        if self.wire is None or not is_held or not (self._messages or self._upgraded):
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
        is_between = body is None or body.is_eof()  # asked before: the last read of a body is no head
        super().data_received(data)
        if self._request_count > known:
            self._head_bytes = 0
            if self._head_timer is not None:
                self._head_timer.cancel()
                self._head_timer = None
            if self._messages:
                newest, self._body = self._messages[-1]
                if not isinstance(newest, RawRequestMessage):
                    self._keep_start(data, known)  # it is answered when its turn comes
                    if body is not None and not body.is_eof():
                        body.set_exception(RequestPayloadError("broken"))  # aiohttp leaves its reader waiting
                elif newest.chunked or self._trailing is not None or self._request_count > known + 1:
                    self._follow_chunks(data, self._request_count - known)
        else:
            if self._trailing is not None:
                self._follow_chunks(data, 0)
            if data and is_between and not self._close:
                self._wait_for_head(data)
        if self._messages and self._turn is None:
            self._begin_soon()

    def _keep_start(self, data: bytes, known: int) -> None:
        """Keep how the head behind so many requests begins, in case that it must be refused."""
        if self._started_at != known:
            self._start, self._started_at = b"", known
        if len(self._start) < unmade.START_LIMIT:
            self._start += data[: unmade.START_LIMIT]

    def _wait_for_head(self, data: bytes) -> None:
        """More bytes, and still no whole head."""
        self._keep_start(data, self._request_count)
        self._head_bytes += len(data)
        if self._head_timer is None:
            self._expect_head(self._listener.first_head_s)
        if self._head_bytes > self._listener.header_limit:
            self._refuse_head()

    def look_behind(self, message: RawRequestMessage, answer: "Answer") -> None:
        """Begin a request behind which something may be hidden: nothing is served then that comes behind it.

        aiohttp does not parse what follows a request for another protocol, and drops some of it; of HTTP/1.0 it goes on
        when the client wants that and its contrary.
        """
        self._answer = answer
        is_doubtful = self._trailing is not None and self._trailing.is_doubtful
        if (
            message.upgrade
            or is_doubtful
            or (not answer.http11 and b"close" in named_by_connection(message.raw_headers))
        ):
            answer.close_after()

    def _follow_chunks(self, data: bytes, came: int) -> None:
        """See how bodies in chunks end; `came`: requests that began in this read."""
        if self._trailing is None:
            self._trailing = Trailing()
        self._trailing.take(data, list(self._messages)[-came:] if came else ())
        if self._trailing.is_doubtful and self._answer is not None:
            self._answer.close_after()

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
            unmade.dismiss(self.wire, unmade.TOO_BIG, LINGER_S, self._start, self._listener.cors)

    def _refuse(self, error: BaseException | None) -> None:
        """Answer what never became a request, in our shape, echoing nothing of it."""
        if self.wire is not None:
            unmade.dismiss(self.wire, unmade.fault_of(error), LINGER_S, self._start, self._listener.cors)

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


async def _never(request: BaseRequest) -> web.StreamResponse:
    """What aiohttp would call for a request."""
    raise NotImplementedError


class Listener(web.Server):
    """Makes a `ClientConnection` for each client."""

    def __init__(self, serve: Serve, settings: ProxySettings, cors: Cors | None = None) -> None:
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
        self.cors = cors
        self.limit = settings.connections
        self.first_head_s = settings.first_head_s
        self.header_limit = settings.header_bytes

    def __call__(self) -> RequestHandler:
        """Called by the loop for each connection. Wrong options must raise: aiohttp would drop all of them."""
        return ClientConnection(self, loop=self._loop, **self._kwargs)
