"""The rounds of one backend: when to read which path, when to plan anew, and what to tell the fleet.

Forbidden here: judging values (the plan does) and state that others need (the fleet holds it).
"""

import asyncio
import random
from collections.abc import Callable, Mapping
from typing import Final

import msgspec

from pharos.clock import Clock, monotonic
from pharos.control import inspect
from pharos.control.badpages import BadPages, news_text
from pharos.control.bucket import Bucket
from pharos.control.fetch import Fetcher
from pharos.control.inspect import Contact, Inspection
from pharos.control.pace import REQUESTS_PER_S, Pace
from pharos.control.repeats import Repeats
from pharos.control.tasks import Sleep
from pharos.core.engine import drift
from pharos.core.engine import plan as plans
from pharos.core.engine.asking import feed_key
from pharos.core.engine.attempt import is_asleep
from pharos.core.engine.plan import Plan, Round, Situation
from pharos.core.engine.probe import FULL_INTERVAL_S, LOAD_INTERVAL_S, DropReason, FetchFault, Page
from pharos.core.fleet.backend import Backend, State
from pharos.core.fleet.events import Event
from pharos.core.fleet.registry import Fleet
from pharos.core.signals import BACKEND, LOAD_SIGNALS, Residency, Signal

JITTER: Final = 0.05
"""A pause between rounds is up to this share longer or shorter, so that backends and instances drift apart."""
SHORTEST_PAUSE_S: Final = 0.1
"""Between the end of one round and the start of the next, however long the round took."""
EARLY_S: Final = 0.25
"""A path this close to being due is read now: jitter and a busy loop must not make it miss a round."""
BURST: Final = inspect.MAX_REQUESTS + 1
"""Requests that may come at once after a calm time: a visit that makes a plan, and one more."""
REPLAN_AFTER_S: Final = 600.0
"""A plan is made anew this long after the last, whatever it reads."""
RETRY_LOST_S: Final = 60.0
"""The same while a probe is lost: a page that was broken for a moment, as the plan was made, may be whole again."""
SILENT_AFTER_S: Final = 1.5 * FULL_INTERVAL_S
"""Some paths of a busy engine answer later than others; only one that answered none for this long is called busy."""

_OUTCOME: Final = {
    Contact.UNREACHABLE: "unreachable",
    Contact.STARTING: "starting",
    Contact.TIMED_OUT: "timeout",
    Contact.NOT_READABLE: "probe_failed",
}


def nobody(_: Backend) -> None:
    """Not told to anyone."""


class Wiring(msgspec.Struct, frozen=True, eq=False):
    """What every watch shares."""

    fleet: Fleet
    fetcher: Fetcher
    on_event: Callable[[Event], None]
    """Told what happened; an event without text is only to be counted."""
    on_round: Callable[[Backend], None]
    """Told after each round that may have changed what the fleet knows."""
    on_plan: Callable[[Backend], None] = nobody
    """Told when a backend's plan or its list of models may have changed: what is followed there may have, too."""
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
        self._told: set[str] = set()
        """Probes of the plan that told something at any time: what one told is forgotten when it fails."""
        self._planned_at = 0.0
        self._pace = Pace()
        self._visit_cost = inspect.MAX_REQUESTS
        """Requests that the last visit took: as many must be free for the next one. More are taken as a debt."""
        self._bucket = Bucket(REQUESTS_PER_S, BURST, wiring.clock())
        self._bad = BadPages()
        self._repeats = Repeats()
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
        is_old = now - self._planned_at >= (RETRY_LOST_S if self.backend.lost_probes else REPLAN_AFTER_S)
        if (self._is_plan_due or is_old) and self._bucket.available(now) >= self._visit_cost:
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
        found = await inspect.resolve(
            self._to.fetcher,
            self.backend.spec,
            get_timeout_s=self._to.get_timeout_s,
            before=self._plan,
            may_keep_awake=self._plan is None or self._is_plan_due or bool(situation_of(self.backend, None).ours),
        )
        self._bucket.take(len(found.pages) + _asked_twice(found.pages), found.started_at)
        self._visit_cost = len(found.pages)
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
        self._pace.adopt(plan, found.pages, found.started_at)
        name = self.backend.name
        if is_same:
            self._count("resolve", "same_plan")
        else:
            self._to.on_event(Event("resolve", "new_plan", name, "debug", describe(name, plan)))
            if before is not None:  # the first one is told by the line that the backend is up
                self._to.on_event(Event("resolve", "", name, "info", f"{title(name, plan)}: read in a new way"))
        if before is not None and before.kind == plan.kind:
            self._note_lost(before, plan)
        self._told.clear()
        first = _as_scheduled(plan, first, self._pace.intervals(situation_of(self.backend, None)))
        self._publish(plan, first, started_at=found.started_at)

    def _note_lost(self, before: Plan, plan: Plan) -> None:
        """Say which probes an upgrade took away, and forget those whose signals are read again."""
        lost = self.backend.lost_probes
        told = frozenset(self._told.union(reading.probe for reading in self.backend.readings.values()))
        signals = {probe.signal for probe in plan.active}
        back = {probe.name for probe in plan.active} | {one.probe for one in plan.dropped if one.signal in signals}
        for name in back & lost.keys():
            del lost[name]
        for one in drift.lost(before.active, told, plan.active, plan.dropped):
            lost[one.probe] = one.successor
            hint = f"; {one.successor} may have replaced it" if one.successor else ""
            about = f"{one.probe}: {one.reason.value}{hint}"
            text = f"{title(self.backend.name, plan)}: {one.signal.value} is not read any more ({about})"
            self._to.on_event(Event("resolve", "probe_lost", self.backend.name, "warning", text))

    # Reading.

    async def _read(self, plan: Plan) -> None:
        started = self._to.clock()
        pages = await self._fetch(plan, started)
        if not pages:
            return
        confirmed = await self._confirm(plan, pages, started)
        pages |= confirmed
        contact = inspect.contact_of(pages.values())
        if contact is Contact.ANSWERED:
            self._note_bad(plan, pages)
        elif contact is not Contact.TIMED_OUT and not confirmed and self._is_answering(pages, started):
            self._count("scrape", "probe_failed")  # no other page could be asked just now, and lately one answered
            return
        else:
            if contact is not Contact.TIMED_OUT:
                self._is_plan_due = True  # whatever answers next may be another program
            self._no_answer(contact, inspect.fault_text(pages))
            return
        read = self._scraped(plan, pages)
        self._is_plan_due = self._is_plan_due or plans.needs_resolve(plan, read)
        version = read.readings.get((Signal.VERSION, BACKEND))
        if version is not None and version.value != plan.version:
            self._count("scrape", "new_version")
        elif any(one.reason is not DropReason.FETCH_ERROR for one in read.failed):
            self._count("scrape", "probe_failed")
        else:
            self._count("scrape", "timeout" if read.failed else "ok")
        self._publish(plan, read, started_at=started)

    async def _confirm(self, plan: Plan, pages: Mapping[str, Page], started: float) -> dict[str, Page]:
        """One more page when those that were due say that it is out: that may be true of them alone."""
        contact = inspect.contact_of(pages.values())
        if contact in (Contact.ANSWERED, Contact.TIMED_OUT) or any(map(inspect.is_of_address, pages.values())):
            return {}
        harmless = plans.due_paths(plan, {}, started, Situation())
        others = [ask for ask in harmless if ask not in pages]
        others.sort(key=lambda ask: self._pace.answered_at.get(ask, 0.0), reverse=True)
        return await self._get(others[:1], started)

    def _is_answering(self, pages: Mapping[str, Page], now: float) -> bool:
        """Whether another page answered so lately that those of this round are no proof against the engine."""
        if self.backend.state is State.EJECTED or any(map(inspect.is_of_address, pages.values())):
            return False
        others = [at for ask, at in self._pace.answered_at.items() if ask not in pages]
        return now - max(others, default=float("-inf")) < SILENT_AFTER_S

    def _note_bad(self, plan: Plan, pages: Mapping[str, Page]) -> None:
        """Say which pages of the whole backend cannot be had, although the engine answers others."""
        whole = {probe.feed.ask() for probe in plan.active if not probe.feed.per_model}
        now = self._to.clock()
        news = self._bad.note({ask: page for ask, page in pages.items() if ask in whole}, now)
        self._pace.hold(self._bad.held(now), now)
        if news:
            self._to.on_event(Event("scrape", "", self.backend.name, "warning", news_text(self.backend.name, news)))

    async def _fetch(self, plan: Plan, started: float) -> dict[str, Page]:
        """The pages of one round: first what no sleeping engine minds, then, if that shows it awake, the rest."""
        pages = await self._get(self._due(plan, started, situation_of(self.backend, None)), started)
        seen = plans.residency_in(self._scraped(plan, pages).readings) if pages else {}
        if seen:
            later = self._due(plan, started, situation_of(self.backend, seen))
            pages |= await self._get([ask for ask in later if ask not in pages], started)
        return pages

    def _scraped(self, plan: Plan, pages: dict[str, Page]) -> Round:
        situation = situation_of(self.backend, None)
        return plans.scrape(plan, pages, self._to.clock(), self._pace.intervals(situation), situation.models)

    def _due(self, plan: Plan, now: float, situation: Situation) -> list[str]:
        """Requests to make now, the most overdue first."""
        due = self._pace.due(now + EARLY_S, situation)
        if not due and self.backend.state is State.EJECTED:  # any page shows that it lives: the first need not be due
            return list(plans.due_paths(plan, {}, now, Situation())[:1])
        return due

    async def _get(self, asks: list[str], started: float) -> dict[str, Page]:
        """Make as many of the requests as the rate allows."""
        now = self._to.clock()
        free = self._bucket.available(now)
        # What can wait leaves as much as the next plan takes, and while that is due nothing takes all there is.
        spare = max(0, free - self._visit_cost)
        waiting = [ask for ask in asks if self._pace.can_wait(ask)][:spare]
        asks = [ask for ask in asks if not self._pace.can_wait(ask)][: min(free, 1) if self._is_plan_due else free]
        asks += waiting[: max(0, free - len(asks))]
        if not asks:
            return {}
        self._bucket.take(len(asks), now)
        pages = await inspect.get_all(self._to.fetcher, self.backend.spec, asks, self._to.get_timeout_s)
        self._bucket.take(_asked_twice(pages), now)
        self._pace.answered(pages, started)
        return pages

    # Telling.

    def _publish(self, plan: Plan, read: Round, *, started_at: float) -> None:
        is_full = bool(read.read - LOAD_SIGNALS)
        now = self._to.clock()
        self._told.update(reading.probe for reading in read.readings.values())
        events = self._to.fleet.publish(self.backend, plan, read, now, full=is_full, started_at=started_at)
        if any(event.outcome == "restarted" for event in events):
            self._pace.forget(started_at)
            self._is_plan_due = True  # all that was read is forgotten, and the new process may read otherwise
        self._tell(events)
        self._to.on_plan(self.backend)

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
        elif now - self._pace.last_answer >= SILENT_AFTER_S:
            self._tell(fleet.timed_out(self.backend, now))

    def _count(self, stage: str, outcome: str) -> None:
        self._to.on_event(Event(stage, outcome, self.backend.name, "info", ""))

    def _tell(self, events: list[Event]) -> None:
        now = self._to.clock()
        for event in [*self._repeats.summaries(now), *(self._repeats.admit(event, now) for event in events)]:
            self._to.on_event(event)


def situation_of(backend: Backend, seen: Mapping[str, Residency] | None) -> Situation:
    """What is known of the backend. `seen`: the residency that this round showed; `None`: not yet."""
    targets = [target for target in backend.targets.values() if target.listed]
    known = plans.residency_in(backend.readings)
    if seen is not None:
        known |= seen
    for target in targets:  # a name of a queue is in memory when the queue's main one is
        if target.group in known:
            known.setdefault(target.served, known[target.group])
    return Situation(
        asleep=is_asleep(seen) if seen is not None else None,
        residency=known,
        models=tuple(dict.fromkeys(target.served for target in targets)),
        ours=frozenset(target.served for target in targets if target.slots.inflight > 0),
    )


def _asked_twice(pages: Mapping[str, Page]) -> int:
    """Requests that the client may have made once more, as a kept connection turned out to be closed."""
    return sum(page.fault is FetchFault.RESET for page in pages.values())


def _as_scheduled(plan: Plan, first: Round, intervals: Mapping[str, float]) -> Round:
    """What a visit read, with the intervals at which it will be read: a slow feed's values must last until then."""
    feeds = {probe.name: feed_key(probe.feed) for probe in plan.active}
    readings = {
        key: msgspec.structs.replace(one, interval_s=intervals.get(feeds[one.probe], one.interval_s))
        for key, one in first.readings.items()
    }
    return msgspec.structs.replace(first, readings=readings)


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
