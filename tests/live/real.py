"""Real llama.cpp engines with a tiny generated model, and a Pharos in this process in front of them."""

import asyncio
import contextlib
import json
import os
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import aiohttp

from pharos.app import App
from pharos.config import load
from pharos.control.fetch import new_session
from tests.fakes.ports import free_port

WAIT_S = 45.0
"""Longest wait for anything that a test waits for; reached only when the test fails."""


class RealEngine:
    """One llama.cpp process that can be killed and started again on its port."""

    def __init__(self, gguf: Path, alias: str = "tiny") -> None:
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self._gguf = gguf
        self._alias = alias
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        arguments = ["--model", str(self._gguf), "--alias", self._alias, "--port", str(self.port)]
        self._process = subprocess.Popen(
            [sys.executable, "-m", "pharos.demo.engine", "--parent", str(os.getpid()), *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )
        assert self._process.stdout is not None
        assert self._process.stdout.readline().startswith(b"ready")

    def kill(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.wait()
            for pipe in (process.stdin, process.stdout):
                if pipe is not None:
                    pipe.close()

    def ensure(self) -> "RealEngine":
        if self._process is None or self._process.poll() is not None:
            self.kill()
            self.start()
        return self


class Running:
    """A Pharos in this process, and what tests ask of it."""

    def __init__(self, app: App, http: aiohttp.ClientSession) -> None:
        self.app = app
        self.http = http
        self.url = f"http://127.0.0.1:{app.proxy.port}"

    def post(self, max_tokens: int, *, stream: bool = True, text: str = "hello", url: str | None = None) -> Any:
        body = {
            "model": "tiny",
            "stream": stream,
            "max_tokens": max_tokens,
            "messages": [{"role": "user", "content": text}],
        }
        return self.http.post((url or self.url) + "/v1/chat/completions", json=body)

    async def until(self, claim: Callable[[], object]) -> None:
        """Wait for a claim about the app to become true."""
        async with asyncio.timeout(WAIT_S):
            while not claim():
                await asyncio.sleep(0.01)  # another process is waited for: there is no event to wait on

    def view(self, engine: RealEngine) -> Any:
        now = asyncio.get_running_loop().time()
        backend = self.app.fleet.backends[f"127.0.0.1:{engine.port}"]
        return backend.targets["tiny"].view(now)

    def leased(self) -> int:
        return self.app.ledger.leased


@contextlib.asynccontextmanager
async def pharos(*urls: str, wait: bool = True, **settings: object) -> AsyncIterator[Running]:
    """A Pharos in front of the given engines; leaves no lease and no task behind."""
    text = {"listen": "127.0.0.1:0", "backends": [{"url": url} for url in urls], "drain": {"grace": 0, "timeout": 0}}
    config = load.parse(json.dumps({**text, **settings}), {}, source="test")
    async with new_session() as session, aiohttp.ClientSession() as http:
        app = App(config, session)
        async with app.tasks:
            await app.start()
            running = Running(app, http)
            try:
                if wait:
                    await running.until(lambda: app.proxy.ready)
                yield running
                await running.until(lambda: app.ledger.leased == 0 and app.ledger.waiting == 0)
            finally:
                await app.end()
