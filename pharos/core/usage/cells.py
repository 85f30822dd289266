"""Usage by day, key and model, counted by many instances without agreement.

# ops: add, take, changed · goal: O(1) each; sums by key and by model are kept, so that a quota is one look-up
# plan: a cell per origin, day, key and model; it only ever grows, so the field-wise greater one is the newer one
# warning: only its own instance adds to a cell; all others hold copies

Forbidden here: knowing what day it is, and what a quota allows.
"""

from collections.abc import Iterator, Mapping
from typing import Final, Literal

import msgspec

OTHER: Final = "_other"
"""Stands for all models beyond `MOST_MODELS`. No key may be called so; nor can it be confused with one."""
MOST_MODELS: Final = 1000
"""Models with cells of their own, per day: an engine may list whatever names its users make up."""
MOST_CELLS: Final = 1_000_000
"""Cells of other instances that are kept: far above 400 days of any fleet, and a bound on what a peer can fill."""
MOST: Final = 2**53
"""No sound count is greater: it is the last whole number that every reader of JSON has."""
LONGEST_NAME: Final = 1024
"""Characters of a key's or model's name in a cell."""

CellKey = tuple[int, str, str]
"""Number of the day in `usage.timezone`, name of the key, the clients' name of the model."""
Entry = tuple[str, CellKey, "Count"]
"""Origin (the instance that counted), which cell, and what it has counted in all."""
By = Literal["key", "model"]
_Names = tuple[str, str, str]
"""Origin, key and model."""


class Count(msgspec.Struct, frozen=True, gc=False):
    """What was used. Tokens are as the engines told them."""

    requests: int = 0
    """Requests that an engine served."""
    prompt_tokens: int = 0
    """Cached ones included."""
    cached_tokens: int = 0
    completion_tokens: int = 0
    unmetered: int = 0
    """Requests among them whose reply told neither prompt nor completion: their tokens are unknown, not none."""

    @property
    def tokens(self) -> int:
        """What counts against `tokens_per_day`."""
        return self.prompt_tokens + self.completion_tokens

    def plus(self, other: "Count") -> "Count":
        """The sum of both."""
        return Count(
            self.requests + other.requests,
            self.prompt_tokens + other.prompt_tokens,
            self.cached_tokens + other.cached_tokens,
            self.completion_tokens + other.completion_tokens,
            self.unmetered + other.unmetered,
        )

    def minus(self, other: "Count") -> "Count":
        """What this has beyond another one that is nowhere greater."""
        return Count(
            self.requests - other.requests,
            self.prompt_tokens - other.prompt_tokens,
            self.cached_tokens - other.cached_tokens,
            self.completion_tokens - other.completion_tokens,
            self.unmetered - other.unmetered,
        )

    def merged(self, other: "Count") -> "Count":
        """The newest of what two reports of one cell say: field by field the greater one."""
        return Count(
            max(self.requests, other.requests),
            max(self.prompt_tokens, other.prompt_tokens),
            max(self.cached_tokens, other.cached_tokens),
            max(self.completion_tokens, other.completion_tokens),
            max(self.unmetered, other.unmetered),
        )

    @property
    def is_sound(self) -> bool:
        """Whether all of it can have been counted."""
        counts = (self.requests, self.prompt_tokens, self.cached_tokens, self.completion_tokens, self.unmetered)
        return min(counts) >= 0 and max(counts) <= MOST


NOTHING: Final = Count()


class Cells:
    """All cells that this instance knows, its own and copies of others."""

    def __init__(self, origin: str) -> None:
        """`origin`: names this run of this instance, and no other one ever."""
        self.origin = origin
        self.refused = 0
        """Cells of others that were not kept, as they were unsound or too many."""
        self._days: dict[int, dict[_Names, Count]] = {}
        self._sums: dict[By, dict[int, dict[str, Count]]] = {"key": {}, "model": {}}
        """Over all origins, by day and name."""
        self._own_models: dict[int, set[str]] = {}
        self._changed: set[CellKey] = set()
        self._kept: tuple[int, int] | None = None
        self._names: dict[_Names, _Names] = {}
        """One copy for all days: each entry of a snapshot brings strings of its own."""
        self._taken = 0

    def __repr__(self) -> str:
        return f"<Cells {self.origin} {len(self)}>"

    def __len__(self) -> int:
        return sum(map(len, self._days.values()))

    # --- counting

    def add(
        self,
        day: int,
        key: str,
        model: str,
        *,
        prompt_tokens: int | None = None,
        cached_tokens: int | None = None,
        completion_tokens: int | None = None,
    ) -> None:
        """Count one request that an engine served. `None`: its reply did not tell."""
        known = self._own_models.setdefault(day, set())
        if model not in known:
            if len(known) >= MOST_MODELS:
                model = OTHER
            known.add(model)
        more = Count(
            1,
            prompt_tokens if prompt_tokens is not None else 0,
            cached_tokens if cached_tokens is not None else 0,
            completion_tokens if completion_tokens is not None else 0,
            1 if prompt_tokens is None and completion_tokens is None else 0,
        )
        cells = self._days.setdefault(day, {})
        where = (self.origin, key, model)
        cells[where] = cells.get(where, NOTHING).plus(more)
        self._sum(day, key, model, more)
        self._changed.add((day, key, model))

    def _sum(self, day: int, key: str, model: str, more: Count) -> None:
        by_key = self._sums["key"].setdefault(day, {})
        by_key[key] = by_key.get(key, NOTHING).plus(more)
        by_model = self._sums["model"].setdefault(day, {})
        by_model[model] = by_model.get(model, NOTHING).plus(more)

    # --- sharing

    def take(self, origin: str, cell: CellKey, count: Count) -> bool:
        """Merge what another instance, or an earlier run of this one, has counted. Whether that was news.

        May come late, twice and in any order. What is said of this run's own cells is not believed: it knows better.
        """
        day, key, model = cell
        if origin == self.origin or (self._kept is not None and not self._kept[0] <= day <= self._kept[1]):
            return False
        where = (origin, key, model)
        cells = self._days.get(day, {})
        old = cells.get(where)
        if not count.is_sound or (old is None and not self._has_room(where)):
            self.refused += 1
            return False
        new = count if old is None else old.merged(count)
        if new == old:
            return False
        if old is None:
            self._taken += 1
            where = self._names.setdefault(where, where)
            cells = self._days.setdefault(day, {})
        cells[where] = new
        self._sum(day, key, model, new if old is None else new.minus(old))
        return True

    def _has_room(self, names: _Names) -> bool:
        return self._taken < MOST_CELLS and max(map(len, names)) <= LONGEST_NAME

    def changed(self) -> list[Entry]:
        """Own cells that have grown since the last call, with all that they hold."""
        if not self._changed:
            return []
        changed, self._changed = self._changed, set()
        known, origin = self._days, self.origin
        return [(origin, cell, known[cell[0]][origin, cell[1], cell[2]]) for cell in changed]

    def own(self, first_day: int) -> Iterator[Entry]:
        """Own cells of this day and all later ones."""
        return (entry for entry in self.full(first_day) if entry[0] == self.origin)

    def full(self, first_day: int | None = None) -> Iterator[Entry]:
        """All cells of all origins, oldest day first. Cells may be added and merged while it is read."""
        for day in self.days():
            if first_day is None or day >= first_day:
                for (origin, key, model), count in list(self._days.get(day, {}).items()):
                    yield origin, (day, key, model), count

    # --- reading

    def tokens(self, day: int, key: str) -> int:
        """Tokens of a key on a day, over all origins."""
        count = self._sums["key"].get(day, {}).get(key)
        return 0 if count is None else count.tokens

    def of_day(self, day: int, by: By = "key") -> Mapping[str, Count]:
        """Totals of a day over all origins, by name of key or model."""
        return self._sums[by].get(day, {})

    def days(self) -> list[int]:
        """Numbers of the days of which something is known, oldest first."""
        return sorted(self._days)

    def total(self, first_day: int, last_day: int, by: By = "key") -> dict[str, Count]:
        """Totals of all days from the first to the last, both included, by name of key or model."""
        found: dict[str, Count] = {}
        for day, names in self._sums[by].items():
            if first_day <= day <= last_day:
                for name, count in names.items():
                    found[name] = found.get(name, NOTHING).plus(count)
        return found

    def keep(self, first_day: int, last_day: int) -> None:
        """Forget all other days, and take nothing of them from now on."""
        self._kept = first_day, last_day
        for day in [known for known in self._days if not first_day <= known <= last_day]:
            cells = self._days.pop(day)
            self._taken -= sum(where[0] != self.origin for where in cells)
            for sums in self._sums.values():
                sums.pop(day, None)
            self._own_models.pop(day, None)
        self._changed = {cell for cell in self._changed if cell[0] in self._days}
        self._names = {where: where for cells in self._days.values() for where in cells}
