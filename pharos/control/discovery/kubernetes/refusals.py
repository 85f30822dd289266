"""Writes an Event onto each object whose annotations are refused, so that `kubectl describe` shows why.

All instances see the same: the Event's name is made of the object and the reason, so the second of them finds it there.
Without the right to write, nothing is written; doctor and the log say the same.

Forbidden here: anything else that writes.
"""

import asyncio
import collections
import hashlib
from collections.abc import Callable
from datetime import UTC, datetime
from http import HTTPStatus
from typing import Final

from pharos.control.discovery.kubernetes.api import Api, ApiError
from pharos.control.discovery.kubernetes.finding import Subject
from pharos.control.tasks import Sleep
from pharos.core.fleet.events import Event

REPORTER: Final = "pharos.dev/router"
REASON: Final = "BackendRefused"
MOST_WAITING: Final = 100
"""Events that wait to be written; the oldest are dropped beyond it."""
PAUSE_S: Final = 1.0
"""Seconds between two: a mistake in a template is a mistake on every Pod."""
DENIED_S: Final = 600.0
"""Seconds until a right that is missing is tried again."""
LONGEST_NOTE: Final = 1000
"""Bytes; the API takes 1 KiB."""


class Refusals:
    """`run` it as a task; `add` gives it work."""

    def __init__(
        self,
        instance: str,
        *,
        wall: Callable[[], float],
        on_event: Callable[[Event], None],
        sleep: Sleep = asyncio.sleep,
    ) -> None:
        """`instance`: the name of the Pod that writes. `wall` gives seconds since 1970."""
        self._instance = instance
        self._wall = wall
        self._on_event = on_event
        self._sleep = sleep
        self._waiting: collections.deque[tuple[Api, Subject, str]] = collections.deque(maxlen=MOST_WAITING)
        self._news = asyncio.Event()
        self.may_write = True
        """False once the API said that it may not; asked again some time later."""
        self._again_at = 0.0

    def __repr__(self) -> str:
        return f"<Refusals {len(self._waiting)} to write>"

    def add(self, api: Api, subject: Subject, why: str) -> None:
        """An object is left out."""
        if self.may_write or self._wall() >= self._again_at:
            self._waiting.append((api, subject, why))
            self._news.set()

    async def run(self) -> None:
        """Write until cancelled."""
        while True:
            while self._waiting:
                await self._write(*self._waiting.popleft())
                await self._sleep(PAUSE_S)
            self._news.clear()
            await self._news.wait()

    async def _write(self, api: Api, subject: Subject, why: str) -> None:
        path = f"/apis/events.k8s.io/v1/namespaces/{subject.namespace}/events"
        try:
            status, _ = await api.post(path, self._body(subject, why))
        except ApiError:
            return  # the reflectors say that the API does not answer
        if status == HTTPStatus.FORBIDDEN:
            is_news, self.may_write = self.may_write, False
            self._again_at = self._wall() + DENIED_S
            self._waiting.clear()
            if is_news:
                text = "refused annotations are not written as Events: no right to create events (events.k8s.io)"
                self._on_event(Event("discovery", "", "", "debug", text))
        else:
            self.may_write = True

    def _body(self, subject: Subject, why: str) -> dict[str, object]:
        mark = hashlib.sha256(f"{subject.uid} {why}".encode()).hexdigest()[:16]
        at = datetime.fromtimestamp(self._wall(), UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        return {
            "apiVersion": "events.k8s.io/v1",
            "kind": "Event",
            "metadata": {"name": f"pharos.{mark}", "namespace": subject.namespace},
            "eventTime": at,
            "type": "Warning",
            "reason": REASON,
            "action": "Discover",
            "reportingController": REPORTER,
            "reportingInstance": self._instance[:128] or "pharos",
            "regarding": {
                "apiVersion": "v1",
                "kind": subject.kind,
                "namespace": subject.namespace,
                "name": subject.name,
                "uid": subject.uid,
            },
            "note": f"Pharos leaves it out: {why}".encode()[:LONGEST_NOTE].decode(errors="ignore"),
        }
