"""The engine processes of the demo: start, watch, start again, stop.

Forbidden here: knowing of Pharos's own parts; an engine is a process with a port.
"""

import asyncio
import os
import signal
import socket
import sys
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path

import msgspec

from pharos import clock
from pharos.demo.errors import DemoError

Say = Callable[[str], None]
"""Shows one line of progress to the person."""

_PORTS = range(18081, 18581)
"""Below the range that systems give to outgoing connections, so that a port is still free after a restart."""
_STARTS = 3
"""Tries of a first start, when another program takes the port first."""
_PROGRESS_S = 3.0
_READY_WITHIN_S = 180.0
_STOP_WITHIN_S = 5.0
_LOG_LINES = 8


class Launch(msgspec.Struct, frozen=True):
    """What every engine of a demo is started with."""

    model: Path
    """GGUF file."""
    alias: str
    """The model's name for clients."""
    logs: Path
    """Folder of the engines' own logs, one file each."""
    restart_after_s: float = 2.0
    """Seconds between the end of an engine and its next start."""


class Engine:
    """One place for an engine process: name and port stay, the process behind them may change."""

    def __init__(self, name: str, log: Path) -> None:
        self.name = name
        self.log = log
        self.port = 0
        self.process: asyncio.subprocess.Process | None = None

    @property
    def url(self) -> str:
        """Where it serves."""
        return f"http://127.0.0.1:{self.port}"

    def __repr__(self) -> str:
        running = self.process is not None and self.process.returncode is None
        return f"<Engine {self.name} {self.url} {'running' if running else 'ended'}>"


class Engines:
    """Starts `count` engines, starts a dead one again, and leaves no process behind.

    `start` once, `stop` once, also after a failed or cancelled start.
    """

    def __init__(self, launch: Launch, count: int, say: Say) -> None:
        names = [f"engine-{number}" for number in range(1, count + 1)]
        self.engines = [Engine(name, launch.logs / f"{name}.log") for name in names]
        self._launch = launch
        self._say = say
        self._ports = iter(_PORTS)
        self._watches: list[asyncio.Task[None]] = []

    async def start(self) -> list[Engine]:
        """Start all at once and return when all are ready; raises `DemoError` when one will not start."""
        starts = [asyncio.create_task(self._first_start(it), name=f"start {it.name}") for it in self.engines]
        try:
            await asyncio.gather(*starts)
        finally:
            await _cancel(starts)
        self._watches = [asyncio.create_task(self._watch(it), name=f"watch {it.name}") for it in self.engines]
        return self.engines

    async def stop(self) -> None:
        """End every engine and wait until it is gone."""
        await _cancel(self._watches)
        await asyncio.gather(*(_end(engine) for engine in self.engines))

    async def _first_start(self, engine: Engine) -> None:
        for _ in range(_STARTS):
            engine.port = next((port for port in self._ports if is_free("127.0.0.1", port)), 0)
            if engine.port == 0:
                break
            if await self._bring_up(engine):
                return
            if is_free("127.0.0.1", engine.port):
                break  # so the port was not the trouble
        raise DemoError(f"{engine.name} does not start; the end of its log ({engine.log}):\n{_tail(engine.log)}")

    async def _watch(self, engine: Engine) -> None:
        """Wait for the engine's end and start it again, for ever."""
        while engine.process is not None:
            code = await engine.process.wait()
            pause_s = self._launch.restart_after_s
            self._say(f"{engine.name} ended ({_ending(code)}): starts again in {pause_s:g} s on {engine.url}")
            await asyncio.sleep(pause_s)
            if not await self._bring_up(engine):
                self._say(f"{engine.name} does not start again yet, see {engine.log}")

    async def _bring_up(self, engine: Engine) -> bool:
        """Start the process and wait until it is ready; whether it is."""
        began = clock.monotonic()
        self._say(f"{engine.name} loads {self._launch.alias} on {engine.url}")
        engine.process = process = await self._spawn(engine)
        if not await self._is_ready(engine, process, began):
            await _end(engine)
            return False
        self._say(f"{engine.name} ready after {clock.monotonic() - began:.1f} s")
        return True

    async def _spawn(self, engine: Engine) -> asyncio.subprocess.Process:
        """Start the process. When cancelled meanwhile, it is ended first: nobody else would know of it."""
        with engine.log.open("ab") as log:
            spawning = asyncio.ensure_future(
                asyncio.create_subprocess_exec(
                    *(sys.executable, "-m", "pharos.demo.engine", "--parent", str(os.getpid())),
                    *("--model", str(self._launch.model), "--alias", self._launch.alias, "--port", str(engine.port)),
                    stdin=asyncio.subprocess.PIPE,
                    stdout=asyncio.subprocess.PIPE,
                    stderr=log,
                    start_new_session=True,  # Ctrl-C is for us: replies are finished before the engines end
                )
            )
            try:
                return await asyncio.shield(spawning)
            except asyncio.CancelledError:
                engine.process = await spawning
                await _end(engine)
                raise

    async def _is_ready(self, engine: Engine, process: asyncio.subprocess.Process, began: float) -> bool:
        """Wait for the line that says so, with a sign of life now and then; false when it ended or took too long."""
        if process.stdout is None:
            return False
        line = asyncio.create_task(process.stdout.readline(), name=f"ready {engine.name}")
        try:
            while not (await asyncio.wait({line}, timeout=_PROGRESS_S))[0]:
                elapsed_s = clock.monotonic() - began
                if elapsed_s > _READY_WITHIN_S:
                    return False
                self._say(f"{engine.name} still loads ({elapsed_s:.0f} s)")
            return line.result().startswith(b"ready ")
        finally:
            line.cancel()


def is_free(address: str, port: int) -> bool:
    """Whether a listener could be opened there now."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # as a server does: old connections do not count
        try:
            probe.bind((address, port))
        except OSError:
            return False
    return True


async def _end(engine: Engine) -> None:
    """End the engine's process if it runs; returns when it is gone."""
    process = engine.process
    if process is None or process.returncode is not None:
        return
    with suppress(ProcessLookupError):
        process.terminate()
    try:
        await asyncio.wait_for(process.wait(), _STOP_WITHIN_S)
    except TimeoutError:
        with suppress(ProcessLookupError):
            process.kill()
        await process.wait()


async def _cancel(tasks: Iterable[asyncio.Task[None]]) -> None:
    tasks = list(tasks)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


def _ending(code: int) -> str:
    """How a process ended, for people."""
    if code >= 0:
        return f"exit status {code}"
    try:
        return signal.Signals(-code).name
    except ValueError:
        return f"signal {-code}"


def _tail(log: Path) -> str:
    try:
        lines = log.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return "  (none)"
    return "\n".join(f"  {line}" for line in lines[-_LOG_LINES:])
