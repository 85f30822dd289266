"""A whole Pharos under load while one of its backends never answers: others must not notice."""

import asyncio
import json

from tests.app.running import pharos
from tests.fakes.http import Hang
from tests.fakes.llamacpp import FakeLlamaCpp

MANY = 30
LIMITS = {"buffered": "40MiB", "body": "4MiB"}
"""Room for all of them, and little more."""


async def test_b51_health_is_answered_while_a_backend_falls_silent_under_load() -> None:
    async with (
        FakeLlamaCpp(slots=2) as live,
        FakeLlamaCpp(slots=2, model="other") as silent,
        pharos(live, silent, limits=LIMITS) as running,
    ):
        silent.every = Hang()
        asked = len(silent.seen)
        messages = [{"role": "user", "content": "hello"}]
        body = json.dumps({"model": live.model, "messages": messages, "filler": "x" * 1_000_000})

        async def ask() -> int:
            async with running.http.post(running.url + "/v1/chat/completions", data=body) as response:
                await response.read()
                return response.status

        asking = [asyncio.create_task(ask()) for _ in range(MANY)]
        await running.until(lambda: len(silent.seen) > asked)
        for path in ("/healthz", "/livez", "/metrics", "/v1/models", "/status?format=json"):
            assert (await running.get(path))[0] == 200, path
        assert {await one for one in asking} == {200}
        assert (await running.get("/healthz"))[0] == 200
        assert running.app.proxy.routes.buffers.used == 0
