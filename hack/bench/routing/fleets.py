"""The fleets that routers are compared on: engines, the clients' measure, and how both are started.

Forbidden here: knowing of routers.
"""

import contextlib
import json
import os
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import msgspec

from hack.bench import processes
from pharos.demo import model as demo_model
from pharos.sim.spec import assumed
from tests.fakes.engine import Costs

CHAT, WRITER = "qwen2.5:7b", "gemma2:9b"
FAST: Final = Costs(
    prefill_s_per_token=assumed("sim_prefill_s_per_token"),
    decode_s_per_token=assumed("sim_decode_s_per_token"),
    load_s=assumed("sim_load_s"),
    base_s=assumed("base_s"),
    slowdown=assumed("sim_slowdown"),
)
SLOW: Final = msgspec.structs.replace(
    FAST,
    prefill_s_per_token=assumed("sim_slow_prefill_s_per_token"),
    decode_s_per_token=assumed("sim_slow_decode_s_per_token"),
)
SLOTS: Final = int(assumed("sim_slots"))


class EngineSpec(msgspec.Struct, frozen=True):
    """One engine of a fleet of fakes: a llama.cpp, with one model or as a router of several."""

    name: str
    models: tuple[str, ...]
    costs: Costs
    loaded: tuple[str, ...] = ()
    """Of a router: those in memory at the start."""
    most_loaded: int | None = None
    """Of a router: models in memory at a time; `None`: this is a server of one model."""


class Scale(msgspec.Struct, frozen=True):
    """The clients of a fleet, as parts of what the simulator's are."""

    users: int
    duration_s: float
    pause: float
    length: float
    reply: float
    drain_s: float = 15.0


class FleetSpec(msgspec.Struct, frozen=True):
    """Engines and clients. Without `engines` it is the fleet of real ones."""

    name: str
    what: str
    models: tuple[str, ...]
    scale: Scale
    quick: Scale
    side_by_side: bool
    """Whether several seeds may run at a time: not where engines need the machine themselves."""
    engines: tuple[EngineSpec, ...] = ()


FLEETS: Final = {
    fleet.name: fleet
    for fleet in (
        FleetSpec(
            "fakes",
            "two fast engines and a slow one with one model, a cold one that can load two, one that holds one of two "
            "at a time; engine doubles that take their time",
            (CHAT, WRITER),
            Scale(users=16, duration_s=50, pause=0.4, length=1.0, reply=1.0, drain_s=20),
            Scale(users=12, duration_s=8, pause=0.15, length=0.5, reply=0.3, drain_s=8),
            side_by_side=True,
            engines=(
                EngineSpec("fast-1", (CHAT,), FAST),
                EngineSpec("fast-2", (CHAT,), FAST),
                EngineSpec("slow", (CHAT,), SLOW),
                EngineSpec("cold", (CHAT, WRITER), FAST, most_loaded=2),
                EngineSpec("single", (CHAT, WRITER), FAST, loaded=(WRITER,), most_loaded=1),
            ),
        ),
        FleetSpec(
            "real",
            "three llama.cpp servers on this machine's processors, with SmolLM2 135M",
            (demo_model.SMOLLM2_NAME,),
            Scale(users=5, duration_s=30, pause=0.2, length=0.1, reply=0.15, drain_s=10),
            Scale(users=6, duration_s=6, pause=0.08, length=0.08, reply=0.1, drain_s=5),
            side_by_side=False,
        ),
    )
}
REAL_ENGINES: Final = 3
READY_S: Final = 90.0
PROCESSED, CACHED = "llamacpp:prompt_tokens_total", "llamacpp:prompt_tokens_cached_total"
"""llama.cpp b11434 and b11549: the first counts what was not cached."""


class Engine(msgspec.Struct, frozen=True):
    """One engine that runs."""

    name: str
    port: int
    models: tuple[str, ...]


class Counted(msgspec.Struct, frozen=True):
    """What the engines of a fleet counted. Real ones without loads have 0 of them."""

    loads: int = 0
    prompted: int = 0
    """Prompt tokens; 0: they do not tell."""
    found: int = 0
    """Of those, cached ones."""
    by_engine: dict[str, int] = {}
    """Engine to the requests that it served."""


def metrics_of(port: int) -> dict[str, float]:
    """What a llama.cpp server counted since its start. Raises `OSError`."""
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=30) as reply:
        lines = reply.read().decode().splitlines()
    pairs = (line.split() for line in lines if line.startswith("llamacpp:"))
    return {name: float(value) for name, value in pairs}


class Fleet(msgspec.Struct, frozen=True):
    """A fleet that runs."""

    engines: tuple[Engine, ...]
    control: int | None = None
    """Port that tells what fakes counted."""

    def counted(self) -> Counted:
        """What the engines counted so far."""
        if self.control is None:
            pages = [metrics_of(engine.port) for engine in self.engines]
            found = sum(page.get(CACHED, 0.0) for page in pages)
            prompted = sum(page.get(PROCESSED, 0.0) for page in pages) + found
            return Counted(prompted=round(prompted), found=round(found))
        with urllib.request.urlopen(f"http://127.0.0.1:{self.control}/counted", timeout=10) as reply:
            return msgspec.json.decode(reply.read(), type=Counted)


@contextlib.contextmanager
def started(spec: FleetSpec, logs: Path) -> Iterator[Fleet]:
    """Start the engines, with empty caches. Raises `RuntimeError` when one does not start."""
    with _fakes(spec, logs) if spec.engines else _real(spec, logs) as fleet:
        yield fleet


@contextlib.contextmanager
def _fakes(spec: FleetSpec, logs: Path) -> Iterator[Fleet]:
    control, *ports = processes.free_ports(len(spec.engines) + 1)
    given = json.dumps([control, *ports])
    command = [sys.executable, "-m", "hack.bench.routing.fakes", spec.name, given]
    with processes.started("fakes", command, logs) as child:
        child.wait_open(control)
        engines = (Engine(one.name, port, one.models) for one, port in zip(spec.engines, ports, strict=True))
        yield Fleet(tuple(engines), control)


@contextlib.contextmanager
def _real(spec: FleetSpec, logs: Path) -> Iterator[Fleet]:
    logs.mkdir(parents=True, exist_ok=True)
    [name] = spec.models
    path = demo_model.smollm2_path()
    with contextlib.ExitStack() as held:
        started_ = []
        for number, port in enumerate(processes.free_ports(REAL_ENGINES), 1):
            log = logs / f"engine-{number}.log"
            started_.append((f"engine-{number}", port, held.enter_context(llamacpp(path, name, port, log)), log))
        for one in started_:
            wait_ready(*one)
        yield Fleet(tuple(Engine(engine, port, (name,)) for engine, port, _, _ in started_))


@contextlib.contextmanager
def llamacpp(path: Path, alias: str, port: int, log: Path) -> Iterator[subprocess.Popen[bytes]]:
    """One real server, as the demo has them; it ends with this process. It may not be ready yet."""
    arguments = ["--model", str(path), "--alias", alias, "--port", str(port), "--parent", str(os.getpid())]
    with log.open("wb") as out:
        process = subprocess.Popen(
            [sys.executable, "-m", "pharos.demo.engine", *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=out,
        )
    try:
        yield process
    finally:
        process.kill()
        process.wait()
        if process.stdin is not None:
            process.stdin.close()


def wait_ready(name: str, port: int, process: subprocess.Popen[bytes], log: Path) -> None:
    """Wait until a real server's model is loaded; before, it answers 503. Raises `RuntimeError`."""
    until = time.monotonic() + READY_S
    while time.monotonic() < until and process.poll() is None:
        with contextlib.suppress(OSError), urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=5):
            return
        time.sleep(0.05)
    raise RuntimeError(f"{name} does not start; see {log}")
