"""Spans of a whole Pharos: with a collector in the environment, and without."""

import asyncio
from typing import Any

import pytest
from aiohttp import web

from pharos.proxy.routes import Routes, TracedRoutes
from tests.app.running import pharos
from tests.fakes.llamacpp import RECORDED_MODEL, FakeLlamaCpp

TRACE, PARENT = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
ENDPOINT = "OTEL_EXPORTER_OTLP_ENDPOINT"


async def test_each_request_is_a_span_at_the_collector_before_pharos_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    came: list[dict[str, Any]] = []

    async def take(request: web.Request) -> web.Response:
        came.append(await request.json())
        return web.Response()

    app = web.Application()
    app.router.add_post("/v1/traces", take)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    monkeypatch.setenv(ENDPOINT, f"http://127.0.0.1:{runner.addresses[0][1]}")
    async with FakeLlamaCpp() as engine, pharos(engine) as running:
        async with running.chat(stream=True, traceparent=f"00-{TRACE}-{PARENT}-01") as reply:
            await reply.read()
        await running.until(lambda: list(running.app.reporting.recent))
    await asyncio.sleep(0)
    await runner.cleanup()
    ((span,),) = [scope["spans"] for body in came for scope in body["resourceSpans"][0]["scopeSpans"]]
    assert (span["traceId"], span["parentSpanId"]) == (TRACE, PARENT)
    told = {one["key"]: next(iter(one["value"].values())) for one in span["attributes"]}
    assert told["gen_ai.request.model"] == RECORDED_MODEL
    assert "hello" not in str(came), "nothing that was said"


async def test_without_a_collector_no_record_keeps_a_trace(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(ENDPOINT, raising=False)
    async with FakeLlamaCpp() as engine, pharos(engine) as running:
        assert type(running.app.proxy.routes) is Routes
        assert "spans" not in running.app.tasks.names
        async with running.chat(traceparent=f"00-{TRACE}-{PARENT}-01") as reply:
            await reply.read()
        await running.until(lambda: list(running.app.reporting.recent))
        assert [done.trace for done in running.app.reporting.recent] == [None]


async def test_a_collector_that_cannot_be_right_is_told_and_pharos_starts(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv(ENDPOINT, "collector:4318")
    async with pharos() as running:
        assert not isinstance(running.app.proxy.routes, TracedRoutes)
    assert f"no spans are sent: {ENDPOINT}: write http://" in caplog.text
