"""The secret that instances share: read again when its file changes, two of them valid while it is exchanged.

Forbidden here: putting any of it into a message, and comparing it in a time that depends on it.
"""

import hmac
from pathlib import Path
from typing import Final

from pharos.clock import Clock
from pharos.config.sources import OnEvent, UnusableError, Watched

SHORTEST: Final = 16
"""Characters; a shorter one could be guessed."""
LONGEST: Final = 4096
MOST: Final = 2
"""Secrets of one file."""
PREVIOUS_S: Final = 900.0
"""So long the secret of before is valid too: files of several machines do not change at one moment."""
BEARER: Final = "Bearer "


class Secret:
    """What we show to peers, and what they may show to us."""

    def __init__(self, path: str, *, clock: Clock, on_event: OnEvent) -> None:
        self._file = Watched(
            "peers.secret_file",
            Path(path),
            lambda file: secrets_in(_start_of(file)),
            without="nothing is shared with peers until it holds a secret",
            clock=clock,
            on_event=on_event,
        )
        self._clock = clock
        self._known: tuple[str, ...] = ()
        self._previous: tuple[str, ...] = ()
        self._until = 0.0

    def __repr__(self) -> str:
        return f"<Secret {len(self.valid())} valid>"

    def valid(self) -> tuple[str, ...]:
        """All that are valid now, the one to be shown first; none: there never was a good one."""
        current = self._file.current()
        now = self._clock()
        if current is not None and current != self._known:
            self._previous, self._until = self._known[:1], now + PREVIOUS_S
            self._known = current
        if now >= self._until:
            self._previous = ()
        return (*self._known, *(old for old in self._previous if old not in self._known))[:MOST]

    def is_valid(self, authorization: str | None) -> bool:
        """Whether a header's value shows one of them."""
        if authorization is None or not authorization.startswith(BEARER):
            return False
        shown = authorization.removeprefix(BEARER).encode("utf-8", "surrogateescape")
        found = False
        for secret in self.valid():  # all of them, so that the time does not tell which one it was
            found |= hmac.compare_digest(shown, secret.encode())
        return found

    def trouble(self) -> str | None:
        """What is wrong with the file, for people; `None`: nothing is."""
        return self._file.trouble()


def secrets_in(content: bytes) -> tuple[str, ...]:
    """The secrets in a file's content, one a line. Raises `UnusableError`, whose text has nothing of them."""
    if len(content) > LONGEST:
        raise UnusableError("is too long for a secret: is it the right file?")
    try:
        lines = [line.strip() for line in content.decode("utf-8-sig").splitlines() if line.strip()]
    except UnicodeDecodeError:
        raise UnusableError("holds bytes that are no text") from None
    if not lines:
        raise UnusableError("is empty")
    if len(lines) > MOST:
        raise UnusableError("holds more than two lines: one secret, and a second one while it is exchanged")
    for line in lines:
        if not line.isascii() or not line.isprintable():
            raise UnusableError("holds characters that no header can carry")
        if len(line) < SHORTEST:
            raise UnusableError(
                f"has a secret of less than {SHORTEST} characters: make one with `openssl rand -hex 32`"
            )
    return tuple(lines)


def _start_of(path: Path) -> bytes:
    with path.open("rb") as file:
        return file.read(LONGEST + 1)
