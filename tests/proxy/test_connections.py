"""The limit of connections, and those that never ask anything."""

import asyncio
import os
import socket
from typing import Any

import pytest

from pharos.proxy import client as clients
from pharos.proxy.dial import IDLE_PROBE_S, PROBE_EVERY_S, PROBES
from pharos.proxy.settings import ProxySettings
from tests.proxy.engine_script import WAIT_S, Turn
from tests.proxy.harness import RawClient, chat, front


async def ok(turn: Turn) -> None:
    await turn.reply(200, b'{"choices":[]}')


def page(_query: object, _accept: str, _is_admin: bool) -> tuple[int, str, bytes]:  # noqa: FBT001
    return 200, "text/plain", b"metrics"


async def fill(pharos: Any, count: int) -> list[RawClient]:
    made = [await pharos.client() for _ in range(count)]
    for client in made:
        client.get("/livez")
        assert (await client.reply()).status == 200
    return made


@pytest.mark.parametrize("path", ["/livez", "/healthz", "/metrics"])
async def test_health_and_metrics_are_answered_beyond_the_limit(path: str) -> None:
    async with front(ok, settings=ProxySettings(connections=2), pages={"/metrics": page}) as (pharos, _):
        await fill(pharos, 2)
        for _ in range(2 * clients.SPARE):  # each gives its place back
            extra = await pharos.client()
            extra.get(path)
            reply = await extra.reply()
            assert reply.status == 200
            assert reply.header("connection") == ["close"]
            assert await extra.rest() == (b"", True)


async def test_anything_else_beyond_the_limit_is_refused() -> None:
    async with front(ok, settings=ProxySettings(connections=2)) as (pharos, engine):
        kept = await fill(pharos, 2)
        assert (await pharos.fetch("/v1/models")).status == 503
        refused = await pharos.ask(chat(stream=False))
        assert refused.status == 503
        assert refused.header("retry-after") == ["1"]
        assert refused.header("connection") == ["close"]
        assert engine.turns == []
        kept[0].close()
        async with asyncio.timeout(WAIT_S):
            while len(pharos.proxy.connections) >= 2:
                await asyncio.sleep(0)
        assert (await pharos.ask(chat(stream=False))).status == 200


async def test_silent_connections_leave_the_reserve_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clients, "SPARE_HEAD_S", 1.0)
    async with front(ok, settings=ProxySettings(connections=1)) as (pharos, _):
        await fill(pharos, 1)
        silent = [await pharos.client() for _ in range(clients.SPARE)]
        over = await pharos.client()
        assert (await over.reply()).status == 503
        for client in silent:
            assert await client.rest() == (b"", True)
        assert (await pharos.fetch("/livez")).status == 200


async def test_a_connection_without_a_whole_head_is_closed_after_a_while() -> None:
    async with front(ok, settings=ProxySettings(first_head_s=0.2)) as (pharos, _):
        silent, half, used, halved = [await pharos.client() for _ in range(4)]
        half.send(b"GET /livez HTTP/1.1\r\nHost")
        for client in (used, halved):
            client.get("/livez")
            assert (await client.reply()).status == 200
        halved.send(b"GET /li")
        for client in (silent, half, halved):
            assert (await client.rest())[0] == b""
        await asyncio.sleep(0.3)
        used.get("/livez")  # an idle one stays
        assert (await used.reply()).status == 200


async def test_a_head_in_time_stops_the_clock_however_long_its_request_takes() -> None:
    async def slow(turn: Turn) -> None:
        await asyncio.sleep(0.5)
        await ok(turn)

    async with front(slow, settings=ProxySettings(first_head_s=0.2)) as (pharos, _):
        client = await pharos.client()
        client.post(chat(stream=False))
        client.send(b"GET /livez HT")  # half a head behind it must not break the reply
        reply = await client.reply()
        assert reply.status == 200
        assert reply.is_whole


def options(transport: asyncio.BaseTransport) -> tuple[int, ...]:
    sock = transport.get_extra_info("socket")
    with socket.socket(fileno=os.dup(sock.fileno())) as same:
        return (
            same.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE),
            same.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE),
            same.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL),
            same.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT),
        )


@pytest.mark.skipif(not hasattr(socket, "TCP_KEEPIDLE"), reason="this platform has no such options")
async def test_vanished_peers_on_both_sides_are_found_by_the_system() -> None:
    wanted = (1, IDLE_PROBE_S, PROBE_EVERY_S, PROBES)
    assert wanted == (1, 30, 10, 3)
    async with front(ok) as (pharos, engine):
        client = await pharos.client()
        client.post(chat(stream=False))
        assert (await client.reply()).status == 200
        assert options(pharos.proxy.connections[0].wire) == wanted
        up = pharos.proxy.pool.take(engine.url)
        assert options(up._transport) == wanted
        up.abort()


@pytest.mark.parametrize(
    "header",
    [
        "Authorization: Bearer KEY",
        "Authorization: bearer  KEY ",
        "Authorization: KEY",
        "X-Api-Key: KEY",
        "Api-Key: KEY",
        "x-api-key: other\r\nx-goog-api-key: KEY",
    ],
)
async def test_a_key_sent_as_the_request_id_is_never_shown(header: str) -> None:
    secret = "sk-0123456789"
    async with front(ok) as (pharos, engine):
        reply = await pharos.ask(chat(stream=False), f"X-Request-Id: {secret}\r\n{header.replace('KEY', secret)}\r\n")
        assert reply.status == 200
        assert secret.encode() not in reply.raw
        assert secret.encode() not in engine.turns[0].head
        assert (await pharos.finished()).request_id == reply.header("x-request-id")[0]
        kept = await pharos.ask(chat(stream=False), f"X-Request-Id: mine\r\n{header.replace('KEY', secret)}\r\n")
        assert kept.header("x-request-id") == ["mine"]
        within = f"X-Request-Id: bearer:{secret}\r\n{header.replace('KEY', secret)}\r\n"
        assert secret.encode() not in (await pharos.ask(chat(stream=False), within)).raw
