"""What a recipe is: all that Pharos knows of one kind of engine, as data.

Forbidden here: any engine's name; each has a file of its own under `recipes/`.
"""

from collections.abc import Callable, Mapping

import msgspec

from pharos.core.engine.hints import Hint
from pharos.core.engine.jsonfeed import document_of, listed
from pharos.core.engine.probe import DropReason, FetchFault, Page, Pages, Probe, ProbeError, SideEffect
from pharos.core.engine.usage_fields import PLAIN, Dialect
from pharos.core.signals import Signal

NOT_YET = frozenset({401, 403, 407, 408, 425, 429, *range(500, 600)}) - {501}
"""Statuses that say nothing about the kind: starting, busy, behind a proxy, closed to us. (501 is an answer: no such
route.)"""
LOCKED = frozenset({401, 403, 407})
"""Statuses that a credential would change."""
LIST_PATH = "/v1/models"
"""Where every engine lists its models in OpenAI's way; it is asked before anything else."""
ENGINES_FROM = 200
"""Ranks below are fronts: programs that answer like other engines, or pass the answers of others on. Where a front and
an engine both fit, it is the front."""


class Verdict(msgspec.Struct, frozen=True):
    """What a fingerprint says about the pages seen so far."""

    matches: bool | None
    """`None`: not yet known."""
    text: str = ""
    """The evidence, or why it is not this engine, or what is still missing: for people. May be empty for a plain no."""


class Fingerprint(msgspec.Struct, frozen=True):
    """How one kind of engine is recognised."""

    paths: tuple[str, ...]
    """GETs that no engine of any kind minds: they may be sent to all."""
    judge: Callable[[Pages], Verdict]
    """May get any part of its pages; says `None` while a page that decides is missing or no real answer."""
    guarded: tuple[str, ...] = ()
    """GETs that an engine of another kind minds, or that are of use only when `paths` leave it open."""
    may: Callable[[Pages], bool] = lambda _: False
    """Whether the pages so far show that the guarded ones may be sent: it may look at the model list and at `paths`."""


class Recipe(msgspec.Struct, frozen=True, eq=False):
    """One kind of engine."""

    kind: str
    """Its name in configuration and everywhere else."""
    rank: int
    """Order in which fingerprints are looked at: fronts (below `ENGINES_FROM`) before what they imitate or pass on."""
    probes: tuple[Probe, ...]
    """The probes that are trusted on this engine; of two for one signal the first wins."""
    fingerprint: Fingerprint | None = None
    """`None`: the generic kind, for what no fingerprint recognises."""
    shared_queue: bool = False
    """All names of the backend share one queue and its slots."""
    queue_is_loaded: bool = False
    """What is in memory is a queue: with one name of it, all are."""
    slots_by_queue: bool = False
    """The slots told of the whole backend hold only for models whose queue is known: `Signal.PHYSICAL_GROUP`."""
    usage_in_last_chunk: bool = False
    """Streams carry token counts without being asked."""
    dialect: Callable[[str | None], Dialect] = lambda _: PLAIN
    """Version -> what token counts of its replies mean."""
    refuses_model: tuple[bytes, ...] = ()
    """What a 400 holds that says that it does not have the model; an engine that answers 404 needs none."""
    caches_lost: bytes = b""
    """What the error holds with which it fails its requests when memory for contexts is full: it has emptied its caches
    then, those of all requests. Empty: there is no such error."""
    harmless_once: Mapping[str, Callable[[Page], bool]] = {}
    """Path -> whether a body of it proves that reading this path has no side effect in this version of the engine."""
    minds: Mapping[str, SideEffect] = {}
    """Path -> what asking it, or what is below it, does to the engine, of paths that no probe here reads."""
    hints: Mapping[Signal, Hint] = {}
    """Where a signal's general hint is not the best."""
    owners: tuple[str, ...] = ()
    """Values of `owned_by` in a model list that speak for this kind: its fingerprint is then looked at first."""
    record_paths: tuple[str, ...] = ()
    """GETs without side effect that a recording saves besides those of the probes."""
    remarks: Callable[[Pages], tuple[str, ...]] = lambda _: ()
    """What the pages of a visit show that would surprise a person, in sentences; raises nothing."""
    empty_post_tells: bool = False
    """A POST without a model shows whether a route is there: 400 or 422 where it is, and nothing is loaded by it."""
    usual_capacity: str | None = None
    """Name of the assumption that stands for its slots where neither it nor the configuration tells them; `None`: the
    one for all engines."""
    usual_models: int | None = None
    """Models that it holds in memory at once as it is usually set up, where it does not tell; `None`: not known."""
    takes_bare_names: bool = False
    """To itself a name without a tag means `:latest`, so that either spelling may be asked for."""
    context_in_residency: bool = False
    """A loaded model whose context length changes was loaded anew, without its cache; a request that asks for another
    one makes it so."""
    shares_cache: bool = False
    """All requests share one cache: what it holds of a prompt, others find there before the request that brought it has
    ended. Others keep a prompt in the slot of its request, where nobody else finds it until that is free."""
    tells_abilities: frozenset[str] = frozenset()
    """Abilities of which it tells whether a model has them: one that it leaves out is lacking. Of all others its
    silence says nothing."""


def lacking(pages: Pages, path: str) -> str | None:
    """Say why a path has no real answer yet; `None` when it has one (a 404 is one)."""
    page = pages.get(path)
    if page is None:
        return f"{path} has not been asked"
    if page.status is None:
        fault = page.fault if page.fault is not None else FetchFault.UNREACHABLE
        return f"{path}: {fault.value}"
    if page.status in LOCKED:
        return f"{path} answers {page.status}: it needs a credential"
    return f"{path} answers {page.status}" if page.status in NOT_YET else None


def is_ok(page: Page) -> bool:
    """Whether a page is a reply with a 2xx status."""
    return page.status is not None and 200 <= page.status < 300  # noqa: PLR2004 - HTTP


def is_web_page(page: Page) -> bool:
    """Whether a reply is a page for people: a login, a start page, or what a web application shows for any path."""
    return page.headers.get("content-type", "").startswith("text/html") or page.body.lstrip()[:1] == b"<"


def owners_of(pages: Pages) -> frozenset[str] | None:
    """The values of `owned_by` in the model list ("": one without); `None` while there is no list that can be read."""
    page = pages.get(LIST_PATH)
    if page is None or not is_ok(page):
        return None
    try:
        owners = [card.get("owned_by") for card in listed(document_of(page))]
    except ProbeError:
        return None
    return frozenset(owner if isinstance(owner, str) else "" for owner in owners)


def all_owned(pages: Pages, *owners: str) -> bool:
    """Whether every model in the list is owned by one of these, and there is one: a hint, which a proxy may pass on."""
    seen = owners_of(pages)
    return seen is not None and bool(seen) and seen <= set(owners)


def confirm(pages: Pages, path: str, read: Callable[[object], str], *, claimed: bool = False) -> Verdict:
    """Judge by one page that only this kind has. `read` gets its decoded body and returns the evidence.

    A `ProbeError` of `read` for a missing value is a no: some other program answers there. Any other, and a body that
    is cut, is damage, which says nothing about who wrote it. Text that was never JSON is a no unless `claimed`: the
    model list says that it is this kind, so that it may be damage as well.
    """
    missing = lacking(pages, path)
    if missing is not None:
        return Verdict(matches=None, text=missing)
    page = pages[path]
    if not is_ok(page):
        return Verdict(matches=False)
    if is_web_page(page):
        return Verdict(matches=False, text=f"{path} is a web page")
    try:
        return Verdict(matches=True, text=f"{path} {read(document_of(page))}")
    except ProbeError as error:
        is_foreign = error.reason is DropReason.NO_VALUE or not (claimed or _is_json_like(page))
        return Verdict(matches=False if is_foreign else None, text=f"{path}: {error}")


def _is_json_like(page: Page) -> bool:
    """Whether a body may have been a JSON object or list; an empty one may have been anything."""
    return page.body.lstrip()[:1] in {b"", b"{", b"["}
