"""The engines of a scenario, and Pharos in front of them or nobody: started, killed, read, ended.

Forbidden here: knowing what is asked.
"""

import asyncio
import contextlib
import hashlib
import json
import re
import shutil
import signal
import sys
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from hack.bench import processes
from hack.bench.routing import fleets
from hack.bench.routing.routers import ROOT, get, wait_for
from hack.scenario.people import Way
from hack.scenario.presets import SLOTS, Preset
from pharos.demo import model as demo_model
from pharos.demo.children import Engine, Engines, Launch

DIRECT, TURNS = "direct", "round-robin"
BASELINES: Final = (DIRECT, TURNS)
CONTEXT: Final = 4096
"""Tokens of each slot in router mode; the demo's engines have as many."""
SPAWNED: Final = re.compile(rb"spawning server instance with name=")
"""What llama-server b11434 says in router mode when it loads a model."""
QUIET_S: Final = 60.0
BUSY_TRIES: Final = 500


class StandError(RuntimeError):
    """The engines or Pharos cannot be started; the message says why, for people."""


class Stand:
    """Engines that run. `lives`: what each process of an engine had counted when it was killed."""

    def __init__(self, urls: Mapping[str, str], models: Sequence[str]) -> None:
        self.urls = dict(urls)
        """Name to address."""
        self.models = tuple(models)
        self.lives: dict[str, list[dict[str, float]]] = {name: [] for name in self.urls}
        self.killed = 0

    async def kill(self, number: int | None) -> None:
        """End an engine as a crash would (`None`: one that is at work); it starts again by itself."""
        del number
        raise StandError("these engines are not started again when they end")

    def counted(self) -> dict[str, list[dict[str, float]]] | None:
        """What each process of each engine counted; `None`: these engines do not keep that."""
        now = {name: fleets.metrics_of(int(url.rpartition(":")[2])) for name, url in self.urls.items()}
        return {name: [*self.lives[name], page] for name, page in now.items()}

    def loads(self) -> int | None:
        """Models brought into memory by requests; `None`: each engine has its only one from the start."""
        return None


class Single(Stand):
    """Servers of one model each, as in the demo."""

    def __init__(self, engines: Sequence[Engine], model: str) -> None:
        super().__init__({one.name: one.url for one in engines}, [model])
        self._engines = list(engines)

    async def kill(self, number: int | None) -> None:
        """See `Stand.kill`. What it had counted is read before."""
        engine = self._engines[number] if number is not None else await self._busy()
        self.lives[engine.name].append(await asyncio.to_thread(fleets.metrics_of, engine.port))
        if engine.process is not None:
            engine.process.send_signal(signal.SIGKILL)
            self.killed += 1

    async def _busy(self) -> Engine:
        """The first engine that is seen at work; after a while any."""
        for _ in range(BUSY_TRIES):
            for engine in self._engines:
                page = await asyncio.to_thread(fleets.metrics_of, engine.port)
                if page.get("llamacpp:requests_processing", 0.0) > 0:
                    return engine
        return self._engines[0]


class Routers(Stand):
    """Servers in router mode."""

    def __init__(self, urls: Mapping[str, str], models: Sequence[str], logs: Sequence[Path]) -> None:
        super().__init__(urls, models)
        self._logs = logs

    def counted(self) -> dict[str, list[dict[str, float]]] | None:
        """See `Stand.counted`: a model that is unloaded takes its counters with it."""
        return None

    def loads(self) -> int | None:
        """See `Stand.loads`, by the servers' logs."""
        return sum(len(SPAWNED.findall(log.read_bytes())) for log in self._logs)


@contextlib.asynccontextmanager
async def engines(preset: Preset, folder: Path, *, tiny: bool, say: Callable[[str], None]) -> AsyncIterator[Stand]:
    """Start the engines of a preset, with nothing in their caches. Raises `StandError` or `DemoError`."""
    demo_model.require_engine()
    if preset.kind == "router":
        with _routers(preset, folder, tiny=tiny) as stand:
            yield stand
        return
    path, alias = _model(folder, tiny=tiny)
    started = Engines(Launch(model=path, alias=alias, logs=folder), preset.engines, say)
    try:
        running = await started.start()
        for one in running:
            await _healthy(one.url)
        yield Single(running, alias)
    finally:
        await started.stop()


def _model(folder: Path, *, tiny: bool) -> tuple[Path, str]:
    if not tiny:
        return demo_model.smollm2_path(), demo_model.SMOLLM2_NAME
    path = folder / "tiny.gguf"
    demo_model.write_tiny(path, ends=True)
    return path, demo_model.TINY_NAME


@contextlib.contextmanager
def _routers(preset: Preset, folder: Path, *, tiny: bool) -> Any:  # noqa: ANN401 - an iterator over `Routers`
    program = compiled()
    if program is None:
        raise StandError(f"{preset.name} takes a compiled llama-server (hack/setup-engines llama-server)")
    models = [f"model-{number}" for number in range(1, preset.models + 1)]
    source, _ = _model(folder, tiny=tiny)
    shelf = folder / "models"
    shelf.mkdir(exist_ok=True)
    for name in models:
        (shelf / f"{name}.gguf").unlink(missing_ok=True)
        (shelf / f"{name}.gguf").symlink_to(source)
    urls, logs = {}, []
    with contextlib.ExitStack() as held:
        for number, port in enumerate(processes.free_ports(preset.engines), 1):
            name = f"engine-{number}"
            flags = f"--models-max 1 -t 1 -np {SLOTS} -c {SLOTS * CONTEXT} --metrics --no-webui --host 127.0.0.1"
            command = [str(program), "--models-dir", str(shelf), *flags.split(), "--port", str(port)]
            child = held.enter_context(processes.started(name, command, folder))
            child.wait_open(port)
            urls[name] = f"http://127.0.0.1:{port}"
            logs.append(child.log)
        yield Routers(urls, models, logs)


def compiled() -> Path | None:
    """The newest llama-server that was built here, or the installed one."""
    built = sorted((ROOT / ".cache" / "engines").glob("llama-server-*"), key=lambda path: path.name)
    found = shutil.which("llama-server")
    return built[-1] if built else Path(found) if found is not None else None


async def _healthy(url: str) -> None:
    """Wait until a server's model is loaded: before, it answers 503."""
    async with asyncio.timeout(QUIET_S):
        while True:
            with contextlib.suppress(OSError):
                await asyncio.to_thread(get, f"{url}/health")
                return
            await asyncio.sleep(0.1)


# --- in front of them


def key_of(name: str) -> str:
    """A key for this run alone."""
    return f"sk-scenario-{name}"


def pharos_config(stand: Stand, port: int, keys: Sequence[str], policy: str) -> dict[str, Any]:
    """What Pharos is told: the engines' names and addresses, and the keys."""
    return {
        "listen": f"127.0.0.1:{port}",
        "admin_listen": "127.0.0.1:0",
        "policy": policy,
        "backends": [{"name": name, "url": url} for name, url in stand.urls.items()],
        "keys": [{"name": key, "sha256": hashlib.sha256(key_of(key).encode()).hexdigest()} for key in keys],
        "response_headers": {"target": True, "reason": True},
        "drain": {"grace": 0, "timeout": "1s"},
    }


@contextlib.contextmanager
def pharos(stand: Stand, keys: Sequence[str], policy: str, folder: Path) -> Any:  # noqa: ANN401 - an iterator over `Way`
    """Pharos in front of the engines; the address of its pages comes with the way."""
    [port] = processes.free_ports(1)
    config = folder / "pharos.yaml"
    told = pharos_config(stand, port, keys, policy)
    log = folder / "decisions.jsonl"
    log.unlink(missing_ok=True)
    told["decision_log"] = {"path": str(log)}
    config.write_text(json.dumps(told, indent=1))  # JSON is YAML
    command = [sys.executable, "-m", "pharos", "serve", "--config", str(config), "--log-level", "warning"]
    url = f"http://127.0.0.1:{port}"
    with processes.started("pharos", command, folder) as child:
        wait_for(child, lambda: bool(get(f"{url}/healthz") or True))
        yield url, Way(lambda _person, _sent: (url, None), {key: key_of(key) for key in keys})


def baseline(stand: Stand, how: str) -> Way:
    """No router: each person has an engine of their own, or requests take the engines by turns."""
    names = list(stand.urls)

    def url(person: int, sent: int) -> tuple[str, str | None]:
        name = names[(person if how == DIRECT else sent) % len(names)]
        return stand.urls[name], name

    return Way(url, {})
