"""Loads a proxy over the loopback and prints, as one JSON line, what that cost it: CPU time per request and per event.

CPU time is the figure to compare: it does not depend on how many cores the load itself took. The clients run all the
time; counters and the CPU clock are read at both ends of a window inside it, so no start or end is in the figures.
"""

import argparse
import asyncio
import json
import sys
import time
from dataclasses import asdict, dataclass, field
from typing import Final, cast
from urllib.parse import urlsplit

import httptools
import processes
import uvloop

MODES: Final = ("plain", "stream", "paced")
EVENT_END: Final = b"\n\n"
DONE: Final = b"data: [DONE]\n\n"
SENTENCES: Final = "The quick brown fox jumps over the lazy dog. " * 30
STAGGER_S: Final = 0.02  # clients start spread over one pace of the engine: every event wakes the proxy by itself


@dataclass(frozen=True)
class Options:
    """What to send: `kib` is the size of the request's body (0: 200 bytes), `events` the length of a streamed reply."""

    url: str
    mode: str = "plain"
    concurrency: int = 16
    seconds: float = 4.0
    warmup_s: float = 1.0
    kib: int = 0
    events: int = 64
    keep_alive: bool = True
    key: str = "sk-bench"
    model: str = "m"
    pid: int = 0


@dataclass(frozen=True)
class Result:
    """What one window saw. Times in milliseconds, CPU in microseconds; None where nothing was measured."""

    mode: str
    kib: float
    concurrency: int
    seconds: float
    requests: int
    events: int
    errors: int
    error: str
    requests_per_s: float
    ttft_p50_ms: float | None
    ttft_p99_ms: float | None
    cpu_us_per_request: float | None
    cpu_us_per_event: float | None
    rss_mb: float | None


def chat_body(mode: str, kib: int, events: int, model: str) -> bytes:
    """Body of a chat whose messages take turns until it is as large as asked for."""
    messages = [{"role": "system", "content": "You are helpful."}]
    size = 200
    while size + len(SENTENCES) < kib * 1024:
        messages.append({"role": "user" if len(messages) % 2 else "assistant", "content": SENTENCES})
        size += len(SENTENCES) + 40
    messages.append({"role": "user", "content": "hi"})
    return json.dumps(
        {"model": model, "messages": messages, "stream": mode != "plain", "max_tokens": events, "user": mode}
    ).encode()


def request_bytes(options: Options, body: bytes) -> bytes:
    """The whole request, head and body."""
    url = urlsplit(options.url)
    head = [
        f"POST {url.path or '/v1/chat/completions'} HTTP/1.1",
        f"Host: {url.netloc}",
        f"Authorization: Bearer {options.key}",
        "Content-Type: application/json",
        f"Content-Length: {len(body)}",
        f"Connection: {'keep-alive' if options.keep_alive else 'close'}",
    ]
    return "\r\n".join(head).encode() + b"\r\n\r\n" + body


@dataclass
class Tally:
    """What all clients have counted so far."""

    requests: int = 0
    events: int = 0
    errors: int = 0
    error: str = ""
    ttft_s: list[float] = field(default_factory=list)

    def fail(self, why: str) -> None:
        """Count an error and keep the first one's words."""
        self.errors += 1
        self.error = self.error or why


class Client(asyncio.Protocol):
    """Sends one request after another on one connection and checks that every reply is whole."""

    def __init__(self, options: Options, request: bytes, tally: Tally, closed: asyncio.Event) -> None:
        self._options, self._request, self._tally, self._closed = options, request, tally, closed
        self._streamed = options.mode != "plain"
        self.stopping = False
        self._parts: list[bytes] = []
        self.on_body = self._parts.append  # the parser calls it without a step through Python
        self._parser = httptools.HttpResponseParser(self)

    def itself(self) -> "Client":
        """Return this client: what the loop takes is a factory."""
        return self

    def connection_made(self, transport: asyncio.BaseTransport) -> None:  # noqa: D102
        self._transport = cast("asyncio.Transport", transport)  # uvloop's own class is no subclass of it
        self._send()

    def _send(self) -> None:
        self._whole = self._kept = False
        self._tail = b""
        self._seen = 0
        self._sent_at = time.perf_counter()
        self._first = True
        self._transport.write(self._request)

    def data_received(self, data: bytes) -> None:  # noqa: D102
        now = time.perf_counter()
        self._parser.feed_data(data)
        if self._parts:
            body = self._tail + b"".join(self._parts)
            self._parts.clear()
            if self._first:
                self._first = False
                self._tally.ttft_s.append(now - self._sent_at)
            if self._streamed:
                self._count(body)
        if self._whole:
            self._ended()

    def _count(self, body: bytes) -> None:
        """Count events by their ends, and keep what follows the last one: proxies split them where they like."""
        end = body.rfind(EVENT_END) + len(EVENT_END)
        if end < len(EVENT_END):
            self._tail = body
            return
        seen = body.count(EVENT_END)
        self._seen += seen
        self._tally.events += seen
        self._tail = body[end:]
        self._last = body[max(0, end - len(DONE)) : end]

    def on_message_complete(self) -> None:  # noqa: D102
        self._whole = True
        self._kept = self._parser.should_keep_alive()  # a parser tells only now: it begins anew right after this

    def _ended(self) -> None:
        status = self._parser.get_status_code()
        if status != 200:
            self._tally.fail(f"status {status}")
        elif self._streamed and (self._seen != self._options.events + 1 or self._last != DONE):
            self._tally.fail(f"a reply of {self._seen} events instead of {self._options.events + 1}")
        self._tally.requests += 1
        if self.stopping or not self._options.keep_alive or not self._kept:
            self._transport.close()
        else:
            self._send()

    def connection_lost(self, _exc: Exception | None) -> None:  # noqa: D102
        if not self._whole and not self.stopping:
            self._tally.fail("the connection closed before the reply ended")
        self._closed.set()


class Clients:
    """Keeps `concurrency` clients going until told to stop."""

    def __init__(self, options: Options) -> None:
        self._options = options
        self.body = chat_body(options.mode, options.kib, options.events, options.model)
        self._request = request_bytes(options, self.body)
        url = urlsplit(options.url)
        self._host, self._port = url.hostname or "127.0.0.1", url.port or 80
        self.tally = Tally()
        self._stopping = False
        self._open: set[Client] = set()

    async def run_one(self, delay_s: float) -> None:
        """Dial again whenever the connection is closed."""
        await asyncio.sleep(delay_s)
        loop = asyncio.get_running_loop()
        while not self._stopping:
            closed = asyncio.Event()
            client = Client(self._options, self._request, self.tally, closed)
            try:
                await loop.create_connection(client.itself, self._host, self._port)
            except OSError as error:
                self.tally.fail(f"cannot connect: {error.strerror}")
                await asyncio.sleep(0.1)
                continue
            self._open.add(client)
            await closed.wait()
            self._open.discard(client)

    def stop(self) -> None:
        """Let each client end its reply; the loop's end closes the rest."""
        self._stopping = True
        for client in self._open:
            client.stopping = True


def percentile_ms(values_s: list[float], share: float) -> float | None:
    """The value below which `share` of the sample lies, in milliseconds."""
    if not values_s:
        return None
    return round(sorted(values_s)[min(len(values_s) - 1, int(len(values_s) * share))] * 1000, 4)


async def measure(options: Options) -> Result:
    """Run the clients, and read the counters at both ends of the window."""
    clients = Clients(options)
    tally = clients.tally
    spread = STAGGER_S / options.concurrency
    running = [asyncio.create_task(clients.run_one(number * spread)) for number in range(options.concurrency)]
    await asyncio.sleep(options.warmup_s)
    members = processes.family(options.pid) if options.pid else []
    tally.ttft_s.clear()
    requests, events, began, cpu = tally.requests, tally.events, time.perf_counter(), processes.cpu_s(members)
    await asyncio.sleep(options.seconds)
    cpu = processes.cpu_s(members) - cpu
    seconds, requests, events = time.perf_counter() - began, tally.requests - requests, tally.events - events
    ttft_s = list(tally.ttft_s)
    clients.stop()
    await asyncio.wait(running, timeout=2.0)
    for task in running:
        task.cancel()

    def share(count: int) -> float | None:
        return round(cpu / count * 1e6, 3) if options.pid and count else None

    return Result(
        mode=options.mode,
        kib=round(len(clients.body) / 1024, 1),
        concurrency=options.concurrency,
        seconds=round(seconds, 2),
        requests=requests,
        events=events,
        errors=tally.errors,
        error=tally.error,
        requests_per_s=round(requests / seconds, 1),
        ttft_p50_ms=percentile_ms(ttft_s, 0.5),
        ttft_p99_ms=percentile_ms(ttft_s, 0.99),
        cpu_us_per_request=share(requests),
        cpu_us_per_event=share(events),
        rss_mb=round(processes.rss_mb(options.pid), 1) if options.pid else None,
    )


def parse(arguments: list[str]) -> Options:
    """Options from the command line."""
    default = Options(url="")
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("url", help="address of the chat endpoint")
    parser.add_argument("--mode", choices=MODES, default=default.mode)
    parser.add_argument("--concurrency", type=int, default=default.concurrency)
    parser.add_argument("--seconds", type=float, default=default.seconds, help="length of the window")
    parser.add_argument("--warmup", dest="warmup_s", type=float, default=default.warmup_s, help="seconds before it")
    parser.add_argument("--kib", type=int, default=default.kib, help="size of the request's body")
    parser.add_argument("--events", type=int, default=default.events, help="events of a streamed reply")
    parser.add_argument("--no-keep-alive", dest="keep_alive", action="store_false", help="a connection per request")
    parser.add_argument("--key", default=default.key)
    parser.add_argument("--model", default=default.model)
    parser.add_argument(
        "--pid", type=int, default=default.pid, help="the proxy's process: it and its children are counted"
    )
    return Options(**vars(parser.parse_args(arguments)))


if __name__ == "__main__":
    print(json.dumps(asdict(uvloop.run(measure(parse(sys.argv[1:]))))))
