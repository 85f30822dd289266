"""Usage and quotas in a whole Pharos: what is counted, who may read it, and what a hostile client cannot fill."""

import asyncio
import hashlib
import json
from typing import Any

import anthropic
import openai
import pytest

from pharos.app import keyring
from pharos.config import load
from pharos.core.usage import OTHER, Quota
from pharos.core.usage.cells import MOST_MODELS
from pharos.proxy.done import Done
from tests.app.running import Running, pharos
from tests.fakes.llamacpp import RECORDED_MODEL, FakeLlamaCpp
from tests.waiting import WAIT_S

SECRETS = {"alice": "pk-alice", "ops": "pk-ops"}


def keys(**alice: Any) -> list[dict[str, Any]]:
    hashes = {name: hashlib.sha256(secret.encode()).hexdigest() for name, secret in SECRETS.items()}
    return [
        {"name": "alice", "sha256": hashes["alice"], **alice},
        {"name": "ops", "sha256": hashes["ops"], "admin": True},
    ]


def auth(name: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {SECRETS[name]}"}


async def read(running: Running, path: str, name: str = "ops") -> tuple[int, str, str]:
    async with running.http.get(running.url + path, headers=auth(name)) as response:
        return response.status, response.headers["Content-Type"], await response.text()


async def status_of(running: Running, name: str, *, stream: bool = False) -> int:
    async with running.chat(stream=stream, **auth(name)) as response:
        await response.read()
        return int(response.status)


def test_a_configured_key_has_its_quotas_and_its_priority() -> None:
    ring = keyring(load.parse(json.dumps({"keys": keys(rpm=5, tokens_per_day=9, priority=-2)}), {}))
    alice, ops = ring.require(auth("alice")), ring.require(auth("ops"))
    assert (alice.quota, alice.priority) == (Quota(5, 9), -2)
    assert (ops.quota, ops.priority) == (None, 0)


async def test_what_was_used_is_read_back_by_an_admin_in_both_forms() -> None:
    async with FakeLlamaCpp() as engine, pharos(engine, keys=keys(), usage={"timezone": "Asia/Bangkok"}) as running:
        for stream in (False, True):
            assert await status_of(running, "alice", stream=stream) == 200
        status, kind, text = await read(running, "/usage")
        assert (status, kind) == (200, "application/json")
        [row] = json.loads(text)
        assert row["day"].endswith("T00:00:00+07:00")
        assert (row["key"], row["requests"], row["unmetered"]) == ("alice", 2, 0)
        assert row["prompt_tokens"] > 0
        assert row["completion_tokens"] > 0
        status, kind, text = await read(running, "/usage?by=model&format=csv")
        assert (status, kind) == (200, "text/csv; charset=utf-8")
        assert f"{RECORDED_MODEL},2,{row['prompt_tokens']}," in text
        assert (await read(running, "/usage", "alice"))[0] == 403
        assert (await running.get("/usage"))[0] == 403
        assert (await read(running, "/usage?by=week"))[0] == 400
        told = json.loads((await read(running, "/status?format=json"))[2])["usage"]
        assert told["keys"][0]["today"]["requests"] == 2


async def test_without_keys_everyone_may_read_it_and_is_one_client() -> None:
    async with FakeLlamaCpp() as engine, pharos(engine) as running:
        async with running.chat() as response:
            assert response.status == 200
        status, text = await running.get("/usage")
        assert status == 200
        assert [row["key"] for row in json.loads(text)] == ["anonymous"]


async def test_quotas_hold_while_requests_are_counted_many_at_once_and_change_with_the_configuration() -> None:
    async with FakeLlamaCpp() as engine, pharos(engine, keys=keys(tokens_per_day=1)) as running:
        assert await status_of(running, "alice") == 200
        assert await status_of(running, "alice") == 429
        text = (await running.get("/metrics"))[1]
        assert 'pharos_decisions_total{stage="admission",outcome="quota_exceeded"} 1' in text
        assert 'pharos_quota_used_ratio{key="alice",quota="tokens_per_day"} 1' in text
        backends = [{"url": engine.url}]
        running.app.reloading.adopt(load.parse(json.dumps({"backends": backends, "keys": keys(rpm=2)}), {}))
        assert [await status_of(running, "alice") for _ in range(3)] == [200, 200, 429]
        assert 'pharos_quota_used_ratio{key="alice",quota="rpm"} 1' in (await running.get("/metrics"))[1]
        running.app.reloading.adopt(load.parse(json.dumps({"backends": backends, "keys": keys()}), {}))
        assert await status_of(running, "alice") == 200


async def test_a_burst_at_once_is_let_in_up_to_the_limit_and_no_further() -> None:
    async with FakeLlamaCpp(slots=2) as engine, pharos(engine, keys=keys(rpm=5)) as running:
        async with asyncio.timeout(WAIT_S):
            found = await asyncio.gather(*[status_of(running, "alice") for _ in range(12)])
        assert sorted(found) == [200] * 5 + [429] * 7


@pytest.mark.parametrize("limit", [{"rpm": 1}, {"tokens_per_day": 1}])
async def test_official_sdks_understand_a_refusal_and_do_not_wait_for_tomorrow(limit: dict[str, int]) -> None:
    async with FakeLlamaCpp() as engine, pharos(engine, keys=keys(**limit)) as running:
        assert await status_of(running, "alice") == 200
        chat: Any = {"model": RECORDED_MODEL, "messages": [{"role": "user", "content": "hi"}]}
        retries = 0 if "rpm" in limit else 2
        async with openai.AsyncOpenAI(
            base_url=running.url + "/v1", api_key=SECRETS["alice"], max_retries=retries
        ) as client:
            with pytest.raises(openai.RateLimitError) as caught:
                await client.chat.completions.create(**chat)
        assert caught.value.code == ("rate_limit_exceeded" if "rpm" in limit else "insufficient_quota")
        assert int(caught.value.response.headers["retry-after"]) > 0
        async with anthropic.AsyncAnthropic(
            base_url=running.url, api_key=SECRETS["alice"], max_retries=retries
        ) as other:
            with pytest.raises(anthropic.RateLimitError) as refused:
                await other.messages.create(max_tokens=1, **chat)
        assert refused.value.response.json()["error"]["type"] == "rate_limit_error"
        assert any(name.startswith("anthropic-ratelimit-") for name in refused.value.response.headers)
        recent = [done.status for done in running.app.reporting.recent]
        assert recent == [429, 429, 200], "neither asked again"


async def test_names_that_a_hostile_client_makes_up_grow_neither_usage_nor_metrics() -> None:
    async with FakeLlamaCpp() as engine, pharos(engine, keys=keys()) as running:
        assert await status_of(running, "alice") == 200
        await running.get("/metrics")
        before = len((await running.get("/metrics"))[1])
        reporting = running.app.reporting
        for number in range(10_000):
            asked = {"request_id": "r", "path": "/v1/chat/completions", "at_wall": 1e9}
            reporting.done(Done(**asked, key="alice", model=f"made-up-{number}", status=404))
            reporting.done(Done(**asked, key=None, status=401))
        body = {"model": "made-up", "messages": [{"role": "user", "content": "hi"}]}
        async with running.http.post(
            running.url + "/v1/chat/completions", json=body, headers={"Authorization": "Bearer made-up"}
        ) as response:
            assert response.status == 401
        text = (await running.get("/metrics"))[1]
        assert "made-up" not in text
        assert len(text) < before * 1.2
        assert len(json.loads((await read(running, "/usage?by=model"))[2])) == 1


async def test_models_that_an_engine_makes_up_are_bounded() -> None:
    async with FakeLlamaCpp() as engine, pharos(engine, keys=keys()) as running:
        reporting = running.app.reporting
        for number in range(10_000):
            reporting.done(
                Done(
                    request_id="r", path="/v1/chat/completions", at_wall=running.app.usage.book._day.starts_at,
                    key="alice", model=f"listed-{number}", status=200, target="t", backend="b",
                )
            )  # fmt: skip
        rows = json.loads((await read(running, "/usage?by=model"))[2])
        assert len(rows) == MOST_MODELS + 1
        assert next(row for row in rows if row["model"] == OTHER)["requests"] == 10_000 - MOST_MODELS
        text = (await running.get("/metrics"))[1]
        assert text.count("listed-") < 200 * 5
