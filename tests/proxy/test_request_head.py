"""What of a client's request reaches the engine, and what never does."""

import json

import pytest

from tests.proxy.engine_script import Turn
from tests.proxy.harness import DONE, chat, event, front
from tests.proxy.test_forward import ok


@pytest.mark.parametrize(
    ("query", "sent"),
    [
        ("?api-version=2024-10-21&x=%2f+&x", "?api-version=2024-10-21&x=%2f+&x"),
        ("?key=pk-test&a=1&api%5Fkey=pk-test&Access_Token=pk-test", "?a=1"),
        ("?key=pk-test", ""),
        ("?", ""),
    ],
)
async def test_the_query_reaches_the_engine_without_the_fields_that_hold_a_key(query: str, sent: str) -> None:
    async with front(ok) as (pharos, engine):
        path = "/v1/chat/completions"
        assert (await pharos.ask(chat(stream=False), path=path + query)).status == 200
        assert engine.turns[0].line == f"POST {path}{sent} HTTP/1.1"
        assert (await pharos.finished()).path == path


async def test_the_head_to_the_engine_is_the_engine_s_own() -> None:
    async with front(ok) as (pharos, engine):
        sent = (
            "Host: llm.example\r\nAuthorization: Bearer pk-test\r\nx-api-key: pk-test\r\napi-key: pk-test\r\n"
            "x-goog-api-key: pk-test\r\nCookie: s=pk-test\r\nOrigin: http://evil\r\nProxy-Authorization: Basic eDp5\r\n"
            "Connection: close, X-Hop\r\nX-Hop: 1\r\nTE: trailers\r\nUpgrade: h2c\r\nX-Passed: yes\r\n"
            "Content-Type: application/json\r\n"
        )
        client = await pharos.client()
        body = chat(stream=False)
        client.send(
            f"POST /v1/chat/completions?key=pk-test HTTP/1.1\r\nContent-Length: {len(body)}\r\n{sent}\r\n".encode()
            + body
        )
        assert (await client.reply()).status == 200
        turn = engine.turns[0]
        assert turn.line == "POST /v1/chat/completions HTTP/1.1"
        assert turn.header("host") == [f"127.0.0.1:{engine.port}"]
        assert b"pk-test" not in turn.head
        for name in (
            "origin",
            "cookie",
            "proxy-authorization",
            "x-hop",
            "te",
            "upgrade",
            "connection",
            "transfer-encoding",
        ):
            assert turn.header(name) == [], name
        assert turn.header("x-passed") == ["yes"]
        assert turn.header("content-type") == ["application/json"]
        assert turn.header("content-length") == [str(len(body))]
        assert len(turn.header("x-request-id")) == 1
        assert (await pharos.ask(body)).status == 200
        assert engine.connections == 1, "the client's close must not close the engine's connection"
        assert engine.turns[1].header("content-type") == ["application/json"]


async def test_a_body_sent_in_chunks_and_changed_on_the_way_has_one_correct_length() -> None:
    async def play(turn: Turn) -> None:
        await turn.sse_head()
        await turn.chunk(event() + DONE)
        await turn.write(b"0\r\n\r\n")

    async with front(play) as (pharos, engine):
        client = await pharos.client()
        body = chat()
        client.send(b"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n")
        client.send(b"%x\r\n%b\r\n" % (10, body[:10]) + b"%x\r\n%b\r\n0\r\n\r\n" % (len(body) - 10, body[10:]))
        assert (await client.reply()).status == 200
        turn = engine.turns[0]
        assert turn.header("content-length") == [str(len(turn.body))]
        assert turn.header("transfer-encoding") == []
        assert json.loads(turn.body) == {**json.loads(body), "stream_options": {"include_usage": True}}
