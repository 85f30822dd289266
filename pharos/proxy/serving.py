"""The requests of one client's connection, one after another.

aiohttp parses; its own way of serving makes a task, a request and a writer for each. What stands here replaces that,
on inner parts of it that tests/contracts guards.
"""

import asyncio
import contextlib
from abc import abstractmethod
from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any

from aiohttp.http_parser import RawRequestMessage
from aiohttp.web_protocol import RequestHandler, RequestPayloadError

from pharos.proxy.turn import Turn, as_task

if TYPE_CHECKING:
    from aiohttp.streams import StreamReader

LINGER_S = 1.0
"""Seconds for which the rest of an unwanted body is read away, so that the client sees the answer and not a reset."""
AT_ONCE = 8
"""Requests of one client that are begun before others get their turn: it may have sent thousands."""


class Serving(RequestHandler):
    """Takes requests from aiohttp's parser and has them answered."""

    __slots__ = ("_is_coming", "_payload", "_turn", "is_kept")

    def __init__(self, *arguments: Any, **options: Any) -> None:  # noqa: ANN401 - aiohttp's own
        self._turn: Turn | None = None
        """The request in work."""
        self._payload: StreamReader | None = None
        """Its body."""
        self._is_coming = False
        """Whether requests will be begun in this turn of the loop."""
        self.is_kept = False
        """Whether the connection may carry another request after the one in work."""
        super().__init__(*arguments, **options)

    @abstractmethod
    def _begin(self, message: RawRequestMessage, payload: "StreamReader") -> Coroutine[Any, Any, None]:
        """What answers a request and settles `is_kept`; errors are its own to catch."""

    @abstractmethod
    def _refuse(self, error: BaseException | None) -> None:
        """Answer what is no request, and part."""

    @property
    def kept_at(self) -> float:
        """When its last reply promised that it may carry another request, else when it came, on the loop's clock."""
        return self._next_keepalive_close_time - self._keepalive_timeout

    async def start(self) -> None:
        """Nothing: requests are begun by what brings them, not by a task of the connection."""

    def _begin_soon(self) -> None:
        """Begin what has come, once all clients that the loop found ready have been read.

        All of one step, then all of the next: the processor still knows the code then. A request carried through at one
        go costs a fifth more when 16 clients are busy.
        """
        if not self._is_coming:
            self._is_coming = True
            self._loop.call_soon(self._begin_requests)

    def _begin_requests(self) -> None:
        """Begin one request after another, until one takes its time."""
        for _ in range(AT_ONCE):
            if not self._messages or self._turn is not None or self._close or self._force_close:
                self._is_coming = False
                return
            self._begin_next()
        self._loop.call_soon(self._begin_requests)

    def _begin_next(self) -> None:
        message, payload = self._messages.popleft()
        self.is_kept = False
        if not isinstance(message, RawRequestMessage):
            self._close = True
            self._refuse(message.exc)
            return
        self._payload = payload
        self._request_in_progress = True
        turn = self._turn = Turn(self._begin(message, payload), self._served)
        if self._parser is not None:
            self._parser.message_consumed()
        if self._buffer_paused and len(self._messages) <= self._msg_queue_resume_size:
            self._resume_reading_if_drained()
        turn.begin()

    def _served(self) -> None:
        """The request in work has ended: read its body away, then keep the connection or close it."""
        self._request_in_progress = False
        if self._handler_waiter is not None and not self._handler_waiter.done():
            self._handler_waiter.set_result(None)
        payload, self._payload = self._payload, None
        if payload is not None and not payload.is_eof() and not self._force_close:
            turn = self._turn = Turn(self._linger(payload), self._go_on)
            turn.begin()
        else:
            self._go_on()

    async def _linger(self, payload: "StreamReader") -> None:
        """Read the rest of an unwanted body away for a moment: closing on it would reset before the client reads."""
        await as_task()
        with contextlib.suppress(TimeoutError, RequestPayloadError):
            async with asyncio.timeout(LINGER_S):
                while not payload.is_eof():
                    await payload.readany()
        if not payload.is_eof():
            self.close()

    def _go_on(self) -> None:
        self._turn = None
        self._keepalive = self.is_kept
        if self._force_close:
            return
        if self._close or not self.is_kept:
            self._close = True  # what came behind it is not served
            if self.transport is not None:
                self.transport.close()
            return
        self._next_keepalive_close_time = self._loop.time() + self._keepalive_timeout
        if self._keepalive_handle is None:
            self._keepalive_handle = self._loop.call_at(self._next_keepalive_close_time, self._process_keepalive)
        if self._messages:
            self._begin_soon()

    def _process_keepalive(self) -> None:
        """The client may have been idle for long enough. aiohttp looks for its own task."""
        self._keepalive_handle = None
        if self._force_close or not self._keepalive:
            return
        if self._loop.time() < self._next_keepalive_close_time:
            self._keepalive_handle = self._loop.call_at(self._next_keepalive_close_time, self._process_keepalive)
        elif self._turn is None:
            self.force_close()
