"""A mixed load of all that clients and people ask of a proxy, at fixed rates, and how many of each were answered well.

Requests come at their own times, not when the proxy has answered the last one: a proxy that stands still is then
asked on. Everything comes from a seeded generator, so that two runs ask alike.
"""

import argparse
import asyncio
import contextlib
import json
import random
import sys
from dataclasses import dataclass, field
from typing import Final, cast

import httptools
import load
import uvloop

CHAT: Final = "/v1/chat/completions"
SEED: Final = 20
WAIT_S: Final = 20.0
MOST_KEPT: Final = 64
VARIANTS: Final = 20  # of each kind's request, made before the first is sent: this process must not be the slow one


@dataclass(frozen=True)
class Kind:
    """One kind of request: so many a second, or, for streams that last, so many at once."""

    name: str
    path: str
    per_s: float = 0.0
    at_once: int = 0
    kib: int = 0
    mode: str = "get"
    events: tuple[int, int] = (64, 64)


KINDS: Final = (
    Kind("streams", CHAT, at_once=200, kib=2, mode="paced", events=(100, 1000)),
    Kind("32 KiB chats", CHAT, per_s=60, kib=32, mode="stream"),
    Kind("2 MB bodies", CHAT, per_s=2, kib=2000, mode="plain"),
    Kind("model lists", "/v1/models", per_s=10),
    Kind("Ollama lists", "/api/tags", per_s=5),
    Kind("metrics", "/metrics", per_s=1),
    Kind("status pages", "/status", per_s=1),
    Kind("status as JSON", "/status?format=json", per_s=1),
)


@dataclass
class Tally:
    """What became of the requests of one kind."""

    asked: int = 0
    answered: int = 0
    error: str = ""
    slowest_s: float = 0.0


@dataclass
class Mixed:
    """Asks."""

    port: int
    seconds: float
    tallies: dict[str, Tally] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._random = random.Random(SEED)  # noqa: S311 - a repeatable load
        self._kept: list[_Wire] = []
        self._running: set[asyncio.Task[None]] = set()
        self.tallies = {kind.name: Tally() for kind in KINDS}
        self._requests = {kind.name: [self._request(kind) for _ in range(VARIANTS)] for kind in KINDS}

    async def run(self) -> None:
        """Ask for so long, then wait for what is still running."""
        loop = asyncio.get_running_loop()
        until = loop.time() + self.seconds
        drivers = [self._rate(kind, until) if kind.per_s else self._crowd(kind, until) for kind in KINDS]
        await asyncio.gather(*drivers)
        if self._running:
            await asyncio.wait(self._running, timeout=WAIT_S + 5)
        for wire in self._kept:
            wire.close()

    async def _rate(self, kind: Kind, until: float) -> None:
        loop = asyncio.get_running_loop()
        at = loop.time() + self._random.random() / kind.per_s
        while at < until:
            await asyncio.sleep(max(0.0, at - loop.time()))
            self._start(kind)
            at += self._random.expovariate(kind.per_s)

    async def _crowd(self, kind: Kind, until: float) -> None:
        """So many at once; each that ends is followed by another one."""
        loop = asyncio.get_running_loop()

        async def one(delay_s: float) -> None:
            await asyncio.sleep(delay_s)
            while loop.time() < until:
                await self._ask(kind, WAIT_S + kind.events[1] * 0.02)

        await asyncio.gather(*(one(self._random.uniform(0, 2.0)) for _ in range(kind.at_once)))

    def _start(self, kind: Kind) -> None:
        task = asyncio.create_task(self._ask(kind, WAIT_S))
        self._running.add(task)
        task.add_done_callback(self._running.discard)

    async def _ask(self, kind: Kind, limit_s: float) -> None:
        tally = self.tallies[kind.name]
        tally.asked += 1
        loop = asyncio.get_running_loop()
        began = loop.time()
        wire = None
        try:
            async with asyncio.timeout(limit_s):
                wire = self._kept.pop() if self._kept else await _dial(self.port)
                status = await wire.ask(self._random.choice(self._requests[kind.name]))
        except (OSError, TimeoutError) as error:
            tally.error = tally.error or f"{type(error).__name__} {error}".strip()
            if wire is not None:
                wire.close()
            return
        tally.slowest_s = max(tally.slowest_s, loop.time() - began)
        if status == 200:
            tally.answered += 1
        else:
            tally.error = tally.error or f"status {status}"
        if wire.is_kept and len(self._kept) < MOST_KEPT:
            self._kept.append(wire)
        else:
            wire.close()

    def _request(self, kind: Kind) -> bytes:
        if kind.mode == "get":
            head = f"GET {kind.path} HTTP/1.1\r\nHost: 127.0.0.1:{self.port}\r\nAuthorization: Bearer sk-bench\r\n\r\n"
            return head.encode()
        options = load.Options(url=f"http://127.0.0.1:{self.port}{kind.path}")
        body = load.chat_body(kind.mode, kind.kib, self._random.randint(*kind.events), "m")
        return load.request_bytes(options, body)


class _Wire(asyncio.Protocol):
    """One connection, one request at a time."""

    def __init__(self) -> None:
        self.is_kept = False
        self._ended: asyncio.Future[int] | None = None
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)  # uvloop's own class is no subclass of it

    async def ask(self, request: bytes) -> int:
        """Send it and wait for the end of the reply: its status. Raises OSError when the connection ends first."""
        if self._transport is None or self._transport.is_closing():
            raise ConnectionResetError("the connection is closed")
        self.is_kept = False
        self._ended = asyncio.get_running_loop().create_future()
        self._parser = httptools.HttpResponseParser(self)
        self._transport.write(request)
        return await self._ended

    def data_received(self, data: bytes) -> None:
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError as error:
            self._fail(ConnectionError(f"no HTTP: {error}"))

    def on_message_complete(self) -> None:
        self.is_kept = self._parser.should_keep_alive()
        if self._ended is not None and not self._ended.done():
            self._ended.set_result(self._parser.get_status_code())

    def connection_lost(self, exc: Exception | None) -> None:
        self.is_kept = False
        self._fail(ConnectionResetError(f"the connection ended early: {exc}"))

    def _fail(self, error: OSError) -> None:
        if self._ended is not None and not self._ended.done():
            self._ended.set_exception(error)

    def close(self) -> None:
        """Part."""
        if self._transport is not None:
            self._transport.close()


async def _dial(port: int) -> _Wire:
    _, wire = await asyncio.get_running_loop().create_connection(_Wire, "127.0.0.1", port)
    return wire


async def measure(port: int, seconds: float) -> dict[str, object]:
    """Run the load; the tally of each kind."""
    mixed = Mixed(port, seconds)
    await mixed.run()
    return {name: vars(tally) for name, tally in mixed.tallies.items()}


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("port", type=int)
    parser.add_argument("--seconds", type=float, default=60.0)
    chosen = parser.parse_args()
    with contextlib.suppress(KeyboardInterrupt):
        print(json.dumps(uvloop.run(measure(chosen.port, chosen.seconds))))
    sys.exit(0)
