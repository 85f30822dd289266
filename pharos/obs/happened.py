"""The last events, newest first, for the status page. In memory only, and bounded.

Forbidden here: deciding what is worth a line (whoever makes an event does).
"""

from collections import deque
from typing import Any, Final

import msgspec

from pharos.obs.logs import cut, escaped

KEPT: Final = 100
LONGEST: Final = 400
"""Characters of one event: engines may call their models whatever they like."""


class Line(msgspec.Struct):
    """One event; the same again right after counts up."""

    at: float
    """When it came last, seconds since 1970."""
    level: str
    text: str
    backend: str | None = None
    count: int = 1


class Happened:
    """Remembers what happened last."""

    def __init__(self, size: int = KEPT) -> None:
        self._lines: deque[Line] = deque(maxlen=size)

    def __repr__(self) -> str:
        return f"<Happened {len(self._lines)} of {self._lines.maxlen}>"

    def add(self, level: str, text: str, wall_s: float, backend: str | None = None) -> None:
        """Take one in; the oldest goes."""
        said = cut(escaped(text), LONGEST)
        newest = self._lines[0] if self._lines else None
        if newest is not None and (newest.text, newest.level) == (said, level):
            newest.count += 1
            newest.at = wall_s
        else:
            self._lines.appendleft(Line(wall_s, level, said, backend))

    def described(self) -> list[dict[str, Any]]:
        """All of them, newest first."""
        return [msgspec.to_builtins(line) for line in self._lines]
