"""How tests look at an engine through Pharos' own control path, and keep it busy meanwhile."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Sequence
from typing import Any

import aiohttp
import msgspec

from pharos.cli.checkup import Finding, examine
from pharos.control import inspect
from pharos.control.fetch import Fetcher, new_session
from pharos.control.inspect import Inspection
from pharos.core.engine.asking import feeds_of
from pharos.core.engine.probe import Page, SideEffect
from pharos.core.fleet import Backend
from pharos.core.fleet.backend import BackendSpec, Target
from pharos.core.signals import BACKEND, Reading, Signal
from tests.engines.stand import Stand
from tests.live.real import Running, pharos

STEP_S = 0.02
UNKNOWN_AFTER_S = 4.0
"""A load signal that was not read for so long, in rounds of a second, is not read at all."""
ROUNDS = 2
"""Readings of a load signal that a test wants to see."""

CLOSE = {"Connection": "close"}
"""A connection for each request: servers close idle ones when they like."""

PATIENCE = aiohttp.ClientTimeout(total=60)

Request = tuple[str, tuple[str, dict[str, Any]]]
"""Where to, and path and body."""


class Counting(Fetcher):
    """Notes every request that it makes."""

    def __init__(self, session: aiohttp.ClientSession) -> None:
        super().__init__(session)
        self.made: list[tuple[str, str]] = []

    async def get(self, url: str, path: str, timeout_s: float, *rest: Any, **more: Any) -> Page:
        self.made.append((more.get("method", "GET"), path))
        return await super().get(url, path, timeout_s, *rest, **more)


class Visit(msgspec.Struct, frozen=True):
    """One visit as the doctor pays it."""

    found: Inspection
    made: list[tuple[str, str]]
    """Method and path of every request."""
    took_s: float


def spec_of(stand: Stand) -> BackendSpec:
    settings = stand.settings()
    return BackendSpec(name=stand.backend, url=stand.url, logs=settings.get("logs"))


async def visit(stand: Stand) -> Visit:
    """Find out what answers and how to read it."""
    began = asyncio.get_running_loop().time()
    async with new_session() as session:
        fetcher = Counting(session)
        found = await inspect.resolve(fetcher, spec_of(stand))
    return Visit(found, fetcher.made, asyncio.get_running_loop().time() - began)


@contextlib.asynccontextmanager
async def watched(stand: Stand) -> AsyncIterator[Running]:
    """A whole Pharos in front of the engine, which knows its models."""
    async with pharos(backends=[stand.settings()], queue={"absent_wait": "0.1s"}) as running:
        await running.until(lambda: running.app.fleet.resolve(stand.model) in backend_of(running, stand).targets)
        yield running


async def doctored(stand: Stand) -> Finding:
    """What `pharos doctor` finds; it asks for more than the scraper does."""
    (finding,) = await examine([spec_of(stand)])
    return finding


def backend_of(running: Running, stand: Stand) -> Backend:
    return running.app.fleet.backends[stand.backend]


def target_of(running: Running, stand: Stand, model: str | None = None) -> Target:
    return backend_of(running, stand).targets[running.app.fleet.resolve(model if model is not None else stand.model)]


def told(running: Running, stand: Stand, signal: Signal, model: str) -> Reading | None:
    """The fresh reading of a signal that counts for a model; `None`: unknown."""
    now = asyncio.get_running_loop().time()
    for key in ((signal, model), (signal, BACKEND)):
        reading = backend_of(running, stand).readings.get(key)
        if reading is not None and reading.is_fresh(now):
            return reading
    return None


def is_planned(running: Running, stand: Stand, signal: Signal) -> bool:
    """Whether Pharos means to read a signal at all."""
    plan = backend_of(running, stand).plan
    return plan is not None and any(probe.signal is signal for probe in plan.active)


async def observed(running: Running, stand: Stand, signal: Signal) -> tuple[list[object], str | None]:
    """Every value of a load signal that is read from now on, until there are some; and the probe that read them.

    No value: it is unknown.
    """
    loop = asyncio.get_running_loop()
    since, values, probe = loop.time(), dict[float, object](), None
    wait = UNKNOWN_AFTER_S if is_planned(running, stand, signal) else 0.0
    while len(values) < ROUNDS and loop.time() < since + wait:
        reading = told(running, stand, signal, stand.model)
        if reading is not None and reading.at > since:
            values[reading.at], probe = reading.value, reading.probe
        await asyncio.sleep(STEP_S)
    return list(values.values()), probe


class Held:
    """Streams that run while a test looks."""

    def __init__(self, count: int) -> None:
        self.begun = [asyncio.Event() for _ in range(count)]
        self.has_ended = False
        """Whether one of them ended by itself: what was seen meanwhile proves nothing."""


@contextlib.asynccontextmanager
async def holding(http: aiohttp.ClientSession, requests: Sequence[Request], *, begun: int) -> AsyncIterator[Held]:
    """Send requests and keep their streams open; so many of them have brought a token when it begins."""
    held = Held(len(requests))

    async def hold(number: int) -> None:
        url, (path, body) = requests[number]
        async with http.post(url + path, json=body, headers=CLOSE) as response:
            assert response.status == 200, await response.text()
            async for line in response.content:
                if b'"content"' in line or b'"response"' in line:
                    held.begun[number].set()
        held.has_ended = True

    tasks = [asyncio.create_task(hold(number)) for number in range(len(requests))]
    try:
        async with asyncio.timeout(30):
            while sum(event.is_set() for event in held.begun) < begun:
                broken = [task for task in tasks if task.done()]
                for task in broken:
                    task.result()
                assert not broken, "a stream ended before a test could look"
                await asyncio.sleep(STEP_S)
        yield held
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def post(http: aiohttp.ClientSession, url: str, request: tuple[str, dict[str, Any]]) -> tuple[int, bytes, str]:
    """Status, body and content type of the answer."""
    path, body = request
    async with http.post(url + path, json=body, headers=CLOSE, timeout=PATIENCE) as response:
        return response.status, await response.read(), response.headers.get("Content-Type", "")


async def warm(http: aiohttp.ClientSession, stand: Stand) -> None:
    """Have the model in memory and the engine in step."""
    request = next(reply for reply in stand.replies() if reply.completion is not None)
    status, body, _ = await post(http, stand.url, (request.path, request.body))
    assert status == 200, body


def effects_of(found: Inspection) -> set[SideEffect]:
    """What reads of the planned feeds do to an engine."""
    assert found.plan is not None
    return {feed.side_effect for feed in feeds_of(found.plan.active).values()}
