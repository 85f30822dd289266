"""What the end of a reply says: whole, surely torn, or ended in good order without the end that its protocol has.

Forbidden here: sending anything, and judging the target (`judging.py`). Only what can be proved counts as torn
(docs/adr/0010-ends-of-replies.md).
"""

import enum

from pharos.proxy import head
from pharos.proxy.head import Headers
from pharos.proxy.opening import OK, Wanted, is_framed
from pharos.proxy.tap import Tap
from pharos.proxy.unframed import Unframed, is_torn_json

FIRST_ERROR = 400


class End(enum.Enum):
    """How an attempt ended."""

    OPEN = "open"
    WHOLE = "whole"
    HELD = "held"
    """A refusal that another engine may not give; the client got nothing yet."""
    NOT_CONNECTED = "not connected"
    DIED_BEFORE = "died before reply"
    DIED_MID = "died mid reply"
    EARLY = "ended early"
    """Its framing ended in good order, its protocol did not."""
    BAD_REPLY = "bad reply"
    LATE = "late first byte"
    STALLED = "stalled mid reply"
    CLIENT_LEFT = "client left"
    FAULT = "fault of Pharos"
    SHUTDOWN = "cut at shutdown"


def no_answer(status: int, headers: Headers, wanted: Wanted | None) -> str:
    """Why a reply that is no stream is no answer either, for people; empty when it is one.

    `wanted`: the types of a stream, if one was asked for. SDKs that wait for events take a reply of another kind,
    even an error, for a success of which nothing came; and they follow a redirect, prompt and all, wherever it leads.
    """
    if status >= FIRST_ERROR:
        return ""
    if status in head.REDIRECTS:
        return f"it answered with a redirect ({status}), which is not followed: set its `url` to where it really is"
    if head.media_type(headers) == b"text/html":
        return "it sent a web page instead of an answer"
    if wanted is not None and status in OK:
        return "it answered a request for a stream with what is no stream: ask without `stream` if it can only do that"
    return ""


def of_held(headers: Headers, length: int | None, body: bytes) -> End:
    """What a refusal is that was held back and has ended."""
    if is_framed(headers, length) or head.is_encoded(headers):
        return End.HELD
    return End.BAD_REPLY if is_torn_json(head.media_type(headers), body) else End.HELD


def of_passed(status: int, tap: Tap | None, unframed: Unframed | None) -> End:
    """What a reply is whose framing has ended, and whose tap has finished."""
    if unframed is not None and unframed.is_torn():
        return End.DIED_MID
    return End.EARLY if status in OK and tap is not None and tap.is_short else End.WHOLE
