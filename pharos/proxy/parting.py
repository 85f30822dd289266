"""The last bytes of a reply that is cut, and how its connection is closed behind them: nobody may take it for whole.

Forbidden here: deciding to cut.
"""

import asyncio

from pharos.proxy.answer import Answer, Framing
from pharos.proxy.chunks import framed
from pharos.proxy.tap import Ending, Tap
from pharos.proxy.verdict import End

FLUSH_S = 5.0
"""Seconds a client has to take the last bytes of a cut reply."""
CUT_MESSAGE = "the engine stopped inside its reply"
STALLED_MESSAGE = "the engine sent nothing more for too long"


def unended(answer: Answer, end: End, pending: bytes, body: bytes, *, is_stream: bool) -> bytes:
    """What goes to the client of the last of a reply that is not whole; `pending`: its head, if that is still here.

    A body in one piece of which nothing came is taken back: a fault of ours says more.
    """
    if end is End.EARLY and pending and not is_stream:
        answer.take_back()
        return b""
    if answer.framing is Framing.CHUNKED:
        return pending + framed(body) if body else pending
    return pending + body if answer.framing is Framing.CLOSE else b""  # with a length, this would be all of it


def farewell(framing: Framing, tap: Tap | None, message: str, code: str, *, is_stream: bool) -> bytes:
    """The last bytes of a cut reply: what the tap may still give, then the protocol's own word for it."""
    if tap is None or framing is Framing.NONE:
        return b""
    rest = tap.abandon()
    if framing is not Framing.CHUNKED:
        return rest
    if is_stream and tap.ending is Ending.OPEN:
        rest += tap.error_event(message, code)
    return framed(rest) if rest else b""


def close(answer: Answer) -> None:
    """Close the client's connection behind a cut reply, once it has taken what it was sent."""
    if answer.framing is Framing.CLOSE:
        answer.break_off()  # a clean close would be this reply's false end
    else:
        close_soon(answer)


def close_soon(answer: Answer) -> None:
    """Have the client's connection closed behind what it was sent, whether it has taken that or not."""
    if not answer.transport.is_closing():
        asyncio.get_running_loop().call_later(FLUSH_S, _abort, answer.transport)


def _abort(transport: asyncio.WriteTransport) -> None:
    transport.abort()
