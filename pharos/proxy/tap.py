"""The tap sees every byte of a reply on its way to the client and learns what the reply cost and how it ended.

Forbidden here: I/O, clocks; changing a byte other than taking out the usage event that Pharos itself asked for.
"""

from typing import Literal, Protocol

from pharos.core.engine.usage_fields import Usage, parse_usage_ends, read_json, usage_of
from pharos.proxy.record import Ending, is_error
from pharos.proxy.sse import SseTap

__all__ = ["BODY_LIMIT", "Ending", "JsonTap", "ReplyProtocol", "SseTap", "Tap", "make_tap"]

ReplyProtocol = Literal["openai_chat", "openai_completion"]

BODY_LIMIT = 64 * 1024
"""Bytes of a reply without events that are kept to be read: all of a small one, the two ends of a larger one."""


class Tap(Protocol):
    """What the relay needs of a tap. Each byte is fed once, in order; one of `finish` and `abandon` comes last."""

    saw_token: bool
    """The first output of the model has passed: content, reasoning or a tool call, not a role or a comment."""
    ending: Ending

    @property
    def usage(self) -> Usage | None:
        """What the reply said about its cost so far; `None` is unknown."""
        ...

    @property
    def at_event_boundary(self) -> bool:
        """Whether what the client has ends between two events."""
        ...

    def feed(self, data: bytes) -> bytes:
        """Take what the engine sent, return what the client gets now (may be empty)."""
        ...

    def finish(self) -> bytes:
        """Return the rest, after a clean end of the reply."""
        ...

    def abandon(self) -> bytes:
        """Return what may still be sent when the engine broke off."""
        ...

    def error_event(self, message: str, code: str) -> bytes:
        """Build what tells the client inside the reply that it broke off; empty where the protocol cannot."""
        ...


class JsonTap:
    """Tap of a reply that is one body. All bytes pass at once; usage is read when it has ended."""

    __slots__ = ("_fed", "_head", "_is_json", "_tail", "_usage", "ending", "saw_token")

    def __init__(self, *, is_json: bool) -> None:
        self.saw_token = False
        """The body has begun: a reply in one piece does not tell when its first token came."""
        self.ending = Ending.OPEN
        self._is_json = is_json
        self._head = bytearray()
        self._tail = bytearray()
        self._fed = 0
        self._usage: Usage | None = None

    def __repr__(self) -> str:
        return f"<JsonTap {self.ending} fed={self._fed}>"

    @property
    def usage(self) -> Usage | None:
        """What the reply said about its cost, once it has ended."""
        return self._usage

    @property
    def at_event_boundary(self) -> bool:
        """Whether nothing was sent."""
        return self._fed == 0

    def feed(self, data: bytes) -> bytes:
        """Take what the engine sent; the client gets it as it is."""
        if not self.saw_token and data and not data.isspace():
            self.saw_token = True
        before, self._fed = self._fed, self._fed + len(data)
        if self._fed > BODY_LIMIT:
            self._keep_end(data, before)
        if before < BODY_LIMIT:
            self._head += data[: BODY_LIMIT - before]
        return data

    def _keep_end(self, data: bytes, before: int) -> None:
        """Keep the end of a body too large to keep; what came before the limit was passed is in the head."""
        if before <= BODY_LIMIT:
            self._tail += self._head
        self._tail += data[-BODY_LIMIT:]
        if len(self._tail) > 2 * BODY_LIMIT:
            del self._tail[:-BODY_LIMIT]

    def finish(self) -> bytes:
        """Read the body that has ended."""
        tail = bytes(self._head) if self._fed <= BODY_LIMIT else bytes(self._tail[-BODY_LIMIT:])
        if self._is_json and tail.rstrip()[-1:] not in (b"}", b"]"):
            return b""  # an empty or a torn body
        self.ending = Ending.COMPLETED
        if self._fed > BODY_LIMIT:
            self._usage = parse_usage_ends(bytes(self._head), tail)
            return b""
        record = read_json(tail)
        if isinstance(record, dict) and is_error(record):
            self.ending = Ending.ERROR
        else:
            self._usage = usage_of(record)
        return b""

    def abandon(self) -> bytes:
        """Nothing was held back."""
        return b""

    def error_event(self, message: str, code: str) -> bytes:  # noqa: ARG002  # the protocol has none
        """Half a JSON body cannot be ended in an honest way: the connection is cut."""
        return b""


def make_tap(protocol: ReplyProtocol, *, streamed: bool, content_type: str, strip_usage: bool) -> Tap:
    """Choose the tap by what the engine answers, not by what was asked: an engine may refuse to stream.

    `strip_usage`: Pharos added `include_usage`, the client must not see the chunk. `content_type` may be empty.
    """
    kind = content_type.partition(";")[0].strip().lower()
    if kind == "text/event-stream" or (streamed and not kind):
        return SseTap(protocol, strip_usage=strip_usage)
    return JsonTap(is_json=not kind or kind.endswith("json"))
