"""Backends from labels of the containers on this host: Docker tells of changes, and each one has all listed anew.

While Docker does not answer, what it told last stays: whether an engine is alive is seen by asking the engine.

Forbidden here: reading labels (`labels`) and addresses (`containers`), and changing anything in Docker.
"""

import asyncio
import re
import socket
from collections.abc import Callable, Iterable, Mapping
from http import HTTPStatus
from pathlib import Path
from typing import Final
from urllib.parse import quote

import aiohttp

from pharos.config.schema import Credential
from pharos.control.discovery.containers import Container, Found, Place, backends
from pharos.control.follow.dockerapi import decoded, errors_of, session_at
from pharos.control.follow.fault import Fault, FeedError
from pharos.control.tasks import FIRST_DELAY_S, LONGEST_DELAY_S, Sleep
from pharos.core.fleet.backend import BackendSpec
from pharos.core.fleet.events import Event

ANSWER_S: Final = 10.0
"""Seconds within which Docker lists its containers."""
SETTLE_S: Final = 0.2
"""Seconds after an event before the list is asked for: a start is several events."""
AGAIN_S: Final = 1.0
"""Seconds to the next list while a container has no address yet."""
LIST_EVERY_S: Final = 30.0
"""Seconds between two lists without any event."""
PATIENCE: Final = 3
"""Lists in a row without an address after which that is said."""
MAX_LIST: Final = 16 * 1024 * 1024
"""Bytes of the list; about 3 KiB for each container."""
MAX_DESCRIPTION: Final = 4 * 1024 * 1024
STAGE: Final = "discovery"

_LISTED: Final = {"filters": '{"label":["pharos.enable"],"status":["running"]}'}
_TOLD: Final = {"filters": '{"type":["container","network"]}'}
_IN_MOUNTS: Final = re.compile(r"/containers/([0-9a-f]{64})/")
_IS_ID: Final = re.compile(r"[0-9a-f]{12}|[0-9a-f]{64}")


def own_id(mounts: Path = Path("/proc/self/mountinfo"), hostname: Callable[[], str] = socket.gethostname) -> str | None:
    """The id of the container that this process runs in, as far as can be told; `None`: probably in none."""
    try:
        match = _IN_MOUNTS.search(mounts.read_text(encoding="utf-8", errors="replace"))
    except OSError:
        match = None
    if match is not None:
        return match[1]
    name = hostname()
    return name if _IS_ID.fullmatch(name) else None


class DockerLabels:
    """Watches one Docker. `run` it as a task."""

    def __init__(
        self,
        socket_path: str,
        *,
        tell: Callable[[Iterable[BackendSpec]], None],
        credentials: Callable[[], Mapping[str, Credential]],
        on_event: Callable[[Event], None],
        is_asked: bool,
        identify: Callable[[], str | None] = own_id,
        sleep: Sleep = asyncio.sleep,
    ) -> None:
        """`tell` gets all backends, at first and after each change. `credentials`: those configured now.

        `is_asked`: whether somebody wants this Docker to be there; else trouble is only information.
        """
        self._socket = socket_path
        self._tell = tell
        self._credentials = credentials
        self._on_event = on_event
        self._is_asked = is_asked
        self._identify = identify
        self._sleep = sleep
        self._told: list[BackendSpec] | None = None
        self._said: dict[str, str] = {}
        """What was said of a container; it is not said again while it is so."""
        self._unaddressed = 0
        self._fault: Fault | None = None
        self._delay = FIRST_DELAY_S

    def __repr__(self) -> str:
        return f"<DockerLabels {self._socket}: {len(self._told) if self._told is not None else 'no'} backends>"

    async def run(self) -> None:
        """Watch until cancelled."""
        while True:
            try:
                await self._watch()
            except FeedError as error:
                self._lose(error)
            delay, self._delay = self._delay, min(2 * self._delay, LONGEST_DELAY_S)
            await self._sleep(delay)

    async def _watch(self) -> None:
        """Follow one connection until it breaks. Raises `FeedError`."""
        async with session_at(self._socket) as session:
            with errors_of(self._socket):
                own = await self._own(session)
                # Asked for before the list: what happens between the two is told.
                async with asyncio.timeout(ANSWER_S):
                    events = await session.get("/events", params=_TOLD)
                try:
                    _check(events, "tell of its containers")
                    while True:
                        again_s = await self._list(session, own)
                        await self._wait(events, again_s)
                finally:
                    events.close()

    async def _wait(self, events: aiohttp.ClientResponse, again_s: float) -> None:
        """Wait for an event, or until it is time to list again anyway."""
        try:
            async with asyncio.timeout(again_s):
                if not await events.content.readany():
                    raise FeedError(Fault.CUT, "Docker closed the connection")
        except TimeoutError:
            return
        await self._sleep(SETTLE_S)

    async def _own(self, session: aiohttp.ClientSession) -> Place | None:
        """The container that Pharos runs in; `None` when Docker knows none of that id."""
        name = self._identify()
        if name is None:
            return None
        timeout = aiohttp.ClientTimeout(total=ANSWER_S)
        async with session.get(f"/containers/{quote(name, safe='')}/json", timeout=timeout) as response:
            if response.status != HTTPStatus.OK:
                return None
            return await decoded(response, Place, "Docker's description of Pharos's container", MAX_DESCRIPTION)

    async def _list(self, session: aiohttp.ClientSession, own: Place | None) -> float:
        """List everything and tell it on; returns the seconds to the next list."""
        timeout = aiohttp.ClientTimeout(total=ANSWER_S)
        async with session.get("/containers/json", params=_LISTED, timeout=timeout) as response:
            _check(response, "list its containers")
            listed = await decoded(response, list[Container], "Docker's list of containers", MAX_LIST)
        found = backends(listed, own, self._credentials())
        self._recover()
        self._say(found)
        if found.specs != self._told:
            self._told = found.specs
            self._tell(found.specs)
        return AGAIN_S if found.unaddressed else LIST_EVERY_S

    def _say(self, found: Found) -> None:
        texts = {name: f"container {name} is left out: {why}" for name, why in found.refused.items()}
        texts |= found.doubts
        self._unaddressed = self._unaddressed + 1 if found.unaddressed else 0
        if self._unaddressed >= PATIENCE:
            for name in found.unaddressed:
                texts[name] = f"container {name} has no address yet: is its network up? It is looked at every second"
        for name, text in texts.items():
            if self._said.get(name) != text:
                outcome = "refused" if name in found.refused else ""
                self._on_event(Event(STAGE, outcome, name, "warning", text))
        self._said = texts

    def _lose(self, error: FeedError) -> None:
        """Docker does not answer (any more): say so once, and go on with what it told."""
        if error.fault is not self._fault:
            self._fault = error.fault
            names = ", ".join(spec.name for spec in self._told or ())
            kept = f"; what it told stays ({names})" if names else ""
            text = f"Docker labels cannot be read: {error}{kept}. It is tried again"
            self._on_event(Event(STAGE, "lost", "", "warning" if self._is_asked or self._told else "info", text))
        if self._told is None:
            self._told = []
            self._tell([])

    def _recover(self) -> None:
        self._delay = FIRST_DELAY_S
        if self._fault is not None:
            self._fault = None
            self._on_event(Event(STAGE, "", "", "info", "Docker labels can be read again"))


def _check(response: aiohttp.ClientResponse, what: str) -> None:
    if response.status != HTTPStatus.OK:
        raise FeedError(Fault.STATUS, f"Docker answers {response.status} and does not {what}")
