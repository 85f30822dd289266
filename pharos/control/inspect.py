"""Finds out what answers at an address and how to read it: for the scraper when planning, for the doctor when asked.

Forbidden here: keeping anything between two visits, and any request that an engine could mind (the plan says which).
"""

import asyncio
import enum
from collections.abc import Callable, Iterable
from typing import Final

import msgspec

from pharos.control.fetch import Fetcher
from pharos.core.engine import detect, plan, recipes
from pharos.core.engine.detect import Detection
from pharos.core.engine.plan import KindSource, Plan, Round
from pharos.core.engine.probe import FetchFault, Page, Pages, Probe
from pharos.core.fleet.backend import BackendSpec

MAX_GETS: Final = 15
"""The most GETs of one visit."""
BUDGET_S: Final = 1.8
"""The most seconds of one visit of the scraper."""
GET_TIMEOUT_S: Final = 0.8
"""The most seconds of one GET."""
STARTING_STATUS: Final = 503


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
    FetchFault.TLS: "try http:// (for https:// an engine needs a certificate that this machine trusts)",
}
"""For faults that are the address's and not one path's."""
_NO_CONNECTION = frozenset({*_WHAT_TO_DO, FetchFault.RESET})


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


async def get_all(fetcher: Fetcher, url: str, paths: Iterable[str], timeout_s: float) -> dict[str, Page]:
    """Fetch paths side by side, in at most `timeout_s` seconds."""
    paths = tuple(paths)
    if len(paths) == 1:  # every second for every backend: worth sparing a task
        return {paths[0]: await fetcher.get(url, paths[0], timeout_s)}
    pages = await asyncio.gather(*(fetcher.get(url, path, timeout_s) for path in paths))
    return dict(zip(paths, pages, strict=True))


async def resolve(
    fetcher: Fetcher,
    spec: BackendSpec,
    *,
    own: tuple[Probe, ...] = (),
    budget_s: float = BUDGET_S,
    get_timeout_s: float = GET_TIMEOUT_S,
) -> Inspection:
    """Visit a backend: tell its kind unless configured, read every path its recipe wants, and make the plan.

    Takes at most `MAX_GETS` GETs and `budget_s` seconds, each GET at most `get_timeout_s`. `own`: the operator's
    probes. Never raises for what an engine does; raises `KeyError` for a configured kind that has no recipe.
    """
    visit = _Visit(fetcher, spec.url, budget_s, get_timeout_s)
    source: KindSource = "detected"
    if spec.kind is None:
        await visit.fetch_rounds(detect.next_paths)
        detection = detect.judge(visit.pages)
    else:
        source = "config"
        detection = Detection(kind=spec.kind, evidence="named in the configuration")
    if detection.kind is None:
        return visit.without_plan(detection)
    recipe = recipes.by_kind(detection.kind)
    await visit.fetch_rounds(lambda pages: plan.next_paths(recipe, own, pages))
    if visit.contact() is not Contact.ANSWERED:
        return visit.without_plan(detection)
    made, first = plan.resolve(recipe, own, visit.pages, kind_source=source, logs=False, now=fetcher.clock())
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


class _Visit:
    """The pages of one visit and the limits it keeps to."""

    def __init__(self, fetcher: Fetcher, url: str, budget_s: float, get_timeout_s: float) -> None:
        self.pages: dict[str, Page] = {}
        self.started_at = fetcher.clock()
        self._fetcher = fetcher
        self._url = url
        self._deadline = self.started_at + budget_s
        self._get_timeout_s = get_timeout_s

    def contact(self) -> Contact:
        return contact_of(self.pages.values())

    async def fetch_rounds(self, wanted: Callable[[Pages], tuple[str, ...]]) -> None:
        """Fetch what is wanted, ask again what is wanted now, until nothing is or a limit is reached."""
        while not self._is_pointless():
            paths = [path for path in wanted(self.pages) if path not in self.pages]
            # The very first GET goes alone: to a dead address one is enough.
            paths = paths[: MAX_GETS - len(self.pages)] if self.pages else paths[:1]
            left = self._deadline - self._fetcher.clock()
            if not paths or left <= 0:
                return
            self.pages |= await get_all(self._fetcher, self._url, paths, min(left, self._get_timeout_s))

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
        return Inspection(
            contact=contact,
            detection=detection,
            plan=None,
            round=None,
            pages=self.pages,
            why=why,
            started_at=self.started_at,
        )

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
