"""Shared by the replays: a recorded state, taken through detection, planning and a scrape.

Expected values are tables keyed engine, engine/version or engine/version/state; the most specific row wins, value by
value, and `None` in it takes a value away that a wider row gives.
"""

from collections.abc import Mapping
from typing import Any

from pharos.core.engine import detect, plan
from pharos.core.engine.plan import Plan, Round
from pharos.core.engine.probe import Page
from pharos.core.engine.recipes import by_kind
from tests.core.engine.pages import NOW, fetched, status, values
from tests.fakes import captures

UNKNOWN = None
"""Marks a value that is known not to be known."""
Row = tuple[str, str, str]
"""Folder of the engine, version, state."""
Table = Mapping[str, Mapping[Any, Any]]


def rows(engine: str) -> list[Row]:
    """Every recorded state of an engine."""
    return [(engine, *state) for state in captures.states(engine)]


def expected(table: Table, row: Row) -> dict[Any, Any]:
    """What the table says of a state."""
    merged: dict[Any, Any] = {}
    for depth in range(1, len(row) + 1):
        merged |= table.get("/".join(row[:depth]), {})
    return {key: value for key, value in merged.items() if value is not None}


def unused(table: Table, engine: str) -> set[str]:
    """Keys of a table that no recorded state has: spelled wrong, or of a recording that is gone."""
    known = {"/".join(row[:depth]) for row in rows(engine) for depth in range(1, 4)}
    return set(table) - known


class Answers(dict[str, Page]):
    """The pages of an engine that knows no other path."""

    def get(self, path: str, default: Page | None = None) -> Page:  # type: ignore[override]
        del default
        return self[path] if path in self else status(404)


def pages_of(row: Row) -> Answers:
    """A state's pages, asked half a second ago."""
    return Answers(captures.pages(*row, sent_at=NOW - 0.5))


def detected(there: Mapping[str, Page]) -> tuple[detect.Detection, dict[str, Page]]:
    """What detection makes of an engine that has these pages and no others, and what it asked for."""
    seen = fetched(detect.next_paths, there)
    return detect.judge(seen), seen


def resolved(
    kind: str, there: Mapping[str, Page], seen: Mapping[str, Page] | None = None, *, logs: bool = False
) -> tuple[Plan, Round, dict[str, Page]]:
    """Plan for an engine that has these pages and no others; also what was asked for."""
    recipe = by_kind(kind)
    got = fetched(lambda pages: plan.next_paths(recipe, (), pages), there, seen)
    made, first = plan.resolve(recipe, (), got, kind_source="detected", logs=logs, now=NOW)
    return made, first, got


def check(kind: str, row: Row, table: Table) -> tuple[Plan, Round]:
    """Replay one state: it is detected, planned and read exactly as the table says, and a scrape reads the same."""
    there = pages_of(row)
    found, seen = detected(there)
    assert found.kind == kind, found
    made, first, got = resolved(kind, there, seen)
    assert values(first) == expected(table, row)
    assert values(plan.scrape(made, got, NOW)) == values(first)
    return made, first


def readers(read: Round) -> dict[str, set[str]]:
    """Signal to the probes whose values count in a round."""
    told: dict[str, set[str]] = {}
    for (signal, _), reading in read.readings.items():
        told.setdefault(signal.value, set()).add(reading.probe)
    return told
