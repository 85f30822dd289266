"""One look at each backend, as the doctor reports it: the scraper's own way of reading, without a running Pharos.

Forbidden here: printing, and requests of its own: what an engine is asked is decided by its recipe.
"""

import asyncio
from collections.abc import Sequence
from typing import Any, Final

import aiohttp
import msgspec

from pharos.cli import agents
from pharos.cli.finding import EXIT_COMPLETE, EXIT_UNREACHABLE, EXIT_WRONG, Finding
from pharos.cli.listen import feed_name, listen
from pharos.cli.remarks import remarks
from pharos.config.credentials import Credentials
from pharos.control import inspect
from pharos.control.fetch import Fetcher, new_session
from pharos.control.inspect import BUDGET_S as VISIT_S
from pharos.control.inspect import Contact, Inspection
from pharos.control.recorder import keys_of
from pharos.control.streams import openers
from pharos.core.engine.plan import asleep_in
from pharos.core.fleet import Backend, BackendSpec, Fleet
from pharos.core.signals import Signal
from pharos.obs import describe

BUDGET_S: Final = 2.5
"""The most seconds for one backend: a person waits for the answer."""
KEPT: Final = frozenset({"schema", "name", "url", "kind", "kind_source", "signal", "probe", "feed", "cost", "fix"})
"""Fields of a row in which there are words of ours and of the configuration only."""
AT_ONCE: Final = 16
"""Backends looked at side by side."""


class Checkup:
    """Looks at backends over one session, as often as asked."""

    def __init__(self, session: aiohttp.ClientSession, credentials: Credentials | None = None) -> None:
        """`credentials`: what the backends are shown."""
        self.fetcher = Fetcher(session, credentials=credentials)
        self._openers = openers(session, self.fetcher.credentials, follow=False)
        self._gate = asyncio.Semaphore(AT_ONCE)

    async def examine(self, specs: Sequence[BackendSpec]) -> list[Finding]:
        """One finding per backend, in the given order."""
        return list(await asyncio.gather(*map(self._one, specs)))

    async def _one(self, spec: BackendSpec) -> Finding:
        try:
            async with self._gate:
                finding = await self._look(spec)
        except Exception as error:  # noqa: BLE001 - the fault of one backend must not hide the others
            fault = f"a fault of Pharos itself ({type(error).__name__}) while looking at it: please report it"
            finding = Finding(_row(_Fresh(spec, self.fetcher.clock()), self.fetcher.clock(), error=fault), EXIT_WRONG)
        keys = keys_of(self.fetcher.credentials, spec)
        row = {name: it if name in KEPT else keys.deep(it, KEPT) for name, it in finding.row.items()}
        return msgspec.structs.replace(finding, row=row)

    async def _look(self, spec: BackendSpec) -> Finding:
        clock = self.fetcher.clock
        until = clock() + BUDGET_S
        found = await inspect.resolve(self.fetcher, spec, budget_s=VISIT_S)
        it = _Fresh(spec, clock())
        _take_in(it.fleet, it.backend, found, clock())
        feeds, served = await asyncio.gather(
            listen(it.fleet, it.backend, self._openers, clock, until=until),
            self._routes(spec, found),
        )
        row = _row(it, clock(), evidence=found.detection.evidence or None, feeds=feeds, routes=served)
        error, exit_code = _judge(spec, found, is_complete=describe.is_complete(row) and not feeds)
        _blame(row, it.backend, feeds)
        row |= {"plan": _capacity_by_model(row["plan"], it.backend, clock())}
        row |= {"error": error, "remarks": list(remarks(it.backend, found, clock()))}
        if exit_code == EXIT_COMPLETE and self.fetcher.credentials.fault_of(spec) is not None:
            exit_code = EXIT_WRONG
        return Finding(row, exit_code, found)

    async def _routes(self, spec: BackendSpec, found: Inspection) -> dict[str, bool | None]:
        if found.plan is None or found.round is None:
            return {}
        asleep = asleep_in(found.round.readings)
        return await agents.routes(self.fetcher, spec, found.plan.kind, asleep=asleep)


class _Fresh:
    """A backend of a fleet of its own, of which nothing is known yet."""

    def __init__(self, spec: BackendSpec, now: float) -> None:
        self.fleet = Fleet()
        self.fleet.set_backends((spec,), now)
        self.backend = self.fleet.backends[spec.name]

    def __repr__(self) -> str:
        return f"<_Fresh {self.backend.name}>"


def _row(it: _Fresh, now: float, **more: object) -> dict[str, Any]:
    row = describe.backend(it.backend, now)
    return row | {"evidence": None, "error": None, "remarks": [], "routes": {}, "feeds": {}} | more


def _blame(row: dict[str, Any], backend: Backend, faults: dict[str, str]) -> None:
    """Name the fault of a feed as the reason why that is unknown which nothing else tells."""
    active = backend.plan.active if backend.plan is not None else ()
    for unknown in row["unknown"]:
        feeds = {feed_name(probe.feed) for probe in active if probe.signal.value == unknown["signal"]}
        if feeds and feeds <= set(faults):
            unknown["reason"] = "; ".join(f"{feed} cannot be read: {faults[feed]}" for feed in sorted(feeds))


def _capacity_by_model(rows: list[dict[str, Any]], backend: Backend, now: float) -> list[dict[str, Any]]:
    """Give capacity for each model, as routing sees it, where an engine tells it by queue."""
    if not backend.slots_by_queue:
        return rows
    told = {row["model"]: row for row in rows if row["signal"] == Signal.CAPACITY.value}
    by_model = []
    for target in backend.targets.values():
        capacity = target.view(now).capacity
        source = next((told[name] for name in (target.served, target.group, None) if name in told), None)
        if target.listed and capacity is not None and source is not None:
            by_model.append({**source, "model": target.served, "value": capacity})
    first = next((at for at, row in enumerate(rows) if row["signal"] == Signal.CAPACITY.value), len(rows))
    others = [row for row in rows if row["signal"] != Signal.CAPACITY.value]
    return [*others[:first], *by_model, *others[first:]]


async def examine(specs: Sequence[BackendSpec], credentials: Credentials | None = None) -> list[Finding]:
    """One finding per backend, in the given order. `credentials`: what the backends are shown."""
    async with new_session() as session:
        return await Checkup(session, credentials).examine(specs)


def _take_in(fleet: Fleet, backend: Backend, found: Inspection, now: float) -> None:
    """What the scraper would do with the same visit."""
    if found.plan is not None and found.round is not None:
        fleet.publish(backend, found.plan, found.round, now, full=True, started_at=found.started_at)
    elif found.contact is Contact.STARTING:
        fleet.starting(backend)
    elif found.contact is Contact.TIMED_OUT:
        fleet.timed_out(backend, now)
    elif found.contact is Contact.UNREACHABLE:
        fleet.unreachable(backend, found.why)
    else:
        fleet.unrecognised(backend, found.why)


def _judge(spec: BackendSpec, found: Inspection, *, is_complete: bool) -> tuple[str | None, int]:
    """What is wrong and what to do, with the exit status that says it."""
    url, why = spec.url, found.why
    match found.contact:
        case Contact.UNREACHABLE:
            return f"no engine can be reached at {url}: {why}", EXIT_UNREACHABLE
        case Contact.TIMED_OUT:
            return (
                f"{url} takes connections but does not answer in time: {why}. It may be busy; try again.",
                EXIT_UNREACHABLE,
            )
        case Contact.STARTING:
            return f"the engine at {url} is still starting (503). Try again when its model is loaded.", EXIT_WRONG
        case Contact.NOT_READABLE:
            return f"what answers at {url} is no engine: {why}. Are scheme and port right?", EXIT_WRONG
        case Contact.ANSWERED:
            if found.plan is None:
                return f"{url} answers, but Pharos cannot use it: {why}. Is this the engine's own address?", EXIT_WRONG
            return None, EXIT_COMPLETE if is_complete else EXIT_WRONG
