"""What a recipe is: all that Pharos knows of one kind of engine, as data.

Forbidden here: any engine's name; each has a file of its own under `recipes/`.
"""

from collections.abc import Callable, Mapping

import msgspec

from pharos.core.engine.hints import Hint
from pharos.core.engine.probe import FetchFault, Page, Pages, Probe
from pharos.core.signals import Signal

NOT_YET = frozenset({401, 403, 407, 408, 425, 429, 500, 502, 503, 504})
"""Statuses that say nothing about the kind: starting, busy, behind a proxy, closed to us. (501 is an answer: no such
route.)"""


class Verdict(msgspec.Struct, frozen=True):
    """What a fingerprint says about the pages seen so far."""

    matches: bool | None
    """`None`: not yet known."""
    text: str = ""
    """The evidence, or why it is not this engine, or what is still missing: for people. May be empty for a plain no."""


class Fingerprint(msgspec.Struct, frozen=True):
    """How one kind of engine is recognised."""

    paths: tuple[str, ...]
    """GETs that no engine minds."""
    judge: Callable[[Pages], Verdict]
    """May get any part of its pages; says `None` while a page that decides is missing or no real answer."""


class Recipe(msgspec.Struct, frozen=True, eq=False):
    """One kind of engine."""

    kind: str
    """Its name in configuration and everywhere else."""
    rank: int
    """Order of fingerprints: an engine that others imitate, or that passes others' answers on, comes first."""
    probes: tuple[Probe, ...]
    """The probes that are trusted on this engine; of two for one signal the first wins."""
    fingerprint: Fingerprint | None = None
    """`None`: the generic kind, for what no fingerprint recognises."""
    shared_queue: bool = False
    """All names of the backend share one queue and its slots."""
    usage_in_last_chunk: bool = False
    """Streams carry token counts without being asked."""
    harmless_once: Mapping[str, Callable[[Page], bool]] = {}
    """Path -> whether a body of it proves that reading this path has no side effect in this version of the engine."""
    hints: Mapping[Signal, Hint] = {}
    """Where a signal's general hint is not the best."""


def lacking(pages: Pages, path: str) -> str | None:
    """Say why a path has no real answer yet; `None` when it has one (a 404 is one)."""
    page = pages.get(path)
    if page is None:
        return f"{path} has not been asked"
    if page.status is None:
        fault = page.fault if page.fault is not None else FetchFault.UNREACHABLE
        return f"{path}: {fault.value}"
    return f"{path} answers {page.status}" if page.status in NOT_YET else None


def is_ok(page: Page) -> bool:
    """Whether a page is a reply with a 2xx status."""
    return page.status is not None and 200 <= page.status < 300  # noqa: PLR2004 - HTTP
