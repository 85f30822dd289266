"""Replies that state neither length nor chunks: their connection's end is their only end, and a torn one looks alike.

Nothing is sent here. Only what can be proved counts as torn.
"""

import re

from pharos.proxy.tap import Tap

OK = range(200, 300)
_OUTSIDE = re.compile(rb'["{}\[\]]')
_INSIDE = re.compile(rb'["\\]')
_QUOTE, _BACKSLASH = 0x22, 0x5C
_OPENING = frozenset(b"{[")
_FIRST = frozenset(b'{["')


def is_json(kind: bytes) -> bool:
    """Whether a content type, in lower case without parameters, promises one JSON document; none at all is taken so."""
    return not kind or kind.endswith(b"json")


class JsonEnd:
    """Follows a JSON document through its pieces, just far enough to know whether it is still open."""

    __slots__ = ("_begun", "_depth", "_escaped", "_in_string", "_known")

    def __init__(self) -> None:
        self._begun = False
        self._known = False
        """Whether it begins like an object, an array or a string: of anything else nothing is known."""
        self._depth = 0
        self._in_string = False
        self._escaped = False

    def __repr__(self) -> str:
        return f"<JsonEnd depth={self._depth} string={self._in_string}>"

    @property
    def is_empty(self) -> bool:
        """Whether only blanks came."""
        return not self._begun

    @property
    def is_open(self) -> bool:
        """Whether the document has begun and surely not ended."""
        return self._known and (self._depth > 0 or self._in_string)

    def feed(self, data: bytes) -> None:
        """Take the next piece."""
        if not self._begun:
            data = data.lstrip()
            if not data:
                return
            self._begun = True
            self._known = data[0] in _FIRST
        if not self._known:
            return
        at = 1 if self._escaped and data else 0
        self._escaped = self._escaped and not data
        while at < len(data):
            found = (_INSIDE if self._in_string else _OUTSIDE).search(data, at)
            if found is None:
                return
            at = self._mark(data, found.end())

    def _mark(self, data: bytes, at: int) -> int:
        """Take the mark before `at`; returns where to go on."""
        mark = data[at - 1]
        if mark == _QUOTE:
            self._in_string = not self._in_string
        elif mark == _BACKSLASH:
            self._escaped = at == len(data)
            return at + 1
        else:
            self._depth += 1 if mark in _OPENING else -1
        return at


class Unframed:
    """One such reply on its way to the client."""

    __slots__ = ("_is_empty", "_json", "_status", "_stream", "can_tell")

    def __init__(self, status: int, kind: bytes, tap: Tap | None, *, is_stream: bool) -> None:
        """`tap` is `None` when nothing inside can be read."""
        self._status = status
        self._stream = tap if is_stream and tap is not None and tap.knows_end else None
        self._json = JsonEnd() if tap is not None and not is_stream and is_json(kind) else None
        self._is_empty = True
        self.can_tell = self._stream is not None or (self._json is not None and kind != b"")
        """Whether the bytes show where the reply ends. If not, the client must get no better end than we do."""

    def __repr__(self) -> str:
        return f"<Unframed {self._status} {self._json or self._stream}>"

    def feed(self, data: bytes) -> None:
        """Take what the engine sent."""
        if data:
            self._is_empty = False
        if self._json is not None:
            self._json.feed(data)

    def is_torn(self) -> bool:
        """Whether the reply is surely not whole, now that the connection and the tap have ended."""
        if self._stream is not None:
            return not self._stream.shows_end
        if self._json is not None:
            return self._json.is_open or (self._status in OK and self._json.is_empty)
        return self._status in OK and self._is_empty


def is_torn_json(kind: bytes, body: bytes) -> bool:
    """Whether a body that is here as a whole is a torn JSON document."""
    end = JsonEnd()
    if is_json(kind):
        end.feed(body)
    return end.is_open
