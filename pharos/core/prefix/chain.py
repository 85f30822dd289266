"""The hashes of a prompt's beginnings, and the records that go into the index and come out of it.

Forbidden here: knowing how any protocol writes a prompt.

The hash of a link covers the one before it and what the link adds: so each link stands for everything up to it.
SHA-256, because it is the fastest that Python has, and nobody can make two prompts that look alike; its seed is a
literal, because instances and restarts must agree (`docs/adr/0009`). What was hashed lately is looked up instead.
"""

import struct
from collections.abc import Iterable
from functools import lru_cache
from hashlib import sha256
from typing import Final, Literal

from msgspec import Struct

from pharos.core.prefix.known import Known

Piece = bytes | str
"""Bytes of a prompt. A text stands for its bytes and must be ASCII: its length is theirs, and they need not be made."""

Source = Literal["local", "peer", "restored"]
"""How the newest word of a target came: this instance sent it a request, a peer did, or a snapshot said so."""

SEED: Final = b"pharos prefix 2"
"""Changed when the same prompt shall have another hash than before: what peers and state files hold is then void."""
MOST_LINKS: Final = 2048
"""Links of the longest chain; what follows is not looked at. As many messages, or 2 MiB of plain prompt."""


class Chain(Struct, frozen=True, gc=False):
    """The links of one prompt, from the shortest beginning to the longest."""

    hashes: tuple[int, ...]
    """64 bits each. Each stands for the prompt up to and with its link, model and salt included."""
    ends: tuple[int, ...]
    """Bytes of the prompt's text up to and with each link: decoded, in UTF-8, images and other files left out."""


class Match(Struct, frozen=True, gc=False):
    """The longest beginning of a prompt that a target was asked with."""

    text_bytes: int
    source: Source


class PrefixOp(Struct, frozen=True, gc=False):
    """What one instance tells another: a target was asked with these beginnings, or has lost them."""

    target_id: int
    """The sender's number of the target; the receiver knows it by the target's name."""
    hashes: tuple[int, ...]
    used_at: float
    """Seconds on a clock that the instances share. Of a removal: what was recorded later stays."""
    remove: bool = False


_PACK: Final = struct.Struct("<Q").pack
_CUT: Final = struct.Struct("<Q24x").unpack


class ChainBuilder:
    """Makes a chain: `add` what belongs to a link, then `link`.

    Bytes added may hold no byte above 0xF4 but the marks that tell fields apart: UTF-8 has none, so that no two
    different prompts give the same bytes. `known`: where to find links that were made before; `None`: make them all.
    """

    __slots__ = ("_ends", "_hashes", "_known", "_link", "_pieces", "text_bytes")

    def __init__(self, model: str, salt: bytes = b"", known: Known | None = None) -> None:
        self._link = _start(model, salt)
        self._known = known
        self._pieces: list[Piece] = []
        self._hashes: list[int] = []
        self._ends: list[int] = []
        self.text_bytes = 0
        """Bytes of text so far."""

    def __repr__(self) -> str:
        return f"<ChainBuilder {len(self._ends)} links, {self.text_bytes} bytes>"

    def add(self, piece: Piece, text_bytes: int) -> None:
        """Add bytes to the link that is being made; `text_bytes` of them are text of the prompt."""
        self._pieces.append(piece)
        self.text_bytes += text_bytes

    def link(self) -> bool:
        """End a link here. False when it was the last that a chain can have."""
        pieces, self._pieces = self._pieces, []
        key = hash((self._link, *pieces))
        known = self._known
        link = known.young.get(key) if known is not None else None
        self._link = link = self._make(key, self._link, pieces) if link is None else link
        self._hashes.append(link)
        self._ends.append(self.text_bytes)
        return len(self._ends) < MOST_LINKS

    def add_link(self, piece: Piece, text_bytes: int) -> bool:
        """`add` and `link` in one step."""
        self.add(piece, text_bytes)
        return self.link()

    def add_links(self, links: list[tuple[Piece, Piece]]) -> bool:
        """Add many links, each of a mark and a text, all of whose bytes count: as one by one, at half the cost."""
        known = self._known
        find = known.young.get if known is not None else _nothing
        hashes, ends, link, end = self._hashes, self._ends, self._link, self.text_bytes
        for mark, text in links[: MOST_LINKS - len(ends)]:
            key = hash((link, mark, text))
            found = find(key)
            link = self._make(key, link, (mark, text)) if found is None else found
            hashes.append(link)
            end += len(text)
            ends.append(end)
        self._link, self.text_bytes = link, end
        return len(ends) < MOST_LINKS

    def chain(self) -> Chain | None:
        """The chain; `None` when it has no link."""
        return Chain(tuple(self._hashes), tuple(self._ends)) if self._hashes else None

    def _make(self, key: int, before: int, pieces: Iterable[Piece]) -> int:
        """A link that is not among those that were made or asked for lately."""
        known = self._known
        if known is None:
            return _hash(before, pieces)
        link = known.old.get(key)
        if link is None:
            link = _hash(before, pieces)
        known.put(key, link)
        return link


def _hash(before: int, pieces: Iterable[Piece]) -> int:
    state = sha256(_PACK(before))
    for piece in pieces:
        state.update(piece.encode() if isinstance(piece, str) else piece)
    link: int = _CUT(state.digest())[0]
    return link


@lru_cache(maxsize=1024)
def _start(model: str, salt: bytes) -> int:
    """What comes before the first link: of a model, and of whoever may share its prompts."""
    name = model.encode("utf-8", "surrogatepass")
    # Lengths first: a salt may be any bytes, and none may reach into the name.
    start: int = _CUT(sha256(b"%b\xff%d,%d\xff%b%b" % (SEED, len(salt), len(name), salt, name)).digest())[0]
    return start


def _nothing(_: int) -> int | None:
    return None
