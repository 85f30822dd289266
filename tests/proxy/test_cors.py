"""Web pages of other origins: what browsers are told, and what is as before where no origin is configured."""

from typing import Any

import pytest

from pharos import app
from pharos.config.load import parse
from pharos.config.problems import ConfigError
from pharos.proxy.auth import Key
from pharos.proxy.settings import ProxySettings
from pharos.proxy.table import ALL
from tests.proxy.engine_script import Turn
from tests.proxy.harness import DONE, KEY, Reply, chat, event, front

PAGE = "https://chat.example.org"
OTHER = "https://evil.example.org"
ONE = ProxySettings(cors_origins=(PAGE, "http://localhost:3000"))
ANY = ProxySettings(cors_origins=("*",))
FROM_PAGE = f"Origin: {PAGE}\r\n"
ASKS = "Access-Control-Request-Method: POST\r\nAccess-Control-Request-Headers: authorization,content-type\r\n"
OWN_PATHS = (
    "/v1/models",
    "/v1/models/m",
    "/api/tags",
    "/api/ps",
    "/api/version",
    "/",
    "/healthz",
    "/livez",
    "/nowhere",
)
PATHS = (*(route.path.replace("{id}", "resp_1") for route in ALL), *OWN_PATHS, "/api/pull")


async def ok(turn: Turn) -> None:
    await turn.reply(200, b"{}")


async def ask_first(pharos: Any, path: str, headers: str) -> Reply:
    client = await pharos.client()
    client.get(path, headers, "OPTIONS")
    reply = await client.reply(no_body=True)
    if reply.status == 204:  # the connection goes on
        client.get("/livez")
        assert (await client.reply()).status == 200
    return reply


@pytest.mark.parametrize("path", PATHS)
async def test_a_browser_that_asks_first_is_answered_without_a_key_on_every_route(path: str) -> None:
    async with front(ok, settings=ONE, keys={KEY: Key("k")}) as (pharos, engine):
        reply = await ask_first(pharos, path, FROM_PAGE + ASKS)
        assert reply.status == 204
        assert reply.header("access-control-allow-origin") == [PAGE]
        assert reply.header("access-control-allow-methods") == ["GET, HEAD, POST, DELETE"]
        assert reply.header("access-control-allow-headers") == ["authorization, content-type"]
        assert reply.header("access-control-max-age") == ["7200"]
        assert "Origin" in reply.header("vary")
        assert reply.header("access-control-allow-credentials") == []
        assert reply.header("content-length") == reply.header("transfer-encoding") == []
        assert len(reply.header("x-request-id")) == 1
        assert engine.turns == []
        assert pharos.done == []


async def test_before_it_is_ready_and_while_it_drains_it_answers_too() -> None:
    async with front(ok, settings=ONE) as (pharos, _):
        pharos.proxy.ready = False
        assert (await ask_first(pharos, "/v1/models", FROM_PAGE + ASKS)).status == 204
        refused = await pharos.fetch("/v1/models", FROM_PAGE)
        assert (refused.status, refused.header("access-control-allow-origin")) == (503, [PAGE])


@pytest.mark.parametrize(("settings", "allowed"), [(ONE, PAGE), (ANY, "*")])
async def test_a_page_reads_every_kind_of_reply(settings: ProxySettings, allowed: str) -> None:
    async def play(turn: Turn) -> None:
        if b'"stream": true' in turn.body:
            await turn.sse_head()
            await turn.chunk(event("a") + DONE)
            await turn.write(b"0\r\n\r\n")
        else:
            await turn.reply(200 if b"fine" in turn.body else 400, b'{"choices":[]}')

    async with front(play, settings=settings, keys={KEY: Key("k")}) as (pharos, _):
        auth = f"{FROM_PAGE}Authorization: Bearer {KEY}\r\n"
        replies = {
            401: await pharos.ask(chat(), FROM_PAGE),
            200: await pharos.ask(chat(stream=False, user="fine"), auth),
            400: await pharos.ask(chat(stream=False), auth),
            404: await pharos.ask(chat("none"), auth),
            405: await pharos.fetch("/v1/chat/completions", auth),
            431: await pharos.fetch("/livez", FROM_PAGE + ("X: " + "x" * 1000 + "\r\n") * 70),
        }
        streamed = await pharos.ask(chat(), auth)
        listed = await pharos.fetch("/v1/models", auth)
        for status, reply in (*replies.items(), (200, streamed), (200, listed)):
            assert reply.status == status
            assert reply.header("access-control-allow-origin") == [allowed]
            assert "Retry-After" in reply.header("access-control-expose-headers")[0]
            assert "X-Request-Id" in reply.header("access-control-expose-headers")[0]
            assert reply.header("access-control-allow-credentials") == []
            assert reply.header("vary") == ([] if allowed == "*" else ["Origin"])
        assert streamed.body.endswith(DONE)


async def test_other_pages_and_other_clients_are_told_nothing_but_that_it_differs() -> None:
    async with front(ok, settings=ONE) as (pharos, engine):
        for headers in ("", f"Origin: {OTHER}\r\n", "Origin: null\r\n", f"Origin: {PAGE}/\r\n"):
            reply = await pharos.ask(chat(stream=False), headers)
            assert reply.status == 200
            assert reply.header("access-control-allow-origin") == []
            assert reply.header("vary") == ["Origin"]
        refused = await ask_first(pharos, "/v1/models", f"Origin: {OTHER}\r\n{ASKS}")
        assert refused.status == 403
        assert refused.header("access-control-allow-origin") == []
        assert len(engine.turns) == 4


async def test_a_refusal_of_a_page_is_in_the_caller_s_protocol() -> None:
    async with front(ok, settings=ONE) as (pharos, _):
        ollama = await pharos.fetch("/api/chat", f"Origin: {OTHER}\r\n{ASKS}", "OPTIONS")
        assert (ollama.status, isinstance(ollama.json()["error"], str)) == (403, True)
        anthropic = await pharos.fetch("/v1/messages", f"Origin: {OTHER}\r\n{ASKS}", "OPTIONS")
        assert anthropic.json()["type"] == "error"


async def test_every_page_may_call_where_all_are_named() -> None:
    async with front(ok, settings=ANY) as (pharos, _):
        for origin in (PAGE, OTHER, "null"):
            reply = await ask_first(pharos, "/api/chat", f"Origin: {origin}\r\n{ASKS}")
            assert (reply.status, reply.header("access-control-allow-origin")) == (204, ["*"])
            assert reply.header("access-control-allow-credentials") == []


async def test_what_an_engine_says_of_pages_does_not_cross() -> None:
    async def play(turn: Turn) -> None:
        extra = (
            b"Access-Control-Allow-Origin: *\r\naccess-control-allow-credentials: true\r\n"
            b"Access-Control-Expose-Headers: *\r\nAccess-Control-Allow-Methods: *\r\nAccess-Control-Max-Age: 5\r\n"
            b"Access-Control-Allow-Headers: *\r\nVary: Accept\r\n"
        )
        await turn.reply(200, b"{}", extra)

    for settings, allowed, vary in ((ProxySettings(), [], ["Accept"]), (ONE, [PAGE], ["Accept", "Origin"])):
        async with front(play, settings=settings) as (pharos, engine):
            reply = await pharos.ask(chat(stream=False), FROM_PAGE)
            assert reply.header("access-control-allow-origin") == allowed
            assert reply.header("access-control-allow-credentials") == []
            assert reply.header("vary") == vary
            assert reply.raw.lower().count(b"access-control-") == (0 if not allowed else 2)
            assert engine.turns[0].header("origin") == []


async def test_pages_and_labels_go_together() -> None:
    settings = ProxySettings(cors_origins=(PAGE,), show_target=True, show_reason=True)
    async with front(ok, settings=settings) as (pharos, _):
        reply = await pharos.ask(chat(stream=False), FROM_PAGE)
        assert reply.header("x-pharos-target") == ["a"]
        assert reply.header("access-control-allow-origin") == [PAGE]
        assert "X-Pharos-Reason" in reply.header("access-control-expose-headers")[0]


async def test_headers_that_are_none_do_not_come_back() -> None:
    wanted = 'Access-Control-Request-Headers: x-a, "bad", x b, , <i>, X-B\r\nAccess-Control-Request-Headers: x-c\r\n'
    async with front(ok, settings=ONE) as (pharos, _):
        reply = await ask_first(pharos, "/", f"{FROM_PAGE}Access-Control-Request-Method: GET\r\n{wanted}")
        assert reply.header("access-control-allow-headers") == ["x-a, X-B, x-c"]
        reply = await ask_first(pharos, "/", f"{FROM_PAGE}Access-Control-Request-Method: GET\r\n")
        assert reply.header("access-control-allow-headers") == []
        assert reply.header("access-control-allow-private-network") == []


async def test_a_page_of_the_internet_may_reach_a_private_address_if_it_is_named() -> None:
    async with front(ok, settings=ONE) as (pharos, _):
        private = "Access-Control-Request-Private-Network: true\r\n"
        reply = await ask_first(pharos, "/v1/models", FROM_PAGE + ASKS + private)
        assert reply.header("access-control-allow-private-network") == ["true"]
        refused = await ask_first(pharos, "/v1/models", f"Origin: {OTHER}\r\n{ASKS}{private}")
        assert refused.header("access-control-allow-private-network") == []


async def test_a_body_that_comes_with_the_question_is_not_read() -> None:
    async with front(ok, settings=ONE) as (pharos, _):
        client = await pharos.client()
        client.get("/v1/models", f"{FROM_PAGE}{ASKS}Content-Length: 100000\r\n", "OPTIONS")
        reply = await client.reply(no_body=True)
        assert (reply.status, reply.header("connection")) == (204, ["close"])
        client.close()


@pytest.mark.parametrize("headers", ["", FROM_PAGE, "Access-Control-Request-Method: POST\r\n"])
async def test_options_that_ask_nothing_of_this_are_a_405(headers: str) -> None:
    async with front(ok, settings=ONE) as (pharos, _):
        reply = await pharos.fetch("/v1/chat/completions", headers, "OPTIONS")
        assert (reply.status, reply.header("allow")) == (405, ["POST"])


async def test_where_no_origin_is_configured_nothing_is_said() -> None:
    async with front(ok, keys={KEY: Key("k")}) as (pharos, _):
        reply = await pharos.fetch("/v1/chat/completions", FROM_PAGE + ASKS, "OPTIONS")
        assert reply.status == 405
        unread = await pharos.ask(chat(), FROM_PAGE)
        assert unread.status == 401
        for one in (reply, unread):
            assert b"access-control" not in one.raw.lower()
            assert one.header("vary") == []


async def test_a_pipelined_question_is_answered_in_its_turn() -> None:
    async with front(ok, settings=ONE) as (pharos, _):
        client = await pharos.client()
        client.get("/v1/chat/completions", FROM_PAGE + ASKS, "OPTIONS")
        client.post(chat(stream=False), FROM_PAGE)
        assert (await client.reply(no_body=True)).status == 204
        reply = await client.reply()
        assert (reply.status, reply.header("access-control-allow-origin")) == (200, [PAGE])


# --- how origins are written


@pytest.mark.parametrize(
    ("written", "kept"),
    [
        ("https://chat.example.org", "https://chat.example.org"),
        ("HTTPS://Chat.Example.ORG:443", "https://chat.example.org"),
        ("http://localhost:3000", "http://localhost:3000"),
        ("http://localhost:80", "http://localhost"),
        ("http://127.0.0.1:08080", "http://127.0.0.1:8080"),
        ("http://[0:0::1]:3000", "http://[::1]:3000"),
        ("https://münchen.example", "https://xn--mnchen-3ya.example"),
        ("chrome-extension://abcdefghijklmnop", "chrome-extension://abcdefghijklmnop"),
        ("app://obsidian.md", "app://obsidian.md"),
        ("*", "*"),
    ],
)
def test_an_origin_is_kept_as_browsers_write_it(written: str, kept: str) -> None:
    assert parse(f"cors: {{origins: ['{written}']}}", {}).cors.origins == (kept,)


def test_origins_reach_the_data_plane_from_the_file_and_from_the_environment() -> None:
    assert app.settings(parse("cors: {origins: [https://a.example, 'http://b:1']}", {})).cors_origins == (
        "https://a.example",
        "http://b:1",
    )
    assert app.settings(parse("", {"PHAROS_CORS__ORIGINS": "['*']"})).cors_origins == ("*",)


@pytest.mark.parametrize(
    ("written", "told"),
    [
        ("chat.example.org", "write https://chat.example.org"),
        ("https://chat.example.org/", "no slash at its end: write https://chat.example.org"),
        ("https://chat.example.org/app", "no path"),
        ("https://chat.example.org?x=1", "write https://chat.example.org"),
        ("https://*.example.org", "pattern"),
        ("null", "sandboxed"),
        ("https://", "is no origin"),
        ("https://a b", "is no origin"),
        ("https://user@host", "is no origin"),
        ("https://host:port", "is no origin"),
        ("https://host:99999", "99999 is no port"),
        ("https://[::g]", "is no IPv6 address"),
        ("", "no scheme"),
    ],
)
def test_an_origin_that_no_browser_sends_is_refused_with_what_to_write(written: str, told: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse(f"cors: {{origins: ['{written}']}}", {})
    (problem,) = caught.value.problems
    assert problem.path == "cors.origins[0]"
    assert told in problem.message
