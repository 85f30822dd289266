"""Texts of given lengths out of numbers: the same number is the same text, another one differs from its first word on.

Forbidden here: chance that is not seeded. A prompt's text must be the same for every router.
"""

import functools
import random
from collections.abc import Iterator
from typing import Any, Final

from pharos.sim.asks import Ask

_FREQUENT: Final = (
    "the of and to in a is that for it as was with be by on not he this are or his from at which but have an had they "
    "you were their one all we can her has there been if more when will would who so no said what up its about into "
    "them than only other new some could time these two may then do first any my now such like our over man me even "
    "most made after also did many before must through back years where much your way well down should because each "
    "people state world house water light river stone garden window market winter bridge letter morning story"
)
WORDS: Final = tuple(_FREQUENT.split())
"""A token or two each."""
LEAST_BYTES: Final = 8
CACHED_BYTES: Final = 512
"""Texts that are at least so long are kept: instructions come again and again."""


def text(number: int, nbytes: int) -> str:
    """Words of exactly so many bytes, at least a few."""
    nbytes = max(nbytes, LEAST_BYTES)
    return _kept(number, nbytes) if nbytes >= CACHED_BYTES else _made(number, nbytes)


def _made(number: int, nbytes: int) -> str:
    chance = random.Random(number)  # noqa: S311 - the same for every router
    said, length = [f"{number & 0xFFFFF:05x}"], 5
    while length < nbytes:
        word = chance.choice(WORDS)
        said.append(word)
        length += len(word) + 1
    return " ".join(said)[:nbytes]


_kept = functools.lru_cache(maxsize=4096)(_made)


def messages(ask: Ask, scale: float) -> list[dict[str, Any]]:
    """The messages of a request of the simulator's clients: instructions first, then a person and replies in turns."""
    return list(_messages(ask, scale))


def _messages(ask: Ask, scale: float) -> Iterator[dict[str, Any]]:
    begins = 0
    for place, (link, end) in enumerate(zip(ask.chain.hashes, ask.chain.ends, strict=True)):
        role = "system" if place == 0 else "user" if place % 2 else "assistant"
        yield {"role": role, "content": text(link, round((end - begins) * scale))}
        begins = end
