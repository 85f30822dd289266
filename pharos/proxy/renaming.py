"""Gives a reply the name by which its client asked for the model, in place of the engine's (`rewrite_reply_model`).

Forbidden here: holding bytes back; decoding and encoding a reply; changing a byte beside the value of `model`.

Nothing need be held: a name that came in part was passed on as it is, and what is left out is the value behind it.
"""

import json
import re
from typing import Any, Final, Self, cast

from pharos.proxy import protocol as protocols
from pharos.proxy.ndjson import NdjsonTap
from pharos.proxy.sse import SseTap
from pharos.proxy.tap import Tap

MOST_MARKS: Final = 200_000
"""Strings, brackets and members that are passed on the way to the name (0.3 µs each): then the reply stays as it is."""
INSIDE: Final[dict[protocols.Protocol, bytes]] = {"anthropic": b"message", "openai_responses": b"response"}
"""Protocol of events -> the member of an event in which its `model` stands; in others it stands at the top."""

_MODEL: Final = b"model"
_LONGEST_NAME: Final = 16
_STRING_END = re.compile(rb'(?:[^"\\]++|\\.)*+"', re.DOTALL)
_NEAR = re.compile(rb'["{}\[\]:,]')
_FAR = re.compile(rb'["{}\[\]]')
_SIMPLE = re.compile(
    rb'\s*+\{(?:\s*+"(?!model")[^"\\]*+"\s*+:\s*+(?:"[^"\\]*+"|[\w.+-]++)\s*+,)*+\s*+"model"\s*+:\s*+("[^"\\]*+")'
)
"""A record whose members ahead of `model` are plain: nearly every chunk."""
_QUOTE, _COLON, _COMMA, _CURLY, _SQUARE = b'":,{['
_CLOSING: Final = frozenset(b"}]")
_DATA: Final = b"data:"
_MARK: Final = b"\xef\xbb\xbf"
"""Of a text in UTF-8, which readers of events skip."""


class Renamed:
    """One JSON document on its way: the text of its first `model` is another one afterwards."""

    __slots__ = ("_depth", "_escaped", "_inside", "_key", "_left", "_near", "_replaces", "_string", "_text", "is_over")

    def __init__(self, text: bytes, inside: bytes | None = None) -> None:
        """`text`: the name as a JSON string. `inside`: the member that holds it; `None`: it stands at the top."""
        self._text = text
        self._inside = inside
        self._left = MOST_MARKS
        self._depth = 0
        self._near = 1
        """The depth at which names of members matter."""
        self._key = b""
        """At that depth the last name, from its colon to the next comma with that colon."""
        self._string: bytearray | None = None
        """How the string begins that is open."""
        self._escaped = False
        """The last byte of the open string was a backslash that stands for itself and the next."""
        self._replaces = False
        """The open string is left out."""
        self.is_over = False
        """Nothing more will be changed."""

    def __repr__(self) -> str:
        return f"<Renamed depth={self._depth} over={self.is_over}>"

    def feed(self, data: bytes) -> bytes:
        """Take the next piece, return what the client gets of it."""
        if self.is_over:
            return data
        out: list[bytes] = []
        at = kept = 0
        while at < len(data) and not self.is_over:
            if self._string is not None:
                at = self._go_through(data, at, self._string)
                if self._replaces:
                    kept = at
                    self.is_over = self._string is None
                continue
            found = (_NEAR if self._depth == self._near else _FAR).search(data, at)
            if found is None:
                break
            at = found.end()
            self._take(data[at - 1])
            if self._replaces:
                out += (data[kept : at - 1], self._text)
                kept = at
        out.append(data[kept:])
        return b"".join(out)

    def _go_through(self, data: bytes, at: int, string: bytearray) -> int:
        """Go to the end of the open string, or of the piece if that comes first."""
        if len(string) <= _LONGEST_NAME:
            string += data[at : at + _LONGEST_NAME]
        start = at + self._escaped
        found = _STRING_END.match(data, start)
        if found is None:
            tail = data[start:]
            self._escaped = (len(tail) - len(tail.rstrip(b"\\"))) % 2 == 1
            return len(data)
        if self._depth == self._near and not self._key.endswith(b":"):
            self._key = bytes(string.partition(b'"')[0])
        self._string, self._escaped = None, False
        return found.end()

    def _take(self, mark: int) -> None:
        """Take a mark outside of strings."""
        self._left -= 1
        is_near, is_top = self._depth == self._near, self._inside is None
        if mark == _QUOTE:
            self._string = bytearray()
            self._replaces = is_near and self._key == b"model:" and (is_top or self._near > 1) and self._left > 0
        elif mark == _COLON:
            self._key += b":"
        elif mark == _COMMA:
            self._key = b""
        elif mark in _CLOSING:
            self._depth -= 1
            self.is_over = self._depth < self._near
        else:
            if mark == _CURLY and is_near and self._inside is not None and self._key == self._inside + b":":
                self._near, self._key = 2, b""
            self._depth += 1
            self.is_over = mark == _SQUARE and self._depth == 1
        self.is_over = self.is_over or self._left <= 0


class _Lines:
    """A stream of records, a line each, of which every one is renamed."""

    __slots__ = ("_inside", "_is_new", "_lead", "_line", "_middle", "_text")

    def __init__(self, text: bytes, *, lead: bytes, inside: bytes | None) -> None:
        """`lead`: what is ahead of a record in its line; without one, only LF ends a line."""
        self._text = text
        self._lead = lead
        self._inside = inside
        self._middle = False
        """The end of the last line has not come."""
        self._line: Renamed | None = None
        """The record that has not ended."""
        self._is_new = True
        """Nothing has come."""

    def __repr__(self) -> str:
        return f"<_Lines {self._line}>"

    def feed(self, data: bytes) -> bytes:
        if self._is_new and data:
            self._is_new = False
            if data.startswith(_MARK):
                return _MARK + self.feed(data[len(_MARK) :])
        lines = data.splitlines(keepends=True) if self._lead else [line + b"\n" for line in data.split(b"\n")]
        if not self._lead:
            lines[-1] = lines[-1][:-1]
        return b"".join(map(self._take, filter(None, lines)))

    def _take(self, line: bytes) -> bytes:
        is_whole = line.endswith((b"\n", b"\r") if self._lead else b"\n")
        if not self._middle:
            self._line = None
            if line.startswith(self._lead):
                line = self._begin(line, is_whole=is_whole)
        elif self._line is not None:
            line = self._line.feed(line)
        self._middle = not is_whole
        return line

    def _begin(self, line: bytes, *, is_whole: bool) -> bytes:
        lead = len(self._lead)
        found = _SIMPLE.match(line, lead) if self._inside is None else None
        if found is not None:
            return line[: found.start(1)] + self._text + line[found.end(1) :]
        one = Renamed(self._text, self._inside)
        self._line = None if is_whole else one
        return line[:lead] + one.feed(line[lead:])


def renaming(tap: Tap, protocol: protocols.Protocol, name: str) -> Tap:
    """A tap that also gives the reply this name of the model, where it tells one."""
    text = json.dumps(name).encode()
    if isinstance(tap, SseTap):
        return cast("Tap", _RenamingTap(tap, _Lines(text, lead=_DATA, inside=INSIDE.get(protocol))))
    if isinstance(tap, NdjsonTap):
        return cast("Tap", _RenamingTap(tap, _Lines(text, lead=b"", inside=None)))
    return cast("Tap", _RenamingTap(tap, Renamed(text))) if tap.knows_end else tap


class _RenamingTap:
    """All but the name is done by the tap it stands for."""

    __slots__ = ("_change", "_tap")

    is_between = False  # each read comes to `feed`
    changes_length = True

    def __init__(self, tap: Tap, change: Renamed | _Lines) -> None:
        self._tap = tap
        self._change = change

    def __repr__(self) -> str:
        return f"<RenamingTap {self._tap!r}>"

    @property
    def bare(self) -> Self:
        return self

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - whatever a tap has
        return getattr(self._tap, name)

    def feed(self, data: bytes) -> bytes:
        return self._change.feed(self._tap.feed(data))

    def finish(self) -> bytes:
        return self._change.feed(self._tap.finish())

    def abandon(self) -> bytes:
        return self._change.feed(self._tap.abandon())

    def error_event(self, message: str, code: str) -> bytes:
        return self._change.feed(self._tap.error_event(message, code))
