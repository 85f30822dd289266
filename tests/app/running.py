"""A whole Pharos in this process, and a client of it."""

import contextlib
import hashlib
import json
from collections.abc import AsyncIterator, Callable
from typing import Any

import aiohttp

from pharos.app import App
from pharos.app.kubernetes import Enter
from pharos.config import load
from pharos.control.fetch import new_session
from tests.fakes.llamacpp import RECORDED_MODEL, FakeLlamaCpp
from tests.waiting import until

KEYS = [{"name": "k", "sha256": hashlib.sha256(b"pk-test").hexdigest()}]
AUTH = {"Authorization": "Bearer pk-test"}


class Running:
    """A started app and a client."""

    def __init__(self, app: App, http: aiohttp.ClientSession) -> None:
        self.app = app
        self.http = http
        self.url = f"http://127.0.0.1:{app.proxy.port}"

    def chat(self, *, stream: bool = False, **headers: str) -> Any:
        body = {"model": RECORDED_MODEL, "stream": stream, "messages": [{"role": "user", "content": "hello"}]}
        return self.http.post(self.url + "/v1/chat/completions", json=body, headers=headers)

    async def get(self, path: str) -> tuple[int, str]:
        async with self.http.get(self.url + path) as response:
            return response.status, await response.text()

    async def until(self, claim: Callable[[], object]) -> None:
        await until(claim)


@contextlib.asynccontextmanager
async def pharos(
    *engines: FakeLlamaCpp, enter: Enter | None = None, wait: bool = True, **config: object
) -> AsyncIterator[Running]:
    """`enter`: the way into a cluster. `wait`: whether it is ready before the block begins."""
    text = {
        "listen": "127.0.0.1:0",
        "admin_listen": "127.0.0.1:0",
        "backends": [{"url": engine.url} for engine in engines],
        "drain": {"grace": 0, "timeout": 0},
        **config,
    }
    async with new_session() as session, aiohttp.ClientSession() as http:
        app = App(load.parse(json.dumps(text), {}, source="test"), session, enter=enter)
        async with app.tasks:
            await app.start()
            running = Running(app, http)
            try:
                if wait:
                    await running.until(lambda: app.proxy.ready)
                yield running
            finally:
                await app.end()
