"""Takes one reply from an engine's connection to the client's transport: one write per read, no queue, no task switch.

Runs inside the loop's callbacks, so nothing here may raise or wait. After the first byte to the client a reply ends in
one of three ways only: whole, cut honestly in its own protocol, or aborted.
"""

import logging
import traceback
from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

from pharos.clock import Clock
from pharos.proxy import parting, verdict
from pharos.proxy.answer import Answer, Framing
from pharos.proxy.holding import HELD_LIMIT, Holding
from pharos.proxy.opening import TapMaker, Wanted, opened
from pharos.proxy.parting import CUT_MESSAGE, STALLED_MESSAGE
from pharos.proxy.retry import REFUSES_US
from pharos.proxy.steady import HEARD_EVERY_S, steady
from pharos.proxy.turn import Mark
from pharos.proxy.upstream import Connection, Lost
from pharos.proxy.verdict import End

if TYPE_CHECKING:
    from pharos.proxy.deadlines import Watch
    from pharos.proxy.tap import Tap
    from pharos.proxy.unframed import Unframed

__all__ = ["Client", "End", "Relay"]

log = logging.getLogger(__name__)


class Client(Protocol):
    """The client's connection, as far as a relay needs it."""

    relay: "Relay | None"

    @property
    def writing_paused(self) -> bool:
        """Whether the client reads slower than we write."""


class Relay:
    """One attempt: waits for the head, decides between passing and holding, then passes every read on."""

    __slots__ = (
        "_answer", "_client", "_clock", "_heard", "_heard_next", "_holding", "_make_tap", "_may_hold", "_on_first",
        "_pending", "_unframed", "_up", "_wanted", "begun_at", "end", "ended", "first_byte_at", "headers", "held",
        "is_stream", "length", "on_token", "status", "tap", "token_at", "watch", "why",
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
        wanted: Wanted | None = None,
    ) -> None:
        """`wanted`: the types of a stream, if one was asked for."""
        self._client = client
        self._answer = answer
        self._make_tap = make_tap
        self._wanted = wanted
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
        """What is known about a failed connection, or about a reply that is no answer, for people."""
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
        self.on_token: Callable[[], None] | None = None
        """Called once when the first token of a stream has come."""

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
        self.status, self.headers, self.length = status, headers, length
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
                self._over(verdict.of_held(self.headers, self.length, self.held))
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
            status, headers, asked = self.status, self.headers, self._wanted
            self.is_stream, self.tap, self._unframed, size = opened(status, headers, self.length, self._make_tap, asked)
            if not self.is_stream:
                self.why = verdict.no_answer(status, headers, asked)
                if self.why or self._answer.is_opened:  # what has begun as a stream can only go on as one
                    return self._over(End.BAD_REPLY)
            until = self._unframed is not None and not self._unframed.can_tell
            self._pending = self._answer.head(status, headers, length=size, stream=self.is_stream, until_close=until)
            if self._on_first is not None:
                self._on_first()
        except Exception as error:  # noqa: BLE001 - as above
            self.fault(error)

    def _pass(self, body: bytes, *, complete: bool) -> None:
        tap, now = self.tap, self._clock()
        if self._unframed is not None:
            self._unframed.feed(body)
        if tap is not None and body:
            body = tap.feed(body)
        if complete:
            body = self._finished(body)
        if tap is not None and self.token_at is None and self.is_stream and tap.saw_token:
            self.token_at = now
            if self.on_token is not None:
                self.on_token()
        if self.end is not End.OPEN:
            return
        body, self._pending = self._answer.packed(body, self._pending, is_last=complete), b""
        if body and not self._answer.write(body):
            self._over(End.CLIENT_LEFT)
        elif complete:
            self._over(End.WHOLE)
        else:
            self._go_on(now)

    def _finished(self, body: bytes) -> bytes:
        """What the client gets of the last read. Cuts a reply that is not whole."""
        rest = b"" if self.tap is None else self.tap.finish()
        end = verdict.of_passed(self.status, self.tap, self._unframed)
        if end is End.WHOLE:
            return body + rest
        self._pending = parting.unended(self._answer, end, self._pending, body, is_stream=self.is_stream)
        self.cut(end, CUT_MESSAGE, "engine_lost")
        return b""

    def _go_on(self, now: float) -> None:
        """More is to come: tell that the engine lives, and take the short way once nothing but events can come."""
        if now >= self._heard_next:
            self._heard_next = now + HEARD_EVERY_S
            self._heard(now)
        is_steady = self.token_at is not None and self._answer.framing is Framing.CHUNKED
        if is_steady and self.tap is not None and self._up is not None:
            wire, up = self._answer.transport, self._up
            up.flow_to(*steady(self, self.tap.bare, wire, self._clock, self._heard, up.parse, self._heard_next))

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
            last = parting.farewell(answer.framing, self.tap, message, code, is_stream=self.is_stream)
        except Exception as error:  # noqa: BLE001 - as above
            self.fault(error)
            return
        answer.close_after()
        if rest := self._pending + last:
            answer.write(rest)
        self._over(end)
        parting.close(answer)

    def fault(self, error: Exception) -> None:
        """End at once: something here is wrong, not the engine and not the client."""
        _log(error)
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


def _log(error: Exception) -> None:
    """Say where it happened, not what it held: that may be a client's."""
    where = "".join(traceback.format_tb(error.__traceback__))
    log.error("a fault of Pharos in a relay: %s\n%s", type(error).__name__, where)
