"""Shared by the replays of recorded event streams and logs: their events and lines, as a follower would get them."""

from collections.abc import Iterator

from pharos.core.engine.follow import Follow
from pharos.core.engine.plan import Plan
from pharos.core.engine.probe import FeedKind
from tests.fakes import captures


def events(engine: str, version: str, file: str) -> list[bytes]:
    """The data of each event of a recorded stream."""
    raw = (captures.TESTDATA / engine / version / file).read_bytes()
    return [
        b"\n".join(line[5:].lstrip() for line in block.split(b"\n") if line.startswith(b"data:"))
        for block in raw.split(b"\n\n")
        if block.strip()
    ]


def lines(engine: str, version: str, file: str) -> Iterator[bytes]:
    """The lines of a recorded log."""
    yield from (captures.TESTDATA / engine / version / file).read_bytes().splitlines()


def follow(made: Plan, kind: FeedKind, models: tuple[str, ...] = ()) -> Follow:
    """Follow the one feed of a kind that a plan has."""
    feed = next(probe.feed for probe in made.active if probe.feed.kind is kind)
    return Follow(made.active, feed, models)
