"""The admin listener of a whole Pharos: what it shows of live requests, and what happens where it cannot listen."""

import asyncio
import json
import logging
import socket
from typing import Any

import pytest

from pharos import clock
from pharos.config import load
from pharos.config.problems import ConfigError
from tests.app.running import AUTH, KEYS, Running, pharos
from tests.fakes.llamacpp import FakeLlamaCpp
from tests.waiting import WAIT_S


async def ask(running: Running, method: str, path: str) -> tuple[int, Any]:
    async with running.http.request(method, f"http://127.0.0.1:{running.app.admin.port}{path}") as reply:
        return reply.status, await reply.json()


async def test_a_drained_backend_finishes_what_it_has_and_gets_nothing_new() -> None:
    async with FakeLlamaCpp() as one, FakeLlamaCpp() as two, pharos(one, two) as running:
        one.hold()
        two.hold()
        streams = [asyncio.create_task(_streamed(running)) for _ in range(2)]
        await running.until(lambda: one.held + two.held == 2)
        drained, other = (one, two) if one.held else (two, one)
        name, kept = (drained.url.removeprefix("http://"), other.url.removeprefix("http://"))
        _, told = await ask(running, "POST", f"/backend/{name}/drain")
        assert (told["drained_by"], told["inflight"]) == ("operator", drained.held)
        two.release()
        one.release()
        assert [(await asyncio.wait_for(one_of, WAIT_S))[-14:] for one_of in streams] == [b"data: [DONE]\n\n"] * 2
        for _ in range(3):
            assert await _status(running) == 200
        await running.until(lambda: len(running.app.reporting.recent) == 5)
        assert {done.backend for done in list(running.app.reporting.recent)[:3]} == {kept}
        _, told = await ask(running, "GET", "/doctor")
        assert {row["name"]: row["drained_by"] for row in told["backends"]} == {name: "operator", kept: None}
        assert [row["up"] for row in told["backends"]] == [True, True]
        _, text = await running.get("/metrics")
        assert f'pharos_backend_drained{{backend="{name}"}} 1' in text.splitlines()
        assert 'pharos_decisions_total{stage="drain",outcome="begun"} 1' in text.splitlines()


async def _streamed(running: Running) -> bytes:
    async with running.chat(stream=True) as response:
        body: bytes = await response.read()
        return body


async def test_who_waits_is_served_once_the_only_backend_is_let_in_again() -> None:
    async with FakeLlamaCpp() as engine, pharos(engine) as running:
        (name,) = running.app.fleet.backends
        await ask(running, "POST", f"/backend/{name}/drain")
        asking = asyncio.create_task(_status(running))
        await running.until(lambda: running.app.ledger.waiting == 1)
        await ask(running, "POST", f"/backend/{name}/undrain")
        assert await asyncio.wait_for(asking, WAIT_S) == 200


async def _status(running: Running) -> int:
    async with running.chat() as response:
        await response.read()
        return int(response.status)


async def test_a_drained_backend_stays_so_over_a_new_configuration() -> None:
    async with FakeLlamaCpp() as one, FakeLlamaCpp() as two, pharos(one, two) as running:
        name = one.url.removeprefix("http://")
        await ask(running, "POST", f"/backend/{name}/drain")
        backends = [{"url": one.url, "capacity": 3}, {"url": two.url}]
        running.app.reloading.adopt(load.parse(json.dumps({"backends": backends}), {}))
        await running.until(lambda: running.app.fleet.backends[name].is_alive(clock.monotonic()))
        assert [row["drained_by"] for row in (await ask(running, "GET", "/backends"))[1]["backends"]] == [
            "operator", None,
        ]  # fmt: skip
        for _ in range(3):
            assert await _status(running) == 200
        await running.until(lambda: len(running.app.reporting.recent) == 3)
        assert name not in {done.backend for done in running.app.reporting.recent}


async def test_a_request_is_explained_by_the_id_its_client_got_without_a_key() -> None:
    async with FakeLlamaCpp() as engine, pharos(engine, keys=KEYS) as running:
        async with running.chat(**AUTH) as reply:
            request_id = reply.headers["X-Request-Id"]
            await reply.read()
        await running.until(lambda: len(running.app.reporting.recent) == 1)
        status, told = await ask(running, "GET", f"/explain/{request_id}")
        assert (status, told["request_id"], told["status"], told["key"]) == (200, request_id, 200, "k")
        assert told["candidates"][0]["target"] == next(iter(running.app.fleet.backends))


async def test_where_its_address_is_taken_pharos_serves_all_the_same_and_says_so(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        taken = f"127.0.0.1:{other.getsockname()[1]}"
        async with FakeLlamaCpp() as engine, pharos(engine, admin_listen=taken) as running:
            assert (await running.get("/healthz"))[0] == 200
            said = [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]
            (warning,) = [text for text in said if "admin" in text]
            assert warning.startswith(f"the admin listener cannot have {taken} (Address already in use): ")
            assert "another admin_listen" in warning


async def test_what_happened_is_on_the_page() -> None:
    async with FakeLlamaCpp() as engine, pharos(engine) as running:
        _, told = await ask(running, "GET", "/status?format=json")
        assert any("is up: llamacpp" in event["text"] for event in told["events"])
        assert told["config"] is None, "made on the command line"


@pytest.mark.parametrize("address", [":8091", "0.0.0.0:8091", "10.1.2.3:8091", "[::]:8091", "example.org:8091"])
def test_an_admin_address_that_other_machines_reach_is_refused_with_what_to_write(address: str) -> None:
    with pytest.raises(ConfigError, match=r"can be reached from other machines.*write 127\.0\.0\.1:8091"):
        load.parse(f"admin_listen: '{address}'", {})


@pytest.mark.parametrize("address", ["127.0.0.1:1", "127.9.9.9:1", "localhost:1", "[::1]:1"])
def test_an_admin_address_of_this_machine_is_taken(address: str) -> None:
    assert load.parse(f"admin_listen: '{address}'", {}).admin_listen == address


async def test_the_configuration_in_effect_is_shown_without_secrets() -> None:
    async with FakeLlamaCpp() as engine, pharos(engine, keys=[{**KEYS[0], "cache_salt": "pepper"}]) as running:
        _, told = await ask(running, "GET", "/config")
        fields = {row["field"]: row for row in told["fields"]}
        assert fields["listen"]["value"] == "127.0.0.1:0"
        assert fields["keys[0].name"]["value"] == "k"
        assert "pepper" not in str(told)
        assert KEYS[0]["sha256"] not in str(told)
