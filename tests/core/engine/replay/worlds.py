"""Shared by the tests of detection and of hand-made bodies: a recorded state as an engine that answers any path."""

from collections.abc import Callable, Mapping

from pharos.core.engine import detect
from pharos.core.engine.attempt import Dropped, attempt
from pharos.core.engine.probe import SCRAPED, Page, Pages
from pharos.core.engine.recipes import by_kind
from tests.core.engine.pages import NOW
from tests.fakes import captures

GENERIC = {"mlx-lm": "openai"}
"""Folders of engines that have no kind of their own."""
NOT_FOUND = Page(status=404, body=b"", sent_at=NOW - 0.5)
MOST_ROUNDS = 10
"""Far above what detection may take: it ends a visit that would not end."""


class World:
    """An engine in one recorded state.

    Recordings are of different breadth. What one lacks is taken from another state of the same version, then of the
    same engine; a path that no recording of the engine has is one that it does not know.
    """

    def __init__(self, engine: str, version: str, state: str) -> None:
        self.kind = GENERIC.get(engine, engine)
        others = [row for row in captures.states(engine) if row != (version, state)]
        others.sort(key=lambda row: row[0] == version)
        self.pages: dict[str, Page] = {}
        for row in [*others, (version, state)]:
            self.pages |= captures.pages(engine, *row, sent_at=NOW - 0.5)
        self.is_starting = self.pages["/v1/models"].status == 503

    def get(self, path: str) -> Page:
        # An engine that starts says so on every path.
        return self.pages["/v1/models"] if self.is_starting else self.pages.get(path, NOT_FOUND)


class Visit:
    """Detection at work: what was asked, round by round, and what it found."""

    def __init__(self, get: Callable[[str], Page]) -> None:
        self.pages: dict[str, Page] = {}
        self.rounds: list[tuple[str, ...]] = []
        while (paths := detect.next_paths(self.pages)) and len(self.rounds) < MOST_ROUNDS:
            assert not set(paths) & set(self.pages)
            self.rounds.append(paths)
            self.pages |= {path: get(path) for path in paths}
        self.found = detect.judge(self.pages)


def all_states() -> list[tuple[str, str, str]]:
    """Every (engine, version, state) in `testdata/`."""
    engines = sorted(folder.name for folder in captures.TESTDATA.iterdir() if folder.is_dir())
    return [(engine, *state) for engine in engines for state in captures.states(engine)]


def probed(kind: str, pages: Pages) -> dict[str, object]:
    """Probe of the whole backend -> what it reads, or the name of the reason why not; recorded pages only."""
    read: dict[str, object] = {}
    for probe in by_kind(kind).probes:
        if probe.feed.kind not in SCRAPED or probe.feed.per_model or probe.feed.ask() not in pages:
            continue
        outcome = attempt(probe, pages[probe.feed.ask()])
        read[probe.name] = outcome.reason.name if isinstance(outcome, Dropped) else dict(outcome)
    return read


def expected(kind: str, table: Mapping[str, Mapping[str, object]], state: str) -> dict[str, object]:
    """The rows of a table for one state: those of "" hold for all states, unless the state has its own."""
    return {f"{kind}-{probe}": value for probe, value in {**table.get("", {}), **table.get(state, {})}.items()}
