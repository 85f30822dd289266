"""The waiters of one key, and who of them is next: retries, then those that have waited long, then the shortest.

# ops: add, remove, first · goal: O(log waiters) each, and one look per group of alike ones
# plan: waiters grouped by what decides alike; each group by age, and a heap by expected length that forgets lazily
# warning: lengths go by powers of two, so that small differences between estimates overtake nobody

Forbidden here: other keys (the fair queue has them).
"""

import heapq
import math
from collections import OrderedDict
from collections.abc import Iterator
from itertools import islice
from typing import Final

import msgspec

from pharos.core.assumptions import ASSUMPTIONS
from pharos.core.sched.charging import Account
from pharos.core.sched.lease import Submit

PASSED_FOR_S = ASSUMPTIONS["passed_for_s"].value
SHORTEST_S = 0.05
"""Requests that take less are all as short."""
LONG_PROMPT = 2048
"""Tokens. Longer prompts go by powers of two: one that fits few engines must not hold up those that fit more."""
SLACK = 64
"""Entries of waiters that are gone are tolerated up to so many, or as many as there are waiters."""

Alike = tuple[str, frozenset[int], frozenset[int] | None, int | None, frozenset[str], int]
"""Model, excluded and only possible targets, context asked for, needs, size of the prompt: waiters of one key that
agree in these may go to the same places."""
Rank = tuple[int, int, int]
"""The least is next."""
OLD: Final = 1
"""First part of the rank of one that has waited for `PASSED_FOR_S`; retries have a lesser one, all others a greater."""


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
    work_s: float = 1.0
    """Engine-seconds that it probably takes."""
    length: int = 0
    """How long that is, roughly: one more is twice as long. Made from `work_s`."""

    def __post_init__(self) -> None:
        self.length = math.frexp(max(self.work_s, SHORTEST_S))[1]

    @property
    def alike(self) -> Alike:
        """What decides where it may go."""
        sub = self.submit
        size = (sub.prompt_tokens // LONG_PROMPT).bit_length()
        return (sub.model, sub.exclude, sub.only, sub.context_tokens, sub.needs, size)

    @property
    def until(self) -> float | None:
        """When it expires if nothing changes."""
        ends = [end for end in (self.deadline, self.absent_until) if end is not None]
        return min(ends, default=None)

    def rank(self, now: float) -> Rank:
        """Its place in its key's line."""
        if self.submit.retry:
            return (0, 0, self.id)
        return (OLD, 0, self.id) if now - self.at >= PASSED_FOR_S else (2, self.length, self.id)


class Group:
    """Waiters of one key that may go to the same places."""

    __slots__ = ("_by_age", "_by_length")

    def __init__(self) -> None:
        self._by_age: OrderedDict[int, Waiter] = OrderedDict()
        self._by_length: list[tuple[int, int]] = []

    def __len__(self) -> int:
        return len(self._by_age)

    def __iter__(self) -> Iterator[Waiter]:
        return iter(self._by_age.values())

    def add(self, waiter: Waiter) -> None:
        """Put a waiter in."""
        self._by_age[waiter.id] = waiter
        heapq.heappush(self._by_length, (waiter.length, waiter.id))
        if len(self._by_length) > 2 * len(self) + SLACK:
            self._by_length = [entry for entry in self._by_length if entry[1] in self._by_age]
            heapq.heapify(self._by_length)

    def remove(self, waiter_id: int) -> None:
        """Take one out that is in it."""
        del self._by_age[waiter_id]

    def is_old(self, now: float) -> bool:
        """Whether one of them has waited for `PASSED_FOR_S`."""
        return now - next(iter(self._by_age.values())).at >= PASSED_FOR_S

    def first(self, now: float) -> Waiter:
        """Who of them is next."""
        oldest = next(iter(self._by_age.values()))
        if oldest.submit.retry or now - oldest.at >= PASSED_FOR_S:
            return oldest
        while self._by_length[0][1] not in self._by_age:
            heapq.heappop(self._by_length)
        return self._by_age[self._by_length[0][1]]


class Line:
    """The waiters of one key."""

    __slots__ = ("account", "groups", "key", "passed", "priority")

    def __init__(self, key: str, account: Account) -> None:
        self.key = key
        self.account = account
        self.priority = 0
        """Of the key, as its last request had it."""
        self.groups: dict[tuple[bool, Alike], Group] = {}
        """Retries apart from the rest, as they go first."""
        self.passed: set[Alike] = set()
        """What this pass has asked already; empty between passes."""

    def add(self, waiter: Waiter) -> None:
        """Put a waiter in."""
        self.priority = waiter.submit.priority
        self.groups.setdefault((waiter.submit.retry, waiter.alike), Group()).add(waiter)

    def remove(self, waiter: Waiter) -> None:
        """Take one out that is in it."""
        kind = (waiter.submit.retry, waiter.alike)
        group = self.groups[kind]
        group.remove(waiter.id)
        if not group:
            del self.groups[kind]

    def behind(self, first: Waiter, most: int, now: float) -> list[Waiter]:
        """The oldest of those that are like the first one, which they may pass: none when it is a retry, or old."""
        if first.rank(now)[1] == 0:
            return []
        group = self.groups[first.submit.retry, first.alike]
        return [one for one in islice(group, most + 1) if one is not first][:most]

    def first(self, full: set[str], blocked: set[Alike], now: float) -> Waiter | None:
        """Whom to ask next; `None`: all have been. `full`: models that have no slot; `blocked`: and kinds."""
        heads = [
            group.first(now)
            for (_, alike), group in self.groups.items()
            if alike[0] not in full and alike not in blocked and alike not in self.passed
        ]
        return min(heads, key=lambda head: head.rank(now)) if len(heads) > 1 else heads[0] if heads else None

    def has_old(self, now: float) -> bool:
        """Whether one of them has waited for `PASSED_FOR_S`."""
        return any(group.is_old(now) for group in self.groups.values())

    def band(self, waiter: Waiter, now: float, top: int) -> int:
        """The priority that counts for one of them; `top`: the highest of all that wait."""
        is_lifted = self.priority < top and waiter.rank(now)[0] <= OLD and self.has_old(now)
        return top if is_lifted else self.priority
