"""Which kind of engine answers: its model list, then its own pages. Nothing is guessed.

The list is asked first and alone, so that a dead address costs one GET. Who owns the models in it says whose
fingerprint to look at first; it proves nothing, since a proxy may pass another engine's list on. Only when that leaves
it open are the paths of all fingerprints asked, side by side. Every answer is judged by pages alone: what stood at an
address before is not known here.

Forbidden here: naming an engine, and asking a path that some engine might mind. An engine that is starting or gives
no answer is not yet known; the generic kind needs a real no from every fingerprint.
"""

from collections.abc import Mapping, Sequence

import msgspec

from pharos.core.engine.jsonfeed import document_of, listed
from pharos.core.engine.probe import Page, Pages, ProbeError
from pharos.core.engine.recipe import (
    ENGINES_FROM,
    LIST_PATH,
    Fingerprint,
    Recipe,
    Verdict,
    is_ok,
    is_web_page,
    lacking,
    owners_of,
)
from pharos.core.engine.recipes import RECIPES

NO_SUCH_ROUTE = frozenset({404, 405, 410, 501})
"""Statuses with which an engine may say that it has no model list in this place: its own pages may still tell."""

REASONS_TOLD = 2
"""Reasons why the kind is open that are told; the others are counted."""


class Detection(msgspec.Struct, frozen=True):
    """What is known about the kind of engine."""

    kind: str | None
    """`None`: not yet known."""
    evidence: str = ""
    """What shows the kind, for people."""
    pending: str | None = None
    """Why the kind is not known, for people; `None` when it is."""


class _Judged(msgspec.Struct, frozen=True):
    """A recipe, its fingerprint and what that says."""

    recipe: Recipe
    fingerprint: Fingerprint
    verdict: Verdict


def next_paths(pages: Pages, recipes: Mapping[str, Recipe] = RECIPES) -> tuple[str, ...]:
    """GETs still to send before `judge`; () when nothing more can be asked. Faults count as asked.

    Four rounds end it, whatever comes: the list; the kind that the list speaks for; what its pages allow to ask; and,
    if it is not that kind, all others.
    """
    if LIST_PATH not in pages:
        return (LIST_PATH,)
    if _no_engine(pages) is not None:
        return ()
    judged = _judged(pages, recipes)
    if any(one.verdict.matches for one in judged):
        return ()
    return _wanted(_undecided(judged, pages), pages)


def judge(pages: Pages, recipes: Mapping[str, Recipe] = RECIPES) -> Detection:
    """Say which kind of engine gave these pages."""
    missing = _no_engine(pages)
    if missing is not None:
        return Detection(kind=None, pending=missing)
    judged = _judged(pages, recipes)
    fitting = [one for one in judged if one.verdict.matches]
    if fitting:
        return _chosen(fitting, pages, recipes)
    undecided = _undecided(judged, pages)
    if undecided:
        return Detection(kind=None, pending=_summed_up([one.verdict.text for one in undecided]))
    notes = tuple(dict.fromkeys(one.verdict.text for one in judged if one.verdict.text))
    missing = _no_list(pages)
    if missing is not None:
        return Detection(kind=None, pending="; ".join([missing, *notes]))
    generic = next(kind for kind, recipe in recipes.items() if recipe.fingerprint is None)
    return Detection(
        kind=generic, evidence="; ".join([f"{LIST_PATH} is a model list, and no fingerprint fits", *notes])
    )


def _judged(pages: Pages, recipes: Mapping[str, Recipe]) -> list[_Judged]:
    return [
        _Judged(recipe, recipe.fingerprint, recipe.fingerprint.judge(pages))
        for recipe in recipes.values()
        if recipe.fingerprint is not None
    ]


def _undecided(judged: Sequence[_Judged], pages: Pages) -> list[_Judged]:
    """Fingerprints that are open: those of kinds that own models in the list, else all."""
    undecided = [one for one in judged if one.verdict.matches is None]
    owners = owners_of(pages)
    spoken_for = [one for one in undecided if owners is not None and not owners.isdisjoint(one.recipe.owners)]
    return spoken_for or undecided


def _wanted(undecided: Sequence[_Judged], pages: Pages) -> tuple[str, ...]:
    """Pages that these fingerprints want and may ask for now."""
    wanted: dict[str, None] = {}
    for one in undecided:
        allowed = one.fingerprint.guarded if one.fingerprint.may(pages) else ()
        wanted.update(dict.fromkeys((*one.fingerprint.paths, *allowed)))
    return tuple(path for path in wanted if path not in pages)


def _summed_up(texts: Sequence[str]) -> str:
    """Reasons in one line, none twice; a server that closes all its pages gives a dozen alike."""
    distinct = list(dict.fromkeys(texts))
    more = len(distinct) - REASONS_TOLD
    return "; ".join([*distinct[:REASONS_TOLD], *([f"and {more} more such pages"] if more > 0 else [])])


def _chosen(fitting: Sequence[_Judged], pages: Pages, recipes: Mapping[str, Recipe]) -> Detection:
    """Settle which of the kinds that fit it is.

    A front may show what belongs to the engines behind it. Two engines, or an engine and the list of another one, are
    two programs behind one address (or one that was exchanged while it was looked at): neither can be relied on.
    """
    fronts = [one for one in fitting if one.recipe.rank < ENGINES_FROM]
    rivals = fronts or fitting
    if len(rivals) > 1:
        both = "; ".join(f"{one.recipe.kind}: {one.verdict.text}" for one in rivals)
        return Detection(kind=None, pending=f"it shows itself as more than one engine, so `kind` must say ({both})")
    found = rivals[0]
    other = None if fronts else _list_of_another(found.recipe, pages, recipes)
    if other is not None:
        return Detection(
            kind=None,
            pending=f"{found.verdict.text}, but the models in {LIST_PATH} are owned by {other}: `kind` must say",
        )
    also = [one.recipe.kind for one in fitting if one is not found]
    evidence = [found.verdict.text, f"what it shows of {', '.join(also)} is passed on or imitated"]
    return Detection(kind=found.recipe.kind, evidence="; ".join(evidence if also else evidence[:1]))


def _list_of_another(recipe: Recipe, pages: Pages, recipes: Mapping[str, Recipe]) -> str | None:
    """The owner of every model in the list, if that word belongs to other kinds only; `None` when it does not."""
    owners = owners_of(pages)
    words = {owner for other in recipes.values() for owner in other.owners} - set(recipe.owners)
    return ", ".join(sorted(owners)) if owners and owners <= words else None


def _no_engine(pages: Pages) -> str | None:
    """Why the answer under the list's path ends the search; `None` when the engine's own pages may tell more."""
    missing = lacking(pages, LIST_PATH)
    if missing is not None:
        return missing
    return None if pages[LIST_PATH].status in NO_SUCH_ROUTE else _no_list(pages)


def _no_list(pages: Pages) -> str | None:
    """Why there is no OpenAI-style model list; `None` when there is one."""
    page = pages[LIST_PATH]
    if _is_redirect(page):
        return f"{LIST_PATH} answers {page.status} and leads elsewhere, to a login perhaps: no engine does"
    if not is_ok(page):
        return f"{LIST_PATH} answers {page.status}: this is no engine that Pharos can use"
    if is_web_page(page):
        return f"{LIST_PATH} is no OpenAI-style model list but a web page: is this the engine's own address?"
    try:
        listed(document_of(page))
    except ProbeError as error:
        return f"{LIST_PATH} is no OpenAI-style model list: {error}"
    return None


def _is_redirect(page: Page) -> bool:
    return page.status is not None and 300 <= page.status < 400  # noqa: PLR2004 - HTTP
