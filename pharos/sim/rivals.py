"""How others choose: each request goes to an engine at once, which queues what it cannot take.

Forbidden here: anything that those routers do not know. They count their own requests; none waits for a slot.
"""

import math
import random
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from typing import Final, Protocol

from pharos.sim.asks import Ask
from pharos.sim.engine import Engine, Job
from pharos.sim.routers import Ended, OnEnded
from pharos.sim.spec import assumed

MOST_LINKS: Final = 500_000
"""Beginnings that an affinity router remembers; more than any run has."""
SWING: Final = 2.0
"""Standard deviations of a count of requests that SMG takes for its natural swing."""

Loads = Mapping[str, int]
"""Requests of this router on each engine."""


class Choice(Protocol):
    """A way to choose; it may remember what it chose."""

    def __call__(self, ask: Ask, names: Sequence[str], loads: Loads) -> str:
        """One of the names."""
        ...


class Direct:
    """A router without a queue."""

    def __init__(self, engines: Mapping[str, Engine], choose: Choice) -> None:
        self._engines = engines
        self._choose = choose
        self._loads = dict.fromkeys(engines, 0)

    def __repr__(self) -> str:
        return f"<Direct {self._loads}>"

    @property
    def held(self) -> int:
        """See `Router.held`."""
        return sum(self._loads.values())

    def submit(self, ask: Ask, on_ended: OnEnded) -> None:
        """See `Router.submit`."""
        names = [name for name, engine in self._engines.items() if engine.serves(ask.model)]
        name = self._choose(ask, names, self._loads)
        self._loads[name] += 1

        def end(job: Job) -> None:
            self._loads[name] -= 1
            on_ended(Ended(job, name, 0.0))

        self._engines[name].submit(ask, lambda _: None, end)


class RoundRobin:
    """One after the other, for each model: nginx without further ado."""

    def __init__(self) -> None:
        self._next: dict[str, int] = {}

    def __call__(self, ask: Ask, names: Sequence[str], loads: Loads) -> str:
        """See `Choice`."""
        del loads
        turn = self._next.get(ask.model, 0)
        self._next[ask.model] = turn + 1
        return names[turn % len(names)]


class LeastConnections:
    """The one with the fewest requests of ours; of equals the next in turn: nginx's least_conn."""

    def __init__(self) -> None:
        self._turn = RoundRobin()

    def __call__(self, ask: Ask, names: Sequence[str], loads: Loads) -> str:
        """See `Choice`."""
        least = min(loads[name] for name in names)
        return self._turn(ask, [name for name in names if loads[name] == least], loads)


class TwoChoices:
    """The less loaded of two taken by chance."""

    def __init__(self, chance: random.Random) -> None:
        self._chance = chance

    def __call__(self, ask: Ask, names: Sequence[str], loads: Loads) -> str:
        """See `Choice`."""
        del ask
        pair = self._chance.sample(list(names), min(2, len(names)))
        return min(pair, key=lambda name: loads[name])


class PrefixAffinity:
    """The engine with the longest match above a threshold, unless it is too loaded: SMG 1.13.0's cache_aware.

    Without such a match the engine with the smallest tree. A matched one is passed over for the least loaded when its
    requests exceed the mean by a margin and by a factor; the margin is at most `balance_abs`, and shrinks with the
    counts' natural swing.
    """

    def __init__(self) -> None:
        self._threshold = assumed("smg_cache_threshold")
        self._abs, self._rel, self._least = (assumed(f"smg_balance_{name}") for name in ("abs", "rel", "least"))
        self._trees: dict[str, OrderedDict[int, int]] = {}
        """By engine, the beginnings that were sent there, with their bytes."""
        self._sizes: dict[str, int] = {}

    def __call__(self, ask: Ask, names: Sequence[str], loads: Loads) -> str:
        """See `Choice`."""
        matches = {name: self._match(ask, name) for name in names}
        best = max(names, key=lambda name: (matches[name], -loads[name]))
        if matches[best] / ask.prompt_bytes <= self._threshold:
            best = min(names, key=lambda name: (self._sizes.get(name, 0), loads[name]))
        elif self._is_overloaded(best, names, loads):
            best = min(names, key=lambda name: loads[name])
        self._insert(ask, best)
        return best

    def _is_overloaded(self, name: str, names: Sequence[str], loads: Loads) -> bool:
        mean = sum(loads[one] for one in names) / len(names)
        margin = min(self._abs, max(SWING * math.sqrt(mean), self._least))
        return loads[name] > mean + margin and loads[name] > self._rel * mean

    def _match(self, ask: Ask, name: str) -> int:
        tree, there = self._trees.get(name, OrderedDict[int, int]()), 0
        for link, end in zip(ask.chain.hashes, ask.chain.ends, strict=True):
            if link not in tree:
                break
            there = end
        return there

    def _insert(self, ask: Ask, name: str) -> None:
        tree = self._trees.setdefault(name, OrderedDict())
        before = 0
        for link, end in zip(ask.chain.hashes, ask.chain.ends, strict=True):
            if link not in tree:
                self._sizes[name] = self._sizes.get(name, 0) + end - before
            tree[link] = end - before
            tree.move_to_end(link)
            before = end
        while len(tree) > MOST_LINKS:
            self._sizes[name] -= tree.popitem(last=False)[1]


RIVALS: Final[Mapping[str, Callable[[random.Random], Choice]]] = {
    "round-robin": lambda _: RoundRobin(),
    "least-conn": lambda _: LeastConnections(),
    "prefix": lambda _: PrefixAffinity(),
    "two-choices": TwoChoices,
}
"""By the name used in commands and results."""
