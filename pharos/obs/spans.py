"""A span for each request, sent to an OpenTelemetry collector as OTLP over HTTP in JSON, where one is configured.

# ops: add · goal: a deque's append per ended request; the JSON is made when it is sent, some at a time
# plan: spans wait in a bounded queue; a task sends them every few seconds, or sooner once there are many
# warning: a collector that is away costs its spans and nothing else

Forbidden here: anything of what was said, and holding up a request.
"""

import asyncio
import contextlib
import random
import re
from collections import deque
from collections.abc import Callable
from typing import Any, Final

import aiohttp
import msgspec

from pharos.config.otel import Collector
from pharos.core.fleet.events import Event
from pharos.proxy.done import Done

WAIT_S: Final = 5.0
"""Seconds between two sendings."""
FULL_AT: Final = 512
"""Spans that are sent at once, and not waited for."""
KEPT: Final = 4096
"""Spans that wait at most; later ones are dropped."""
SLICE: Final = 32
"""Spans whose JSON is made at once."""
TIMEOUT: Final = aiohttp.ClientTimeout(total=10)
LAST_TIMEOUT_S: Final = 2.0
"""Seconds for what is left at the end."""
FIRST_FAULT: Final = 500
OK: Final = range(200, 300)
SERVER: Final = 2
"""Kind of a span: it answers a request from outside."""
ERROR: Final = 2
"""Status of a span that failed by no fault of its client."""
_PARENT: Final = re.compile(
    r"(?:00(?=.{53}\Z)|(?!00|ff)[0-9a-f]{2})-(?!0{32})([0-9a-f]{32})-(?!0{16})([0-9a-f]{16})-([0-9a-f]{2})(?:-.*)?\Z"
)
"""Later versions may have more behind it; version ff is none."""


class Trace(msgspec.Struct, frozen=True):
    """What a client's `traceparent` says (W3C Trace Context)."""

    trace: str
    parent: str
    sampled: bool


def read_parent(header: str | None) -> Trace | None:
    """Read the header; `None` when there is none, or none that can be understood."""
    found = _PARENT.match(header) if header is not None else None
    if found is None:
        return None
    return Trace(found[1], found[2], bool(int(found[3], 16) & 1))


class Spans:
    """Sends them. `add` each ended request; `run` as a task."""

    def __init__(
        self,
        collector: Collector,
        session: aiohttp.ClientSession,
        *,
        instance: str,
        version: str,
        chance: random.Random,
        on_event: Callable[[Event], None],
        on_dropped: Callable[[], None],
        fetch: Callable[[], None],
    ) -> None:
        """`fetch` has every request that has ended by now added; `on_dropped` is told of each that is not sent."""
        self._collector = collector
        self._session = session
        self._chance = chance
        self._on_event = on_event
        self._on_dropped = on_dropped
        self._fetch = fetch
        self._waiting: deque[Done] = deque()
        self._many = asyncio.Event()
        self._is_failing = False
        self._sending = asyncio.Lock()
        resource = {"service.name": collector.service, "service.version": version, "service.instance.id": instance}
        self._head = (
            b'{"resourceSpans":[{"resource":{"attributes":' + msgspec.json.encode(_attributes(resource)) + b"},"
            b'"scopeSpans":[{"scope":{"name":"pharos"},"spans":['
        )

    def __repr__(self) -> str:
        return f"<Spans {len(self._waiting)} waiting for {self._collector!r}>"

    def add(self, done: Done) -> None:
        """Take one in, unless its client's trace is not recorded, or chance leaves it out."""
        parent = read_parent(done.trace)
        wanted = parent.sampled if parent is not None else self._chance.random() < self._collector.ratio
        if not wanted:
            return
        if len(self._waiting) >= KEPT:
            self._on_dropped()
            return
        self._waiting.append(done)
        if len(self._waiting) >= FULL_AT:
            self._many.set()

    async def run(self) -> None:
        """Send what has come, for ever."""
        while True:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._many.wait(), WAIT_S)
            self._many.clear()
            self._fetch()
            while self._waiting:
                await self._send()

    async def close(self) -> None:
        """Send what is left, if that goes quickly."""
        self._fetch()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(LAST_TIMEOUT_S):
                while (self._waiting or self._sending.locked()) and not self._is_failing:
                    await self._send()

    async def _send(self) -> None:
        async with self._sending:
            await self._send_some()

    async def _send_some(self) -> None:
        spans: list[bytes] = []
        while self._waiting and len(spans) < FULL_AT:
            spans.append(msgspec.json.encode(self._span(self._waiting.popleft())))
            if len(spans) % SLICE == 0:
                await asyncio.sleep(0)
        if not spans:
            return
        body = self._head + b",".join(spans) + b"]}]}]}"
        headers = {"Content-Type": "application/json", **dict(self._collector.headers)}
        try:
            async with self._session.post(
                self._collector.url, data=body, headers=headers, timeout=TIMEOUT, allow_redirects=False
            ) as reply:
                fault = "" if reply.status in OK else f"it answered {reply.status}"
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            fault = type(error).__name__
        self._sent(len(spans), fault)

    def _sent(self, count: int, fault: str) -> None:
        for _ in range(count if fault else 0):
            self._on_dropped()
        if bool(fault) == self._is_failing:
            return
        self._is_failing = bool(fault)
        if fault:
            text = f"spans of requests cannot be sent to {self._collector!r} and are dropped: {fault}"
            self._on_event(Event("spans", "", "", "warning", text))
        else:
            self._on_event(Event("spans", "", "", "info", "spans of requests are sent again"))

    def _span(self, done: Done) -> dict[str, Any]:
        parent = read_parent(done.trace)
        made: dict[str, Any] = {
            "traceId": parent.trace if parent is not None else f"{self._chance.randrange(1, 1 << 128):032x}",
            "spanId": f"{self._chance.randrange(1, 1 << 64):016x}",
            "name": f"POST {done.path}",
            "kind": SERVER,
            "startTimeUnixNano": str(int(done.at_wall * 1e9)),
            "endTimeUnixNano": str(int((done.at_wall + done.duration_s) * 1e9)),
            "attributes": _attributes(_told(done)),
            "status": {"code": ERROR} if done.status >= FIRST_FAULT else {},
        }
        if parent is not None:
            made["parentSpanId"] = parent.parent
        return made


def _told(done: Done) -> dict[str, object]:
    """What is told of a request, by the names that OpenTelemetry has for it where it has one."""
    usage = done.usage
    return {
        "http.route": done.path,
        "http.response.status_code": done.status,
        "gen_ai.request.model": done.model,
        "gen_ai.usage.input_tokens": None if usage is None else usage.prompt_tokens,
        "gen_ai.usage.output_tokens": None if usage is None else usage.completion_tokens,
        "pharos.request_id": done.request_id,
        "pharos.key": done.key,
        "pharos.target": done.target,
        "pharos.reason": done.reason or None,
        "pharos.stages": " ".join(f"{stage}={outcome}" for stage, outcome in done.stages),
        "pharos.streamed": done.streamed,
        "pharos.cached_tokens": None if usage is None else usage.cached_tokens,
        "pharos.queue_wait_s": done.queue_wait_s,
        "pharos.overhead_s": done.overhead_s,
        "pharos.ttft_s": done.ttft_s,
        "pharos.predicted_s": done.predicted_s,
    }


def _attributes(values: dict[str, Any]) -> list[dict[str, Any]]:
    """Names and values as OTLP has them; what is unknown is left out."""
    return [{"key": name, "value": _value(value)} for name, value in values.items() if value is not None]


def _value(value: object) -> dict[str, object]:
    if isinstance(value, bool):
        return {"boolValue": value}
    if isinstance(value, int):
        return {"intValue": str(value)}
    if isinstance(value, float):
        return {"doubleValue": value}
    return {"stringValue": str(value).encode("utf-8", "replace").decode()}
