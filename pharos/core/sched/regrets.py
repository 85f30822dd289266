"""What requests for a model have waited lately though it was in memory: what one more copy of it would have saved.

A queue of one or two never pays for a load by itself, however often it forms; its waits summed over minutes may.

# ops: add, of, spend · goal: one product per request that waited; nothing for those that did not
# plan: a sum per model that halves within minutes; a load of the model spends it
# warning: waits for a load, or for another model's turn, are no reason to load more: who adds leaves them out

Forbidden here: saying what a load is worth (`copies` does).
"""

from typing import Final

from pharos.core.assumptions import ASSUMPTIONS

HALF_LIFE_S = ASSUMPTIONS["regret_half_life_s"].value
LEAST_S: Final = 0.01
"""A sum that has become so small is forgotten."""
MANY: Final = 64
"""Models; beyond it sums that have become small are looked for."""


class Regrets:
    """Seconds of waiting by model, the older the less they count."""

    def __init__(self) -> None:
        self._sums: dict[str, tuple[float, float]] = {}
        """Model to its sum, and when that was worked out."""

    def __len__(self) -> int:
        return len(self._sums)

    def __repr__(self) -> str:
        return f"<Regrets of {len(self)} models>"

    def add(self, model: str, waited_s: float, now: float) -> None:
        """A request got its slot after so long, of which no other model and no load was the reason."""
        if waited_s <= 0:
            return
        self._sums[model] = (self.of(model, now) + waited_s, now)
        if len(self._sums) > MANY:
            self._sums = {name: held for name, held in self._sums.items() if self.of(name, now) >= LEAST_S}

    def of(self, model: str, now: float) -> float:
        """What has been waited for a model, as of now; 0 for one that nobody waited for."""
        total, at = self._sums.get(model, (0.0, now))
        return float(total * 0.5 ** (max(now - at, 0.0) / HALF_LIFE_S))

    def spend(self, model: str) -> None:
        """The model is loaded once more: those waits have paid for it."""
        self._sums.pop(model, None)
