import asyncio
import logging
import resource

import pytest

from pharos.proxy.server import bind, raise_open_files
from pharos.proxy.settings import ProxySettings
from tests.proxy.engine_script import WAIT_S, Turn
from tests.proxy.harness import chat, front


async def ok(turn: Turn) -> None:
    await turn.reply(200, b"{}")


SECRET = "sk-very-secret"


GET = "GET /livez HTTP/1.1\r\nHost: x\r\n"
POST = f"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nX: {SECRET}\r\n"
LONG = "x" * 70_000
MANY = "B: " + "x" * 1000 + "\r\n"
MORE = f"A: {SECRET}\r\n"


@pytest.mark.parametrize(
    ("request_bytes", "status"),
    [
        (f"{GET}Authorization: Bearer {SECRET}{LONG}\r\n\r\n", 431),
        (f"{GET}{MORE}{MANY * 100}\r\n", 431),
        (f"{GET}{MORE * 300}\r\n", 431),
        (f"GET /{SECRET}{LONG} HTTP/1.1\r\nHost: x\r\n\r\n", 431),
        (f"{GET}Bad Header {SECRET}: 1\r\n\r\n", 400),
        (f"{GET}A: {SECRET}\x01\r\n\r\n", 400),
        (f"{SECRET}\r\n\r\n", 400),
        (f"{POST}Content-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n", 400),
        (f"{POST}Content-Length: ten\r\n\r\n", 400),
        (f"GET /livez HTTP/1.1\r\nX: {SECRET}\r\n\r\n", 400),
    ],
    ids=["long", "much", "many", "path", "name", "control", "rubbish", "two framings", "length", "no Host"],
)
async def test_what_is_no_proper_request_is_refused_in_our_shape_and_echoed_nowhere(
    request_bytes: str, status: int, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    async with front(ok) as (pharos, _):
        client = await pharos.client()
        client.send(request_bytes.encode())
        reply = await client.reply()
        assert reply.status == status
        assert reply.json()["error"]["type"] == "invalid_request_error"
        assert reply.header("content-type") == ["application/json"]
        assert reply.header("connection") == ["close"]
        assert len(reply.header("x-request-id")) == 1
        assert SECRET.encode() not in reply.raw
        assert (await client.rest())[0] == b""
    assert SECRET not in caplog.text
    assert all(record.exc_info is None for record in caplog.records)


async def test_an_endless_header_is_refused_before_it_ends() -> None:
    async with front(ok) as (pharos, _):
        client = await pharos.client()
        client.send(b"GET /livez HTTP/1.1\r\nHost: x\r\n")
        for number in range(80):
            client.send(b"X-%d: %b\r\n" % (number, b"x" * 1000))
            await asyncio.sleep(0)
        reply = await client.reply()
        assert reply.status == 431


async def test_a_broken_request_behind_a_stream_does_not_break_into_it() -> None:
    async def play(turn: Turn) -> None:
        await turn.sse_head()
        await turn.chunk(b": one\n\n")
        await go_on.wait()
        await turn.chunk(b"data: [DONE]\n\n")
        await turn.write(b"0\r\n\r\n")

    go_on = asyncio.Event()
    async with front(play) as (pharos, _):
        client = await pharos.client()
        client.post(chat())
        await client.until(b": one\n\n")
        client.send(b"rubbish\r\n\r\n")
        await asyncio.sleep(0)
        go_on.set()
        got = await client.until(b"0\r\n\r\n")
        assert b"HTTP/1.1" not in got
        reply = await client.reply()
        assert reply.status == 400


async def test_pipelined_requests_are_answered_in_order_on_one_connection() -> None:
    async with front(ok) as (pharos, engine):
        client = await pharos.client()
        client.post(chat(stream=False))
        client.get("/livez")
        client.post(chat("none", stream=False))
        client.get("/livez")
        assert [(await client.reply()).status for _ in range(4)] == [200, 200, 404, 200]
        assert len(engine.turns) == 1


async def test_keep_alive_follows_the_client_s_version_and_header() -> None:
    async with front(ok) as (pharos, _):
        client = await pharos.client()
        client.post(chat(stream=False), "Connection: close\r\n")
        assert (await client.reply()).header("connection") == ["close"]
        assert await client.rest() == (b"", True)

        client = await pharos.client()
        client.post(chat(stream=False), version="1.0")
        assert (await client.reply()).header("connection") == ["close"]
        assert await client.rest() == (b"", True)

        client = await pharos.client()
        for _ in range(2):
            client.post(chat(stream=False), "Connection: keep-alive\r\n", version="1.0")
            assert (await client.reply()).header("connection") == ["keep-alive"]

        client = await pharos.client()
        for _ in range(2):
            client.post(chat(stream=False))
            assert (await client.reply()).header("connection") == []


async def test_one_connection_too_many_is_told_so() -> None:
    async with front(ok, settings=ProxySettings(connections=2)) as (pharos, _):
        kept = [await pharos.client() for _ in range(2)]
        for client in kept:
            client.get("/livez")
            assert (await client.reply()).status == 200
        extra = await pharos.client()
        extra.get("/v1/models")
        reply = await extra.reply()
        assert reply.status == 503
        assert reply.header("retry-after") == ["1"]
        assert await extra.rest() == (b"", True)
        kept[0].close()
        async with asyncio.timeout(WAIT_S):
            while len(pharos.proxy.connections) >= 2:
                await asyncio.sleep(0)
        assert (await pharos.fetch("/v1/models")).status == 200


@pytest.mark.parametrize(
    ("given", "is_kept"),
    [
        ("req-1.2:3", True),
        ("a" * 128, True),
        ("a" * 129, False),
        ("two words", False),
        ("x\ty", False),
        ("<b>", False),
        ("", False),
    ],
)
async def test_a_harmless_request_id_is_kept_and_any_other_replaced(given: str, is_kept: bool) -> None:  # noqa: FBT001
    async with front(ok) as (pharos, engine):
        reply = await pharos.ask(chat(stream=False), f"X-Request-Id: {given}\r\n")
        (got,) = reply.header("x-request-id")
        assert (got == given) is is_kept
        assert engine.turns[0].header("x-request-id") == [got]
        done = await pharos.finished()
        assert done.request_id == got


async def test_every_reply_has_a_request_id() -> None:
    async with front(ok) as (pharos, _):
        for path in ("/livez", "/nowhere", "/v1/models", "/v1/chat/completions"):
            assert len((await pharos.fetch(path)).header("x-request-id")) == 1


async def test_a_fault_of_ours_is_a_500_in_our_shape_and_its_text_is_not_logged(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def page(_query: object, _accept: str, _is_admin: bool) -> tuple[int, str, bytes]:  # noqa: FBT001
        raise RuntimeError(SECRET)

    async with front(ok, pages={"/metrics": page}) as (pharos, _):
        reply = await pharos.fetch("/metrics")
        assert reply.status == 500
        assert reply.json()["error"]["code"] == "internal_error"
    assert "RuntimeError" in caplog.text
    assert SECRET not in caplog.text


async def test_a_request_to_switch_protocols_is_served_as_plain_http() -> None:
    async with front(ok) as (pharos, engine):
        reply = await pharos.ask(chat(stream=False), "Connection: Upgrade\r\nUpgrade: h2c\r\nHTTP2-Settings: x\r\n")
        assert reply.status == 200
        assert engine.turns[0].header("upgrade") == []
        reply = await pharos.fetch("/livez", "Connection: Upgrade\r\nUpgrade: websocket\r\n")
        assert reply.status == 200


async def test_a_client_that_asks_much_and_reads_nothing_does_not_grow_memory() -> None:
    def page(_query: object, _accept: str, _is_admin: bool) -> tuple[int, str, bytes]:  # noqa: FBT001
        nonlocal served
        served += 1
        return 200, "text/plain", b"x" * 200_000

    served = 0
    async with front(ok, pages={"/metrics": page}) as (pharos, _):
        client = await pharos.client()
        client.writer.transport.pause_reading()
        for _ in range(200):
            client.get("/metrics")
        for _ in range(300):
            await asyncio.sleep(0)
        (connection,) = pharos.proxy.connections
        assert connection.wire.get_write_buffer_size() < 1_000_000
        assert served < 100


async def test_one_socket_serves_both_address_families() -> None:
    sock = bind(":0")
    port = sock.getsockname()[1]
    sock.close()
    assert port > 0
    v4 = bind("127.0.0.1:0")
    assert v4.getsockname()[0] == "127.0.0.1"
    v4.close()


async def test_the_limit_of_open_files_is_lifted() -> None:
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(before[0], 512), before[1]))
    try:
        raise_open_files()
        assert resource.getrlimit(resource.RLIMIT_NOFILE)[0] == before[1]
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)


async def test_the_idle_limit_is_longer_than_load_balancers_keep_theirs() -> None:
    balancers = {"application load balancers and nginx": 75, "AWS's for the network": 350, "Google's": 600}
    assert ProxySettings().idle_s > max(balancers.values())
    async with front(ok, settings=ProxySettings(idle_s=0.05)) as (pharos, _):
        client = await pharos.client()
        client.get("/livez")
        assert (await client.reply()).status == 200
        assert await client.rest() == (b"", True)


async def test_each_request_without_an_id_gets_one_of_its_own() -> None:
    async with front(ok) as (pharos, _):
        ids = [(await pharos.fetch("/livez")).header("x-request-id")[0] for _ in range(3)]
        assert len(set(ids)) == 3
        assert all(len(one) == 32 and int(one, 16) for one in ids)
