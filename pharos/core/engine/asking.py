"""Which requests a backend may be sent now: by the interval of each feed, and by what a read of it does to the engine.

Forbidden here: reading answers, and letting through what loads a model or takes data away.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

import msgspec

from pharos.core.engine.attempt import Dropped, attempt, first_found, guard_holds, is_asleep, version_of
from pharos.core.engine.probe import MODEL, SCRAPED, Feed, FeedKind, Pages, Probe, SideEffect
from pharos.core.signals import BACKEND, Found, Residency, Signal

DUE_FROM = 0.9
"""Share of its interval after which a feed is due: rounds come with jitter, and one just short of the interval
counts."""
TRIED_MODELS = 3
"""Models whose pages of one feed are asked for when planning; the others follow in the rounds to come."""

_SEVERITY = (
    SideEffect.NONE,
    SideEffect.HEAVY,
    SideEffect.WAKES,
    SideEffect.PINS,
    SideEffect.LOADS,
    SideEffect.DRAINS,
)


class Situation(msgspec.Struct, frozen=True):
    """What is known of a backend when a round asks what it may read."""

    asleep: bool | None = None
    """Whether a model sleeps, as seen in this very round; `None`: not seen yet."""
    residency: Mapping[str, Residency] = {}
    """Model (or `BACKEND`) to residency, as last known."""
    models: tuple[str, ...] = ()
    """The engine's names of the models it lists."""
    ours: frozenset[str] = frozenset()
    """Models of which requests of ours run there now."""


def feed_key(feed: Feed) -> str:
    """Return a feed's name in tables of intervals and side effects: one for all models of a per-model feed."""
    return f"POST {feed.path}" if feed.kind is FeedKind.POST else feed.path


def strongest(effects: Iterable[SideEffect]) -> SideEffect:
    """Return the one that disturbs the engine most."""
    return max(effects, key=_SEVERITY.index)


def effects_of(probes: Iterable[Probe]) -> dict[str, SideEffect]:
    """Feed -> the strongest side effect that a probe on it declares: an operator's probe shares the path's effect."""
    effects: dict[str, SideEffect] = {}
    for probe in probes:
        if probe.feed.kind in SCRAPED:
            key = feed_key(probe.feed)
            effects[key] = strongest((effects.get(key, SideEffect.NONE), probe.feed.side_effect))
    return effects


def intervals_of(probes: Iterable[Probe]) -> dict[str, float]:
    """Feed -> seconds between reads: as often as the most eager of its probes wants."""
    intervals: dict[str, float] = {}
    for probe in probes:
        if probe.feed.kind in SCRAPED:
            key = feed_key(probe.feed)
            intervals[key] = min(intervals.get(key, probe.interval_s), probe.interval_s)
    return intervals


def feeds_of(probes: Iterable[Probe]) -> dict[str, Feed]:
    """Feed by key, for those that are asked again and again."""
    feeds: dict[str, Feed] = {}
    for probe in probes:
        if probe.feed.kind in SCRAPED:
            feeds.setdefault(feed_key(probe.feed), probe.feed)
    return feeds


def models_of(feed: Feed, models: Sequence[str], residency: Mapping[str, Residency]) -> Iterator[str]:
    """Whom a feed is asked about: the whole backend, or one model after the other."""
    if not feed.per_model:
        yield BACKEND
        return
    for model in models:
        if not feed.loaded_only or residency.get(model, residency.get(BACKEND)) is Residency.LOADED:
            yield model


def asks_of(probes: Iterable[Probe], situation: Situation) -> dict[str, str]:
    """Every request that the probes may lead to as things are -> its feed."""
    effects = effects_of(probes := tuple(probes))
    asks: dict[str, str] = {}
    for key, feed in feeds_of(probes).items():
        for model in models_of(feed, situation.models, situation.residency):
            if effects[key] is not SideEffect.PINS or _is_allowed(effects[key], model, situation):
                asks[feed.ask(model)] = key
    return asks


def is_of(feed: Feed, ask: str) -> bool:
    """Whether a request goes to this feed."""
    if not feed.per_model:
        return ask == feed.ask()
    before, _, after = feed.path.partition(MODEL)
    if feed.kind is FeedKind.POST:
        before, after = f"POST {feed.path} ", ""
    return ask.startswith(before) and ask.endswith(after) and len(ask) > len(before) + len(after)


def due_paths(
    probes: Sequence[Probe],
    last_read: Mapping[str, float],
    now: float,
    situation: Situation,
    intervals: Mapping[str, float] | None = None,
) -> tuple[str, ...]:
    """Requests to make now (see `Feed.ask`).

    `last_read`: request -> when it was last made, in seconds on the clock of `now`. `intervals`: feed -> seconds
    between its reads, if not as its probes want.

    Call twice in a round: first while it is not known whether a model sleeps, which leaves out what would wake one but
    asks for the residency when something of that sort is due; then with what came. What keeps a model loaded is asked
    only for models of which our own requests run; heavy feeds are read when planning only.
    """
    effects = effects_of(probes)
    intervals = intervals_of(probes) if intervals is None else intervals
    wanted: list[str] = []
    is_waking_due = False
    for key, feed in feeds_of(probes).items():
        for model in models_of(feed, situation.models, situation.residency):
            ask = feed.ask(model)
            if ask in last_read and now - last_read[ask] < DUE_FROM * intervals[key]:
                continue
            if _is_allowed(effects[key], model, situation):
                wanted.append(ask)
            elif effects[key] is SideEffect.WAKES and situation.asleep is None and situation.ours:
                is_waking_due = True
    if is_waking_due:
        wanted += [
            probe.feed.path
            for probe in probes
            if probe.signal is Signal.RESIDENCY and effects.get(feed_key(probe.feed)) is SideEffect.NONE
        ]
    return tuple(dict.fromkeys(wanted))


def _is_allowed(effect: SideEffect, model: str, situation: Situation) -> bool:
    """Whether a read that does this to the engine may be made now; `model` may be `BACKEND`."""
    if effect is SideEffect.PINS:
        return model in situation.ours if model else bool(situation.ours)
    if effect is SideEffect.WAKES:
        if not model:
            return situation.asleep is False and bool(situation.ours)
        is_awake = situation.asleep is not None and situation.residency.get(model) is Residency.LOADED
        return is_awake and model in situation.ours
    return effect is SideEffect.NONE


def next_paths(
    probes: Sequence[Probe], pages: Pages, *, may_keep_awake: bool = True, provable: Collection[str] = ()
) -> tuple[str, ...]:
    """Requests still to make before planning, () when there are none; call again with what came (faults included).

    Harmless ones of the whole backend come first. Of the others only those that are needed (no earlier probe reads the
    signal) and allowed: heavy ones, once the residency is known and not cold those that would wake the model, and of
    each per-model feed those of a few models, loaded ones first. Without `may_keep_awake` nothing is asked that would
    wake a model (read at every plan, one that is awake would never fall asleep), but for `provable` paths, as most
    versions show in their answer that it does no such thing.
    """
    scraped = [probe for probe in probes if probe.feed.kind in SCRAPED]
    effects = effects_of(scraped)
    harmless = [
        feed.ask() for key, feed in feeds_of(scraped).items() if effects[key] is SideEffect.NONE and not feed.per_model
    ]
    missing = [ask for ask in harmless if ask not in pages]
    if missing:
        return tuple(missing)
    version = version_of(scraped, pages)
    residency = residency_in(scraped, pages, version)
    asleep = is_asleep(residency)
    models = listed_models(scraped, pages, version)
    wanted: dict[str, None] = {}
    settled: set[Signal] = set()
    for probe in scraped:
        is_spare = probe.signal in settled and not probe.beside
        if is_spare or not guard_holds(probe, version):
            continue
        asks = _tried(probe.feed, models, residency)
        if any(ask in pages and not isinstance(attempt(probe, pages[ask]), Dropped) for ask in asks):
            settled.add(probe.signal)
        effect = effects[feed_key(probe.feed)]
        is_allowed = effect is SideEffect.HEAVY or effect is SideEffect.NONE
        if is_allowed or (
            effect is SideEffect.WAKES
            and (may_keep_awake or probe.feed.path in provable)
            and (asleep is False or probe.feed.loaded_only)
        ):
            unasked = [ask for ask in asks if ask not in pages]
            wanted.update(dict.fromkeys(unasked))
            if unasked:
                settled.add(probe.signal)
    return tuple(wanted)


def _tried(feed: Feed, models: Sequence[str], residency: Mapping[str, Residency]) -> list[str]:
    """The requests to one feed that planning makes."""
    loaded_first = sorted(models, key=lambda model: residency.get(model) is not Residency.LOADED)
    return [feed.ask(model) for model in list(models_of(feed, loaded_first, residency))[:TRIED_MODELS]]


def listed_models(probes: Iterable[Probe], pages: Pages, version: str | None) -> tuple[str, ...]:
    """The models that a visit's pages list; none when no list can be read."""
    found = first_found(probes, Signal.MODELS, pages, version).get(BACKEND)
    return found if isinstance(found, tuple) else ()


def residency_in(probes: Iterable[Probe], pages: Pages, version: str | None) -> dict[str, Residency]:
    """The residency that a visit's pages show, by model (or `BACKEND`)."""
    found: Found = first_found(probes, Signal.RESIDENCY, pages, version)
    return {model: value for model, value in found.items() if isinstance(value, Residency)}
