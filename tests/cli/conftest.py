import asyncio
import signal
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from pharos.cli import main
from tests.fakes.llamacpp import FakeLlamaCpp

Run = Callable[..., Result]


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Run]:
    """Runs `pharos ARGUMENTS` in an empty folder, with `PHAROS_…` variables given by name only."""
    monkeypatch.chdir(tmp_path)
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)}

    def run(*arguments: str, **environ: str) -> Result:
        result = CliRunner().invoke(main, list(arguments), env=dict(environ))
        assert "Traceback" not in result.output
        return result

    yield run
    for number, action in before.items():  # `serve` takes them over
        signal.signal(number, action)


@pytest.fixture
def engine() -> Iterator[str]:
    """The URL of an engine that lives in a thread, for commands with an event loop of their own."""
    urls: list[str] = []
    is_up, loop, stop = threading.Event(), asyncio.new_event_loop(), asyncio.Event()

    async def live() -> None:
        async with FakeLlamaCpp(build="b11434-abc") as fake:
            urls.append(fake.url)
            is_up.set()
            await stop.wait()

    thread = threading.Thread(target=lambda: loop.run_until_complete(live()))
    thread.start()
    is_up.wait()
    yield urls[0]
    loop.call_soon_threadsafe(stop.set)
    thread.join()
    loop.close()
