"""Asks a server for /livez every few milliseconds on one kept connection and prints the slow answers as one JSON line.

usage: probe.py PORT SECONDS PID     asks; PID is the server's process
       probe.py idle PORT            is a server with nothing else to do, to be asked beside the one that is measured
       probe.py core CORE SECONDS    goes before all else on that core, and prints when even so it was not let run

A round trip is an upper bound of how long the server's event loop stood still: it holds the wait behind other work and
this process's own delays. The time in which the server's main thread was ready and had no core is known from the
kernel and told beside each slow answer, where the kernel keeps it. On a virtual machine a core may also stand still as
a whole, which the kernel counts as work of whatever ran there: only a process that may interrupt all others sees that.
"""

import asyncio
import contextlib
import gc
import json
import os
import socket
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

EVERY_S: Final = 0.004
WAKE_S: Final = 0.002
LATE_S: Final = 0.001
SLOW_S: Final = 0.020
ANSWER: Final = b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 3\r\n\r\nok\n"


@dataclass(frozen=True)
class Slow:
    """One slow answer. Milliseconds; `at_s` since the beginning, `clock_s` by the clock of all processes."""

    at_s: float
    clock_s: float
    took_ms: float
    no_core_ms: float
    """For how long of that the server was ready to run and had to wait for a core."""
    still_ms: float = 0.0
    """For how long of that nothing at all ran on the server's core."""

    @property
    def stood_ms(self) -> float:
        """What is left for the server's own doing: a core that stands still may count in both of the others."""
        return self.took_ms - max(self.no_core_ms, self.still_ms)


@dataclass(frozen=True)
class Seen:
    """All answers."""

    asked: int
    p50_ms: float
    p99_ms: float
    longest_ms: float
    slow: list[Slow]


def waited_s(pid: int) -> float:
    """Seconds for which the main thread was ready to run without a core; 0 where the kernel does not tell."""
    with contextlib.suppress(OSError, IndexError, ValueError):
        return int(Path(f"/proc/{pid}/task/{pid}/schedstat").read_text().split()[1]) / 1e9
    return 0.0


def ask(port: int, seconds: float, pid: int) -> Seen:
    """Ask for so long."""
    took: list[float] = []
    slow: list[Slow] = []
    request = f"GET /livez HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\n\r\n".encode()
    with socket.create_connection(("127.0.0.1", port), timeout=30) as wire:
        wire.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        began = time.perf_counter()
        while (at := time.perf_counter()) < began + seconds:
            waited = waited_s(pid)
            sent = time.perf_counter()
            wire.sendall(request)
            reply = b""
            while not reply.endswith(b"ok\n"):
                piece = wire.recv(4096)
                if not piece:
                    raise RuntimeError("the connection was closed")
                reply += piece
            answer_s = time.perf_counter() - sent
            took.append(answer_s)
            if answer_s > SLOW_S:
                no_core_ms = (waited_s(pid) - waited) * 1000
                slow.append(Slow(round(at - began, 2), sent, round(answer_s * 1000, 1), round(no_core_ms, 1)))
            time.sleep(max(0.0, EVERY_S - answer_s))
    took.sort()
    p50, p99 = took[len(took) // 2], took[int(len(took) * 0.99)]
    return Seen(len(took), round(p50 * 1000, 3), round(p99 * 1000, 3), round(took[-1] * 1000, 2), slow)


def watch_core(core: int, seconds: float) -> list[tuple[float, float]]:
    """From when to when nothing ran on this core, by the clock of all processes. Raises PermissionError."""
    os.sched_setaffinity(0, {core})
    os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(50))
    gc.disable()
    gone = []
    due = time.perf_counter()
    until = due + seconds
    while due < until:
        due += WAKE_S
        time.sleep(max(0.0, due - time.perf_counter()))
        now = time.perf_counter()
        if now - due > LATE_S:
            gone.append((due, now))
            due = now
    return gone


class _Idle(asyncio.Protocol):
    """Answers every read."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport

    def data_received(self, _data: bytes) -> None:
        self._transport.write(ANSWER)  # type: ignore[attr-defined]  # a stream's transport


async def idle(port: int) -> None:
    """Serve for ever."""
    server = await asyncio.get_running_loop().create_server(_Idle, "127.0.0.1", port)
    await server.serve_forever()


if __name__ == "__main__":
    if sys.argv[1] == "idle":
        asyncio.run(idle(int(sys.argv[2])))
    elif sys.argv[1] == "core":
        print(json.dumps(watch_core(int(sys.argv[2]), float(sys.argv[3]))))
    else:
        print(json.dumps(asdict(ask(int(sys.argv[1]), float(sys.argv[2]), int(sys.argv[3])))))
