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
        ("?a=1;api_key=pk-test;b=2&c", "?a=1;b=2&c"),
        ("?api_key=pk-test;b=2&c", "?b=2&c"),
        ("?&&a=1;;", "?&&a=1;;"),
        ("?", ""),
    ],
)
async def test_the_query_reaches_the_engine_without_the_fields_that_hold_a_key(query: str, sent: str) -> None:
    async with front(ok) as (pharos, engine):
        path = "/v1/chat/completions"
        assert (await pharos.ask(chat(stream=False), path=path + query)).status == 200
        assert engine.turns[0].line == f"POST {path}{sent} HTTP/1.1"
        assert (await pharos.finished()).path == path


SECRET = "sk-0123/4567+89ab"


@pytest.mark.parametrize(
    "header", ["Authorization: Bearer KEY", "X-Api-Key: KEY", "api_key: KEY", "x-goog-api-key: KEY"]
)
async def test_a_presented_key_reaches_no_engine_in_any_header_or_field(header: str) -> None:
    async with front(ok) as (pharos, engine):
        query = "?a=1&token=KEY&b=xKEYx;c=K%45Y&d=2".replace("K%45Y", "sk%2D0123/4567%2b89ab").replace("KEY", SECRET)
        headers = (
            f"{header}\r\nX-Auth-Token: KEY\r\nX-Custom: a; k=KEY\r\nX-Passed: yes\r\n"
            "Content-Type: application/json\r\n"
        ).replace("KEY", SECRET)
        reply = await pharos.ask(
            chat(stream=False), f"X-Request-Id: id:{SECRET}\r\n{headers}", path="/v1/chat/completions" + query
        )
        assert reply.status == 200
        turn = engine.turns[0]
        assert turn.line.startswith("POST /v1/chat/completions?a=1&d=2 ")
        assert SECRET.encode() not in turn.head
        assert turn.header("x-passed") == ["yes"]
        assert turn.header("content-type") == ["application/json"]
        assert SECRET.encode() not in reply.head
        assert SECRET not in repr(await pharos.finished())


async def test_a_key_of_separators_takes_the_whole_query_with_it() -> None:
    async with front(ok) as (pharos, engine):
        await pharos.ask(chat(stream=False), "x-api-key: aaaa&bbbb\r\n", path="/v1/chat/completions?x=aaaa&bbbb=1")
        assert engine.turns[0].line == "POST /v1/chat/completions HTTP/1.1"


@pytest.mark.parametrize("key", ["none", "json", "x"])
async def test_a_key_that_is_hardly_one_takes_nothing_with_it_but_itself(key: str) -> None:
    async with front(ok) as (pharos, engine):
        await pharos.ask(
            chat(stream=False),
            f"Authorization: Bearer {key}\r\nContent-Type: application/json\r\nX-A: nonexistent\r\nX-B: {key}\r\n",
            path=f"/v1/chat/completions?x=nonexistent&y={key}",
        )
        turn = engine.turns[0]
        assert turn.line == "POST /v1/chat/completions?x=nonexistent HTTP/1.1"
        assert (turn.header("x-a"), turn.header("x-b")) == (["nonexistent"], [])
        assert turn.header("content-type") == ["application/json"]


async def test_a_key_sent_as_the_model_is_kept_nowhere() -> None:
    async with front(ok) as (pharos, _):
        for name in (SECRET, f"x-{SECRET}"):
            reply = await pharos.ask(chat(name), f"Authorization: Bearer {SECRET}\r\n")
            assert reply.status == 404
            assert SECRET not in repr(pharos.done)
            assert pharos.done[-1].model != name


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/messages", "/api/chat", "/v1/responses/resp_1", "/page"])
@pytest.mark.parametrize("query", ["&%41" * 101, ";a" * 101, "a" * 8200, "%41" * 3000])
async def test_a_query_of_many_fields_is_refused_before_it_is_decoded(path: str, query: str) -> None:
    pages = {"/page": lambda _query, _accept, _is_admin: (200, "text/plain", b"ok")}
    async with front(ok, pages=pages) as (pharos, engine):
        client = await pharos.client()
        if path in ("/page", "/v1/responses/resp_1"):
            client.get(f"{path}?{query}")
        else:
            client.post(chat(), path=f"{path}?{query}")
        reply = await client.reply()
        assert (reply.status, engine.turns) == (404 if path.endswith("resp_1") else 400, [])
        said = reply.json()
        if path == "/api/chat":
            assert isinstance(said["error"], str)
        elif path == "/v1/messages":
            assert said["type"] == "error"
        else:
            assert isinstance(said["error"], dict)


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
