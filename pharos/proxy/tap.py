"""The tap sees every byte of a reply on its way to the client and learns what the reply cost and how it ended.

Forbidden here: I/O, clocks; changing a byte other than taking out the usage event that Pharos itself asked for.
"""

from typing import Protocol

from pharos.core.engine.usage_ends import read_ends
from pharos.core.engine.usage_fields import PLAIN, Dialect, Usage, read_json, usage_of
from pharos.proxy import protocol as protocols
from pharos.proxy.ends import Ends
from pharos.proxy.grammar import CHAT, LINES
from pharos.proxy.ndjson import NdjsonTap
from pharos.proxy.record import Ending, is_error
from pharos.proxy.signs import Signs
from pharos.proxy.sse import SseTap

__all__ = ["Ending", "JsonTap", "NdjsonTap", "SseTap", "Tap", "make_tap"]


class Tap(Protocol):
    """What the relay needs of a tap. Each byte is fed once, in order; one of `finish` and `abandon` comes last."""

    saw_token: bool
    """The first output of the model has passed: content, reasoning or a tool call, not a role or a comment."""
    is_between: bool
    """Between two events, with the first token seen: the next read may go out unread if nothing in it matters."""
    signs: Signs
    """How to tell that something in it does."""
    ending: Ending

    @property
    def bare(self) -> "Tap":
        """The tap that must see what is still to come: this one, or one that it stands for."""
        ...

    @property
    def changes_length(self) -> bool:
        """Whether the client may get more or fewer bytes than the engine sends."""
        ...

    @property
    def knows_end(self) -> bool:
        """Whether a whole reply shows its end: if not, one that is still open need not be torn."""
        ...

    @property
    def shows_end(self) -> bool:
        """Whether the reply has shown that it is whole, or that it failed."""
        ...

    @property
    def is_short(self) -> bool:
        """Whether a reply that ended in good order surely lacks what ends it. Asked after `finish`."""
        ...

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

    __slots__ = (
        "_counts_cached", "_dialect", "_ends", "_is_json", "_usage", "ending", "is_between", "saw_token", "signs",
    )  # fmt: skip

    changes_length = False

    def __init__(self, *, is_json: bool, dialect: Dialect = PLAIN, counts_cached: bool = False) -> None:
        self.saw_token = False
        """The body has begun: a reply in one piece does not tell when its first token came."""
        self.is_between = False  # all of it is read
        self.signs = CHAT.signs  # never asked for
        self.ending = Ending.OPEN
        self._is_json = is_json
        self._dialect = dialect
        self._counts_cached = counts_cached
        self._ends = Ends()
        self._usage: Usage | None = None

    def __repr__(self) -> str:
        return f"<JsonTap {self.ending} fed={self._ends.size}>"

    @property
    def bare(self) -> "JsonTap":
        """This one."""
        return self

    @property
    def knows_end(self) -> bool:
        """Whether a whole body shows its end."""
        return self._is_json

    @property
    def shows_end(self) -> bool:
        """Whether it has ended, or failed."""
        return self.ending is not Ending.OPEN

    @property
    def is_short(self) -> bool:
        """Whether it is no more than blanks where JSON was promised. Of a longer one its framing tells."""
        return self._is_json and not self.saw_token

    @property
    def usage(self) -> Usage | None:
        """What the reply said about its cost, once it has ended."""
        return self._usage

    @property
    def at_event_boundary(self) -> bool:
        """Whether nothing was sent."""
        return self._ends.size == 0

    def feed(self, data: bytes) -> bytes:
        """Take what the engine sent; the client gets it as it is."""
        if not self.saw_token and data and not data.isspace():
            self.saw_token = True
        self._ends.add(data)
        return data

    def finish(self) -> bytes:
        """Read the body that has ended."""
        ends = self._ends
        tail = ends.tail
        if self._is_json and tail.rstrip()[-1:] not in (b"}", b"]"):
            return b""  # an empty or a torn body
        self.ending = Ending.COMPLETED
        record = read_json(tail) if ends.is_whole else read_ends(ends.head, tail)
        if isinstance(record, dict) and is_error(record):
            self.ending = Ending.ERROR
        else:
            self._usage = usage_of(record, self._dialect, counts_cached=self._counts_cached)
        return b""

    def abandon(self) -> bytes:
        """Nothing was held back."""
        return b""

    def error_event(self, message: str, code: str) -> bytes:  # noqa: ARG002  # the protocol has none
        """Half a JSON body cannot be ended in an honest way: the connection is cut."""
        return b""


def make_tap(
    protocol: protocols.Protocol,
    *,
    streamed: bool,
    content_type: str,
    strip_usage: bool,
    dialect: Dialect = PLAIN,
    counts_cached: bool = False,
    says_done: bool = False,
) -> Tap:
    """Choose the tap by what the engine answers. `streamed`: it is read as a stream, whatever it is called.

    `strip_usage`: Pharos added `include_usage`, the client must not see the chunk. `content_type` may be empty.
    `dialect`, `counts_cached`: as `usage_of` asks for them. `says_done`: a stream of chunks without `[DONE]` is short.
    """
    kind = content_type.partition(";")[0].strip().lower()
    in_lines = protocol in LINES
    if kind == "text/event-stream" or (streamed and not kind and not in_lines):
        return SseTap(
            protocol, strip_usage=strip_usage, dialect=dialect, counts_cached=counts_cached, says_done=says_done
        )
    if in_lines and (streamed or kind == "application/x-ndjson"):
        return NdjsonTap(protocol, dialect=dialect, counts_cached=counts_cached)
    is_json = not kind or kind.endswith("json")
    return JsonTap(is_json=is_json, dialect=dialect, counts_cached=counts_cached)
