"""What an upgrade took away: probes that told something before and do not now, and what looks like their successor.

Forbidden here: reading a value by a guessed name. A likely successor is for people.
"""

import difflib
import itertools
from collections.abc import Iterable, Iterator

from pharos.core.engine.attempt import Dropped
from pharos.core.engine.jsonfeed import document_of
from pharos.core.engine.probe import Page, Probe, ProbeError
from pharos.core.engine.promtext import exposition_of
from pharos.core.signals import MARKS

ALIKE = 0.6
"""How much of two names must be the same, from 0 to 1."""
NAMES = 300
"""Names of a body that are compared, those that begin most like the lacking one first: the comparison is slow."""
DEPTH = 6
"""Levels of a JSON body that are looked at."""


def likely_successor(probe: Probe, page: Page, taken: Iterable[str] = ()) -> str:
    """The series or field of a body whose name is most like the one that a probe lacks; empty when none is.

    `taken`: names that other probes read, which therefore are no successor.
    """
    if not probe.wants:
        return ""
    known = {*taken, probe.wants}
    names = list(dict.fromkeys(name for name in _names(page) if name not in known))
    names = sorted(names, key=lambda name: _alike_until(name, probe.wants), reverse=True)[:NAMES]
    found = difflib.get_close_matches(probe.wants, names, n=1, cutoff=ALIKE)
    return found[0] if found else ""


def lost(
    before: Iterable[Probe], told: frozenset[str], after: Iterable[Probe], dropped: Iterable[Dropped]
) -> list[Dropped]:
    """The probes that a new plan lost: planned before, with values (`told`), and now nothing reads their signal.

    Marks are left out: nobody misses one.
    """
    signals = {probe.signal for probe in after} | MARKS
    gone = {probe.name for probe in before if probe.name in told and probe.signal not in signals}
    return [one for one in dropped if one.probe in gone and not one.will_pass]


def _alike_until(one: str, other: str) -> int:
    """How many characters both begin with."""
    return sum(1 for _ in itertools.takewhile(lambda pair: pair[0] == pair[1], zip(one, other, strict=False)))


def _names(page: Page) -> Iterator[str]:
    """Names of all series, or dotted paths of all fields, of a body."""
    try:
        yield from exposition_of(page).series
    except ProbeError:
        try:
            yield from _paths(document_of(page), "", DEPTH)
        except ProbeError:
            return


def _paths(value: object, at: str, depth: int) -> Iterator[str]:
    if isinstance(value, list) and value:
        value = value[0]  # the entries of a list are alike
    if not isinstance(value, dict) or depth == 0:
        return
    for name, inner in value.items():
        path = f"{at}.{name}" if at else str(name)
        yield path
        yield from _paths(inner, path, depth - 1)
