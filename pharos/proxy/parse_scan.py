"""Finds the members of a JSON object and where their values stand, without recursion and without decoding the values.

Forbidden here: judging values; building anything for a value that is skipped; one long step in C.

For bodies that a strict reader refuses (unpaired surrogates, broken UTF-8, deep nesting), for large ones, and for edits
in place. It checks the whole grammar, byte for byte as `json` of Python does, in steps of at most `WINDOW` bytes: one
call into a C reader would hold the interpreter, and with it all streams, for as long as 30 MB take. Nested values of a
few levels are one match of a regular expression; what is deeper is walked bracket by bracket, in bounded number.
"""

import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from pharos.core.engine.usage_fields import read_json

WINDOW = 64 * 1024
"""Bytes that one step reads at most (about 0.3 ms)."""
MOST_STEPS = 1_000_000
"""Steps of one walk through nested values (about 1 µs each); 250,000 brackets deep is no text for a model."""
MOST = 1000
"""Members of an object, unless the caller says otherwise: more than the 4 KiB of a value that is edited can hold."""
LONGEST_NAME = 1024
"""Bytes of the longest name that is decoded; longer ones are told as empty, since no protocol has one."""

_SPACE = re.compile(rb"[ \t\r\n]*+")
_WS = r"[ \t\r\n]*+"
_PLAIN = r'[^"\\\x00-\x1f]*+'
_TEXT = rf'{_PLAIN}(?:\\(?:["\\/bfnrt]|u[0-9a-fA-F]{{4}}){_PLAIN})*+'
_STRING = rf'"{_TEXT}"'
_NUMBER = r"-?(?:0|[1-9][0-9]*+)(?:\.[0-9]++)?+(?:[eE][+-]?[0-9]++)?+"
_WORD = r"true|false|null|NaN|-?Infinity"
_CUT = r"(?=[ \t\r\n,\]}])"
"""What follows a value: without it the end of a window could cut a number in two."""


def _list_of(element: str) -> str:
    return rf"{element}{_CUT}(?:{_WS},{_WS}{element}{_CUT})*+"


def _field(value: str) -> str:
    return rf"{_STRING}{_WS}:{_WS}{value}"


def _nest(value: str) -> str:
    """A value, or one list or object of such values."""
    array = rf"\[{_WS}(?:{_list_of(value)})?+{_WS}\]"
    mapping = rf"\{{{_WS}(?:{_list_of(_field(value))})?+{_WS}\}}"
    return rf"(?>{value}|{array}|{mapping})"


_LEAF = rf"(?>{_STRING}|{_WORD}|{_NUMBER})"
_FLAT = _nest(_nest(_nest(_LEAF)))
_ELEMENTS = re.compile(_list_of(_FLAT).encode())
_FIELDS = re.compile(_list_of(_field(_FLAT)).encode())
_SCALAR = re.compile(rf"(?>{_WORD}|{_NUMBER})".encode())
_IN_TEXT = re.compile(_TEXT.encode())
_CLOSES = {b"{": b"}", b"[": b"]"}
_CURLY = ord("}")


class Member(NamedTuple):
    """One `"name": value` of an object."""

    name: str
    """Decoded; empty when it is longer than `LONGEST_NAME`."""
    start: int
    """Where the value begins, in bytes."""
    end: int
    """Where it ends."""


class ScanError(Exception):
    """The bytes are no JSON object; `at` is the byte where that shows."""

    def __init__(self, at: int) -> None:
        super().__init__(f"no JSON at byte {at}")
        self.at = at


class TooMuchError(ScanError):
    """The object may be JSON, but reading on would take too long: too many members, or too many brackets too deep."""

    def __init__(self, at: int, what: str) -> None:
        super().__init__(at)
        self.what = what
        """`fields` or `nesting`."""


def scan_object(body: bytes, at: int = 0, most: int = MOST) -> list[Member]:
    """Find the members of the object that begins at `at`, at most `most` of them. Raises `ScanError`."""
    return Scan(body).members(at, most)[0]


class Scan:
    """A walk through one body."""

    __slots__ = ("_body", "_window")

    def __init__(self, body: bytes, window: int = WINDOW) -> None:
        self._body = body
        self._window = window

    def __repr__(self) -> str:
        return f"<Scan of {len(self._body)} bytes>"

    def document(self, most: int) -> list[Member] | None:
        """Members of an object with nothing behind it; `None` for another JSON value. Raises `ScanError`."""
        start = self._skip(0)
        members = None
        if self._body[start : start + 1] == b"{":
            members, end = self.members(start, most)
        else:
            end = self._value_end(start)
        end = self._skip(end)
        if end != len(self._body):
            raise ScanError(end)
        return members

    def members(self, at: int, most: int) -> tuple[list[Member], int]:
        """Members of the object that begins at `at`, and where it ends. Raises `ScanError`."""
        body = self._body
        at = self._skip(at)
        if body[at : at + 1] != b"{":
            raise ScanError(at)
        at = self._skip(at + 1)
        members: list[Member] = []
        if body[at : at + 1] == b"}":
            return members, at + 1
        while len(members) < most:
            name_end = self._string_end(at)
            name = str(read_json(body[at:name_end])) if name_end - at <= LONGEST_NAME else ""
            start = self._colon(name_end)
            end = self._value_end(start)
            members.append(Member(name, start, end))
            at = self._skip(end)
            if body[at : at + 1] == b"}":
                return members, at + 1
            at = self._comma(at)
        raise TooMuchError(at, "fields")

    def elements(self, at: int) -> Iterator[tuple[int, int]]:
        """Where each element of the list that begins at `at` begins and ends. Raises `ScanError`."""
        body = self._body
        at = self._skip(at + 1)
        if body[at : at + 1] == b"]":
            return
        while True:
            end = self._value_end(at)
            yield at, end
            at = self._skip(end)
            if body[at : at + 1] == b"]":
                return
            at = self._comma(at)

    def spans(self, sizes: Sequence[int]) -> list[tuple[int, int]]:
        """Where the values of the top-level object begin and end, each of a known size, in bytes. It is known valid."""
        spans: list[tuple[int, int]] = []
        at = self._skip(0)
        for size in sizes:  # `at` is the brace, or the comma before a name
            start = self._colon(self._string_end(self._skip(at + 1)))
            spans.append((start, start + size))
            at = self._skip(start + size)
        return spans

    def _value_end(self, at: int) -> int:
        return self._nested_end(at) if self._body[at : at + 1] in _CLOSES else self._leaf_end(at)

    def _leaf_end(self, at: int) -> int:
        if self._body[at : at + 1] == b'"':
            return self._string_end(at)
        match = _SCALAR.match(self._body, at, at + self._window)
        if match is None or match.end() == at + self._window:  # a number of so many digits is none
            raise ScanError(at)
        return match.end()

    def _string_end(self, at: int) -> int:
        body, window = self._body, self._window
        if body[at : at + 1] != b'"':
            raise ScanError(at)
        at += 1
        while True:
            match = _IN_TEXT.match(body, at, at + window)
            end = match.end() if match is not None else at
            if body[end : end + 1] == b'"':
                return end + 1
            if end == at:  # a bare control character, an escape that is none, or the end of the body
                raise ScanError(at)
            at = end

    def _nested_end(self, at: int) -> int:
        """Where the list or object ends that begins at `at`."""
        body, window = self._body, self._window
        awaited = bytearray(_CLOSES[body[at : at + 1]])
        at, steps = self._skip(at + 1), 0
        if body[at : at + 1] == awaited:
            return at + 1
        while True:  # an element of the innermost open list or object begins at `at`
            steps += 1
            if steps > MOST_STEPS:
                raise TooMuchError(at, "nesting")
            in_object = awaited[-1] == _CURLY
            run = (_FIELDS if in_object else _ELEMENTS).match(body, at, at + window)
            if run is not None:
                at = run.end()
            else:
                if in_object:
                    at = self._colon(self._string_end(at))
                closer = _CLOSES.get(body[at : at + 1])
                if closer is None:
                    at = self._leaf_end(at)
                else:
                    awaited += closer
                    at = self._skip(at + 1)
                    if body[at : at + 1] != closer:
                        continue
            at = self._skip(at)
            while body[at : at + 1] == awaited[-1:]:
                awaited.pop()
                if not awaited:
                    return at + 1
                at = self._skip(at + 1)
            at = self._comma(at)

    def _colon(self, at: int) -> int:
        """Where the value begins, behind a name that ends at `at`."""
        at = self._skip(at)
        if self._body[at : at + 1] != b":":
            raise ScanError(at)
        return self._skip(at + 1)

    def _comma(self, at: int) -> int:
        if self._body[at : at + 1] != b",":
            raise ScanError(at)
        return self._skip(at + 1)

    def _skip(self, at: int) -> int:
        body, window = self._body, self._window
        while True:
            match = _SPACE.match(body, at, at + window)
            end = match.end() if match is not None else at
            if end < at + window:
                return end
            at = end
