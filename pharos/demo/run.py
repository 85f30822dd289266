"""`pharos demo`: a model, some engines, Pharos in front, and what to try. Returns when stopped; leaves no process.

Forbidden here: a way of serving of its own; the demo is a configuration given to the same app as any other.
"""

import asyncio
import json
import shutil
import signal
import sys
import tempfile
from collections.abc import Coroutine, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import uvloop

from pharos.config import load
from pharos.config.schema import Config
from pharos.config.units import split_address
from pharos.demo import model
from pharos.demo.children import Engine, Engines, Launch, is_free
from pharos.demo.errors import DemoError

if TYPE_CHECKING:
    from pharos.app import Stop

_MEGABYTE = 1e6
_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class DemoOptions(msgspec.Struct, frozen=True):
    """What the command line may choose."""

    tiny: bool = False
    """A generated model that speaks nonsense, instead of SmolLM2."""
    listen: str = ":8090"
    """Where Pharos listens, as in `pharos.yaml`."""
    engines: int = 2
    """How many engines to start."""


def main(options: DemoOptions, early_signals: Sequence[int] = ()) -> int:
    """Run the demo until it is stopped; returns the exit status. `early_signals`: those that came before this."""
    if early_signals:
        return 0
    try:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            return runner.run(_demo(options, early_signals))
    except DemoError as error:
        print(f"pharos demo: {error}", file=sys.stderr)
    except OSError as error:  # the port was taken while the engines loaded, or the disk is full
        print(f"pharos demo: {error} (another address: --listen)", file=sys.stderr)
    return 1


async def _demo(options: DemoOptions, early_signals: Sequence[int]) -> int:
    """Look whether it can be done, then do it in a folder of its own, which stays only when something went wrong."""
    from pharos import app

    require_free(options.listen)
    source = find_model(options)
    folder = Path(tempfile.mkdtemp(prefix="pharos-demo-"))
    stop = app.Stop()
    app.handle_signals(stop, numbers=_SIGNALS, before_exit=lambda: shutil.rmtree(folder, ignore_errors=True))
    if early_signals:  # one that came since `main` looked
        stop.set()
    code = 1
    try:
        code = await _run(options, _launch(source, folder), stop)
    finally:
        if code == 0:
            shutil.rmtree(folder, ignore_errors=True)
        else:
            _say(f"the engines' logs are kept in {folder}")
        _say("engines stopped")
    return code


async def _run(options: DemoOptions, launch: Launch, stop: "Stop") -> int:
    """Start engines, serve, stop both."""
    from pharos import app

    _say(f"Pharos demo: {options.engines} llama.cpp engines on this machine, and Pharos in front of them")
    _say(f"model {launch.alias}: {launch.model.name}, {launch.model.stat().st_size / _MEGABYTE:.1f} MB")
    engines = Engines(launch, options.engines, _say)
    try:
        running = await _unless(stop, engines.start())
        if running is None:
            _say("stopping before the engines are ready; Ctrl-C once more ends at once")
            return 0
        return await app.serve(
            configuration(options.listen, running),
            log_level="warning",
            log_format="text",
            on_ready=lambda url: print(invitation(url, launch.alias, running, launch.logs), flush=True),
            on_drain=lambda left: _say(f"stopping: {left}; Ctrl-C once more ends at once"),
            stop=stop,
        )
    finally:
        await engines.stop()


def require_free(listen: str) -> None:
    """Raise `DemoError` when the address cannot be had, before anything slow begins."""
    try:
        address, port = split_address(listen)
    except ValueError as fault:
        raise DemoError(f"--listen: {fault}") from None
    if port != 0 and not is_free(address if address is not None else "0.0.0.0", port):  # noqa: S104 (what serving does)
        other = 9090 if port != 9090 else 9190  # noqa: PLR2004 - any; the next one is often that of the admin listener
        raise DemoError(
            f"port {port} is taken: choose another one, as in `pharos demo --listen :{other}` or "
            f"`make run FLAGS='--listen :{other}'`"
        )


def configuration(listen: str, engines: list[Engine]) -> Config:
    """What Pharos is given: the engines by name, and replies that tell where they came from and why."""
    settings = {
        "listen": listen,
        "backends": [{"name": engine.name, "url": engine.url} for engine in engines],
        "response_headers": {"target": True, "reason": True},
        "drain": {"grace": "0s"},  # no load balancer in front has to notice
    }
    return load.parse(json.dumps(settings), {}, source="the demo's configuration")


def invitation(url: str, alias: str, engines: Sequence[Engine], logs: Path) -> str:
    """What to try, once it is ready."""
    streamed = _curl("-Nsi", url, alias, "Tell me about lighthouses.", stream=True, max_tokens=60)
    crowd = _curl("-so /dev/null -D -", url, alias, "Count to '$i'.", max_tokens=40)  # the shell puts the number in
    unknown = _curl("-s", url, "gpt-oss:20b", "hi")
    return f"""
Pharos is ready on {url}

1. A streamed chat. The headers X-Pharos-Target and X-Pharos-Reason say where it went and why:
{streamed}

2. Six at once for two slots each: the less busy engine comes first, and those that find no slot wait their turn:
for i in 1 2 3 4 5 6; do {crowd} | grep -i x-pharos & done; wait

3. A model that nobody has. No backend ever listed it, and the error says so:
{unknown}

Status page: {url}/status
What Pharos reads from the engines: {_command()} doctor {" ".join(engine.url for engine in engines)}
Their own logs: {logs}
Ctrl-C ends Pharos and the engines.
"""


def _command() -> str:
    """How `pharos` is called here: of a clone, it is in the virtual environment and in no search path."""
    if shutil.which("pharos") is not None:
        return "pharos"
    here = Path(sys.executable).with_name("pharos")
    return str(here.relative_to(Path.cwd()) if here.is_relative_to(Path.cwd()) else here)


def _curl(flags: str, url: str, model: str, prompt: str, **options: Any) -> str:  # noqa: ANN401 - fields of a body
    asked = {"model": model, **options, "messages": [{"role": "user", "content": prompt}]}
    body = json.dumps(asked, separators=(",", ":"))
    return f"curl {flags} {url}/v1/chat/completions -H 'Content-Type: application/json' -d '{body}'"


def find_model(options: DemoOptions) -> Path | None:
    """Where the model is; `None`: it is generated. Raises `DemoError` when something is not installed."""
    model.require_engine()
    return None if options.tiny else model.smollm2_path()


def _launch(source: Path | None, folder: Path) -> Launch:
    if source is not None:
        return Launch(model=source, alias=model.SMOLLM2_NAME, logs=folder)
    path = folder / "tiny.gguf"
    model.write_tiny(path, ends=True)
    return Launch(model=path, alias=model.TINY_NAME, logs=folder)


async def _unless(stop: asyncio.Event, work: Coroutine[Any, Any, list[Engine]]) -> list[Engine] | None:
    """The result of the work, or `None` when asked to stop before it was done."""
    task = asyncio.create_task(work, name="start engines")
    stopping = asyncio.create_task(stop.wait(), name="wait for a signal")
    try:
        await asyncio.wait({task, stopping}, return_when=asyncio.FIRST_COMPLETED)
        return task.result() if task.done() else None
    finally:
        stopping.cancel()
        task.cancel()
        await asyncio.gather(task, stopping, return_exceptions=True)


def _say(line: str) -> None:
    """Show a line; a terminal that has gone keeps nothing from ending in order."""
    with suppress(OSError):
        print(line, flush=True)
