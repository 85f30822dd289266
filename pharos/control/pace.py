"""When which feed of one backend is read: as often as its probes want, the rate allows, and the engine bears.

Forbidden here: fetching, and any time but the one that is passed in.
"""

from collections.abc import Iterable, Mapping
from typing import Final

from pharos.control.badpages import is_answer
from pharos.core.engine import asking
from pharos.core.engine.asking import Situation
from pharos.core.engine.plan import Plan
from pharos.core.engine.probe import Feed, FetchFault, Page
from pharos.core.signals import LOAD_SIGNALS

REQUESTS_PER_S: Final = 2.0
"""The most requests a second to one backend, over time."""
FIRST_SHARE: Final = 0.75
"""The most of that for what cannot wait, as long as there is something that can."""
BUSY_SHARE: Final = 0.05
"""The most of an engine's time that reading one feed may take: a slower one is read less often."""
HOLD_S: Final = 4.0
"""How much later than usual a page is asked for again that fails again and again while others answer."""
NEWEST_WEIGHT: Final = 0.3
"""Weight of the newest read in the average time that a feed takes."""


def _probes_by_feed(plan: Plan | None) -> dict[str, list[str]]:
    """Feed to the names of the probes that read it."""
    found: dict[str, list[str]] = {}
    for probe in plan.active if plan is not None else ():
        found.setdefault(asking.feed_key(probe.feed), []).append(probe.name)
    return found


def _is_done(page: Page) -> bool:
    """Whether asking again at once is of no use: it answered, or with more than is ever read."""
    return page.status is not None or page.fault is FetchFault.TOO_LARGE


class Pace:
    """The schedule of one plan. What was read, and how long that took, is kept from plan to plan by `adopt`."""

    def __init__(self) -> None:
        self.read_at: dict[str, float] = {}
        """Request to the start of the last round in which it was answered: what gave no answer is due again at once."""
        self.answered_at: dict[str, float] = {}
        """The same for answers that show an engine that is ready, from plan to plan."""
        self._plan: Plan | None = None
        self._waiting: dict[str, Feed] = {}
        """Feeds of what hardly changes and is asked for each model: thousands of them must not delay the others."""
        self._took: dict[str, float] = {}

    def adopt(self, plan: Plan, pages: Mapping[str, Page], started: float) -> None:
        """Go by another plan from now on, which was made from these pages, first asked for at `started`.

        What the same probes read before need not be read at once: with many models that takes minutes.
        """
        before, self._plan = _probes_by_feed(self._plan), plan
        feeds = asking.intervals_of(plan.active)
        self._took = {key: took for key, took in self._took.items() if key in feeds}
        now = _probes_by_feed(plan)
        loads = {asking.feed_key(probe.feed) for probe in plan.active if probe.signal in LOAD_SIGNALS}
        of_all = asking.feeds_of(plan.active)
        self._waiting = {key: feed for key, feed in of_all.items() if feed.per_model and key not in loads}
        kept = [feed for key, feed in of_all.items() if now[key] == before.get(key)]
        self.read_at = {ask: at for ask, at in self.read_at.items() if any(asking.is_of(feed, ask) for feed in kept)}
        self.answered(pages, started)

    def forget(self, before: float) -> None:
        """What was read earlier is worth nothing any more: it is due again."""
        self.read_at = {ask: at for ask, at in self.read_at.items() if at >= before}

    def intervals(self, situation: Situation) -> dict[str, float]:
        """Feed (see `asking.feed_key`) to the seconds between two of its reads that are really scheduled."""
        if self._plan is None:
            return {}
        wanted = asking.intervals_of(self._plan.active)
        slowed = {key: max(every, self._took.get(key, 0.0) / BUSY_SHARE) for key, every in wanted.items()}
        asks = asking.asks_of(self._plan.active, situation)
        can_wait = self._waiting.keys()
        first = sum(1 / slowed[key] for key in asks.values() if key not in can_wait)
        rest = sum(1 / slowed[key] for key in asks.values() if key in can_wait)
        share = REQUESTS_PER_S * (FIRST_SHARE if rest else 1.0)
        stretch = max(1.0, first / share)
        stretch_rest = max(1.0, rest / (REQUESTS_PER_S - min(first, share))) if rest else 1.0
        return {key: every * (stretch_rest if key in can_wait else stretch) for key, every in slowed.items()}

    def due(self, now: float, situation: Situation) -> list[str]:
        """Requests to make now: those that can wait last, of each sort the most overdue first."""
        if self._plan is None:
            return []
        intervals = self.intervals(situation)
        asks = asking.asks_of(self._plan.active, situation)
        can_wait = self._waiting.keys()

        def rank(ask: str) -> tuple[bool, float]:
            at = self.read_at.get(ask)
            overdue = (now - at) / intervals[asks[ask]] if at is not None else float("inf")
            return asks[ask] in can_wait, -overdue

        due = asking.due_paths(self._plan.active, self.read_at, now, situation, intervals)
        return sorted(due, key=rank)

    def can_wait(self, ask: str) -> bool:
        """Whether a request is of the sort that must not keep others waiting."""
        return any(asking.is_of(feed, ask) for feed in self._waiting.values())

    def answered(self, pages: Mapping[str, Page], started: float) -> None:
        """Take in what came of the requests of a round that began at `started`, in seconds on the clock of `due`."""
        self.read_at.update({ask: started for ask, page in pages.items() if _is_done(page)})
        self.answered_at.update({ask: started for ask, page in pages.items() if is_answer(page)})
        if self._plan is None:
            return
        for feed in asking.feeds_of(self._plan.active).values():
            key = asking.feed_key(feed)
            for page in [page for ask, page in pages.items() if asking.is_of(feed, ask)]:
                before = self._took.get(key, page.took_s)
                self._took[key] = before + NEWEST_WEIGHT * (page.took_s - before)

    def hold(self, asks: Iterable[str], started: float) -> None:
        """Ask again for these, which failed while others answered, only after a while: they would take all the rate."""
        self.read_at.update(dict.fromkeys(asks, started + HOLD_S))

    def slowed(self) -> dict[str, float]:
        """Feeds that are read less often because they take long -> seconds that a read takes."""
        wanted = asking.intervals_of(self._plan.active) if self._plan is not None else {}
        return {key: took for key, took in self._took.items() if key in wanted and took > BUSY_SHARE * wanted[key]}

    @property
    def last_answer(self) -> float:
        """When a round began that last brought an answer; long ago when none did."""
        return max(self.read_at.values(), default=float("-inf"))

    def __repr__(self) -> str:
        return f"<Pace {len(self.read_at)} read, {len(self.slowed())} slowed>"
