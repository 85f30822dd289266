"""Where the metrics are served, and that a hostile client cannot make them grow: with the whole program around them."""

import asyncio
import json
import logging
import socket

import pytest

from pharos import clock
from pharos.app import App
from pharos.config import load
from pharos.control.fetch import new_session
from pharos.obs import watchdog
from pharos.proxy import routes
from tests.app.running import AUTH, KEYS, Running, pharos
from tests.fakes.llamacpp import FakeLlamaCpp
from tests.waiting import WAIT_S


async def test_metrics_on_an_address_of_their_own_are_not_on_the_public_one() -> None:
    async with FakeLlamaCpp() as engine, pharos(engine, metrics_listen="127.0.0.1:0") as running:
        async with running.chat() as response:
            assert response.status == 200
        assert (await running.get("/metrics"))[0] == 404
        port = running.app.metering.port
        assert port != running.app.proxy.port
        async with running.http.get(f"http://127.0.0.1:{port}/metrics") as response:
            page = await response.text()
        assert 'pharos_decisions_total{stage="upstream",outcome="ok"} 1' in page.splitlines()
        for path in ("/v1/models", "/status", "/healthz"):
            async with running.http.get(f"http://127.0.0.1:{port}{path}") as response:
                assert response.status == 404


async def test_metrics_are_served_before_the_engines_are_read_and_while_pharos_drains() -> None:
    async with FakeLlamaCpp() as engine, pharos(engine, metrics_listen="127.0.0.1:0") as running:
        running.app.proxy.ready = False
        running.app.proxy.draining = True
        async with running.http.get(f"http://127.0.0.1:{running.app.metering.port}/metrics") as response:
            assert response.status == 200


async def test_an_address_for_metrics_that_cannot_be_had_ends_the_start_and_is_named() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        text = json.dumps({"listen": "127.0.0.1:0", "metrics_listen": address})
        async with new_session() as session:
            app = App(load.parse(text, {}), session)
            with pytest.raises(OSError, match="in use") as caught:
                await app.start()
            await app.tasks.aclose()
    assert caught.value.filename == f"metrics_listen {address}"


def _use_up(running: Running, page: bytes) -> None:
    """As if so many had just asked, of whom the last one got this."""
    running.app.metering._bucket.take(1000, clock.monotonic())
    running.app.metering._last = page


async def test_whoever_asks_without_a_pause_gets_the_last_page_again() -> None:
    async with pharos() as running:
        assert (await running.get("/metrics"))[1] != "the last one\n"
        _use_up(running, b"the last one\n")
        assert await running.get("/metrics") == (200, "the last one\n")


async def test_a_client_that_does_not_take_the_page_is_parted_from(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(routes, "PAGE_TAKEN_S", 0.05)
    async with pharos() as running:
        _use_up(running, b"x" * 40_000_000)
        with socket.socket() as idle:
            idle.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            idle.connect(("127.0.0.1", running.app.proxy.port))
            idle.sendall(b"GET /metrics HTTP/1.1\r\nHost: a\r\n\r\n")
            await running.until(lambda: running.app.proxy.connections)
            await running.until(lambda: not running.app.proxy.connections)
        monkeypatch.setattr(routes, "PAGE_TAKEN_S", WAIT_S)
        async with running.http.get(running.url + "/metrics") as reply:
            assert len(await reply.read()) == 40_000_000, "one that reads gets all of it"


async def _ask(running: Running, number: int) -> None:
    body = {"model": f"made-up-{number}", "messages": [{"role": "user", "content": "x"}]}
    headers = AUTH if number % 2 else {"Authorization": f"Bearer phk-made-up-{number}"}
    async with running.http.post(running.url + "/v1/chat/completions", json=body, headers=headers) as response:
        assert response.status in (401, 404)
    async with running.http.request("M" + "A" * (number % 50), f"{running.url}/odd/{number}") as response:
        assert response.status in (400, 404, 405)


async def test_b53_names_keys_paths_and_methods_that_a_client_makes_up_are_no_series() -> None:
    async with FakeLlamaCpp() as engine, pharos(engine, keys=KEYS) as running:

        async def names() -> set[str]:
            _, page = await running.get("/metrics")
            return {line.rpartition(" ")[0] for line in page.splitlines() if not line.startswith("#")}

        for number in range(4):
            await _ask(running, number)
        before = await names()
        for start in range(4, 300, 8):
            await asyncio.gather(*(_ask(running, number) for number in range(start, start + 8)))
        assert await names() == before


async def test_the_event_loop_of_the_program_is_watched(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING, watchdog.__name__)
    async with pharos() as running:
        lag = running.app.reporting.metrics.reports._lag
        await running.until(lag.count)
        assert "watchdog" in running.app.tasks.names
