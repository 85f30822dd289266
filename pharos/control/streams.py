"""What is followed at each backend, its log and its streams of events, one background task each, as plans change.

Forbidden here: reading lines and events (the plan's probes do), and asking engines anything but for their streams.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any, Final

import aiohttp
import msgspec

from pharos.clock import Clock, monotonic
from pharos.config.credentials import Credentials
from pharos.control.follow.dockerapi import SOCKET
from pharos.control.follow.fault import FeedError
from pharos.control.follow.follower import Following
from pharos.control.follow.source import IN_A_CLUSTER, open_logs
from pharos.control.follow.sse import SseEvent, open_events
from pharos.control.repeats import Repeats
from pharos.control.tasks import Sleep, Tasks
from pharos.core.engine.follow import NOTHING, Follow, Followed, followed_feeds
from pharos.core.engine.probe import Feed, FeedKind, ProbeError
from pharos.core.fleet.backend import Backend, BackendSpec
from pharos.core.fleet.events import Event
from pharos.core.fleet.registry import Fleet

Opened = AbstractAsyncContextManager[AsyncIterator[Any]]

_WHAT: Final = {FeedKind.LOG: "its log", FeedKind.SSE: "its events"}


class Openers(msgspec.Struct, frozen=True, eq=False):
    """How the two kinds of stream are opened; each is called anew for every connection."""

    log: Callable[[str], Opened]
    """The place of a log (`docker://NAME`, `file:///PATH`) -> its lines as bytes."""
    events: Callable[[BackendSpec, str], Opened]
    """A backend and a path there -> its events (`SseEvent`)."""


def openers(
    session: aiohttp.ClientSession,
    credentials: Credentials,
    *,
    follow: bool = True,
    docker_socket: str = SOCKET,
    pod_log: Callable[[str], Opened] | None = None,
) -> Openers:
    """Open logs and streams of events of real engines. Without `follow` a log ends where it ends now.

    `pod_log` opens logs of a cluster, whose places begin with `kubernetes://`.
    """

    def log(where: str) -> Opened:
        if pod_log is not None and where.startswith(IN_A_CLUSTER):
            return pod_log(where)
        return open_logs(where, follow=follow, docker_socket=docker_socket)

    def events(spec: BackendSpec, path: str) -> Opened:
        headers, tls = credentials.headers_for(spec), credentials.tls_for(spec)
        return open_events(session, spec.url, path, headers=headers, tls=tls)

    return Openers(log=log, events=events)


class _Followed(msgspec.Struct, frozen=True):
    """What a running task follows: another one is needed when this would differ."""

    probes: tuple[str, ...]
    models: tuple[str, ...]
    """Only where events are counted by model."""


class Streams:
    """The streams of all backends. Owns no task itself: `tasks` runs, restarts and ends them."""

    def __init__(
        self,
        fleet: Fleet,
        tasks: Tasks,
        openers: Openers,
        *,
        on_event: Callable[[Event], None],
        on_change: Callable[[Backend], None],
        clock: Clock = monotonic,
        sleep: Sleep = asyncio.sleep,
    ) -> None:
        """`on_change` is told after each line or event that set a value, and when a stream breaks off."""
        self._fleet = fleet
        self._tasks = tasks
        self._openers = openers
        self._on_event = on_event
        self._on_change = on_change
        self._clock = clock
        self._sleep = sleep
        self._repeats: dict[str, Repeats] = {}
        self._running: dict[str, dict[Feed, _Followed]] = {}

    def follow(self, backend: Backend) -> None:
        """Follow what the backend's plan wants, and nothing else. Call it whenever plan or models may have changed."""
        wanted = {} if backend.removed else _wanted(backend)
        if backend.removed:
            self._repeats.pop(backend.name, None)
        running = self._running.setdefault(backend.name, {})
        for feed in [feed for feed, one in running.items() if wanted.get(feed) != one]:
            self._tasks.stop(_task_name(backend, feed))
            self._fleet.feed_lost(backend, feed)
            del running[feed]
        for feed, one in wanted.items():
            if feed not in running:
                running[feed] = one
                self._tasks.start(_task_name(backend, feed), self._following(backend, feed, one.models).run)
        if not running:
            del self._running[backend.name]

    def __repr__(self) -> str:
        return f"<Streams {sum(map(len, self._running.values()))} of {len(self._running)} backends>"

    def _following(self, backend: Backend, feed: Feed, models: tuple[str, ...]) -> Following[Any]:
        """What follows one stream: each connection is read from its start, by readers that know nothing yet."""
        readers: list[Follow] = []

        @asynccontextmanager
        async def connect() -> AsyncIterator[AsyncIterator[Any]]:
            plan = backend.plan
            readers[:] = [Follow(plan.active if plan is not None else (), feed, models)]
            async with self._open(backend.spec, feed) as items:
                yield items

        def take(item: bytes | SseEvent) -> None:
            self._take(backend, readers[0], item)

        def lost(error: FeedError) -> None:
            self._fleet.feed_lost(backend, feed, str(error))
            self._on_change(backend)

        return Following(
            connect,
            take,
            lost,
            backend=backend.name,
            what=_WHAT[feed.kind],
            on_event=self._on_event,
            clock=self._clock,
            sleep=self._sleep,
        )

    def _open(self, spec: BackendSpec, feed: Feed) -> Opened:
        if feed.kind is FeedKind.LOG:
            return self._openers.log(spec.logs if spec.logs is not None else "")
        return self._openers.events(spec, feed.path)

    def _take(self, backend: Backend, reader: Follow, item: bytes | SseEvent) -> None:
        now = self._clock()
        if isinstance(item, bytes):
            told: Followed = reader.line(item, now)
        else:
            told = reader.event(item.event, item.data, now)
        if told is NOTHING:
            return
        repeats = self._repeats.setdefault(backend.name, Repeats())
        events = self._fleet.followed(backend, told, now)
        for event in [*repeats.summaries(now), *(repeats.admit(event, now) for event in events)]:
            self._on_event(event)
        self._on_change(backend)
        if told.failed and not isinstance(item, bytes):  # what is counted from the start of a stream needs a new one
            raise ProbeError(told.failed[0].reason)


def _wanted(backend: Backend) -> dict[Feed, _Followed]:
    """The feeds that the plan follows, with what a change of would need another connection."""
    plan = backend.plan
    if plan is None:
        return {}
    models = tuple(dict.fromkeys(target.served for target in backend.targets.values() if target.listed))
    return {
        feed: _Followed(
            tuple(probe.name for probe in plan.active if probe.feed == feed),
            models if feed.kind is FeedKind.SSE else (),
        )
        for feed in followed_feeds(plan.active)
    }


def _task_name(backend: Backend, feed: Feed) -> str:
    return f"follow {backend.name} {feed.kind.value}{feed.path}"
