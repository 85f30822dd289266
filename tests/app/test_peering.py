"""Two or three whole Pharos in this process, among each other, before llama.cpp doubles."""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from pharos import clock
from pharos.app import App
from pharos.app.peering import _members
from pharos.config import load
from tests.app.running import AUTH, KEYS, pharos
from tests.fakes.llamacpp import RECORDED_MODEL, FakeLlamaCpp
from tests.fakes.ports import port_of, reserve
from tests.fakes.tls import make_authority
from tests.waiting import until

SECRET = "a secret that instances share"


def keys(**more: object) -> list[dict[str, object]]:
    return [KEYS[0] | more]


class One:
    """A started app and a client."""

    def __init__(self, app: App, http: aiohttp.ClientSession) -> None:
        self.app = app
        self.http = http
        self.url = f"http://127.0.0.1:{app.proxy.port}"

    @property
    def name(self) -> str:
        return f"127.0.0.1:{self.app.peering.port}"

    @property
    def tokens(self) -> int:
        return sum(count.tokens for count in self.app.usage.book.today(clock.wall()).values())

    @property
    def requests(self) -> int:
        return sum(count.requests for count in self.app.usage.book.today(clock.wall()).values())

    async def chat(self, text: str = "hello", **headers: str) -> int:
        body = {"model": RECORDED_MODEL, "stream": False, "messages": [{"role": "user", "content": text}]}
        async with self.http.post(self.url + "/v1/chat/completions", json=body, headers=headers) as response:
            await response.read()
            return int(response.status)

    def knows(self, other: "One") -> bool:
        return any(
            record.state == "up" and record.origin == other.app.peering.origin
            for record in self.app.peering.describe(clock.monotonic())
        )


@contextlib.asynccontextmanager
async def instance(*engines: FakeLlamaCpp, **config: object) -> AsyncIterator[One]:
    named = [{"url": engine.url, "name": f"e{number}"} for number, engine in enumerate(engines)]
    async with pharos(**{"backends": named, "usage": {"timezone": "UTC"}} | config) as running:
        yield One(running.app, running.http)


def prefill_speeds(one: One) -> list[float | None]:
    """Of each backend; `None` too where the engine has not answered yet."""
    targets = [backend.targets.get(RECORDED_MODEL) for backend in one.app.fleet.backends.values()]
    return [target.stats.prefill_s_per_token.value if target is not None else None for target in targets]


def minute(one: One) -> int:
    """Requests of the key in the last minute, as an instance knows."""
    return one.app.usage.book.minutes.count("k", clock.wall())


class Ports:
    """Peers' configurations with addresses known beforehand."""

    def __init__(self, folder: Path, count: int) -> None:
        self.secret = folder / "secret"
        self.secret.write_text(SECRET)
        self._kept = [reserve() for _ in range(count)]
        self.members = [f"127.0.0.1:{port_of(kept)}" for kept in self._kept]

    def __del__(self) -> None:
        for kept in self._kept:
            kept.close()

    def of(self, number: int) -> dict[str, Any]:
        return {"listen": self.members[number], "secret_file": str(self.secret), "members": self.members}


@contextlib.asynccontextmanager
async def pair(folder: Path, *engines: FakeLlamaCpp, **config: object) -> AsyncIterator[tuple[One, One]]:
    """Two instances that have met."""
    ports = Ports(folder, 2)
    async with (
        instance(*engines, peers=ports.of(0), **config) as a,
        instance(*engines, peers=ports.of(1), **config) as b,
    ):
        await until(lambda: a.knows(b) and b.knows(a))
        yield a, b


async def test_what_one_served_counts_against_the_quota_at_the_other(tmp_path: Path) -> None:
    async with FakeLlamaCpp() as engine, pair(tmp_path, engine, keys=keys(rpm=5)) as (a, b):
        statuses = []
        for number in range(7):
            before = a.requests + b.requests
            statuses.append(await (a, b)[number % 2].chat(**AUTH))
            if statuses[-1] == 200:
                await until(lambda: a.requests == b.requests and a.requests + b.requests > before)  # noqa: B023
                await until(lambda: [minute(one) for one in (a, b)] == [number + 1] * 2)  # noqa: B023
        assert statuses == [200] * 5 + [429] * 2
        assert a.tokens == b.tokens > 0


async def test_a_second_turn_through_another_instance_goes_where_the_first_one_went(tmp_path: Path) -> None:
    async with FakeLlamaCpp() as e0, FakeLlamaCpp() as e1, pair(tmp_path, e0, e1) as (a, b):
        await a.chat("word " * 400)
        await until(lambda: len(b.app.ledger.caches.index) > 0)
        await b.chat("word " * 400)
        first, second = (next(iter(one.app.reporting.recent)) for one in (a, b))
        assert first.target == second.target
        async with b.http.get(b.url + "/metrics") as response:
            text = await response.text()
        assert 'pharos_prefix_predictions_total{source="peer",outcome="predicted_hit"} 1' in text


async def test_requests_at_one_instance_take_slots_at_the_other_until_it_ends(tmp_path: Path) -> None:
    ports = Ports(tmp_path, 2)
    async with FakeLlamaCpp(slots=1) as engine, instance(engine, peers=ports.of(1)) as b:
        async with instance(engine, peers=ports.of(0)) as a:
            await until(lambda: a.knows(b) and b.knows(a))
            engine.hold()
            streaming = asyncio.create_task(a.chat())
            target = b.app.fleet.backends["e0"].targets[RECORDED_MODEL]
            await until(lambda: target.peers == 1)
            engine.release()
            assert await streaming == 200
            await until(lambda: target.peers == 0)
        [left] = [one for one in b.app.peering.describe(clock.monotonic()) if one.origin == a.app.peering.origin]
        assert left.state == "left"


async def test_an_instance_that_dies_with_a_stream_holds_its_slot_for_two_seconds_and_the_other_serves_on(
    tmp_path: Path,
) -> None:
    async with FakeLlamaCpp() as engine, FakeLlamaCpp() as other, pair(tmp_path, engine, other) as (a, b):
        for one in (engine, other):
            one.hold()
        streaming = asyncio.create_task(a.chat())
        targets = [backend.targets[RECORDED_MODEL] for backend in b.app.fleet.backends.values()]
        await until(lambda: sum(target.peers for target in targets) == 1)
        a.app.tasks.stop("peers")  # it says nothing any more, as one that was killed
        for one in (engine, other):
            one.release()
        assert await streaming == 200
        assert await b.chat() == 200
        await until(lambda: sum(target.peers for target in targets) == 0)
        [record] = [one for one in b.app.peering.describe(clock.monotonic()) if one.origin == a.app.peering.origin]
        assert record.heard_ago_s is not None
        assert record.heard_ago_s > 1.9


@pytest.mark.parametrize(
    ("peers", "shown"),
    [
        ({"members": ["a:1", "b:2"]}, "<Listed a:1, b:2>"),
        ({"dns": "pharos-peers"}, "<Named pharos-peers port 8081>"),
        ({"dns": "pharos-peers:9"}, "<Named pharos-peers port 9>"),
        ({"dns": "_peer._tcp.pharos"}, "<Named _peer._tcp.pharos port 8081>"),
    ],
)
def test_members_are_found_as_configured(peers: dict[str, object], shown: str) -> None:
    config = load.parse(json.dumps({"peers": {"secret_file": "/x", **peers}}), {})
    assert config.peers is not None
    assert repr(_members(config.peers, 8081)) == shown


async def test_a_slot_that_a_peer_gives_back_serves_who_waits_here(tmp_path: Path) -> None:
    async with FakeLlamaCpp(slots=1) as engine, pair(tmp_path, engine) as (a, b):
        engine.hold()
        first = asyncio.create_task(a.chat())
        target = b.app.fleet.backends["e0"].targets[RECORDED_MODEL]
        await until(lambda: target.peers == 1)
        second = asyncio.create_task(b.chat())
        await until(lambda: b.app.ledger.waiting == 1)
        await until(lambda: a.app.ledger.elsewhere.waiting == {RECORDED_MODEL: 1})
        engine.release()
        assert [await first, await second] == [200, 200]


async def test_a_state_file_brings_usage_prefixes_speeds_and_responses_back(tmp_path: Path) -> None:
    file = tmp_path / "state"
    async with FakeLlamaCpp() as engine, FakeLlamaCpp() as other:
        async with instance(engine, other, state_file=str(file)) as a:
            for number in range(3):
                assert await a.chat(f"{number} " + "word " * 400) == 200
            a.app.proxy.responses.take(("resp_1", "e0", RECORDED_MODEL, ""))
            await until(lambda: (a.app.reporting.count(), a.requests == 3)[1])
            tokens, entries = a.tokens, len(a.app.ledger.caches.index)
            speeds = prefill_speeds(a)
            ratio = a.app.fleet.tokens_per_byte(RECORDED_MODEL)
        async with instance(engine, other, state_file=str(file)) as again:
            assert again.requests == 3
            assert again.tokens == tokens
            await until(lambda: len(again.app.ledger.caches.index) == entries > 0)
            assert speeds != [None, None]
            await until(lambda: prefill_speeds(again) == speeds)
            assert again.app.fleet.tokens_per_byte(RECORDED_MODEL) == ratio
            assert len(again.app.proxy.responses) == 1


async def test_the_state_file_is_written_now_and_then_while_requests_come_and_left_alone_otherwise(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pharos.app.peering.SAVE_EVERY_S", 0.01)
    file = tmp_path / "state"
    async with FakeLlamaCpp() as engine, instance(engine, state_file=str(file)) as a:
        await until(file.exists)
        before = file.stat().st_ino
        assert await a.chat() == 200
        await until(lambda: file.stat().st_ino != before)
        told: list[str] = []
        counted, save = a.app.peering._counted, a.app.peering._save

        def looking() -> int:
            told.append("looked")
            return counted()

        async def saving(*of: Any) -> bool:
            told.append("saved")
            return await save(*of)

        monkeypatch.setattr(a.app.peering, "_counted", looking)
        monkeypatch.setattr(a.app.peering, "_save", saving)
        await until(lambda: told.count("looked") > 5)
        assert "saved" not in told[1:]


async def test_a_restarted_instance_has_its_state_back_when_it_is_ready(tmp_path: Path) -> None:
    ports = Ports(tmp_path, 2)
    async with FakeLlamaCpp() as engine, FakeLlamaCpp() as other, instance(engine, other, peers=ports.of(1)) as b:
        async with instance(engine, other, peers=ports.of(0)) as a:
            await until(lambda: a.knows(b) and b.knows(a))
            assert await a.chat("word " * 400) == 200
        assert b.requests == 1, "the last delta came before it ended"
        async with instance(engine, other, peers=ports.of(0)) as again:
            assert again.requests == 1
            await until(lambda: len(again.app.ledger.caches.index) > 0)
            assert again.app.fleet.tokens_per_byte(RECORDED_MODEL) == b.app.fleet.tokens_per_byte(RECORDED_MODEL)


async def test_another_set_of_backends_or_keys_is_shown_and_no_trouble(tmp_path: Path) -> None:
    ports = Ports(tmp_path, 2)
    async with (
        FakeLlamaCpp() as e0,
        FakeLlamaCpp() as e1,
        instance(e0, e1, peers=ports.of(0)) as a,
        instance(e0, peers=ports.of(1), keys=keys()) as b,
    ):
        await until(lambda: a.knows(b) and b.knows(a))
        await until(lambda: len(a.app.peering.describe(clock.monotonic())) == 1)  # it has found its own address
        [record] = a.app.peering.describe(clock.monotonic())
        assert record.config_differs == ("backends", "keys")
        told = a.app.peering.told()
        assert told is not None
        assert told[0]["config_differs"] == ("backends", "keys")
        assert a.app.peering._shown()


async def test_a_peer_with_a_wrong_secret_shares_nothing_and_is_named(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    ports = Ports(tmp_path, 2)
    other = tmp_path / "other"
    other.write_text("another secret of another house")
    async with (
        FakeLlamaCpp() as engine,
        instance(engine, peers=ports.of(0)) as a,
        instance(engine, peers={**ports.of(1), "secret_file": str(other)}) as b,
    ):
        await until(lambda: [r.state for r in a.app.peering.describe(clock.monotonic())] == ["refused"])
        await until(lambda: [r.state for r in b.app.peering.describe(clock.monotonic())] == ["refused"])
        assert await a.chat() == 200
        said = [record.getMessage() for record in caplog.records]
        assert any("refuses our secret" in text for text in said)
        assert any("127.0.0.1 showed a wrong secret: refused" in text for text in said)
        assert not any(SECRET in text or "another house" in text for text in said)
        assert b.requests == 0


async def test_b38_a_response_is_gone_on_from_through_another_instance(tmp_path: Path) -> None:
    async with FakeLlamaCpp() as e0, FakeLlamaCpp() as e1, pair(tmp_path, e0, e1) as (a, b):
        body = {"model": RECORDED_MODEL, "input": "hello"}
        async with a.http.post(a.url + "/v1/responses", json=body) as response:
            made = await response.json()
            assert response.status == 200, made
        first = next(iter(a.app.reporting.recent))
        await until(lambda: len(b.app.proxy.responses) == 1)
        for _ in range(3):  # the other engine is as free each time
            body = {"model": RECORDED_MODEL, "input": "and?", "previous_response_id": made["id"]}
            async with b.http.post(b.url + "/v1/responses", json=body) as response:
                await response.read()
            assert next(iter(b.app.reporting.recent)).target == first.target
        async with b.http.post(
            b.url + "/v1/responses", json={**body, "previous_response_id": "resp_unknown"}
        ) as response:
            assert response.status == 404


async def test_peers_by_tls_share_as_others_do_and_a_bad_certificate_is_named(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    ports, place = Ports(tmp_path, 2), make_authority(tmp_path, "house").folder
    tls = {"cert_file": f"{place}/engine.pem", "key_file": f"{place}/engine.key", "ca_file": f"{place}/ca.pem"}
    async with (
        FakeLlamaCpp() as engine,
        instance(engine, peers={**ports.of(0), "tls": tls}) as a,
        instance(engine, peers={**ports.of(1), "tls": tls}) as b,
    ):
        await until(lambda: a.knows(b) and b.knows(a))
        assert await a.chat() == 200
        await until(lambda: b.requests == 1)
    async with (
        FakeLlamaCpp() as engine,
        instance(engine, peers={**ports.of(0), "tls": {**tls, "cert_file": "/nowhere"}}) as a,
    ):
        assert await a.chat() == 200
        assert "peers.tls cannot be used" in caplog.text


async def test_a_taken_port_for_peers_ends_the_start_with_its_name(tmp_path: Path) -> None:
    ports = Ports(tmp_path, 2)
    async with FakeLlamaCpp() as engine, instance(engine, peers=ports.of(0)):
        with pytest.raises(OSError, match="address already in use") as told:
            async with instance(engine, peers=ports.of(0)):
                pass
        assert told.value.filename == f"peers.listen {ports.members[0]}"
