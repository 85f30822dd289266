"""One short look at what is otherwise followed: the log from its start to its end, and the first events of a stream.

Forbidden here: waiting for more, and keeping a line.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, suppress
from typing import Any, Final

from pharos.control.follow.fault import FeedError
from pharos.control.streams import Openers
from pharos.core.engine.attempt import Dropped
from pharos.core.engine.follow import NOTHING, Follow, followed_feeds
from pharos.core.engine.probe import Feed, FeedKind
from pharos.core.fleet import Backend, Fleet

EVENTS_S: Final = 0.7
"""Seconds of a stream of events: one that begins with the present state has told it by then."""
SILENT: Final = f"it told nothing within {EVENTS_S:g} s"
STRANGE: Final = "nothing in it can be read"
MAX_LOG_BYTES: Final = 4 * 1024 * 1024
"""Bytes of a log's lines: what an engine says at its start comes first."""


async def listen(
    fleet: Fleet, backend: Backend, openers: Openers, clock: Callable[[], float], *, until: float
) -> dict[str, str]:
    """Take in what the followed feeds of a backend's plan tell; return feed -> why it cannot be read, for people.

    `until`: when to end at the latest, on the clock; each feed has a moment even if that is past.
    """
    plan = backend.plan
    feeds = followed_feeds(plan.active) if plan is not None else ()
    told = await asyncio.gather(*(_fault(fleet, backend, feed, openers, clock, until) for feed in feeds))
    faults = {feed_name(feed): fault for feed, fault in zip(feeds, told, strict=True)}
    return {feed: fault for feed, fault in faults.items() if fault is not None}


def feed_name(feed: Feed) -> str:
    """A feed's name for people."""
    return f"{feed.kind.value} {feed.path}".strip()


async def _fault(
    fleet: Fleet, backend: Backend, feed: Feed, openers: Openers, clock: Callable[[], float], until: float
) -> str | None:
    """Take in one feed; return what is wrong with it."""
    seconds = max(EVENTS_S, until - clock()) if feed.kind is FeedKind.LOG else EVENTS_S
    try:
        return await _listen(fleet, backend, feed, _open(backend, feed, openers), clock, seconds)
    except FeedError as error:
        fleet.feed_lost(backend, feed, str(error))
        return str(error)


def _open(backend: Backend, feed: Feed, openers: Openers) -> AbstractAsyncContextManager[AsyncIterator[Any]]:
    if feed.kind is FeedKind.LOG:
        return openers.log(backend.spec.logs if backend.spec.logs is not None else "")
    return openers.events(backend.spec, feed.path)


async def _listen(
    fleet: Fleet,
    backend: Backend,
    feed: Feed,
    opened: AbstractAsyncContextManager[AsyncIterator[Any]],
    clock: Callable[[], float],
    seconds: float,
) -> str | None:
    plan = backend.plan
    models = tuple(dict.fromkeys(target.served for target in backend.targets.values() if target.listed))
    reader = Follow(plan.active if plan is not None else (), feed, models)
    failed: dict[str, str] = {}
    size, count, has_told = 0, 0, False
    with suppress(TimeoutError):
        async with asyncio.timeout(seconds), opened as items:
            async for item in items:
                now = clock()
                told = reader.line(item, now) if isinstance(item, bytes) else reader.event(item.event, item.data, now)
                count += 1
                if told is not NOTHING:
                    fleet.followed(backend, told, now)
                    has_told = has_told or bool(told.readings)
                    failed |= {drop.probe: _why(drop) for drop in told.failed}
                    for signal, model in told.readings:
                        failed.pop(told.readings[signal, model].probe, None)
                size += len(item) + 1 if isinstance(item, bytes) else 0
                if size > MAX_LOG_BYTES:
                    break
    if failed:
        return "; ".join(f"{probe}: {why}" for probe, why in failed.items())
    if feed.kind is not FeedKind.SSE or has_told or _is_known_otherwise(backend, feed):
        return None
    return SILENT if not count else STRANGE


def _is_known_otherwise(backend: Backend, feed: Feed) -> bool:
    """Whether something else tells all that a stream tells: one that tells changes only may well be silent."""
    active = backend.plan.active if backend.plan is not None else ()
    known = {signal for signal, _ in backend.readings}
    return {probe.signal for probe in active if probe.feed == feed} <= known


def _why(drop: Dropped) -> str:
    return f"{drop.reason.value}: {drop.detail}" if drop.detail else drop.reason.value
