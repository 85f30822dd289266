"""Where in a piece of an event stream something stands that must be read, and where its lines and events end.

Forbidden here: state of a stream (`sse.py`); looking at a byte more than once for each mark.
"""

import re
from typing import Final

import msgspec

DONE_MARK: Final = b"[DONE]"
_USAGE, _TIMINGS, _ERROR = b'"usage"', b'"timings"', b'"error"'
_NO_USAGE = (b'"usage":null', b'"usage": null')
_END = re.compile(rb"\r\n?|\n")
_HELD = re.compile(rb"(?!data:)[^:\r\n]")
_NEXT_HELD = re.compile(rb"[\r\n](?!data:)[^:\r\n]")

LINE_LIMIT = 64 * 1024
"""Bytes of the longest line that is read, and of the lines held back at once."""
_LATE: Final = (_USAGE, _TIMINGS, _ERROR, DONE_MARK)
"""All that matters once the first token was seen."""
_EARLY: Final = (*_LATE, b'"choices"', b"\\u")
"""Before, output of the model does too; and as long as whole records are read, a name may be spelt with escapes."""


def matters(data: bytes) -> bool:
    """Whether bytes may hold usage, an error or the end. Text of the model cannot: its quotes are escaped."""
    if _TIMINGS in data or _ERROR in data or DONE_MARK in data:
        return True
    named = data.count(_USAGE)
    return named > 0 and named != sum(map(data.count, _NO_USAGE))


class Marks:
    """The places of the marks in one piece, found as they are needed."""

    __slots__ = ("_data", "_next")

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._next = dict.fromkeys(_EARLY, -1)

    def __repr__(self) -> str:
        return f"<Marks {self._next}>"

    def after(self, at: int, *, early: bool) -> int:
        """Where the first mark stands from `at` on (which never goes back); the length when there is none.

        Before the first token (`early`) that is nearer than a line could be that is too long to be read: such a line
        is output of the model.
        """
        nearest = min(len(self._data), at + LINE_LIMIT) if early else len(self._data)
        for mark in _EARLY if early else _LATE:
            place = self._next[mark]
            if place < at:
                place = self._next[mark] = self._find(mark, at)
            nearest = min(nearest, place)
        return nearest

    def _find(self, mark: bytes, at: int) -> int:
        place = self._data.find(mark, at)
        while place >= 0 and mark is _USAGE and self._data.startswith(_NO_USAGE, place):
            place = self._data.find(mark, place + 1)
        return place if place >= 0 else len(self._data)


def events_end(data: bytes, at: int, stop: int) -> int:
    """Where the last event ends whose end can be told from `data[at:stop]`, its blank line included; `at` when none."""
    end = data.rfind(b"\n\n", at, stop) + 2
    if b"\r" in data:
        for pair in (b"\r\r", b"\n\r"):
            found = data.rfind(pair, at, stop) + 2
            if found > 1 and data[found : found + 1] == b"\n":
                found += 1
            end = max(end, found)
    return end if end > 1 else at


def goes_ahead(data: bytes, at: int, end: int, *, held: bool) -> bool:
    """Whether events of `data[at:end]` may hold a comment behind a held line: it does not wait for that line."""
    if data.find(b"\n:", at, end) < 0 and data.find(b"\r:", at, end) < 0 and data[at : at + 1] != b":":
        return False
    starts_held = _HELD.match(data, at, end) is not None
    return held or starts_held or _NEXT_HELD.search(data, at, end) is not None


def lines_end(data: bytes, at: int, stop: int) -> int:
    """Where the last complete line of `data[at:stop]` ends; `at` when there is none."""
    end = max(data.rfind(b"\n", at, stop), data.rfind(b"\r", at, stop)) + 1
    if end and data[end - 1 : end + 1] == b"\r\n":
        end += 1
    return end or at


def line_end(data: bytes, at: int) -> int:
    """Where the line ends that `at` stands in; the length when its end is not there."""
    match = _END.search(data, at)
    return match.end() if match is not None else len(data)


def error_event(message: str, code: str) -> bytes:
    """Build the event with which an OpenAI stream reports a failure of Pharos."""
    error = {"message": message, "type": "server_error", "param": None, "code": code}
    return b"data: " + msgspec.json.encode({"error": error}) + b"\n\n"
