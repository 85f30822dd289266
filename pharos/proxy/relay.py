"""Takes one reply from an engine's connection to the client's transport: one write per read, no queue, no task switch.

Runs inside the loop's callbacks, so nothing here may raise or wait. After the first byte to the client a reply ends in
one of three ways only: whole, cut honestly in its own protocol, or aborted.
"""

import asyncio
import enum
import logging
import traceback
from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

from pharos.clock import Clock
from pharos.proxy import head
from pharos.proxy.answer import Answer, Framing
from pharos.proxy.chunks import framed
from pharos.proxy.holding import HELD_LIMIT, Holding
from pharos.proxy.retry import REFUSES_US
from pharos.proxy.steady import HEARD_EVERY_S, steady
from pharos.proxy.tap import Ending, Tap
from pharos.proxy.turn import Mark
from pharos.proxy.unframed import Unframed, is_torn_json
from pharos.proxy.upstream import Connection, Lost

if TYPE_CHECKING:
    from pharos.proxy.deadlines import Watch

log = logging.getLogger(__name__)

FLUSH_S = 5.0
"""Seconds a client has to take the last bytes of a cut reply."""
CUT_MESSAGE = "the engine stopped inside its reply"
STALLED_MESSAGE = "the engine sent nothing more for too long"


class End(enum.Enum):
    """How an attempt ended."""

    OPEN = "open"
    WHOLE = "whole"
    HELD = "held"
    """A refusal that another engine may not give; the client got nothing yet."""
    NOT_CONNECTED = "not connected"
    DIED_BEFORE = "died before reply"
    DIED_MID = "died mid reply"
    BAD_REPLY = "bad reply"
    LATE = "late first byte"
    STALLED = "stalled mid reply"
    CLIENT_LEFT = "client left"
    FAULT = "fault of Pharos"
    SHUTDOWN = "cut at shutdown"


class Client(Protocol):
    """The client's connection, as far as a relay needs it."""

    relay: "Relay | None"

    @property
    def writing_paused(self) -> bool:
        """Whether the client reads slower than we write."""


TapMaker = Callable[[bool, str], Tap]
"""(whether the reply is a stream, its content type) -> a tap."""


class Relay:
    """One attempt: waits for the head, decides between passing and holding, then passes every read on."""

    __slots__ = (
        "_answer", "_client", "_clock", "_heard", "_heard_next", "_holding", "_make_tap", "_may_hold", "_on_first",
        "_pending", "_unframed", "_up", "begun_at", "end", "ended", "first_byte_at", "headers", "held", "is_stream",
        "length", "status", "tap", "token_at", "watch", "why",
    )  # fmt: skip

    def __init__(
        self,
        client: Client,
        answer: Answer,
        *,
        make_tap: TapMaker,
        may_hold: Callable[[int], bool],
        heard: Callable[[float], None],
        clock: Clock,
    ) -> None:
        self._client = client
        self._answer = answer
        self._make_tap = make_tap
        self._may_hold = may_hold
        self._on_first: Callable[[], None] | None = None
        """Called once when the reply starts towards the client: no retry from then on."""
        self._heard = heard
        self._heard_next = 0.0
        self._clock = clock
        self._up: Connection | None = None
        self._pending = b""
        self._unframed: Unframed | None = None
        self._holding: Holding | None = None
        self.watch: Watch | None = None  # if it has deadlines
        self.ended = Mark()
        self.end = End.OPEN
        self.why = ""
        """What is known about a failed connection, for people."""
        self.begun_at = clock()
        """When the request was handed to the engine's connection."""
        self.status = 0
        self.headers: list[tuple[bytes, bytes]] = []
        self.length: int | None = None
        self.held = b""
        self.is_stream = False
        self.tap: Tap | None = None
        self.first_byte_at: float | None = None
        self.token_at: float | None = None

    def __repr__(self) -> str:
        return f"<Relay {self._answer.request_id} {self.status} {self.end.value}>"

    def attach(self, up: Connection, on_first: Callable[[], None], now: float) -> None:
        """Belong to this engine connection and to the client, whose back-pressure may already be on."""
        self.begun_at = now
        self._on_first = on_first
        self._up = up
        self._client.relay = self
        if self._client.writing_paused:
            up.pause_reading()

    def not_connected(self, why: str, now: float) -> None:
        """There is no connection to the engine; `why` is for people."""
        self.begun_at = now
        self.why = why
        self._over(End.NOT_CONNECTED)

    # --- back-pressure: called by the client's connection

    def pause(self) -> None:
        """The client's transport is full."""
        if self._up is not None:
            self._up.pause_reading()

    def resume(self) -> None:
        """The client's transport has room."""
        if self._up is not None:
            self._up.resume_reading()
        if self.watch is not None:
            self.watch.heard(self._clock())

    def client_left(self) -> None:
        """Stop the engine at once: the client is gone."""
        self._over(End.CLIENT_LEFT)

    # --- the engine's side

    def on_head(self, status: int, headers: list[tuple[bytes, bytes]], length: int | None) -> None:
        """Pass this reply, or hold it back because another engine may do better."""
        self.status = status
        self.headers = headers
        self.length = length
        self.first_byte_at = self._clock()
        if self._may_hold(status) and (length is None or length <= HELD_LIMIT or status in REFUSES_US):
            self._holding = Holding(self._let_go)
        else:
            self._start()

    def on_read(self, body: bytes, *, complete: bool) -> None:
        """One read's worth of body: to the client in one write."""
        if self.end is not End.OPEN:
            return
        if self._holding is not None:
            if not self._holding.add(body):
                self._let_go(complete=complete)
            elif complete:
                self.held = self._holding.take()
                self._over(End.BAD_REPLY if _is_torn(self) else End.HELD)
            return
        try:
            self._pass(body, complete=complete)
        except Exception as error:  # noqa: BLE001 - a fault of ours must not look like the engine's death
            self.fault(error)

    def on_lost(self, why: Lost) -> None:
        """The engine is gone, or makes no sense, before the end of its reply."""
        if self.end is not End.OPEN:
            return
        if self._answer.is_started:
            self.cut(End.DIED_MID if why is Lost.CLOSED else End.BAD_REPLY, CUT_MESSAGE, "engine_lost")
        else:
            self._over(End.DIED_BEFORE if why is Lost.CLOSED else End.BAD_REPLY)

    # --- passing

    def _let_go(self, *, complete: bool = False) -> None:
        """Too big or too slow to hold back: the client gets it after all, unless it is about a key of Pharos."""
        holding, up = self._holding, self._up
        if holding is None or up is None:
            return
        if self.status in REFUSES_US:
            self._over(End.HELD)
            up.abort()  # nobody wants the rest of it
            return
        self._holding = None
        body = holding.take()
        self._start()
        self.on_read(body, complete=complete)

    def _start(self) -> None:
        try:
            kind = head.media_type(self.headers)
            self.is_stream = kind in head.STREAM_TYPES
            length = self.length
            if not head.is_encoded(self.headers) and self.status not in head.NO_BODY:
                self.tap = self._make_tap(self.is_stream, kind.decode("latin-1"))
            if self.is_stream and self.tap is not None:
                length = None  # the tap may take an event out
            if not _is_framed(self) and self.status not in head.NO_BODY:
                self._unframed = Unframed(self.status, kind, self.tap, is_stream=self.is_stream)
            until_close = self._unframed is not None and not self._unframed.can_tell
            self._pending = self._answer.head(
                self.status, self.headers, length=length, stream=self.is_stream, until_close=until_close
            )
            if self._on_first is not None:
                self._on_first()
        except Exception as error:  # noqa: BLE001 - as above
            self.fault(error)

    def _pass(self, body: bytes, *, complete: bool) -> None:
        tap = self.tap
        now = self._clock()
        if self._unframed is not None:
            self._unframed.feed(body)
        if tap is not None:
            body = _tapped(self, tap, body, complete=complete, now=now)
        if complete and self._unframed is not None and self._unframed.is_torn():
            self.cut(End.DIED_MID, CUT_MESSAGE, "engine_lost")
            return
        framing = self._answer.framing
        if framing is Framing.CHUNKED:
            last = head.LAST_CHUNK if complete else b""
            body = b"%b%x\r\n%b\r\n%b" % (self._pending, len(body), body, last) if body else self._pending + last
        elif framing is Framing.NONE:
            body = self._pending
        elif self._pending:
            body = self._pending + body
        self._pending = b""
        if body and not self._answer.write(body):
            self._over(End.CLIENT_LEFT)
        elif complete:
            self._over(End.WHOLE)
        else:
            self._go_on(now)

    def _go_on(self, now: float) -> None:
        """More is to come: tell that the engine lives, and take the short way once nothing but events can come."""
        if now >= self._heard_next:
            self._heard_next = now + HEARD_EVERY_S
            self._heard(now)
        is_steady = self.token_at is not None and self._answer.framing is Framing.CHUNKED
        if is_steady and self.tap is not None and self._up is not None:
            wire, up = self._answer.transport, self._up
            up.flow_to(*steady(self, self.tap, wire, self._clock, self._heard, up.parse, self._heard_next))

    # --- ending

    def time_out(self) -> None:
        """Nothing, or nothing more, came in time. A refusal that is held back has a time of its own."""
        if self.first_byte_at is None:
            self._over(End.LATE)
        elif self._holding is None:
            self.cut(End.STALLED, STALLED_MESSAGE, "engine_stalled")

    def cut(self, end: End, message: str, code: str) -> None:
        """End a started reply so that the client cannot take it for a whole one."""
        if self.end is not End.OPEN:
            return
        answer = self._answer
        if not answer.is_started:
            self._over(end)
            return
        try:
            rest = self._pending + _farewell(self, answer.framing, message, code)
        except Exception as error:  # noqa: BLE001 - as above
            self.fault(error)
            return
        answer.close_after()
        if rest:
            answer.write(rest)
        self._over(end)
        if answer.framing is Framing.CLOSE:
            answer.break_off()  # a clean close would be this reply's false end
        elif not answer.transport.is_closing():
            asyncio.get_running_loop().call_later(FLUSH_S, _abort, answer.transport)

    def fault(self, error: Exception) -> None:
        """End at once: something here is wrong, not the engine and not the client."""
        where = "".join(traceback.format_tb(error.__traceback__))
        log.error("a fault of Pharos in a relay: %s\n%s", type(error).__name__, where)
        self._over(End.FAULT)  # first: the waiting request must hear of this, not of the lost connection
        if self._answer.is_started:
            self._answer.break_off()

    def _over(self, end: End) -> None:
        """Detach from both sides, synchronously, and tell the waiting request."""
        if self.end is not End.OPEN:
            return
        self.end = end
        if self._holding is not None:
            self._holding.take()
        watch, self.watch = self.watch, None
        if watch is not None:
            watch.stop()
        up, self._up = self._up, None
        self._on_first = None
        if up is not None and end not in (End.WHOLE, End.HELD):
            up.abort()
        if self._client.relay is self:
            self._client.relay = None
        self.ended.set()


def _tapped(relay: Relay, tap: Tap, body: bytes, *, complete: bool, now: float) -> bytes:
    """What the client gets of this read."""
    if body:
        body = tap.feed(body)
    if complete:
        body += tap.finish()
    if relay.token_at is None and relay.is_stream and tap.saw_token:
        relay.token_at = now
    return body


def _abort(transport: asyncio.WriteTransport) -> None:
    transport.abort()


def _is_framed(relay: Relay) -> bool:
    """Whether the engine said where its reply ends."""
    return relay.length is not None or head.find(relay.headers, b"transfer-encoding") is not None


def _is_torn(relay: Relay) -> bool:
    """Whether a reply held back has surely lost its end."""
    if _is_framed(relay) or head.is_encoded(relay.headers):
        return False
    return is_torn_json(head.media_type(relay.headers), relay.held)


def _farewell(relay: Relay, framing: Framing, message: str, code: str) -> bytes:
    """The last bytes of a cut reply: what the tap may still give, then the protocol's own word for it."""
    tap = relay.tap
    if tap is None or framing is Framing.NONE:
        return b""
    rest = tap.abandon()
    if framing is not Framing.CHUNKED:
        return rest
    if relay.is_stream and tap.ending is Ending.OPEN:
        rest += tap.error_event(message, code)
    return framed(rest) if rest else b""
