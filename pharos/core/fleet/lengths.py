"""How long replies become: what those before showed, by key, model, route and the limit that was asked for.

# ops: expected, add · goal: a look-up or two per request; memory bounded whatever clients send
# plan: averages by (key, model, route, class of limit) beside those of all keys; least recently used out first
# warning: a limit is a bound, not an expectation: most clients ask for far more than comes

Forbidden here: text of any kind, and anything that needs a clock.
"""

from collections import OrderedDict

from pharos.core.assumptions import ASSUMPTIONS

OUTPUT_TOKENS = ASSUMPTIONS["output_tokens"].value
KEPT = 10_000
"""Averages; the one that was not used for longest goes."""
WEIGHT = 0.1
"""Share of the newest reply: lengths spread far more than speeds."""

_Kind = tuple[str | None, str, str, int]
"""Key (`None`: all of them), model, route, bits of the limit (0: none)."""


class OutputLengths:
    """Averages of completion tokens."""

    def __init__(self, kept: int = KEPT) -> None:
        self._kept = kept
        self._average: OrderedDict[_Kind, float] = OrderedDict()

    def __len__(self) -> int:
        return len(self._average)

    def __repr__(self) -> str:
        return f"<OutputLengths {len(self)} averages>"

    @property
    def averages(self) -> OrderedDict[_Kind, float]:
        """By key, model, route and class of limit, the least recently used first; changed outside by `inherit` only."""
        return self._average

    def expected(self, key: str, model: str, route: str, max_tokens: int | None) -> float:
        """Tokens that a reply will probably have: as the key's own were, else as all keys', else as assumed.

        Requests with limits of one size (within a factor of two) are one class: a classifier that asks for one token
        teaches nothing about the chats of its key. Never more than the limit.
        """
        bits = _bits(max_tokens)
        known = self._average.get((key, model, route, bits))
        if known is None:
            known = self._average.get((None, model, route, bits), OUTPUT_TOKENS)
        return known if max_tokens is None or known < max_tokens else float(max(max_tokens, 0))

    def add(self, key: str, model: str, route: str, max_tokens: int | None, tokens: int) -> None:
        """Take in a whole reply of so many tokens."""
        bits = _bits(max_tokens)
        for whose in (key, None):
            kind = (whose, model, route, bits)
            before = self._average.get(kind)
            self._average[kind] = float(tokens) if before is None else before + WEIGHT * (tokens - before)
            self._average.move_to_end(kind)
        while len(self._average) > self._kept:
            self._average.popitem(last=False)


def _bits(max_tokens: int | None) -> int:
    """The class of a limit; one that is beyond all replies is as good as none."""
    return 0 if max_tokens is None or max_tokens <= 0 else min(max_tokens.bit_length(), 24)
