"""How many tokens a byte of prompt text is, learned for each model from what engines counted.

Forbidden here: text of any kind.
"""

import math
from collections.abc import Container

from pharos.core.assumptions import ASSUMPTIONS
from pharos.core.fleet.stats import Ewma

BYTES_PER_TOKEN = ASSUMPTIONS["bytes_per_token"].value
LEAST_BYTES = 1000
"""Of a shorter prompt the tokens that an engine's template adds would count for more than its text: 30 for a "hi"."""


class TokensPerByte:
    """Averages by model."""

    def __init__(self) -> None:
        self._learned: dict[str, Ewma] = {}

    def __repr__(self) -> str:
        return f"<TokensPerByte of {len(self._learned)} models>"

    @property
    def learned(self) -> dict[str, Ewma]:
        """Averages by model; changed from outside by `inherit` only."""
        return self._learned

    def of(self, model: str) -> float:
        """Tokens of a byte, as learned for the model, or as assumed."""
        learned = self._learned.get(model)
        return learned.value if learned is not None and learned.value is not None else 1 / BYTES_PER_TOKEN

    def count(self, model: str, nbytes: int) -> int:
        """Estimated tokens of a prompt of so many bytes."""
        return math.ceil(nbytes * self.of(model))

    def add(self, model: str, tokens: int | None, nbytes: int | None) -> None:
        """Take in what an engine counted; `None`: it did not, or the prompt is not known."""
        if tokens and nbytes is not None and nbytes >= LEAST_BYTES:
            self._learned.setdefault(model, Ewma()).add(tokens / nbytes)

    def keep(self, models: Container[str]) -> None:
        """Forget all but these."""
        self._learned = {model: average for model, average in self._learned.items() if model in models}
