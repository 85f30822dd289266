"""A whole Pharos in this process, before a llama.cpp double: what only shows once all planes are wired together."""

import asyncio
import json
import logging

import pytest

from pharos.app import COUNTED_AT, keyring, settings
from pharos.config import load
from pharos.config.schema import Config
from pharos.proxy.done import Done
from pharos.proxy.settings import ProxySettings
from tests.app.running import AUTH, KEYS, Running, pharos
from tests.fakes.llamacpp import RECORDED_MODEL, FakeLlamaCpp
from tests.waiting import WAIT_S


async def test_a_round_that_shows_a_slot_freed_by_somebody_else_serves_the_next_waiter() -> None:
    async with FakeLlamaCpp(slots=1) as engine:
        engine.report(running=1)
        async with pharos(engine) as running:
            asking = asyncio.create_task(_status(running))
            await running.until(lambda: running.app.ledger.waiting == 1)
            assert running.app.ledger.next_deadline() is None
            engine.report(running=0)
            assert await asyncio.wait_for(asking, WAIT_S) == 200


async def _status(running: Running) -> int:
    async with running.chat() as response:
        await response.read()
        return int(response.status)


async def test_the_metrics_page_counts_what_the_program_did_and_needs_no_key() -> None:
    async with FakeLlamaCpp() as engine, pharos(engine, keys=KEYS) as running:
        async with running.chat(stream=True, **AUTH) as response:
            assert (await response.read()).endswith(b"data: [DONE]\n\n")
        await running.until(lambda: list(running.app.reporting.recent))
        status, text = await running.get("/metrics")
        assert status == 200
        assert f'pharos_requests_total{{key="k",model="{RECORDED_MODEL}",status="200"}} 1' in text.splitlines()
        assert 'pharos_decisions_total{stage="resolve",outcome="new_plan"} 1' in text.splitlines()
        assert (await running.get("/healthz"))[0] == 200
        assert (await running.get("/v1/models"))[0] == 401


async def test_requests_are_counted_many_at_once_and_none_is_missing_when_somebody_asks() -> None:
    async with FakeLlamaCpp() as engine, pharos(engine) as running:
        for number in range(COUNTED_AT + 1):
            running.app.reporting.done(Done(request_id=str(number), path="/v1/completions", at_wall=0.0, status=400))
            kept = running.app.reporting.metrics._requests.value("", "", "400")
            assert kept == (None if number + 1 < COUNTED_AT else COUNTED_AT)
        _, text = await running.get("/metrics")
        assert f'pharos_requests_total{{key="",model="",status="400"}} {COUNTED_AT + 1}' in text.splitlines()


def test_a_configured_key_has_its_weight_rights_and_models() -> None:
    text = json.dumps({"keys": [{**KEYS[0], "weight": 7, "admin": True, "models": ["qwen*"]}]})
    key = keyring(load.parse(text, {})).require(AUTH)
    assert (key.name, key.weight, key.admin) == ("k", 7, True)
    assert key.allows("qwen2.5:3b")
    assert not key.allows("other")


async def test_a_start_without_keys_warns_and_one_with_keys_does_not(caplog: pytest.LogCaptureFixture) -> None:
    async with pharos():
        pass
    assert [r.getMessage() for r in caplog.records if r.levelno == logging.WARNING and "no keys" in r.getMessage()] == [
        "no keys are configured: everyone who reaches 127.0.0.1:0 may use these engines"
    ]
    caplog.clear()
    async with pharos(keys=KEYS):
        pass
    assert not any("no keys" in record.getMessage() for record in caplog.records)


def test_the_data_plane_has_the_defaults_of_the_configuration() -> None:
    assert settings(Config()) == ProxySettings()


def test_what_is_configured_reaches_the_data_plane() -> None:
    text = """
    limits: {body: 1MiB, header: 2KiB, buffered: 3MiB, connections: 4}
    deadlines: {connect: 6s, first_byte_warm: 7s, first_byte_cold: 8m, idle: 9s}
    retry: {attempts: 2, budget: 0.5}
    rewrite_reply_model: true
    response_headers: {target: true}
    """
    assert settings(load.parse(text, {})) == ProxySettings(
        body_bytes=1024**2, header_bytes=2048, buffered_bytes=3 * 1024**2, connections=4, connect_s=6.0,
        first_byte_warm_s=7.0, first_byte_cold_s=480.0, reply_idle_s=9.0,
        retry_attempts=2, retry_budget=0.5, rewrite_reply_model=True, show_target=True, show_reason=False,
    )  # fmt: skip
    assert settings(load.parse("response_headers: {reason: true}", {})).show_reason


async def test_the_limits_of_the_queue_are_the_configured_ones() -> None:
    async with FakeLlamaCpp(slots=1) as engine:
        engine.report(running=1)
        async with pharos(engine, queue={"size": 1, "max_wait": "100ms"}) as running:
            first = asyncio.create_task(_status(running))
            await running.until(lambda: running.app.ledger.waiting == 1)
            assert await _status(running) == 429, "queue.size"
            assert await first == 503, "queue.max_wait"
