"""Opens many paced streams through a proxy and a few straight to the engine, and prints how evenly their events came.

One JSON line: of each group how many replies were whole, and for every stream the longest gap (p99) between two of its
events against its own median. Both groups are read by this one process at the same time: what only the group behind
the proxy shows is the proxy's doing, what both show is this process's, the engine's or the machine's.
"""

import argparse
import asyncio
import json
import statistics
import sys
import time
from array import array
from dataclasses import asdict, dataclass
from typing import Final, cast

import load
import uvloop

EVENT: Final = b"data: {"
DONE: Final = b"data: [DONE]\n\n"
OK: Final = b"HTTP/1.1 200 "


@dataclass(frozen=True)
class Group:
    """How evenly the events of one group of streams came. Times in milliseconds; the worst of all streams counts."""

    streams: int
    whole: int
    """Those that were answered with 200, gave every event and ended as they should."""
    error: str
    open_at_once: int
    gap_p50_ms: float
    worst_p99_ms: float
    worst_ratio: float
    """Largest p99 of a stream divided by that stream's median."""
    typical_ratio: float
    """The same of the stream in the middle."""


class Stream(asyncio.Protocol):
    """One request and its reply, read without a parser: this process must not be what is measured."""

    def __init__(self, request: bytes, group: "Streams") -> None:
        self._request, self._group = request, group
        self.gaps = array("d")
        self.events = 0
        self.is_whole = False
        self._last = 0.0
        self._tail = b""
        self._is_first = True

    def itself(self) -> "Stream":
        """Return this stream: what the loop takes is a factory."""
        return self

    def connection_made(self, transport: asyncio.BaseTransport) -> None:  # noqa: D102
        self._transport = cast("asyncio.Transport", transport)  # uvloop's own class is no subclass of it
        self._transport.write(self._request)

    def data_received(self, data: bytes) -> None:  # noqa: D102
        now = time.perf_counter()
        if self._is_first:
            self._is_first = False
            self._group.open += 1
            self._group.most_open = max(self._group.most_open, self._group.open)
            if not data.startswith(OK):
                self._group.fail(f"answered {data[:60]!r}")
        whole = self._tail + data
        seen = whole.count(EVENT) - self._tail.count(EVENT)
        self._tail = b"" if data.endswith(b"\n") else whole[1 - len(DONE) :]
        if seen:
            self.events += seen
            if self._group.is_measuring and self._last:
                self.gaps.append(now - self._last)
                self.gaps.extend([0.0] * (seen - 1))
            self._last = now
        if DONE in whole:
            self.is_whole = self.events == self._group.events
            if not self.is_whole:
                self._group.fail(f"a reply of {self.events} events instead of {self._group.events}")
            self._transport.close()

    def connection_lost(self, _exc: Exception | None) -> None:  # noqa: D102
        self._group.open -= not self._is_first
        self._group.ended(self)


class Streams:
    """One group: `count` streams, begun one after another within `ramp_s`."""

    def __init__(self, port: int, count: int, request: bytes, events: int) -> None:
        self._port, self._count, self._request = port, count, request
        self.events = events
        self.open = self.most_open = 0
        self.is_measuring = False
        self.error = ""
        self._made: list[Stream] = []
        self._running: set[Stream] = set()
        self._all_ended = asyncio.Event()

    def fail(self, why: str) -> None:
        """Keep the words of the first error."""
        self.error = self.error or why

    def ended(self, stream: Stream) -> None:
        """A connection is closed."""
        self._running.discard(stream)
        if not self._running and len(self._made) == self._count:
            self._all_ended.set()

    async def begin(self, ramp_s: float) -> None:
        """Open them all."""
        loop = asyncio.get_running_loop()
        began = loop.time()
        for number in range(self._count):
            await asyncio.sleep(max(0.0, began + ramp_s * number / self._count - loop.time()))
            stream = Stream(self._request, self)
            self._made.append(stream)
            self._running.add(stream)
            try:
                await loop.create_connection(stream.itself, "127.0.0.1", self._port)
            except OSError as error:
                self.fail(f"cannot connect: {error.strerror}")
                self.ended(stream)

    async def end(self, timeout_s: float) -> None:
        """Wait until every reply has ended."""
        try:
            async with asyncio.timeout(timeout_s):
                await self._all_ended.wait()
        except TimeoutError:
            self.fail(f"{len(self._running)} replies did not end")

    def result(self) -> Group:
        """What was seen between the two ends of the window."""
        p99 = [_at(stream.gaps, 0.99) for stream in self._made if len(stream.gaps) > 1]
        half = [_at(stream.gaps, 0.5) for stream in self._made if len(stream.gaps) > 1]
        ratios = sorted(high / middle for high, middle in zip(p99, half, strict=True) if middle > 0)
        if not ratios:
            raise RuntimeError(self.error or "no stream gave two events")
        return Group(
            streams=self._count,
            whole=sum(stream.is_whole for stream in self._made),
            error=self.error,
            open_at_once=self.most_open,
            gap_p50_ms=round(statistics.median(half) * 1000, 2),
            worst_p99_ms=round(max(p99) * 1000, 2),
            worst_ratio=round(ratios[-1], 3),
            typical_ratio=round(statistics.median(ratios), 3),
        )


def _at(values: "array[float]", share: float) -> float:
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(len(ordered) * share))]


@dataclass(frozen=True)
class Options:
    """What to open: `streams` at the proxy's port, `direct` at the engine's, each a reply of `events`."""

    port: int
    engine: int
    streams: int
    direct: int
    kib: int
    events: int
    ramp_s: float
    settle_s: float
    seconds: float
    rest_s: float
    """Seconds after the window within which every reply must have ended."""


def request_to(port: int, options: Options) -> bytes:
    """A streamed chat whose events the engine paces slowly."""
    body = load.chat_body("slow", options.kib, options.events, "m")
    return load.request_bytes(load.Options(url=f"http://127.0.0.1:{port}/v1/chat/completions"), body)


async def measure(options: Options) -> dict[str, object]:
    """Open both groups, watch a window in which all are open, and let them end."""
    through = Streams(options.port, options.streams, request_to(options.port, options), options.events)
    direct = Streams(options.engine, options.direct, request_to(options.engine, options), options.events)
    groups = (through, direct)
    await asyncio.gather(*(group.begin(options.ramp_s) for group in groups))
    await asyncio.sleep(options.settle_s)
    for group in groups:
        group.is_measuring = True
    print("open", flush=True)
    await asyncio.sleep(options.seconds)
    for group in groups:
        group.is_measuring = False
    print("seen", flush=True)
    await asyncio.gather(*(group.end(options.rest_s) for group in groups))
    return {"through": asdict(through.result()), "direct": asdict(direct.result())}


def parse(arguments: list[str]) -> Options:
    """Options from the command line: each by its name."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ("port", "engine", "streams", "direct", "kib", "events"):
        parser.add_argument(f"--{name}", type=int, required=True)
    for name in ("ramp", "settle", "seconds", "rest"):
        parser.add_argument(f"--{name}", type=float, required=True, dest=name if name == "seconds" else f"{name}_s")
    return Options(**vars(parser.parse_args(arguments)))


if __name__ == "__main__":
    print(json.dumps(uvloop.run(measure(parse(sys.argv[1:])))))
