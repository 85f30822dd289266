"""Which of the names that there are somebody meant who wrote another one. Nothing else belongs here."""

import difflib
from collections.abc import Iterable
from itertools import takewhile

_SHARE = 0.1
"""What each letter of a common beginning closes of the gap, up to four: people know how a word begins, not its form."""
_LETTERS = 4


def meant(word: str, known: Iterable[str], cutoff: float = 0.6) -> str | None:
    """Return the name that is most alike; `None` when none is. `cutoff`: the share of letters that must agree."""
    close = difflib.get_close_matches(word, known, n=3, cutoff=cutoff)
    return max(close, key=lambda name: _alike(word, name), default=None)


def _alike(word: str, name: str) -> float:
    ratio = difflib.SequenceMatcher(None, name, word).ratio()
    same = takewhile(lambda pair: pair[0] == pair[1], zip(word, name, strict=False))
    return ratio + (1 - ratio) * _SHARE * min(len(list(same)), _LETTERS)
