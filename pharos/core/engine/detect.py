"""Which kind of engine answers: fingerprints in order, then the generic kind. Nothing is guessed.

Forbidden here: naming an engine, and asking a path that some engine might mind. An engine that is starting or gives
no answer is not yet known; the generic kind needs a real no from every fingerprint.
"""

from collections.abc import Iterator, Mapping

import msgspec

from pharos.core.engine.jsonfeed import document_of, listed
from pharos.core.engine.probe import Pages, ProbeError
from pharos.core.engine.recipe import Fingerprint, Recipe, is_ok, lacking
from pharos.core.engine.recipes import RECIPES

LIST_PATH = "/v1/models"
"""Where the generic kind must show an OpenAI-style model list."""


class Detection(msgspec.Struct, frozen=True):
    """What is known about the kind of engine."""

    kind: str | None
    """`None`: not yet known."""
    evidence: str = ""
    """What shows the kind, for people."""
    pending: str | None = None
    """Why the kind is not known, for people; `None` when it is."""


def next_paths(pages: Pages, recipes: Mapping[str, Recipe] = RECIPES) -> tuple[str, ...]:
    """Paths still to fetch before `judge`; () when nothing more can be asked. Faults count as fetched."""
    for _, fingerprint in _fingerprints(recipes):
        verdict = fingerprint.judge(pages)
        if verdict.matches:
            return ()
        if verdict.matches is None:
            return tuple(path for path in fingerprint.paths if path not in pages)
    return () if LIST_PATH in pages else (LIST_PATH,)


def judge(pages: Pages, recipes: Mapping[str, Recipe] = RECIPES) -> Detection:
    """Say which kind of engine gave these pages."""
    notes = []
    for kind, fingerprint in _fingerprints(recipes):
        verdict = fingerprint.judge(pages)
        if verdict.matches:
            return Detection(kind=kind, evidence=verdict.text)
        if verdict.matches is None:
            return Detection(kind=None, pending=verdict.text)
        notes += [verdict.text] if verdict.text else []
    generic = next(kind for kind, recipe in recipes.items() if recipe.fingerprint is None)
    missing = _no_list(pages)
    if missing is not None:
        return Detection(kind=None, pending="; ".join([*notes, missing]))
    return Detection(
        kind=generic, evidence="; ".join([f"{LIST_PATH} is a model list, and no fingerprint fits", *notes])
    )


def _fingerprints(recipes: Mapping[str, Recipe]) -> Iterator[tuple[str, Fingerprint]]:
    for kind, recipe in recipes.items():
        if recipe.fingerprint is not None:
            yield kind, recipe.fingerprint


def _no_list(pages: Pages) -> str | None:
    """Why there is no OpenAI-style model list; `None` when there is one."""
    missing = lacking(pages, LIST_PATH)
    if missing is not None:
        return missing
    page = pages[LIST_PATH]
    if not is_ok(page):
        return f"{LIST_PATH} answers {page.status}: this is no engine that Pharos can use"
    try:
        listed(document_of(page))
    except ProbeError as error:
        return f"{LIST_PATH} is no OpenAI-style model list: {error}"
    return None
