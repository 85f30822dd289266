"""Where a secret or a certificate comes from: a small file that is watched, or a variable that was read once.

Forbidden here: putting any of the content, or what may be a key written in the wrong place, into a message.
"""

import stat
from collections.abc import Callable
from pathlib import Path
from typing import Final, Generic, Protocol, TypeVar

from pharos.clock import Clock
from pharos.core.fleet.events import Event

LOOK_EVERY_S: Final = 1.0
"""Seconds between two looks at a file: a new content is in use this soon, and a request rarely waits for the disk."""

OnEvent = Callable[[Event], None]
_Stamp = tuple[int, int, int, int]
T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)


class UnusableError(Exception):
    """A content that cannot be used; the text says why, without any of it."""


class Source(Protocol[T_co]):
    """Gives a value for as long as there is a good one."""

    def current(self) -> T_co | None:
        """The value to use now; `None` when there never was a good one."""

    def trouble(self) -> str | None:
        """What is wrong with it now, for people; `None` when nothing is."""


class Watched(Generic[T]):
    """A value made from a file, made again when the file changes. A bad file leaves the last good value in use.

    Rotating a secret may leave its file missing or empty for a moment, and no request should suffer from that.
    """

    def __init__(
        self,
        title: str,
        path: Path,
        make: Callable[[Path], T],
        *,
        without: str,
        clock: Clock,
        on_event: OnEvent,
    ) -> None:
        """`title`: the setting that names the file. `make` reads it, and raises `UnusableError` or `OSError`.

        `without`: what it means that there never was a good one, for people.
        """
        self._title = title
        self._path = path
        self._make = make
        self._without = without
        self._clock = clock
        self._on_event = on_event
        self._value: T | None = None
        self._fault: str | None = None
        self._stamp: _Stamp | None = None
        self._look_at = float("-inf")

    def __repr__(self) -> str:
        return f"<Watched {self._title} {'bad' if self._fault is not None else 'good'}>"

    def current(self) -> T | None:
        """The value to use now; looks at the file at most once in `LOOK_EVERY_S`."""
        now = self._clock()
        if now >= self._look_at:
            self._look_at = now + LOOK_EVERY_S
            self._look()
        return self._value

    def trouble(self) -> str | None:
        """What is wrong with the file, for people; `None` when nothing is."""
        self.current()
        return f"{self._title} {self._fault}" if self._fault is not None else None

    def _look(self) -> None:
        try:
            stamp = _stamp(self._path)  # taken first: what is written after it is seen at the next look
            if stamp == self._stamp:
                return
            self._stamp = stamp
            self._take(self._make(self._path))
        except UnusableError as fault:
            self._fail(str(fault))
        except OSError as fault:
            self._stamp = None
            self._fail(f"cannot be read ({fault.strerror})")

    def _take(self, value: T) -> None:
        before, self._value = self._value, value
        was_bad, self._fault = self._fault is not None, None
        if was_bad:
            self._tell("info", "can be used now")
        elif before is not None and before != value:
            self._tell("info", "has changed, and is used as it is now")

    def _fail(self, fault: str) -> None:
        if fault == self._fault:
            return
        self._fault = fault
        follows = self._without if self._value is None else "what was read before is used on"
        self._tell("warning", f"{fault}: {follows}")

    def _tell(self, level: str, text: str) -> None:
        self._on_event(Event("", "", "", "warning" if level == "warning" else "info", f"{self._title} {text}"))


class Fixed:
    """A text that was there, or was not, when the process began."""

    def __init__(self, title: str, make: Callable[[], str], *, without: str, on_event: OnEvent) -> None:
        """As `Watched`, with a `make` that is called once."""
        self._value: str | None = None
        self._fault: str | None = None
        self._untold: Event | None = None
        self._on_event = on_event
        try:
            self._value = make()
        except UnusableError as fault:
            self._fault = f"{title} {fault}"
            self._untold = Event("", "", "", "warning", f"{self._fault}: {without}")

    def __repr__(self) -> str:
        return f"<Fixed {'bad' if self._value is None else 'good'}>"

    def current(self) -> str | None:
        """The text; `None` when there is none. Says so at the first call: what no backend uses is no trouble."""
        if self._untold is not None:
            event, self._untold = self._untold, None
            self._on_event(event)
        return self._value

    def trouble(self) -> str | None:
        """Why there is none, for people."""
        return self._fault


def _stamp(path: Path) -> _Stamp:
    """What tells one content of a file from another. Raises `OSError`, and `UnusableError` for what is no file."""
    found = path.stat()
    if not stat.S_ISREG(found.st_mode):  # opening a pipe would wait for its other end
        raise UnusableError("is no regular file")
    return found.st_dev, found.st_ino, found.st_mtime_ns, found.st_size
