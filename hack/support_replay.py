"""Replays every recorded version of every engine, to tell which probe reads which signal there and why others do not.

Each state in `testdata/` goes through detection, planning, one more round as if requests of ours ran, and its version's
recorded log and events, with the code of the replay tests. Nothing is fetched.
"""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import msgspec
import yaml

from pharos.core.engine import plan
from pharos.core.engine.attempt import is_asleep
from pharos.core.engine.follow import Followed, followed_feeds
from pharos.core.engine.plan import Dropped, Plan, Round, Situation
from pharos.core.engine.probe import SCRAPED, DropReason, Feed, FeedKind, Page, Probe
from pharos.core.engine.recipes import RECIPES, by_kind
from pharos.core.signals import BACKEND, MARKS, Signal
from tests.core.engine.pages import NOW
from tests.core.engine.replay import replaying, streams, worlds
from tests.fakes import captures

SIGNALS = tuple(signal for signal in Signal if signal not in MARKS)
NO_PROBE = "this kind does not tell it"
NOT_RECORDED = "not in the recording"
NO_RECORDING = "not verified, and there is no recording"
NOTHING_TOLD = "told of none of the models in the recording"
REASONS_TOLD = 2
"""Probes of one signal whose reasons are told."""


class Version(msgspec.Struct, frozen=True):
    """What the replay of one version's recordings showed."""

    engine: str
    """Its folder in `testdata/`."""
    name: str
    """The folder in there."""
    is_synthetic: bool
    """Made by hand, and not recorded."""
    readers: Mapping[Signal, tuple[str, ...]]
    """The probes that read a signal in some state, in the order of the recipe."""
    why: Mapping[Signal, str]
    """For each signal that no probe reads in any state: why."""


class _Seen(msgspec.Struct):
    """What the states of one version brought together."""

    probes: dict[str, Probe] = {}
    """All of the kinds that were detected, by name, in the order of their recipes."""
    readers: dict[Signal, set[str]] = {}
    failed: dict[str, list[Dropped]] = {}
    """By probe."""
    asked: set[str] = set()
    """Probes of whose feed at least one page was recorded."""


def versions() -> list[Version]:
    """Every version, by engine; recorded ones come before those made by hand."""
    folders = {(engine, version) for engine, version, _ in worlds.all_states()}
    rows = [_version(engine, name) for engine, name in folders]
    return sorted(rows, key=lambda row: (row.engine, row.is_synthetic, in_parts(row.name)))


def unrecorded(engine: str, name: str) -> Version:
    """A version of which there is no recording, and nothing is known here."""
    kind = worlds.GENERIC.get(engine, engine)
    told = {probe.signal for probe in RECIPES[kind].probes} if kind in RECIPES else set(SIGNALS)
    why = {signal: NO_RECORDING if signal in told else NO_PROBE for signal in SIGNALS}
    return Version(engine, name, is_synthetic=False, readers={}, why=why)


def in_parts(version: str) -> list[tuple[int, str]]:
    """Return a key that sorts 0.9 before 0.10."""
    return [(int(part), "") if part.isdecimal() else (-1, part) for part in re.split(r"(\d+)", version) if part]


def _version(engine: str, name: str) -> Version:
    seen = _Seen()
    for version, state in captures.states(engine):
        if version == name:
            _replay((engine, name, state), seen)
    order = list(seen.probes)
    meta = _file_of((engine, name, ""), "meta.yaml", "*/meta.yaml")
    told = yaml.safe_load(meta.read_text(encoding="utf-8")) if meta is not None else {}
    return Version(
        engine=engine,
        name=name,
        is_synthetic=bool(told.get("synthetic", False)),
        readers={signal: tuple(sorted(found, key=order.index)) for signal, found in seen.readers.items()},
        why={signal: _why(signal, seen) for signal in SIGNALS if signal not in seen.readers},
    )


def _replay(row: replaying.Row, seen: _Seen) -> None:
    """Read one state; one whose kind cannot be told (it starts, it is locked) adds nothing."""
    there = replaying.pages_of(row)
    found, pages = replaying.detected(there)
    if found.kind is None:
        return
    probes = by_kind(found.kind).probes
    log = _file_of(row, "logs/*.log", f"{row[2]}/*.log")
    _, first, _ = replaying.resolved(found.kind, there, pages)
    models = _models(first)
    there.update(_answers(row, probes, models))
    made, first, got = replaying.resolved(found.kind, there, pages, logs=log is not None)
    more = {ask: there[ask] for ask in _asked_while_busy(made, first, models) if ask in there and ask not in got}
    rounds = [first, plan.scrape(made, more, NOW, models=models), *_followed(row, made, models, log)]
    seen.probes |= {probe.name: probe for probe in probes}
    seen.asked |= {probe.name for probe in probes if _is_recorded(probe.feed, models, there)}
    for one in (*made.dropped, *first.withheld, *(failure for read in rounds for failure in read.failed)):
        seen.failed.setdefault(one.probe, []).append(one)
    for signal, probe in _standing(rounds):
        seen.readers.setdefault(signal, set()).add(probe)


def _models(read: Round) -> tuple[str, ...]:
    reading = read.readings.get((Signal.MODELS, BACKEND))
    return reading.value if reading is not None and isinstance(reading.value, tuple) else ()


def _asked_while_busy(made: Plan, first: Round, models: tuple[str, ...]) -> tuple[str, ...]:
    """What a round asks for while requests of ours run on every model."""
    residency = plan.residency_in(first.readings)
    ours = frozenset({*models, BACKEND})
    situation = Situation(asleep=is_asleep(residency), residency=residency, models=models, ours=ours)
    return plan.due_paths(made, {}, NOW, situation)


def _answers(row: replaying.Row, probes: Sequence[Probe], models: Sequence[str]) -> dict[str, Page]:
    """The recorded answers to questions about one model. They were asked with or without the name's tag."""
    feeds = {probe.feed.path: probe.feed for probe in probes if probe.feed.kind is FeedKind.POST}
    pages: dict[str, Page] = {}
    for file in sorted((captures.TESTDATA / row[0] / row[1]).glob("streams/*.request.json")) if feeds else ():
        request = json.loads(file.read_bytes())
        feed = feeds.get(request["path"])
        if feed is None or not isinstance(request.get("body"), dict):
            continue
        reply = captures.exchange(row[0], row[1], file.name.removesuffix(".request.json"))
        for model in models:
            if request["body"].get("model") in {model, model.rpartition(":")[0]}:
                pages[feed.ask(model)] = Page(reply.status, reply.body, sent_at=NOW - 0.5)
    return pages


def _file_of(row: replaying.Row, *patterns: str) -> Path | None:
    """The first file of a version: what is sent in has its description and its log beside the bodies of one state."""
    folder = captures.TESTDATA / row[0] / row[1]
    return next((path for pattern in patterns for path in sorted(folder.glob(pattern))), None)


def _followed(row: replaying.Row, made: Plan, models: tuple[str, ...], log: Path | None) -> Iterator[Followed]:
    """What the recorded log and events of the version tell to a plan."""
    version = captures.TESTDATA / row[0] / row[1]
    for feed in followed_feeds(made.active):
        if feed.kind is FeedKind.LOG:
            follow = streams.follow(made, feed.kind, models)
            lines = streams.lines(row[0], row[1], str(log.relative_to(version))) if log is not None else ()
            yield from (follow.line(line, NOW) for line in lines)
        else:
            name = feed.path.strip("/").replace("/", "_")
            file = _file_of(row, f"streams/{name}.response", f"{name}.txt")
            follow = streams.follow(made, feed.kind, models)
            events = streams.events(row[0], row[1], str(file.relative_to(version))) if file is not None else ()
            yield from (follow.event("message", data, NOW) for data in events)


def _is_recorded(feed: Feed, models: Sequence[str], there: Mapping[str, Page]) -> bool:
    """Whether it is known what this feed answers; a path that is not there is not there with a query either."""
    plain = there.get(feed.path.partition("?")[0]) if "?" in feed.path and not feed.per_model else None
    is_absent = plain is not None and plain.status == 404
    return feed.kind not in SCRAPED or is_absent or any(feed.ask(model) in there for model in (*models, BACKEND))


def _standing(rounds: Sequence[Round | Followed]) -> set[tuple[Signal, str]]:
    """The probes whose values count: for each model those of the lowest rank."""
    readings = [item for read in rounds for item in read.readings.items()]
    best: dict[tuple[Signal, str], int] = {}
    for key, reading in readings:
        best[key] = min(best.get(key, reading.rank), reading.rank)
    return {(key[0], reading.probe) for key, reading in readings if reading.rank == best[key]}


def _why(signal: Signal, seen: _Seen) -> str:
    """Say why a signal is unknown, in the words of its probes."""
    if not seen.probes:
        return "no state shows the kind"
    probes = [probe for probe in seen.probes.values() if probe.signal is signal]
    grouped: dict[str, list[str]] = {}
    for probe in probes:
        text = _why_not(probe, seen)
        if text is not None:
            grouped.setdefault(text, []).append(f"`{probe.name}`")
    if not grouped:
        return NOTHING_TOLD if probes else NO_PROBE
    if list(grouped) == [NOT_RECORDED]:
        return NOT_RECORDED
    return "; ".join(f"{', '.join(names)}: {text}" for text, names in list(grouped.items())[:REASONS_TOLD])


def _why_not(probe: Probe, seen: _Seen) -> str | None:
    """The most telling reason of one probe; `None` for one that answered without a value, or had another before it."""
    if probe.name not in seen.asked:
        return NOT_RECORDED
    failures = [one for one in seen.failed.get(probe.name, ()) if one.reason is not DropReason.REDUNDANT]
    if not failures:
        return None
    best = next((one for one in failures if not one.will_pass), failures[0])
    return f"{best.reason.value} ({best.detail})" if best.detail else best.reason.value
