"""The demo's engines as real processes, with the tiny model."""

import asyncio
import json
import os
import signal
import subprocess
import sys
import urllib.request
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from pharos.demo.children import Engines, Launch
from pharos.demo.errors import DemoError
from pharos.demo.model import write_tiny

from .conftest import ends_within

pytestmark = pytest.mark.live


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("model") / "tiny.gguf"
    write_tiny(path)
    return path


class Said:
    """The progress lines, to wait for."""

    def __init__(self) -> None:
        self._lines: asyncio.Queue[str] = asyncio.Queue()

    def __call__(self, line: str) -> None:
        self._lines.put_nowait(line)

    async def until(self, words: str) -> str:
        while words not in (line := await asyncio.wait_for(self._lines.get(), 20)):
            pass
        return line


@pytest.fixture
def said() -> Said:
    return Said()


@pytest.fixture
async def engines(tiny: Path, tmp_path: Path, said: Said) -> AsyncIterator[Engines]:
    started = Engines(Launch(model=tiny, alias="tiny", logs=tmp_path, restart_after_s=0.01), 2, said)
    try:
        await started.start()
        yield started
    finally:
        await started.stop()


def ask(url: str) -> dict[str, Any]:
    body = {"max_tokens": 12, "messages": [{"role": "user", "content": "hello"}]}
    request = urllib.request.Request(f"{url}/v1/chat/completions", json.dumps(body).encode())  # noqa: S310
    with urllib.request.urlopen(request, timeout=20) as reply:  # noqa: S310
        return dict(json.load(reply))


async def test_every_engine_answers_with_printable_text_once_started(engines: Engines) -> None:
    assert len({engine.port for engine in engines.engines}) == 2
    for engine in engines.engines:
        reply = await asyncio.to_thread(ask, engine.url)
        assert reply["choices"][0]["message"]["content"].isprintable()
        assert reply["usage"]["completion_tokens"] == 12


async def test_a_killed_engine_comes_back_on_its_port_and_that_is_said(engines: Engines, said: Said) -> None:
    first = engines.engines[0]
    url, old = first.url, first.process
    assert old is not None
    os.kill(old.pid, signal.SIGKILL)
    assert "SIGKILL" in await said.until("engine-1 ended")
    await said.until("engine-1 ready")
    assert first.url == url
    assert first.process is not old
    assert (await asyncio.to_thread(ask, url))["object"] == "chat.completion"


async def test_nothing_is_left_after_stop(tiny: Path, tmp_path: Path, said: Said) -> None:
    engines = Engines(Launch(model=tiny, alias="tiny", logs=tmp_path), 2, said)
    await engines.start()
    processes = [engine.process for engine in engines.engines]
    await engines.stop()
    assert [process.returncode for process in processes if process] == [-signal.SIGTERM] * 2


async def test_stopping_while_engines_start_leaves_nothing(tiny: Path, tmp_path: Path, said: Said) -> None:
    engines = Engines(Launch(model=tiny, alias="tiny", logs=tmp_path), 2, said)
    starting = asyncio.create_task(engines.start())
    await said.until("engine-2 loads")
    starting.cancel()
    await asyncio.gather(starting, return_exceptions=True)
    await engines.stop()
    assert all(engine.process is None or engine.process.returncode is not None for engine in engines.engines)


async def test_an_engine_that_cannot_start_is_an_error_with_the_end_of_its_log(tmp_path: Path, said: Said) -> None:
    broken = tmp_path / "broken.gguf"
    broken.write_bytes(b"no model")
    engines = Engines(Launch(model=broken, alias="tiny", logs=tmp_path), 1, said)
    with pytest.raises(DemoError, match=r"engine-1 does not start[\s\S]*engine-1\.log[\s\S]*broken\.gguf"):
        await engines.start()
    await engines.stop()


def test_an_engine_with_a_wrong_parent_says_why_it_does_not_start() -> None:
    program = [sys.executable, "-m", "pharos.demo.engine", "--model", "m", "--alias", "a", "--port", "0"]
    ended = subprocess.run([*program, "--parent", "1"], capture_output=True, text=True, timeout=20, check=False)
    assert ended.returncode == 1
    assert ended.stderr.startswith(f"pharos.demo.engine: process 1 is not the one that started this ({os.getpid()} is")


PARENT = """
import asyncio, sys
from pathlib import Path
from pharos.demo.children import Engines, Launch

async def main():
    engines = Engines(Launch(model=Path(sys.argv[1]), alias="tiny", logs=Path(sys.argv[2])), 2, lambda line: None)
    await engines.start()
    print(*(engine.process.pid for engine in engines.engines), flush=True)
    await asyncio.Event().wait()

asyncio.run(main())
"""


def test_nothing_is_left_after_kill_9_of_the_parent(tiny: Path, tmp_path: Path) -> None:
    program = [sys.executable, "-c", PARENT, str(tiny), str(tmp_path)]
    with subprocess.Popen(program, stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        pids = [int(word) for word in parent.stdout.readline().split()]
        parent.kill()
    assert len(pids) == 2
    assert all(ends_within(pid, 10) for pid in pids)
