"""Tells a client that waits for a slot its place in the queue, inside its stream, if it wants to be told.

From the first such comment on its reply has begun: a failure is then an event of the stream, in its protocol.
Forbidden here: waiting, and streams of other protocols than server-sent events, whose readers know no comments.
"""

import asyncio
import math
from collections.abc import Callable
from typing import Final, Self

from pharos.core.engine.usage_fields import read_json
from pharos.core.sched import Place
from pharos.proxy import head
from pharos.proxy.answer import Answer, Framing
from pharos.proxy.call import Call
from pharos.proxy.chunks import framed
from pharos.proxy.errors import PharosError
from pharos.proxy.grammar import EVENTS
from pharos.proxy.parting import close_soon

HEADER: Final = b"pharos-queue-events"
_LONGEST: Final = 500
"""Characters of an engine's message that are passed on."""


class Telling:
    """`with Telling(call, place, times): ...` around a wait.

    `place`: where the request stands now, `None` when nowhere. `times`: see `ProxySettings.queue_told_s`.
    """

    __slots__ = ("_call", "_every_s", "_first_s", "_place", "_timer")

    def __init__(self, call: Call, place: Callable[[], Place | None], times: tuple[float, float]) -> None:
        self._call = call
        self._first_s, self._every_s = times
        self._place = place
        self._timer: asyncio.TimerHandle | None = None

    def __repr__(self) -> str:
        return f"<Telling {self._call!r}>"

    def __enter__(self) -> Self:
        if wants_to_know(self._call):
            self._again(self._first_s)
        return self

    def __exit__(self, *_: object) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def _again(self, seconds: float) -> None:
        self._timer = asyncio.get_running_loop().call_later(seconds, self._tell)

    def _tell(self) -> None:
        place, answer, failure = self._place(), self._call.answer, EVENTS[self._call.route.protocol].failure
        if place is None:
            return
        if not answer.is_opened:
            answer.open(lambda message, code: failure(message, code, None))
        _send(answer, comment(place))
        self._again(self._every_s)


def wants_to_know(call: Call) -> bool:
    """Whether the client can be told, and it or its key asks for it."""
    if not call.parsed.stream or call.route.protocol not in EVENTS:
        return False
    return call.key.queue_events or head.find(call.headers, HEADER) == b"1"


def comment(place: Place) -> bytes:
    """What is told: a comment, which readers of events leave out."""
    eta = b"" if place.eta_s is None else b" eta_s=%d" % math.ceil(max(place.eta_s, 0.0))
    return b": pharos queue position=%d%b\n\n" % (place.position, eta)


def fail(answer: Answer, message: str, code: str) -> None:
    """End an opened stream of which no engine has sent a byte, by its protocol's own word for a failure."""
    event = b"" if answer.failure is None else answer.failure(message, code)
    answer.is_started = True
    answer.close_after()
    _send(answer, event)
    close_soon(answer)


def refuse(answer: Answer, fault: PharosError) -> None:
    """The same with a fault of the request, or of ours."""
    fail(answer, fault.message, fault.code)


def pass_on(answer: Answer, status: int, body: bytes) -> None:
    """The same with what an engine answered."""
    fail(answer, said(status, body), "engine_refused")


def said(status: int, body: bytes) -> str:
    """The message in an engine's error, in whatever shape it has."""
    record = read_json(body)
    error = record.get("error", record) if isinstance(record, dict) else None
    message = error.get("message", error.get("detail")) if isinstance(error, dict) else error
    if not isinstance(message, str) or not message:
        return f"The engine answered {status}."
    return message.encode("utf-8", "replace").decode("utf-8")[:_LONGEST]


def _send(answer: Answer, data: bytes) -> None:
    answer.write(framed(data) if answer.framing is Framing.CHUNKED else data)
