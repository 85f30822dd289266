"""The rounds of one backend: when to read which path, when to plan anew, and what to tell the fleet.

Forbidden here: judging values (the plan does) and state that others need (the fleet holds it).
"""

import asyncio
import random
from collections.abc import Callable
from typing import Final

import msgspec

from pharos.clock import Clock, monotonic
from pharos.control import inspect
from pharos.control.bucket import Bucket
from pharos.control.fetch import Fetcher
from pharos.control.inspect import Contact, Inspection
from pharos.control.tasks import Sleep
from pharos.core.engine import plan as plans
from pharos.core.engine.plan import Plan, Round
from pharos.core.engine.probe import FULL_INTERVAL_S, LOAD_INTERVAL_S, DropReason, Page
from pharos.core.fleet.backend import Backend, State
from pharos.core.fleet.events import Event
from pharos.core.fleet.registry import Fleet
from pharos.core.signals import BACKEND, LOAD_SIGNALS, Signal

JITTER: Final = 0.05
"""A pause between rounds is up to this share longer or shorter, so that backends and instances drift apart."""
SHORTEST_PAUSE_S: Final = 0.1
"""Between the end of one round and the start of the next, however long the round took."""
EARLY_S: Final = 0.25
"""A path this close to being due is read now: jitter and a busy loop must not make it miss a round."""
REQUESTS_PER_S: Final = 2.0
"""The most GETs a second to one backend, over time."""
BURST: Final = inspect.MAX_GETS + 1
"""GETs that may come at once after a calm time: a visit that makes a plan, and one more."""
REPLAN_AFTER_S: Final = 600.0
"""A plan is made anew this long after the last, whatever it reads."""
SILENT_AFTER_S: Final = 1.5 * FULL_INTERVAL_S
"""Some paths of a busy engine answer later than others; only one that answered none for this long is called busy."""

_OUTCOME: Final = {
    Contact.UNREACHABLE: "unreachable",
    Contact.STARTING: "starting",
    Contact.TIMED_OUT: "timeout",
    Contact.NOT_READABLE: "probe_failed",
}


class Wiring(msgspec.Struct, frozen=True, eq=False):
    """What every watch shares."""

    fleet: Fleet
    fetcher: Fetcher
    on_event: Callable[[Event], None]
    """Told what happened; an event without text is only to be counted."""
    on_round: Callable[[Backend], None]
    """Told after each round that may have changed what the fleet knows."""
    ours_running: Callable[[Backend], bool]
    """Whether requests of ours run there now."""
    clock: Clock = monotonic
    sleep: Sleep = asyncio.sleep
    get_timeout_s: float = inspect.GET_TIMEOUT_S
    """The most seconds of one GET; below the shortest interval."""


class Watch:
    """Reads one backend again and again. Its state outlives a restart of the task that runs it."""

    def __init__(self, backend: Backend, wiring: Wiring, rng: random.Random) -> None:
        self.backend = backend
        self._to = wiring
        self._rng = rng
        self._plan: Plan | None = None
        self._is_plan_due = True
        self._planned_at = 0.0
        self._intervals: dict[str, float] = {}
        self._stretch = 1.0
        self._read_at: dict[str, float] = {}
        """Path to the start of the last round in which it answered: what gave no answer is due again at once."""
        self._bucket = Bucket(REQUESTS_PER_S, BURST, wiring.clock())
        self._sleeping: asyncio.Future[None] | None = None
        self._is_woken = False

    async def run(self) -> None:
        """Round after round until cancelled; the first at once."""
        due = self._to.clock()
        while True:
            await self.round()
            due += LOAD_INTERVAL_S * (1 + JITTER * (2 * self._rng.random() - 1))
            now = self._to.clock()
            due = max(due, now + SHORTEST_PAUSE_S)
            if await self._pause(due - now):
                due = self._to.clock()

    def wake(self) -> None:
        """Read it now: a request found it dead, and it gets no other before a round finds it alive."""
        self._is_woken = True
        if self._sleeping is not None:
            self._sleeping.cancel()

    async def _pause(self, seconds: float) -> bool:
        """Sleep; whether it was woken before the end, or while the last round ran."""
        if not self._is_woken:
            self._sleeping = asyncio.ensure_future(self._to.sleep(seconds))
            try:
                await asyncio.wait((self._sleeping,))
            finally:
                self._sleeping.cancel()
                self._sleeping = None
        is_woken, self._is_woken = self._is_woken, False
        return is_woken

    async def round(self) -> None:
        """One round: make a plan if that is due and the rate allows it, else read what is due."""
        now = self._to.clock()
        is_old = now - self._planned_at >= REPLAN_AFTER_S
        if (self._is_plan_due or is_old) and self._bucket.available(now) >= inspect.MAX_GETS:
            await self._make_plan()
        elif self._plan is not None:
            await self._read(self._plan)
        else:
            return  # the rounds to come save up for a plan
        self._to.on_round(self.backend)

    def __repr__(self) -> str:
        return f"<Watch {self.backend.name} {self._plan} {self._bucket}>"

    # Planning.

    async def _make_plan(self) -> None:
        found = await inspect.resolve(self._to.fetcher, self.backend.spec, get_timeout_s=self._to.get_timeout_s)
        self._bucket.take(len(found.pages), found.started_at)
        if found.plan is not None and found.round is not None:
            self._adopt(found.plan, found.round, found)
            return
        self._count("resolve", "failed")
        if found.contact is Contact.ANSWERED:
            self._plan = None
            self._tell(self._to.fleet.unrecognised(self.backend, found.why))
        else:
            self._no_answer(found.contact, found.why)

    def _adopt(self, plan: Plan, first: Round, found: Inspection) -> None:
        before, self._plan = self._plan, plan
        is_same = before is not None and before.same_probes(plan)
        self._is_plan_due = False
        self._planned_at = found.started_at
        self._intervals, self._stretch = schedule(plan)
        self._read_at = {path: found.started_at for path, page in found.pages.items() if page.status is not None}
        name = self.backend.name
        if is_same:
            self._count("resolve", "same_plan")
        else:
            self._to.on_event(Event("resolve", "new_plan", name, "debug", describe(name, plan)))
            if before is not None:  # the first one is told by the line that the backend is up
                self._to.on_event(Event("resolve", "", name, "info", f"{title(name, plan)}: read in a new way"))
        self._publish(plan, first, started_at=found.started_at)

    # Reading.

    async def _read(self, plan: Plan) -> None:
        started = self._to.clock()
        pages = await self._fetch(plan, started)
        if not pages:
            return
        contact = inspect.contact_of(pages.values())
        if contact is not Contact.ANSWERED:
            if contact is not Contact.TIMED_OUT:
                self._is_plan_due = True  # whatever answers next may be another program
            self._no_answer(contact, inspect.fault_text(pages))
            return
        read = plans.scrape(plan, pages, self._to.clock(), self._intervals)
        self._is_plan_due = self._is_plan_due or plans.needs_resolve(plan, read)
        version = read.readings.get((Signal.VERSION, BACKEND))
        if version is not None and version.value != plan.version:
            self._count("scrape", "new_version")
        elif any(one.reason is not DropReason.FETCH_ERROR for one in read.failed):
            self._count("scrape", "probe_failed")
        else:
            self._count("scrape", "timeout" if read.failed else "ok")
        self._publish(plan, read, started_at=started)

    async def _fetch(self, plan: Plan, started: float) -> dict[str, Page]:
        """The pages of one round: first what no sleeping engine minds, then, if that shows it awake, the rest."""
        pages = await self._get(self._due(plan, started, asleep=None), started)
        asleep = plans.asleep_in(plans.scrape(plan, pages, started).readings) if pages else None
        if asleep is not None:
            later = [path for path in self._due(plan, started, asleep=asleep) if path not in pages]
            pages |= await self._get(later, started)
        return pages

    def _due(self, plan: Plan, now: float, *, asleep: bool | None) -> list[str]:
        """Paths to read now, the most overdue first."""
        soon = now + EARLY_S
        # A plan too big for the rate is read as if time went slower.
        read_at = {path: soon - (soon - at) / self._stretch for path, at in self._read_at.items()}
        ours = self._to.ours_running(self.backend)
        due = plans.due_paths(plan, read_at, soon, asleep=asleep, ours_running=ours)
        if not due and self.backend.state is State.EJECTED:  # any page shows that it lives: the first need not be due
            due = plans.due_paths(plan, {}, soon, asleep=None)[:1]
        return sorted(due, key=lambda path: self._overdue(path, soon), reverse=True)

    def _overdue(self, path: str, now: float) -> float:
        at = self._read_at.get(path)
        return (now - at) / self._intervals[path] if at is not None else float("inf")

    async def _get(self, paths: list[str], started: float) -> dict[str, Page]:
        """Fetch as many of the paths as the rate allows."""
        now = self._to.clock()
        paths = paths[: self._bucket.available(now)]
        if not paths:
            return {}
        self._bucket.take(len(paths), now)
        pages = await inspect.get_all(self._to.fetcher, self.backend.spec.url, paths, self._to.get_timeout_s)
        self._read_at.update({path: started for path, page in pages.items() if page.status is not None})
        return pages

    # Telling.

    def _publish(self, plan: Plan, read: Round, *, started_at: float) -> None:
        is_full = bool(read.read - LOAD_SIGNALS)
        now = self._to.clock()
        self._tell(self._to.fleet.publish(self.backend, plan, read, now, full=is_full, started_at=started_at))

    def _no_answer(self, contact: Contact, why: str) -> None:
        """No page could be read: say what that means."""
        fleet, now = self._to.fleet, self._to.clock()
        self._count("scrape", _OUTCOME[contact])
        if contact is Contact.UNREACHABLE:
            self._tell(fleet.unreachable(self.backend, why))
        elif contact is Contact.STARTING:
            self._tell(fleet.starting(self.backend))
        elif contact is Contact.NOT_READABLE:
            self._tell(fleet.unrecognised(self.backend, why))
        elif now - max(self._read_at.values(), default=float("-inf")) >= SILENT_AFTER_S:
            self._tell(fleet.timed_out(self.backend, now))

    def _count(self, stage: str, outcome: str) -> None:
        self._to.on_event(Event(stage, outcome, self.backend.name, "info", ""))

    def _tell(self, events: list[Event]) -> None:
        for event in events:
            self._to.on_event(event)


def schedule(plan: Plan) -> tuple[dict[str, float], float]:
    """Path to seconds between its reads, and how much longer that is than its probes want, to keep to the rate."""
    wanted = plans.intervals_of(plan.active)
    stretch = max(1.0, sum(1 / interval for interval in wanted.values()) / REQUESTS_PER_S)
    return {path: interval * stretch for path, interval in wanted.items()}, stretch


def title(name: str, plan: Plan) -> str:
    """What a backend is, in a few words for the log."""
    return f"{name} is {plan.kind} {plan.version if plan.version is not None else 'of unknown version'}"


def describe(name: str, plan: Plan) -> str:
    """A plan in one long line for the log."""
    signals = ", ".join(f"{probe.signal.value} by {probe.name}" for probe in plan.active)
    quiet = {DropReason.REDUNDANT, DropReason.NO_LOG_FEED}
    dropped = ", ".join(f"{d.probe} ({d.reason.value})" for d in plan.dropped if d.reason not in quiet)
    lacking = f"; without {dropped}" if dropped else ""
    return f"{title(name, plan)}: reading {signals}{lacking}"
