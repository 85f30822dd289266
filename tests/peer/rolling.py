"""Three real processes behind a round-robin that looks at their health, with clients that never stop asking.

Used by the tests here and by hack/roll.py. Everything is on 127.0.0.1; only processes started here are ended.
"""

import asyncio
import contextlib
import hashlib
import json
import os
import random
import signal
import sys
import time
from asyncio.subprocess import DEVNULL, Process
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import aiohttp
import msgspec

from pharos.peer import wire
from tests.fakes.llamacpp import RECORDED_MODEL, FakeLlamaCpp
from tests.fakes.ports import port_of, reserve

WAIT_S = 60.0
"""Longest wait for anything; reached only when something is wrong."""
SECRET = "a secret that instances share"
CLIENT, ADMIN = "pk-client", "pk-admin"
TICK_S = 0.2
PAUSE_S = 0.02
"""Between two requests of a client."""


class Served(msgspec.Struct, frozen=True):
    """One request that got its whole reply."""

    by: int
    """Which place of the instances served it."""
    at: float
    """When the end of its reply came."""


class Place:
    """One instance and its successors at the same addresses."""

    def __init__(
        self, folder: Path, number: int, ports: Sequence[int], peers: Sequence[str], engines: Sequence[str]
    ) -> None:
        self.number = number
        self.port = ports[number]
        self.url = f"http://127.0.0.1:{self.port}"
        self.state = folder / f"state-{number}"
        self.log = folder / f"log-{number}"
        self._config = folder / f"pharos-{number}.yaml"
        self.process: Process | None = None
        secret = folder / "secret"
        secret.write_text(SECRET)
        self._config.write_text(
            json.dumps(
                {
                    "listen": f"127.0.0.1:{self.port}",
                    "admin_listen": "127.0.0.1:0",
                    "backends": [{"url": url, "name": f"e{at}"} for at, url in enumerate(engines)],
                    "keys": [
                        {"name": "client", "sha256": hashlib.sha256(CLIENT.encode()).hexdigest()},
                        {"name": "admin", "sha256": hashlib.sha256(ADMIN.encode()).hexdigest(), "admin": True},
                    ],
                    "usage": {"timezone": "UTC"},
                    "drain": {"grace": "500ms", "timeout": "60s"},
                    "peers": {"listen": peers[number], "secret_file": str(secret), "members": list(peers)},
                    "state_file": str(self.state),
                }
            )
        )

    async def start(self) -> None:
        """Start a process, and wait until it is ready."""
        with self.log.open("ab") as log:
            self.process = await asyncio.create_subprocess_exec(
                sys.executable, "-m", "pharos", "serve", "--config", str(self._config),
                stderr=log, stdout=DEVNULL, env={**os.environ, "PHAROS_LOG__LEVEL": "info"},
            )  # fmt: skip

    async def ready(self, http: aiohttp.ClientSession) -> None:
        """Wait until it lets requests in."""
        async with asyncio.timeout(WAIT_S):
            while not await is_healthy(http, self.url):
                assert self.process is not None
                assert self.process.returncode is None, self.log.read_text()[-2000:]
                await asyncio.sleep(0.02)  # another process is waited for

    async def end(self) -> int:
        """End it in good order; its exit status."""
        assert self.process is not None
        self.process.send_signal(signal.SIGTERM)
        async with asyncio.timeout(WAIT_S):
            return await self.process.wait()

    async def kill(self) -> float:
        """End it at once; when that was."""
        assert self.process is not None
        at = time.monotonic()
        with contextlib.suppress(ProcessLookupError):
            self.process.kill()
        await self.process.wait()
        return at

    def is_state_whole(self) -> bool:
        """Whether its state file is whole, or was never written."""
        if not self.state.exists():
            return True
        blocks = wire.Blocks()
        for _ in blocks.feed(self.state.read_bytes()):
            continue
        return blocks.is_whole


async def is_healthy(http: aiohttp.ClientSession, url: str) -> bool:
    try:
        async with http.get(url + "/healthz", timeout=aiohttp.ClientTimeout(total=5)) as response:
            return response.status == 200
    except (aiohttp.ClientError, TimeoutError):
        return False


class Crowd:
    """Clients that ask one request after the other through whichever instance is in turn and healthy."""

    def __init__(self, places: Sequence[Place], http: aiohttp.ClientSession) -> None:
        self._places = places
        self._http = http
        self._turn = 0
        self.served: list[Served] = []
        self.cut: list[int] = []
        """Places of replies that broke off."""
        self.refused = 0
        self.asked = 0
        self.is_over = False

    async def run(self, clients: int) -> None:
        """Ask until told to stop."""
        await asyncio.gather(*(self._client() for _ in range(clients)))

    async def _client(self) -> None:
        while not self.is_over:
            place = self._next()
            if not await is_healthy(self._http, place.url):
                await asyncio.sleep(0.005)  # the next one may be
                continue
            await self._ask(place)
            await asyncio.sleep(PAUSE_S)  # several programs share this machine

    def _next(self) -> Place:
        self._turn += 1
        return self._places[self._turn % len(self._places)]

    async def _ask(self, place: Place) -> None:
        text = f"{random.randrange(20)} " + "word " * 100
        body = {"model": RECORDED_MODEL, "stream": True, "messages": [{"role": "user", "content": text}]}
        headers = {"Authorization": f"Bearer {CLIENT}"}
        is_begun = False
        try:
            async with self._http.post(place.url + "/v1/chat/completions", json=body, headers=headers) as response:
                is_begun = response.status == 200
                self.asked += is_begun
                data = await response.read()
        except aiohttp.ClientError:
            if is_begun:
                self.cut.append(place.number)
            return
        if response.status != 200:
            self.refused += 1
        elif data.rstrip().endswith(b"data: [DONE]") and b'"error"' not in data:
            self.served.append(Served(place.number, time.monotonic()))
        else:
            self.cut.append(place.number)


class Stand:
    """The instances, and what is known of them."""

    def __init__(self, places: list[Place], http: aiohttp.ClientSession) -> None:
        self.places = places
        self.http = http
        self.crowd = Crowd(places, http)

    async def usage(self, place: Place) -> int:
        """Requests of all time of the clients' key, as an instance knows."""
        headers = {"Authorization": f"Bearer {ADMIN}"}
        async with self.http.get(place.url + "/usage?by=key&format=json", headers=headers) as response:
            told: Any = await response.json()
        rows = told["rows"] if isinstance(told, dict) else told
        return sum(row["requests"] for row in rows if row["key"] == "client")

    async def agreed(self, least: int) -> list[int]:
        """What each knows, once all know the same and no less than so much, or after a while whatever they know."""
        known: list[int] = []
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(15):
                while not known or len(set(known)) > 1 or known[0] < least:
                    await asyncio.sleep(0.1)  # deltas and snapshots are on their way
                    known = [await self.usage(place) for place in self.places]
        return known


@contextlib.asynccontextmanager
async def standing(folder: Path, count: int = 3) -> AsyncIterator[Stand]:
    """So many instances before two engines, all of them ready."""
    async with FakeLlamaCpp(slots=8) as e0, FakeLlamaCpp(slots=8) as e1, aiohttp.ClientSession() as http:
        kept = [reserve() for _ in range(2 * count)]
        ports = [port_of(one) for one in kept[:count]]
        peers = [f"127.0.0.1:{port_of(one)}" for one in kept[count:]]
        places = [Place(folder, number, ports, peers, [e0.url, e1.url]) for number in range(count)]
        try:
            for place in places:
                await place.start()
            for place in places:
                await place.ready(http)
            yield Stand(places, http)
        finally:
            for place in places:
                if place.process is not None:
                    await place.kill()
                    place.process._transport.close()  # type: ignore[attr-defined]  # its pipes would be closed late
            for one in kept:
                one.close()


async def roll(stand: Stand, clients: int = 4, pause_s: float = 0.5) -> list[int]:
    """Restart each instance in turn under traffic; the exit statuses."""
    crowd = asyncio.create_task(stand.crowd.run(clients))
    statuses = []
    try:
        for place in stand.places:
            await asyncio.sleep(pause_s)  # traffic goes on as it was
            statuses.append(await place.end())
            await place.start()
            await place.ready(stand.http)
        await asyncio.sleep(pause_s)
    finally:
        stand.crowd.is_over = True
        await crowd
    return statuses


class Killed(msgspec.Struct, frozen=True):
    """One process that was killed at a random moment."""

    place: int
    at: float
    is_state_whole: bool


async def kill(stand: Stand, times: int, seed: int, clients: int = 4) -> list[Killed]:
    """Kill one instance after the other at random moments under traffic, and start it again each time."""
    chance = random.Random(seed)
    crowd = asyncio.create_task(stand.crowd.run(clients))
    killed = []
    try:
        for _ in range(times):
            await asyncio.sleep(chance.uniform(0.2, 1.5))  # the moment is what matters
            place = chance.choice(stand.places)
            at = await place.kill()
            killed.append(Killed(place.number, at, place.is_state_whole()))
            await place.start()
            await place.ready(stand.http)
    finally:
        stand.crowd.is_over = True
        await crowd
    return killed


def may_be_lost(served: Sequence[Served], killed: Sequence[Killed], window_s: float) -> int:
    """Requests that had ended at a killed instance so shortly before that no peer need have heard of them."""
    return sum(
        any(one.by == death.place and death.at - window_s <= one.at <= death.at + 1.0 for death in killed)
        for one in served
    )
