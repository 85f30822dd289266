"""Where in a piece of an event stream something stands that must be read, and where its lines and events end.

Forbidden here: state of a stream (`sse.py`); looking at a byte more than twice for each mark.
"""

import re
from typing import Final

from pharos.proxy.ends import LIMIT
from pharos.proxy.signs import ESCAPE, NO_USAGE, USAGE

_BACKSLASH: Final = b"\\"
_END = re.compile(rb"\r\n?|\n")
_COMMENT = re.compile(rb"\n:")  # a third of the time of `find`, which looks at every colon
_HELD = re.compile(rb"(?!data:)[^:\r\n]")
_NEXT_HELD = re.compile(rb"[\r\n](?!data:)[^:\r\n]")

LINE_LIMIT: Final = LIMIT
"""Bytes of the longest line that is read, and of the lines held back at once."""


class Marks:
    """The places of the marks in one piece, found as they are needed."""

    __slots__ = ("_data", "_last", "_next")

    def __init__(self, data: bytes, early: tuple[bytes, ...]) -> None:
        self._data = data
        self._next = dict.fromkeys(early, -1)
        self._last: dict[bytes, int] = {}

    def __repr__(self) -> str:
        return f"<Marks {self._next}>"

    def after(self, at: int, signs: tuple[bytes, ...], *, early: bool) -> int:
        """Where the first of these stands from `at` on (which never goes back); the length when there is none.

        Before the first token (`early`) that is nearer than a line could be that is too long to be read: such a line
        is output of the model.
        """
        nearest = min(len(self._data), at + LINE_LIMIT) if early else len(self._data)
        for mark in signs:
            place = self._next[mark]
            if place < at:
                place = self._next[mark] = self._find(mark, at)
            nearest = min(nearest, place)
        return nearest

    def _find(self, mark: bytes, at: int) -> int:
        data = self._data
        last = self._last.get(mark)
        if last is None:
            # Most marks are nowhere: `rfind` tells in half the time of `find`, and a single byte is found at once.
            is_nowhere = mark is ESCAPE and data.find(_BACKSLASH) < 0
            last = self._last[mark] = -1 if is_nowhere else data.rfind(mark)
        if last < at:
            return len(data)
        # Mostly it stands there alone.
        place = data.find(mark, at, last) if data.rfind(mark, at, last) >= 0 else last
        while place >= 0 and mark is USAGE and data.startswith(NO_USAGE, place):
            place = data.find(mark, place + 1)
        return place if place >= 0 else len(data)


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
    # A single byte is found at once, two take as long as much of the reading.
    has_comment = data[at : at + 1] == b":" or _COMMENT.search(data, at, end) is not None
    if not has_comment and (data.find(b"\r", at, end) < 0 or data.find(b"\r:", at, end) < 0):
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
