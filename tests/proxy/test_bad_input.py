"""What is wrong, odd or old-fashioned about a request, or about an engine's answer to it.

Each case ends in a clear answer in the caller's protocol, and its connection goes on or is closed on purpose.
"""

import asyncio
import errno
import socket
from collections.abc import Callable
from typing import Any

import pytest

from pharos.core.fleet import BackendSpec
from pharos.proxy.auth import Key
from pharos.proxy.server import bind
from tests.proxy.engine_script import WAIT_S, Script, ScriptedEngine, Turn
from tests.proxy.harness import DONE, KEY, Front, RawClient, Reply, chat, event, front
from tests.proxy.test_audio import PATH as AUDIO
from tests.proxy.test_audio import TYPE as FORM
from tests.proxy.test_audio import form

OPENAI, ANTHROPIC, OLLAMA = "/v1/chat/completions", "/v1/messages", "/api/chat"
SAID: dict[str, Callable[[Any], str]] = {
    OPENAI: lambda body: body["error"]["message"],
    ANTHROPIC: lambda body: body["error"]["message"] if body["type"] == "error" else "",
    OLLAMA: lambda body: body["error"],
}
EVERY_PROTOCOL = pytest.mark.parametrize("path", SAID)


async def ok(turn: Turn) -> None:
    await turn.reply(200, b"{}")


async def streaming(turn: Turn) -> None:
    await turn.sse_head()
    await turn.chunk(event("a") + DONE)
    await turn.write(b"0\r\n\r\n")


async def goes_on(client: RawClient) -> bool:
    """Whether the connection carries another request."""
    client.get("/livez")
    return (await client.reply()).body == b"ok\n"


# --- keys

BOTH = [
    (f"Authorization: Bearer {KEY}\r\nx-api-key: wrong\r\n", 200),
    (f"x-api-key: wrong\r\nAuthorization: Bearer {KEY}\r\n", 200),
    (f"Authorization: Bearer wrong\r\nx-api-key: {KEY}\r\n", 401),
    (f"x-api-key: {KEY}\r\napi-key: wrong\r\n", 200),
    (f"Authorization: Bearer\r\nx-api-key: {KEY}\r\n", 200),
    (f"Authorization: Basic dTpw\r\nx-api-key: {KEY}\r\n", 200),
]


@pytest.mark.parametrize(("headers", "status"), BOTH)
async def test_of_two_keys_the_first_place_that_holds_one_counts_and_neither_reaches_the_engine(
    headers: str, status: int
) -> None:
    async with front(ok, keys={KEY: Key("k")}) as (pharos, engine):
        client = await pharos.client()
        client.post(chat(stream=False), headers)
        assert (await client.reply()).status == status
        assert len(engine.turns) == (1 if status == 200 else 0)
        for turn in engine.turns:
            assert KEY.encode() not in turn.head
            assert b"wrong" not in turn.head


@EVERY_PROTOCOL
@pytest.mark.parametrize(
    "headers",
    [
        f"Authorization: {KEY}\r\n",
        f"Authorization: Basic {KEY}\r\n",
        f"Authorization: Bearer{KEY}\r\n",
        f"Proxy-Authorization: Bearer {KEY}\r\n",
        f"x-goog-api-key: {KEY}\r\n",
        f"X-Auth-Token: {KEY}\r\n",
        f"Cookie: api-key={KEY}\r\n",
    ],
)
async def test_a_key_in_the_wrong_header_is_a_401_that_names_the_right_ones(path: str, headers: str) -> None:
    async with front(ok, keys={KEY: Key("k")}, kind="ollama") as (pharos, engine):
        client = await pharos.client()
        client.post(chat(), headers, path)
        reply = await client.reply()
        assert reply.status == 401
        assert "Authorization: Bearer KEY" in SAID[path](reply.json())
        assert KEY.encode() not in reply.raw
        client.post(chat(), "", f"{path}?api_key={KEY}")
        again = await client.reply()
        assert again.status == 401
        assert KEY.encode() not in again.raw
        assert await goes_on(client)
        assert engine.turns == []


# --- bodies that are not what their head says


@EVERY_PROTOCOL
async def test_a_body_longer_than_stated_is_cut_there_and_the_rest_ends_the_connection(path: str) -> None:
    async with front(ok, kind="ollama") as (pharos, engine):
        client = await pharos.client()
        client.post(chat(stream=False)[:-5], path=path)
        reply = await client.reply()
        assert reply.status == 400
        assert SAID[path](reply.json())
        client.send(b"lse}\r\n\r\n")
        junk = await client.reply()
        assert (junk.status, junk.header("connection")) == (400, ["close"])
        assert await client.rest() == (b"", True)
        assert engine.turns == []


@pytest.mark.parametrize("framing", ["Content-Length: 1000", "Transfer-Encoding: chunked"])
@pytest.mark.parametrize("how", ["close", "half close"])
async def test_a_body_that_ends_before_its_stated_end_reaches_no_engine(framing: str, how: str) -> None:
    async with front(ok) as (pharos, engine):
        client = await pharos.client()
        client.send(f'POST {OPENAI} HTTP/1.1\r\nHost: x\r\n{framing}\r\n\r\n4\r\n{{"mo\r\n'.encode())
        async with asyncio.timeout(WAIT_S):
            while not pharos.proxy.routes.buffers.used:
                await asyncio.sleep(0)
        if how == "close":
            client.close()
        else:
            client.writer.write_eof()
        assert (await pharos.finished()).status in (400, 499)
        assert pharos.proxy.routes.buffers.used == 0
        assert engine.turns == []


async def test_fields_behind_a_chunked_body_are_no_headers() -> None:
    async with front(ok, keys={KEY: Key("k")}) as (pharos, engine):
        body, auth = chat(stream=False), f"Authorization: Bearer {KEY}\r\n"
        for sent, fields, status in ((auth, "X-Sum: 5\r\nHost: evil\r\n", 200), ("", auth, 401)):
            client = await pharos.client()
            client.send(
                f"POST {OPENAI} HTTP/1.1\r\nHost: x\r\n{sent}Trailer: X-Sum\r\nTransfer-Encoding: chunked\r\n\r\n"
                f"{len(body):x}\r\n".encode()
                + body
                + f"\r\n0\r\n{fields}\r\n".encode()
            )
            assert (await client.reply()).status == status
        (turn,) = engine.turns
        assert turn.body == body
        assert turn.header("x-sum") == turn.header("trailer") == []
        assert turn.header("host") == [f"127.0.0.1:{engine.port}"]
        assert turn.header("content-length") == [str(len(body))]


async def test_a_form_without_a_model_is_refused_and_the_connection_goes_on() -> None:
    async with front(ok) as (pharos, engine):
        client = await pharos.client()
        client.post(form(512, model=None), FORM, AUDIO)
        reply = await client.reply()
        assert (reply.status, reply.json()["error"]["param"]) == (400, "model")
        client.post(form(512), FORM, AUDIO)
        assert (await client.reply()).status == 200
        assert len(engine.turns) == 1


@EVERY_PROTOCOL
@pytest.mark.parametrize("body", [b"", b"{", b"[]", b"null", b'{"model":7}', b'{"messages":[]}', b"\xff", b"model=m"])
async def test_a_body_that_means_nothing_is_a_400_and_the_connection_goes_on(path: str, body: bytes) -> None:
    async with front(ok, kind="ollama") as (pharos, engine):
        client = await pharos.client()
        client.post(body, path=path)
        reply = await client.reply()
        assert reply.status == 400
        assert SAID[path](reply.json())
        assert await goes_on(client)
        assert engine.turns == []


# --- paths


@pytest.mark.parametrize("headers", ["", "anthropic-version: 2023-06-01\r\n"])
@pytest.mark.parametrize(
    "name",
    ["%", "%zz", "%2", "%00", "%ff%fe", "a%2F..%2Fb", "../m", "a//b", "a/", "m%0d%0aX-Y:1", "m;x", "x" * 9000],
)
async def test_no_name_in_a_path_does_more_than_not_exist(name: str, headers: str) -> None:
    async with front(ok) as (pharos, engine):
        client = await pharos.client()
        client.get(f"/v1/models/{name}", headers)
        reply = await client.reply()
        assert reply.status == 404
        said = reply.json()
        assert said["error"]["message"]
        assert (said.get("type") == "error") is bool(headers)
        assert reply.header("x-y") == []
        assert len(reply.body) < 1000
        assert await goes_on(client)
        assert engine.turns == []


@pytest.mark.parametrize("given", ["%", "%zz", "%00", "..", "a%2Fb", "x" * 9000])
async def test_an_id_that_is_none_is_an_unknown_response(given: str) -> None:
    async with front(ok) as (pharos, engine):
        client = await pharos.client()
        for method, path in (("GET", ""), ("DELETE", ""), ("GET", "/input_items"), ("POST", "/cancel")):
            client.get(f"/v1/responses/{given}{path}", method=method)
            reply = await client.reply()
            assert (reply.status, reply.json()["error"]["code"]) == (404, "response_not_found")
        assert await goes_on(client)
        assert engine.turns == []


# --- old and rare ways of HTTP


def page(_query: object, _accept: str, _is_admin: bool) -> tuple[int, str, bytes]:  # noqa: FBT001
    return 200, "text/plain", b"a page"


@pytest.mark.parametrize(
    "path",
    [
        "/", "/healthz", "/livez", "/metrics", "/status", "/v1/models", "/v1/models/m", "/v1/models/none", "/api/tags",
        "/api/ps", "/api/version", "/nowhere", OPENAI,
    ],
)  # fmt: skip
async def test_head_is_get_without_the_body_wherever_there_is_a_get(path: str) -> None:
    async with front(ok, kind="ollama", pages={"/metrics": page, "/status": page}) as (pharos, _):
        client = await pharos.client()
        client.get(path)
        got = await client.reply()
        client.get(path, method="HEAD")
        head = await client.reply(no_body=True)
        assert (head.status, head.header("content-type")) == (got.status, got.header("content-type"))
        if path != "/nowhere":  # whose text names the method
            assert head.header("content-length") == got.header("content-length") == [str(len(got.body))]
        assert head.header("allow") == got.header("allow")
        assert await goes_on(client)


BODILESS = [
    b"HTTP/1.1 204 No Content\r\n\r\n",
    b"HTTP/1.1 204 No Content\r\nContent-Length: 5\r\n\r\n",
    b"HTTP/1.1 204 No Content\r\nTransfer-Encoding: chunked\r\n\r\n",
    b"HTTP/1.1 304 Not Modified\r\nETag: x\r\n\r\n",
    b"HTTP/1.1 304 Not Modified\r\nContent-Length: 500\r\nContent-Type: application/json\r\n\r\n",
]


@pytest.mark.parametrize("said", BODILESS)
async def test_a_reply_that_has_no_body_has_none_whatever_its_head_says(said: bytes) -> None:
    async def play(turn: Turn) -> None:
        await turn.write(said)

    async with front(play) as (pharos, engine):
        client = await pharos.client()
        for _ in range(2):
            client.post(chat(stream=False))
            reply = await client.reply()
            assert reply.status == int(said[9:12])
            assert reply.header("transfer-encoding") == reply.header("content-length") == []
        assert await goes_on(client)
        assert len(engine.turns) == 2


@pytest.mark.parametrize("keep", ["", "Connection: keep-alive\r\n"])
@pytest.mark.parametrize("chunked", [False, True])
async def test_a_client_of_http_1_0_never_gets_chunks(keep: str, *, chunked: bool) -> None:
    async def play(turn: Turn) -> None:
        await turn.write(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n")
        await turn.chunk(b'{"choices":')
        await turn.chunk(b"[]}")
        await turn.write(b"0\r\n\r\n")

    async with front(play if chunked else streaming) as (pharos, _):
        client = await pharos.client()
        client.post(chat(stream=not chunked), keep, version="1.0")
        reply = await client.reply()
        assert reply.header("transfer-encoding") == []
        assert reply.header("connection") == ["close"]
        assert reply.body == (b'{"choices":[]}' if chunked else event("a") + DONE)
        assert reply.is_whole


async def test_a_client_of_http_1_0_keeps_its_connection_while_lengths_are_known() -> None:
    async with front(ok) as (pharos, _):
        client = await pharos.client()
        for body, status in ((chat(stream=False), 200), (b"{", 400), (chat("none"), 404)):
            client.post(body, "Connection: keep-alive\r\n", version="1.0")
            reply = await client.reply()
            assert (reply.status, reply.header("connection")) == (status, ["keep-alive"])


@pytest.mark.parametrize("value", ["100-continue", "100-Continue", " 100-continue"])
@pytest.mark.parametrize("chunked", [False, True])
async def test_a_client_that_waits_to_be_asked_is_asked_once(value: str, *, chunked: bool) -> None:
    async with front(ok) as (pharos, engine):
        body = chat(stream=False)
        framing = "Transfer-Encoding: chunked" if chunked else f"Content-Length: {len(body)}"
        client = await pharos.client()
        for count in (1, 2):
            client.send(f"POST {OPENAI} HTTP/1.1\r\nHost: x\r\nExpect: {value}\r\n{framing}\r\n\r\n".encode())
            assert await client.head() == b"HTTP/1.1 100 Continue\r\n\r\n"
            client.send(b"%x\r\n%b\r\n0\r\n\r\n" % (len(body), body) if chunked else body)
            assert (await client.reply()).status == 200
            assert engine.turns[count - 1].header("expect") == []


@EVERY_PROTOCOL
@pytest.mark.parametrize("value", ["200-ok", "100-continue, magic", "x"])
async def test_another_expectation_is_a_417_and_the_body_is_not_asked_for(path: str, value: str) -> None:
    async with front(ok, kind="ollama") as (pharos, engine):
        client = await pharos.client()
        client.send(f"POST {path} HTTP/1.1\r\nHost: x\r\nExpect: {value}\r\nContent-Length: 50\r\n\r\n".encode())
        reply = await client.reply()
        assert (reply.status, reply.header("connection")) == (417, ["close"])
        assert SAID[path](reply.json())
        assert engine.turns == []


# --- engines that answer with something else

WEB_PAGE = b"<!doctype html><title>Sign in</title>"


def answers(status: int, kind: bytes = b"text/html; charset=utf-8") -> Script:
    async def play(turn: Turn) -> None:
        await turn.reply(status, WEB_PAGE, kind=kind)

    return play


@EVERY_PROTOCOL
@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("kind", [b"text/html", b"Text/HTML; charset=utf-8"])
async def test_a_web_page_is_no_answer_of_an_engine(path: str, kind: bytes, *, stream: bool) -> None:
    async with front(answers(200, kind), kind="ollama") as (pharos, engine):
        client = await pharos.client()
        client.post(chat(stream=stream), path=path)
        reply = await client.reply()
        assert reply.status == 502
        assert "The backend a failed" in SAID[path](reply.json())
        assert b"Sign in" not in reply.raw
        assert await goes_on(client)
        assert len(engine.turns) == 1
        assert ("upstream", "bad_reply") in (await pharos.finished()).stages
        assert pharos.inflight == 0


async def test_another_engine_is_asked_where_one_gives_a_web_page() -> None:
    async with front(answers(200), streaming) as (pharos, a, b):
        for _ in range(4):
            reply: Reply = await pharos.ask(chat())
            assert (reply.status, reply.body) == (200, event("a") + DONE)
        assert a.turns
        assert len(b.turns) == 4


# --- addresses of IPv6


@pytest.mark.skipif(not socket.has_ipv6, reason="this machine has no IPv6")
async def test_clients_and_engines_may_both_have_addresses_of_ipv6() -> None:
    engine = ScriptedEngine(ok)
    engine._server = await asyncio.start_server(engine._accept, "::1", 0)
    engine.port = engine._server.sockets[0].getsockname()[1]
    pharos = Front([BackendSpec(name="a", url=f"http://[::1]:{engine.port}/base", capacity=4)])
    await pharos.proxy.start("[::1]:0")
    try:
        reader, writer = await asyncio.open_connection("::1", pharos.proxy.port)
        client = RawClient(reader, writer)
        client.post(chat(stream=False))
        assert (await client.reply()).status == 200
        assert engine.turns[0].header("host") == [f"[::1]:{engine.port}"]
        assert engine.turns[0].line == f"POST /base{OPENAI} HTTP/1.1"
        assert (await pharos.finished()).target == "m@a"
        writer.transport.abort()
    finally:
        await pharos.stop()
        await engine.stop()


@pytest.mark.skipif(not socket.has_dualstack_ipv6(), reason="this machine has no socket for both families")
async def test_a_listener_on_all_addresses_takes_clients_of_both_families() -> None:
    sock = bind(":0")
    port = sock.getsockname()[1]
    with sock, socket.create_connection(("127.0.0.1", port), WAIT_S), socket.create_connection(("::1", port), WAIT_S):
        assert sock.family is socket.AF_INET6


@pytest.mark.parametrize("why", ["no such family", "switched off"])
def test_without_ipv6_a_listener_takes_ipv4_and_that_is_said(
    why: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    make = socket.create_server

    def refuse(address: tuple[str, int], *, family: int = socket.AF_INET, **more: Any) -> socket.socket:
        if family == socket.AF_INET6:
            raise OSError(errno.EADDRNOTAVAIL, "no address")
        return make(address, family=family, **more)

    monkeypatch.setattr(socket, "has_dualstack_ipv6", lambda: why == "switched off")
    monkeypatch.setattr(socket, "create_server", refuse)
    with bind(":0") as sock:
        assert sock.family is socket.AF_INET
    assert "no IPv6: :0 takes clients of IPv4 only" in caplog.text
