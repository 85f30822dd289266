"""Fair queue across API keys: whoever was given the fewest engine-seconds by its weight is next.

# ops: add, remove, serve · goal: a pass costs O(keys + grants), and one offer per model that has no free slot
# plan: a line per key, and its account; for each pass the lines are sorted by priority, then by what they owe
# warning: equals take turns in a ring, as a key that was served goes to its end
# warning: who is old counts as of the highest priority there is, beside its own: no key waits for ever

This is deficit round-robin with a quantum of nothing: a round of it would keep short requests of one key waiting for a
whole quantum of every other one. Forbidden here: knowing why an offer is declined. `serve` asks, the ledger answers.
"""

import enum
from bisect import insort
from collections import OrderedDict
from collections.abc import Callable, Iterator
from typing import Final

from pharos.core.sched.charging import Accounts, reweigh
from pharos.core.sched.line import OLD, Alike, Line, Waiter


class Answer(enum.Enum):
    """What became of an offer to serve a waiter."""

    GRANTED = enum.auto()
    WAITS = enum.auto()
    """It prefers to wait: no one behind it in its own line may pass it."""
    BLOCKED = enum.auto()
    """Nobody who is alike can be served now, whatever the key."""
    FULL = enum.auto()
    """Nobody at all who asks for the model can."""


Offer = Callable[[Waiter], Answer]
LOOKS: Final = 8
"""Waiters behind the first of a line that are asked, too, where it prefers to wait."""
_Place = tuple[int, Line, bool]
"""Place in the ring, who stands there, and whether only those who are old count."""


class FairQueue:
    """All waiters, by key."""

    def __init__(self) -> None:
        self.accounts = Accounts()
        """What a grant costs its key is charged here by whoever makes it."""
        self._lines: OrderedDict[str, Line] = OrderedDict()
        """In the order of their turns, should they owe the same."""
        self.by_model: dict[str, OrderedDict[int, Waiter]] = {}
        """Who waits for each model that someone waits for, oldest first; changed here only."""
        self._waiters: dict[int, Waiter] = {}
        self._work_s: dict[str, float] = {}
        self._behind: Offer | None = None
        """What the pass at hand offers to those behind the first of a line."""

    def __len__(self) -> int:
        return len(self._waiters)

    def __contains__(self, waiter_id: int) -> bool:
        return waiter_id in self._waiters

    def __iter__(self) -> Iterator[Waiter]:
        return iter(self._waiters.values())

    def get(self, waiter_id: int) -> Waiter | None:
        """The waiter of that id, if it still waits."""
        return self._waiters.get(waiter_id)

    def has(self, key: str) -> bool:
        """Whether a key waits."""
        return key in self._lines

    def models(self) -> list[str]:
        """Models that someone waits for."""
        return list(self.by_model)

    def of_model(self, model: str) -> list[Waiter]:
        """Who waits for a model, oldest first."""
        return list(self.by_model.get(model, {}).values())

    def count(self, model: str) -> int:
        """How many wait for a model."""
        return len(self.by_model.get(model, ()))

    def work_s(self, model: str) -> float:
        """Engine-seconds that those who wait for a model will probably take."""
        return self._work_s.get(model, 0.0)

    def add(self, waiter: Waiter) -> None:
        """Put a waiter in its key's line; a retry behind the line's other retries, before all else."""
        submit = waiter.submit
        weight = max(submit.weight, 1)
        line = self._lines.get(submit.key)
        if line is None:
            others = [other.account for other in self._lines.values()]  # few keys wait at once
            line = self._lines[submit.key] = Line(submit.key, self.accounts.enter(submit.key, weight, others))
        reweigh(line.account, weight)
        line.add(waiter)
        self.by_model.setdefault(submit.model, OrderedDict())[waiter.id] = waiter
        self._waiters[waiter.id] = waiter
        self._work_s[submit.model] = self.work_s(submit.model) + waiter.work_s

    def remove(self, waiter_id: int) -> Waiter | None:
        """Take a waiter out, wherever it stands; `None` when it is not there (any more)."""
        waiter = self._waiters.pop(waiter_id, None)
        if waiter is None:
            return None
        line = self._lines[waiter.submit.key]
        line.remove(waiter)
        model = waiter.submit.model
        same = self.by_model[model]
        del same[waiter_id]
        if same:
            self._work_s[model] -= waiter.work_s
        else:
            del self.by_model[model], self._work_s[model]
        if not line.groups:
            del self._lines[line.key]
        if not self._waiters:
            self.accounts.rest()
        return waiter

    def settle(self, key: str, charged_s: float, actual_s: float) -> None:
        """A request that waited has ended: its key is charged what it took instead of what was expected."""
        self.accounts.settle(key, charged_s, actual_s)
        if not self._waiters:
            self.accounts.rest()

    def serve(self, offer: Offer, now: float, behind: Offer | None = None) -> None:
        """Offer slots in fair order until nobody takes one. `offer` may charge, and must not change the queue else.

        `behind`: what a few of those behind the first of a line are offered when it prefers to wait.
        """
        self._behind = behind
        full: set[str] = set()
        blocked: set[Alike] = set()
        asked: list[Line] = []
        for band in _bands(list(self._lines.values()), now):
            self._serve_band(band, offer, full, blocked, asked, now)
        for line in asked:
            line.passed.clear()

    def _serve_band(
        self, band: list[_Place], offer: Offer, full: set[str], blocked: set[Alike], asked: list[Line], now: float
    ) -> None:
        """Offer slots to keys of one priority; what they were asked, and what came of it, is added to the sets."""
        turns = sorted([((its := line.account).settled_s + its.out_s) / its.weight, n, line, old]
                       for n, line, old in band)  # fmt: skip
        place, last = 0, len(self._lines)
        while place < len(turns) and len(full) < len(self.by_model):
            turn = turns[place]
            line: Line = turn[2]  # type: ignore[assignment]
            only_old: bool = turn[3]  # type: ignore[assignment]
            place += 1
            if self._serve_one(line, offer, full, blocked, now, only_old=only_old):
                last += 1
                turn[0], turn[1] = line.account.owed, last
                insort(turns, turn, place)
            if line.passed:
                asked.append(line)

    def _serve_one(
        self, line: Line, offer: Offer, full: set[str], blocked: set[Alike], now: float, *, only_old: bool
    ) -> bool:
        """Make offers to one key until it takes one; true when it did and may want another one in this pass."""
        while (waiter := line.first(full, blocked, now)) is not None:
            if only_old and waiter.rank(now)[0] > OLD:
                return False
            answer = offer(waiter)
            if answer is Answer.FULL:
                full.add(waiter.submit.model)
            elif answer is Answer.BLOCKED:
                blocked.add(waiter.alike)
            elif answer is Answer.WAITS:
                line.passed.add(waiter.alike)
                behind = self._behind
                others = line.behind(waiter, LOOKS, now) if behind is not None else ()
                other = next((one for one in others if behind is not None and behind(one) is Answer.GRANTED), None)
                if other is not None:
                    line.passed.discard(waiter.alike)
                    return self._granted(line, other)
            else:
                return self._granted(line, waiter)
        return False

    def _granted(self, line: Line, waiter: Waiter) -> bool:
        """Take one out that got a slot; whether others of its key wait."""
        self.remove(waiter.id)
        if line.key not in self._lines:
            return False
        self._lines.move_to_end(line.key)
        return True

    def ahead_of(self, waiter: Waiter, now: float) -> list[Waiter]:
        """Who waits for the same model and is served before, if lengths are as expected and nobody comes or goes."""
        by_key: dict[str, list[Waiter]] = {}
        for other in self.by_model[waiter.submit.model].values():
            by_key.setdefault(other.submit.key, []).append(other)
        mine, rank = by_key.pop(waiter.submit.key), waiter.rank(now)
        ahead = [other for other in mine if other.rank(now) < rank]
        account = self._lines[waiter.submit.key].account
        owed = account.owed + sum([other.work_s for other in ahead]) / account.weight
        top = max(line.priority for line in self._lines.values())
        band = self._lines[waiter.submit.key].band(waiter, now, top)
        is_before = True  # in the ring
        for key, line in self._lines.items():
            if key == waiter.submit.key:
                is_before = False
            its = line.account
            turn = its.owed
            for other in sorted(by_key.get(key, ()), key=lambda one: one.rank(now)):
                its_band = line.band(other, now, top)
                is_later = turn > owed or (turn == owed and not is_before)
                if its_band < band or (its_band == band and is_later):
                    break
                ahead.append(other)
                turn += other.work_s / its.weight
        return ahead


def _bands(lines: list[Line], now: float) -> list[list[_Place]]:
    """All lines by priority, the highest first; there also the others that have someone who is old."""
    priorities = {line.priority for line in lines}
    if len(priorities) <= 1:
        return [[(n, line, False) for n, line in enumerate(lines)]]
    top = max(priorities)
    bands: dict[int, list[_Place]] = {priority: [] for priority in sorted(priorities, reverse=True)}
    for n, line in enumerate(lines):
        bands[line.priority].append((n, line, False))
        if line.priority < top and line.has_old(now):
            bands[top].append((n, line, True))
    return list(bands.values())
