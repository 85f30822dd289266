"""Finds clients that defeat every cache: their requests are nearly the same, and something early in them never is.

# ops: note, found · goal: nothing for prompts that match; a sketch of the body for some of those that do not
# plan: per key and model sketches of the last bodies; what is alike in front and behind leaves the span that changes
# warning: a sketch is checksums of blocks, so that positions are as exact as a block is long

A time of day in a system prompt is the usual case. Only told, never mended. Forbidden here: keeping any text.
"""

from collections import OrderedDict, deque
from collections.abc import Sequence
from typing import Final
from zlib import crc32

from msgspec import Struct

KEPT: Final = 200
"""Pairs of key and model; the one that was not heard of for longest goes."""
BLOCKS: Final = 64
SMALLEST_BLOCK: Final = 64
"""Bytes."""
SMALLEST: Final = 2048
"""Bytes of a body that is worth a look."""
LARGEST: Final = 2 * 1024 * 1024
"""Bytes of one that can be looked at between streams: a sketch takes 1 µs for each 1.5 KiB."""
ALIKE: Final = 0.9
"""Share of a body that is as in another one."""
EVERY: Final = 4
"""One of so many bodies without a match is looked at while they may show something new."""
SELDOM: Final = 64
"""One of so many when they showed it, or were unlike each other every time."""
LEAST: Final = 5
"""So many in a row that were looked at, and alike, are told of."""
REMEMBERED: Final = 4
"""Sketches of a pair: a client may have several conversations at once."""


class Busted(Struct, frozen=True, gc=False):
    """A client whose prompts are never found in a cache, and why."""

    key: str
    model: str
    position: int
    """Where in the body something changes from request to request, in bytes."""
    size: int
    """How many bytes do, at most."""
    seen: int
    """Bodies in a row that showed it."""


class Sketch(Struct, frozen=True, gc=False):
    """What can be compared of a body without having it."""

    size: int
    block: int
    heads: tuple[int, ...]
    """Checksums of its first block, its first two, and so on."""
    tails: tuple[int, ...]
    """Of its last block, its last two, and so on."""


def sketch(body: bytes) -> Sketch:
    """Take a sketch of a body. Bodies of about one size have blocks of one size."""
    size = len(body)
    block = SMALLEST_BLOCK
    while block * BLOCKS < size:
        block *= 2
    heads: list[int] = []
    tails: list[int] = []
    head = tail = 0
    for at in range(block, size + 1, block):
        head = crc32(body[at - block : at], head)
        heads.append(head)
        tail = crc32(body[size - at : size - at + block], tail)
        tails.append(tail)
    return Sketch(size, block, tuple(heads), tuple(tails))


def changing(one: Sketch, other: Sketch) -> tuple[int, int] | None:
    """Position and size of what changed from one body to another; `None` when nothing did, or too much for a word."""
    if one.block != other.block:
        return None
    position = _common(one.heads, other.heads) * one.block
    behind = _common(one.tails, other.tails) * one.block
    size = other.size - position - behind
    return (position, size) if 0 < size <= other.size * (1 - ALIKE) else None


def _common(one: Sequence[int], other: Sequence[int]) -> int:
    """How many of the first are equal: each is of all before it, so that one which differs is followed by no equal."""
    low, high = 0, min(len(one), len(other))
    while low < high:
        middle = (low + high) // 2
        if one[middle] == other[middle]:
            low = middle + 1
        else:
            high = middle
    return low


class _Pair(Struct):
    """What is known of one key with one model."""

    misses: int = 0
    """Since it was looked at."""
    every: int = EVERY
    seen: int = 0
    span: tuple[int, int] = (0, 0)


class Busters:
    """Who defeats caches now."""

    def __init__(self) -> None:
        self._pairs: OrderedDict[tuple[str, str], _Pair] = OrderedDict()
        self._sketches: dict[tuple[str, str], deque[Sketch]] = {}

    def __repr__(self) -> str:
        return f"<Busters {len(self._pairs)} pairs, {len(self.found())} found>"

    def note(self, key: str, model: str, share: float, body: bytes) -> None:
        """Take in a request. `share`: how much of its prompt some cache probably holds; from a half on all is well."""
        pair = (key, model)
        if share >= 0.5:  # noqa: PLR2004 - a half
            if self._pairs.pop(pair, None) is not None:
                self._sketches.pop(pair, None)
            return
        if not SMALLEST <= len(body) <= LARGEST:
            return
        held = self._pairs.get(pair)
        if held is None:
            held = self._pairs[pair] = _Pair()
            if len(self._pairs) > KEPT:
                self._sketches.pop(self._pairs.popitem(last=False)[0], None)
        else:
            self._pairs.move_to_end(pair)
        held.misses += 1
        if held.misses >= held.every:
            held.misses = 0
            self._look(held, self._sketches.setdefault(pair, deque(maxlen=REMEMBERED)), sketch(body))

    def _look(self, held: _Pair, known: deque[Sketch], new: Sketch) -> None:
        spans = [span for old in known if (span := changing(old, new)) is not None]
        known.append(new)
        if spans:
            held.seen += 1
            held.span = min(spans, key=lambda span: span[1])
            held.every = EVERY if held.seen < LEAST else SELDOM
        else:
            if held.seen:
                held.every = EVERY
            elif len(known) > REMEMBERED // 2:  # the first has nothing to be held against
                held.every = min(held.every * 2, SELDOM)
            held.seen = 0

    def found(self) -> list[Busted]:
        """Those that are told of, the one heard of last at the end."""
        return [
            Busted(key, model, *held.span, held.seen)
            for (key, model), held in self._pairs.items()
            if held.seen >= LEAST
        ]
