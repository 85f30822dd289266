"""One peer as the sender sees it: what it has yet to be told, and whether it can be reached.

# ops: add, compose, told, failed · goal: a slow or dead peer costs nobody else anything, and little memory
# plan: pieces that were encoded once for all wait in a bounded list; news of the moment replace each other
# warning: what is dropped here comes again with the next full set, or with a snapshot

Forbidden here: waiting, and a clock.
"""

from typing import Final

import msgspec

from pharos.peer import wire
from pharos.peer.link import Kind, LinkFault
from pharos.peer.section import Piece

MOST_WAITING: Final = 2 * 1024**2
"""Bytes that may wait for one peer."""
MOST_SENT: Final = wire.MOST_DELTA // 4
"""Bytes of pieces in one delta."""
FIRST_DELAY_S: Final = 0.2
LONGEST_DELAY_S: Final = 5.0
"""Pause after a failure; it doubles up to this."""
AWAY: Final = 2
"""Failures in a row after which it has missed something."""
OTHER_PROTOCOL_S: Final = 5.0
"""Pause before one that speaks another protocol is asked again: it may have been upgraded."""


class Peer:
    """An address that deltas go to."""

    def __init__(self, address: str, now: float) -> None:
        self.address = address
        self.since = now
        """When it became a member."""
        self.origin: str | None = None
        self.is_up = False
        """Whether it took the last delta."""
        self.is_listed = True
        self.is_told = False
        """Whether it was reached ever."""
        self.wants_again = True
        """Whether it must be sent everything of the moment."""
        self.pull_at: float | None = None
        """From when on a snapshot is to be asked for, though it was not away; `None`: none is."""
        self.pulled: str | None = None
        """The origin whose snapshot was merged last."""
        self.said = ""
        """What was last said of it."""
        self.fault: Kind | None = None
        self.error = ""
        self.protocol: int | None = None
        self.config: dict[str, int] = {}
        """Hashes of its configuration, as it answered last."""
        self.not_before = now
        """When it may be tried again."""
        self.sent_at = -1e9
        self.answered_at: float | None = None
        self.bytes_sent = self.entries_sent = self.dropped = 0
        self.bytes_pulled = self.entries_pulled = 0
        self._waiting: list[Piece] = []
        self._size = 0
        self._failures = 0

    def __repr__(self) -> str:
        return f"<Peer {self.address} {'up' if self.is_up else self.fault or 'new'} {self._size} bytes waiting>"

    @property
    def is_away(self) -> bool:
        """Whether it is not there, rather than having missed one delta."""
        return not self.is_up and (not self.is_told or self._failures >= AWAY)

    @property
    def has_news(self) -> bool:
        """Whether anything waits for it."""
        return bool(self._waiting) or self.wants_again

    def add(self, pieces: list[Piece]) -> None:
        """Have these told. What is too much is dropped and counted."""
        for piece in pieces:
            if self.is_away and not piece.is_latest:
                self.dropped += piece.entries if self.is_told else 0
                continue  # it will pull what it has missed
            if self._size + piece.size > MOST_WAITING and not piece.is_latest:
                self.dropped += piece.entries
                self.wants_again = True
                continue
            if piece.is_latest:
                self._drop(piece.name)
            self._waiting.append(piece)
            self._size += piece.size

    def compose(self, again: list[Piece]) -> list[Piece]:
        """What the next delta says. `again`: everything of the moment, for one that may have missed some."""
        if self.wants_again:
            self.wants_again = False
            self.add([piece for piece in again if piece.is_latest])
            self._waiting += [piece for piece in again if not piece.is_latest]
            self._size = sum(piece.size for piece in self._waiting)
        chosen: list[Piece] = []
        size = 0
        while self._waiting and (not chosen or size + self._waiting[0].size <= MOST_SENT):
            piece = self._waiting.pop(0)
            chosen.append(piece)
            size += piece.size
        self._size -= size
        return chosen

    def told(self, pieces: list[Piece], nbytes: int, answer: wire.Answer, now: float) -> bool:
        """It took a delta. Whether it is one that knows nothing of the last while: new, another process, or away."""
        is_new = not self.is_told and self.pulled == answer.origin
        is_fresh = (self.is_away or self.origin != answer.origin) and not is_new
        self.is_up = self.is_told = True
        self.origin, self.config = answer.origin, answer.fingerprint
        self.fault, self.error, self.protocol = None, "", None
        self._failures = 0
        self.answered_at = now
        self.bytes_sent += nbytes
        self.entries_sent += sum(piece.entries for piece in pieces)
        return is_fresh

    def failed(self, pieces: list[Piece], fault: LinkFault, now: float, spread: float) -> None:
        """It did not take a delta, which it may have got all the same. `spread`: 0 to 1."""
        self.is_up = False
        self.fault, self.error, self.protocol = fault.kind, str(fault), fault.theirs
        self._failures += 1
        pause = min(FIRST_DELAY_S * 2 ** min(self._failures - 1, 16), LONGEST_DELAY_S)
        if fault.kind == "protocol":
            pause = OTHER_PROTOCOL_S
        self.not_before = now + pause * (0.75 + 0.5 * spread)
        if self.is_told and self._failures < AWAY:
            # One lost packet: it is told the same again, which does no harm.
            self._waiting[:0] = [piece for piece in pieces if not piece.is_latest]
            self._size = sum(piece.size for piece in self._waiting)
        else:
            self._clear(pieces)
        self.wants_again = True

    def leave(self, now: float) -> None:
        """It has said that it ends: nothing more is owed to it."""
        self.is_up = False
        self._waiting, self._size = [], 0
        self._failures = AWAY
        self.wants_again = True
        self.not_before = now + 1.0

    def _drop(self, name: str) -> None:
        kept = [piece for piece in self._waiting if piece.name != name]
        if len(kept) != len(self._waiting):
            self._waiting = kept
            self._size = sum(piece.size for piece in kept)

    def _clear(self, pieces: list[Piece]) -> None:
        self.dropped += sum(piece.entries for piece in (*pieces, *self._waiting) if not piece.is_latest)
        self._waiting, self._size = [], 0


class Heard(msgspec.Struct):
    """One instance as the receiver sees it, by its origin."""

    origin: str
    at: float
    """When its last delta came."""
    seq: int = 0
    """The latest."""
    latest: dict[str, int] = {}
    """Section whose news replace each other -> number of the delta that had the last ones."""
    config: dict[str, int] = {}
    left_at: float | None = None
    """When it said that it ends."""
    is_silent: bool = False
    nbytes: int = 0
    entries: int = 0
