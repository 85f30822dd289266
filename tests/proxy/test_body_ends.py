"""Where a body ends and the next head begins: the last bytes of one are not the first of the other."""

import asyncio

import pytest

from pharos.proxy.settings import KIB, ProxySettings
from tests.proxy.engine_script import WAIT_S, Turn
from tests.proxy.harness import RawClient, chat, front

HEAD = b"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\n"


async def ok(turn: Turn) -> None:
    await turn.reply(200, b"{}")


def framed(body: bytes, *, chunked: bool) -> bytes:
    if chunked:
        return HEAD + b"Transfer-Encoding: chunked\r\n\r\n%x\r\n%b\r\n0\r\n\r\n" % (len(body), body)
    return HEAD + b"Content-Length: %d\r\n\r\n%b" % (len(body), body)


async def in_parts(client: RawClient, pharos: object, request: bytes, last: int) -> None:
    """All but the last bytes first, and those once the others were read."""
    client.send(request[:-last])
    async with asyncio.timeout(WAIT_S):
        while not pharos.proxy.routes.buffers.used:  # type: ignore[attr-defined]
            await asyncio.sleep(0)
    client.send(request[-last:])


@pytest.mark.parametrize("chunked", [False, True])
@pytest.mark.parametrize("last", [10, 100 * KIB])
async def test_the_last_part_of_a_body_is_no_beginning_of_a_head(last: int, *, chunked: bool) -> None:
    async with front(ok, settings=ProxySettings(header_bytes=8 * KIB)) as (pharos, engine):
        client = await pharos.client()
        request = framed(chat(stream=False, filler="x" * 200 * KIB), chunked=chunked)
        for _ in range(3):
            await in_parts(client, pharos, request, last)
            reply = await client.reply()
            assert reply.status == 200
            assert reply.header("connection") == []
            (connection,) = pharos.proxy.connections
            assert connection._head_timer is None, "nobody waits for a head that was not begun"
            assert not connection.is_half_sent
        assert len(engine.turns) == 3


@pytest.mark.parametrize("chunked", [False, True])
async def test_the_beginning_of_a_head_behind_a_body_still_has_its_time_and_its_limit(*, chunked: bool) -> None:
    async with front(ok, settings=ProxySettings(header_bytes=8 * KIB)) as (pharos, _):
        client = await pharos.client()
        request = framed(chat(stream=False, filler="x" * 200 * KIB), chunked=chunked)
        await in_parts(client, pharos, request, 100 * KIB)
        assert (await client.reply()).status == 200
        client.send(b"GET /livez HTTP/1.1\r\nX: ")
        (connection,) = pharos.proxy.connections
        async with asyncio.timeout(WAIT_S):
            while not connection.is_half_sent:
                await asyncio.sleep(0)
        assert connection._head_timer is not None
        client.send(b"x" * 9 * KIB)
        refused = await client.reply()
        assert refused.status == 431
