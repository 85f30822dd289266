"""Child processes of a benchmark and what they cost: CPU time, memory. Ends only what it started."""

import contextlib
import os
import shlex
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

TICKS_PER_S = os.sysconf("SC_CLK_TCK")
PROC = Path("/proc")


def free_ports(count: int) -> list[int]:
    """Ports of the loopback address that are free now; all held at once, so that they differ."""
    with contextlib.ExitStack() as held:
        sockets = [held.enter_context(socket.socket()) for _ in range(count)]
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [int(each.getsockname()[1]) for each in sockets]


def _parents() -> dict[int, int]:
    parents: dict[int, int] = {}
    for entry in PROC.iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
                parents[int(entry.name)] = int(fields[1])
    return parents


def family(pid: int) -> list[int]:
    """The process and everything it has started."""
    parents = _parents()
    found = [pid]
    for member in found:  # grows while it is walked
        found.extend(child for child, parent in parents.items() if parent == member)
    return found


def _cpu_s_of(pid: int) -> float:
    """Nanosecond figures of the threads alive where the kernel keeps them, else the process's ticks (10 ms)."""
    total_ns = 0
    with contextlib.suppress(OSError):
        for task in (PROC / str(pid) / "task").iterdir():
            total_ns += int((task / "schedstat").read_text().split()[0])
    if total_ns:
        return total_ns / 1e9
    with contextlib.suppress(OSError):
        fields = (PROC / str(pid) / "stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / TICKS_PER_S
    return 0.0


def cpu_s(pids: list[int]) -> float:
    """CPU seconds that these processes have used so far, user and system."""
    return sum(_cpu_s_of(pid) for pid in pids)


def rss_mb(pid: int) -> float:
    """Resident memory of a process and everything it has started, in MB (10^6 bytes)."""
    kib = 0
    for member in family(pid):
        with contextlib.suppress(OSError):
            for line in (PROC / str(member) / "status").read_text().splitlines():
                if line.startswith("VmRSS:"):
                    kib += int(line.split()[1])
    return kib * 1024 / 1e6


def rss_mb_of(pid: int) -> float:
    """Resident memory of this process alone, in MB: fast enough to be read a hundred times a second."""
    with contextlib.suppress(OSError):
        return int((PROC / str(pid) / "statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 1e6
    return 0.0


def keep_on(pid: int, cores: set[int]) -> None:
    """Let a process, with all its threads, run on these cores only."""
    for task in (PROC / str(pid) / "task").iterdir():
        with contextlib.suppress(OSError):
            os.sched_setaffinity(int(task.name), cores)


def on_one_core(pid: int) -> set[int]:
    """Give a process one core, and return those that are for its load. With a single core both have the same."""
    cores = sorted(os.sched_getaffinity(0))
    keep_on(pid, {cores[-1]})
    return set(cores[:-1]) or set(cores)


@dataclass(frozen=True)
class Child:
    """A process started here; `log` holds what it printed."""

    name: str
    process: subprocess.Popen[bytes]
    log: Path

    @property
    def pid(self) -> int:
        """Its process id."""
        return self.process.pid

    def check(self) -> None:
        """Raise with the end of its log when it is gone."""
        if (code := self.process.poll()) is not None:
            tail = self.log.read_text(errors="replace").strip().splitlines()[-8:]
            raise RuntimeError(f"{self.name} ended with code {code}:\n  " + "\n  ".join(tail))

    def wait_open(self, port: int, *, timeout_s: float = 30.0) -> None:
        """Wait until it accepts connections on `port`."""
        until = time.monotonic() + timeout_s
        while time.monotonic() < until:
            self.check()
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
                return
            time.sleep(0.02)
        raise RuntimeError(f"{self.name} did not listen on port {port} within {timeout_s:.0f} s; see {self.log}")


@contextlib.contextmanager
def started(name: str, command: list[str], logs: Path, env: dict[str, str] | None = None) -> Iterator[Child]:
    """Run a command for the length of a `with` block: SIGTERM at its end, SIGKILL to its group 5 s later."""
    logs.mkdir(parents=True, exist_ok=True)
    log = logs / f"{name}.log"
    with log.open("wb") as out:
        out.write(f"$ {shlex.join(command)}\n".encode())
        out.flush()
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=subprocess.STDOUT,
            env={**os.environ, **(env or {})},
            start_new_session=True,
        )
    try:
        yield Child(name, process, log)
    finally:
        process.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(5)
        with contextlib.suppress(ProcessLookupError):  # its own group: whatever it has left behind as well
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
