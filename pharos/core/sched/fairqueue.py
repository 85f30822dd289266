"""Fair queue across API keys: one line per key, served in turns as long as the key's weight.

# ops: add, remove, serve · goal: a pass costs O(keys + grants), and one offer per model that has no free slot
# plan: per key, waiters grouped by what decides alike (model, excluded targets), each group a FIFO; keys in a ring
# warning: a key that is passed over keeps its turn; one whose line empties loses it and comes back last

Forbidden here: knowing why an offer is declined. `serve` asks, the ledger answers.
"""

import enum
from collections import OrderedDict
from collections.abc import Callable, Iterator
from typing import TypeVar

import msgspec

from pharos.core.sched.lease import Submit

K = TypeVar("K")

Alike = tuple[str, frozenset[int], frozenset[int] | None]
"""Model, excluded and only possible targets: waiters of one key that agree in these are served in their order."""


class Waiter(msgspec.Struct, eq=False):
    """One request in the queue."""

    id: int
    submit: Submit
    at: float
    """When it came, seconds on the caller's clock."""
    deadline: float | None
    """When it has waited long enough, however things stand."""
    absent_until: float | None = None
    """When it has waited long enough for a backend to come back; `None` while one is up."""

    @property
    def alike(self) -> Alike:
        """What decides where it may go."""
        return (self.submit.model, self.submit.exclude, self.submit.only)

    @property
    def until(self) -> float | None:
        """When it expires if nothing changes."""
        ends = [end for end in (self.deadline, self.absent_until) if end is not None]
        return min(ends, default=None)


class Answer(enum.Enum):
    """What became of an offer to serve a waiter."""

    GRANTED = enum.auto()
    WAITS = enum.auto()
    """It prefers to wait: no one behind it in its own line may pass it."""
    BLOCKED = enum.auto()
    """Nobody who is alike can be served now, whatever the key."""


Offer = Callable[[Waiter], Answer]


class _Line:
    """The waiters of one key."""

    __slots__ = ("credit", "groups", "key", "passed", "weight")

    def __init__(self, key: str, weight: int) -> None:
        self.key = key
        self.weight = self.credit = weight
        self.groups: dict[tuple[bool, Alike], OrderedDict[int, Waiter]] = {}
        """Retries apart from the rest, as they go first."""
        self.passed: set[Alike] = set()
        """What this pass has asked already."""

    def first(self, blocked: set[Alike]) -> Waiter | None:
        """Whom to ask next: retries first, then by age."""
        best: Waiter | None = None
        for (_, alike), group in self.groups.items():
            if alike in blocked or alike in self.passed:
                continue
            head = next(iter(group.values()))
            if best is None or _rank(head) < _rank(best):
                best = head
        return best


class FairQueue:
    """All waiters, by key. Keys take turns; a turn lasts for as many grants as the key weighs."""

    def __init__(self) -> None:
        self._lines: OrderedDict[str, _Line] = OrderedDict()
        """In the order of their turns."""
        self.by_model: dict[str, OrderedDict[int, Waiter]] = {}
        """Who waits for each model that someone waits for, oldest first; changed here only."""
        self._waiters: dict[int, Waiter] = {}

    def __len__(self) -> int:
        return len(self._waiters)

    def __contains__(self, waiter_id: int) -> bool:
        return waiter_id in self._waiters

    def __iter__(self) -> Iterator[Waiter]:
        return iter(self._waiters.values())

    def get(self, waiter_id: int) -> Waiter | None:
        """The waiter of that id, if it still waits."""
        return self._waiters.get(waiter_id)

    def models(self) -> list[str]:
        """Models that someone waits for."""
        return list(self.by_model)

    def of_model(self, model: str) -> list[Waiter]:
        """Who waits for a model, oldest first."""
        return list(self.by_model.get(model, {}).values())

    def count(self, model: str) -> int:
        """How many wait for a model."""
        return len(self.by_model.get(model, ()))

    def add(self, waiter: Waiter) -> None:
        """Put a waiter at the end of its key's line; a retry behind the line's other retries, before all else."""
        submit = waiter.submit
        weight = max(submit.weight, 1)
        line = self._lines.get(submit.key)
        if line is None:
            line = self._lines[submit.key] = _Line(submit.key, weight)
        line.weight = weight
        line.credit = min(line.credit, weight)
        line.groups.setdefault((submit.retry, waiter.alike), OrderedDict())[waiter.id] = waiter
        self.by_model.setdefault(submit.model, OrderedDict())[waiter.id] = waiter
        self._waiters[waiter.id] = waiter

    def remove(self, waiter_id: int) -> Waiter | None:
        """Take a waiter out, wherever it stands; `None` when it is not there (any more)."""
        waiter = self._waiters.pop(waiter_id, None)
        if waiter is None:
            return None
        line = self._lines[waiter.submit.key]
        _discard(line.groups, (waiter.submit.retry, waiter.alike), waiter_id)
        _discard(self.by_model, waiter.submit.model, waiter_id)
        if not line.groups:
            del self._lines[line.key]
        return waiter

    def serve(self, offer: Offer) -> None:
        """Offer slots in fair order until nobody takes one. `offer` must not change the queue."""
        blocked: set[Alike] = set()
        turn = list(self._lines.values())
        for line in turn:
            line.passed.clear()
        while turn:
            turn = [line for line in turn if self._serve_turn(line, offer, blocked)]

    def _serve_turn(self, line: _Line, offer: Offer, blocked: set[Alike]) -> bool:
        """Serve one key for one turn; true when it may want another one in this pass."""
        while (waiter := line.first(blocked)) is not None:
            answer = offer(waiter)
            if answer is Answer.BLOCKED:
                blocked.add(waiter.alike)
            elif answer is Answer.WAITS:
                line.passed.add(waiter.alike)
            else:
                self.remove(waiter.id)
                line.credit -= 1
                if line.credit <= 0:
                    line.credit = line.weight
                    if line.key in self._lines:
                        self._lines.move_to_end(line.key)
                    return True
        return False


def _rank(waiter: Waiter) -> tuple[bool, int]:
    return (not waiter.submit.retry, waiter.id)


def _discard(groups: dict[K, OrderedDict[int, Waiter]], key: K, waiter_id: int) -> None:
    """Take a waiter out of its group, and the group with its last one."""
    group = groups[key]
    del group[waiter_id]
    if not group:
        del groups[key]
