"""Finds out what answers at an address and how to read it: for the scraper when planning, for the doctor when asked.

Forbidden here: keeping anything between two visits, and any request that an engine could mind (the plan says which).
"""

import asyncio
import enum
from collections.abc import Callable, Iterable
from typing import Final

import msgspec

from pharos.control.fetch import Fetcher
from pharos.core.engine import detect, hints, plan, recipes
from pharos.core.engine.detect import Detection
from pharos.core.engine.own import own_probes
from pharos.core.engine.plan import KindSource, Plan, Round
from pharos.core.engine.probe import FetchFault, Page, Pages
from pharos.core.engine.recipe import owners_of
from pharos.core.fleet.backend import BackendSpec

MAX_GETS: Final = 15
"""The most GETs to tell the kind."""
MAX_REQUESTS: Final = 25
"""The most requests of one visit, those to tell the kind included."""
BUDGET_S: Final = 1.8
"""The most seconds of one visit of the scraper."""
GET_TIMEOUT_S: Final = 0.8
"""The most seconds of one GET."""
AT_ONCE: Final = 4
"""The most requests to one backend at a time: mlx-lm lets five connections wait and drops those beside them."""
STARTING_STATUS: Final = 503
LOCKED: Final = frozenset({401, 403})
"""Statuses of an engine that wants another key, or any."""


class Contact(enum.StrEnum):
    """What a set of pages says about the program at the address, before anything is read from them."""

    ANSWERED = "answered"
    UNREACHABLE = "unreachable"
    """No connection, or it is closed at once."""
    STARTING = "starting"
    """Every answer is a 503."""
    TIMED_OUT = "timed out"
    """It takes connections and does not answer: busy, for all we know."""
    NOT_READABLE = "not readable"
    """It answers with what is not HTTP, or with more than we take."""


class Inspection(msgspec.Struct, frozen=True, eq=False):
    """What one visit brought. `plan` and `round` are both there or both `None`."""

    contact: Contact
    """`ANSWERED` with a plan is success; without one, nothing there can be read and `why` says so."""
    detection: Detection
    plan: Plan | None
    round: Round | None
    pages: Pages
    why: str
    """For people: why there is no plan; empty when there is one."""
    started_at: float
    """When the visit began, in seconds on the fetcher's clock."""


_WHAT_TO_DO: Final = {
    FetchFault.REFUSED: "is it running, and is the port right?",
    FetchFault.NAME: "is the name right, and does this machine know it?",
    FetchFault.UNREACHABLE: "is the address right, and the way to it open?",
    FetchFault.TLS: "try http://",
    FetchFault.CERTIFICATE: "is the name in its URL the one that its certificate is for, and is the authority that "
    "signed it known to this machine, or in the backend's ca_file?",
}
"""For faults that are the address's and not one path's."""
_NO_CONNECTION = frozenset({*_WHAT_TO_DO, FetchFault.RESET})


def is_of_address(page: Page) -> bool:
    """Whether the fault is the address's, so that any other page would have it too."""
    return page.fault in _WHAT_TO_DO


def contact_of(pages: Iterable[Page]) -> Contact:
    """Sum up pages. One real answer outweighs every fault; a time-out a refusal, as something took the connection."""
    pages = list(pages)
    statuses = [page.status for page in pages if page.status is not None]
    if statuses:
        return Contact.STARTING if all(status == STARTING_STATUS for status in statuses) else Contact.ANSWERED
    faults = {page.fault for page in pages}
    if not faults or FetchFault.TIMEOUT in faults:
        return Contact.TIMED_OUT
    return Contact.UNREACHABLE if faults & _NO_CONNECTION else Contact.NOT_READABLE


def fault_text(pages: Pages) -> str:
    """The first fault of the pages with its path or with what to do, for people; empty when there is none."""
    for path, page in pages.items():
        if page.fault is not None:
            advice = _WHAT_TO_DO.get(page.fault)
            return f"{page.fault.value}; {advice}" if advice is not None else f"{page.fault.value} ({path})"
    return ""


async def get_all(
    fetcher: Fetcher, spec: BackendSpec, asks: Iterable[str], timeout_s: float, each_s: float | None = None
) -> dict[str, Page]:
    """Make requests (see `Feed.ask`) side by side, a few at once, in at most `timeout_s` seconds, each in `each_s`.

    One that has no turn in that time counts as timed out.
    """
    asks = tuple(asks)
    longest = timeout_s if each_s is None else each_s
    if len(asks) == 1:  # every second for every backend: worth sparing a task
        return {asks[0]: await fetcher.ask(spec, asks[0], min(timeout_s, longest))}
    until, gate = fetcher.clock() + timeout_s, asyncio.Semaphore(AT_ONCE)

    async def page_of(ask: str) -> Page:
        async with gate:
            now = fetcher.clock()
            if now >= until:
                return Page(status=None, fault=FetchFault.TIMEOUT, sent_at=now)
            return await fetcher.ask(spec, ask, min(until - now, longest))

    pages = await asyncio.gather(*map(page_of, asks))
    return dict(zip(asks, pages, strict=True))


async def resolve(
    fetcher: Fetcher,
    spec: BackendSpec,
    *,
    budget_s: float = BUDGET_S,
    get_timeout_s: float = GET_TIMEOUT_S,
    before: Plan | None = None,
    may_keep_awake: bool = True,
) -> Inspection:
    """Visit a backend: tell its kind unless configured, read every path its recipe wants, and make the plan.

    Takes at most `MAX_REQUESTS` requests and `budget_s` seconds, each at most `get_timeout_s`. Never raises for what an
    engine does; raises `KeyError` for a configured kind that has no recipe. `before`: the plan until now, for what
    is not asked this time; `may_keep_awake`: see `plan.next_paths`.
    """
    visit = _Visit(fetcher, spec, budget_s, get_timeout_s)
    own = own_probes(spec.probes)
    source: KindSource = "detected"
    if spec.kind is None:
        await visit.fetch_rounds(detect.next_paths, MAX_GETS)
        detection = _as_before(detect.judge(visit.pages), before, visit.pages)
    else:
        source = "config"
        detection = Detection(kind=spec.kind, evidence="named in the configuration")
    if detection.kind is None:
        return visit.without_plan(detection)
    recipe = recipes.by_kind(detection.kind)
    await visit.fetch_rounds(
        lambda pages: plan.next_paths(recipe, own, pages, may_keep_awake=may_keep_awake), MAX_REQUESTS
    )
    if visit.contact() is not Contact.ANSWERED:
        return visit.without_plan(detection)
    has_logs = spec.logs is not None
    made, first = plan.resolve(
        recipe, own, visit.pages, kind_source=source, logs=has_logs, now=fetcher.clock(), before=before
    )
    if not first.readings:  # what is planned on trust has shown nothing yet
        return visit.without_plan(detection, _nothing_works(made))
    return Inspection(
        contact=Contact.ANSWERED,
        detection=detection,
        plan=made,
        round=first,
        pages=visit.pages,
        why="",
        started_at=visit.started_at,
    )


def _as_before(detection: Detection, before: Plan | None, pages: Pages) -> Detection:
    """A page that fails now shows no other engine, as long as the model list is still one of the kind known before."""
    if detection.kind is not None or before is None:
        return detection
    owners, known = owners_of(pages), recipes.by_kind(before.kind).owners
    if owners is None or (known and owners.isdisjoint(known)):
        return detection
    return Detection(kind=before.kind, evidence=f"its model list is as before; {detection.pending}")


class _Visit:
    """The pages of one visit and the limits it keeps to."""

    def __init__(self, fetcher: Fetcher, spec: BackendSpec, budget_s: float, get_timeout_s: float) -> None:
        self.pages: dict[str, Page] = {}
        self.started_at = fetcher.clock()
        self._fetcher = fetcher
        self._spec = spec
        self._deadline = self.started_at + budget_s
        self._get_timeout_s = get_timeout_s

    def contact(self) -> Contact:
        return contact_of(self.pages.values())

    async def fetch_rounds(self, wanted: Callable[[Pages], tuple[str, ...]], most: int) -> None:
        """Fetch what is wanted, ask again what is wanted now, until nothing is or a limit is reached.

        `most`: requests of the whole visit, the earlier ones included.
        """
        while not self._is_pointless():
            paths = [path for path in wanted(self.pages) if path not in self.pages]
            # The very first GET goes alone: to a dead address one is enough.
            paths = paths[: most - len(self.pages)] if self.pages else paths[:1]
            left = self._deadline - self._fetcher.clock()
            if not paths or left <= 0:
                return
            self.pages |= await get_all(self._fetcher, self._spec, paths, left, self._get_timeout_s)

    def _is_pointless(self) -> bool:
        """Whether more GETs would tell nothing new: no connection, no answer, or 503 twice."""
        if not self.pages:
            return False
        contact = self.contact()
        return contact is not Contact.ANSWERED and (contact is not Contact.STARTING or len(self.pages) > 1)

    def without_plan(self, detection: Detection, why: str = "") -> Inspection:
        contact = self.contact()
        if contact is Contact.ANSWERED:
            contact = self._not_yet()
        if contact is not Contact.ANSWERED:
            why = fault_text(self.pages) if contact is not Contact.STARTING else "503: it is still starting"
        elif not why:
            why = detection.pending if detection.pending is not None else detection.evidence
        advice = self._advice()
        if advice is not None:
            why = f"{why}; {advice}"
        return Inspection(
            contact=contact,
            detection=detection,
            plan=None,
            round=None,
            pages=self.pages,
            why=why,
            started_at=self.started_at,
        )

    def _advice(self) -> str | None:
        """Which setting of the backend is to blame, for people: what it is shown, or what it is checked against."""
        is_locked = any(page.status in LOCKED for page in self.pages.values())
        if not is_locked and all(page.fault is not FetchFault.CERTIFICATE for page in self.pages.values()):
            return None
        fault = self._fetcher.credentials.fault_of(self._spec)
        return fault if fault is not None or not is_locked else hints.locked(self._spec.credential)

    def _not_yet(self) -> Contact:
        """What keeps it from being read: an engine under load drops some requests, one that loads refuses some."""
        if any(page.fault is FetchFault.TIMEOUT for page in self.pages.values()):
            return Contact.TIMED_OUT
        if any(page.status == STARTING_STATUS for page in self.pages.values()):
            return Contact.STARTING
        return Contact.ANSWERED


def _nothing_works(made: Plan) -> str:
    reasons = dict.fromkeys(f"{dropped.probe}: {dropped.reason.value}" for dropped in made.dropped)
    return f"no probe for {made.kind} works: {', '.join(reasons)}"
