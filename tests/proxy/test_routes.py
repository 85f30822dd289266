import asyncio
from collections.abc import Generator
from urllib.parse import quote

import pytest

from pharos.core.fleet import BackendSpec
from pharos.proxy.auth import Key
from tests.proxy.engine_script import WAIT_S, Turn
from tests.proxy.harness import KEY, chat, front
from tests.proxy.test_feedback import Clock

NAMES = ("org/name", "hf.co/org/n:Q4_K_M", "a@b", "x%2Fy", "模型")


async def ok(turn: Turn) -> None:
    await turn.reply(200, b"{}")


async def test_every_listed_model_can_be_fetched_back_plain_or_encoded() -> None:
    async with front(ok, models=NAMES) as (pharos, _):
        listed = (await pharos.fetch("/v1/models")).json()
        assert [model["id"] for model in listed["data"]] == list(NAMES)
        for name in NAMES:
            assert (await pharos.fetch("/v1/models/" + quote(name, safe=""))).json()["id"] == name
            if "%" not in name and name.isascii():  # only these are legal in a request line as they are
                assert (await pharos.fetch(f"/v1/models/{name}")).json()["id"] == name
        missing = await pharos.fetch("/v1/models/none")
        assert missing.status == 404
        assert missing.json()["error"]["code"] == "model_not_found"
        assert (await pharos.fetch("/v1/models/x%252Fy")).status == 200
        assert (await pharos.fetch("/v1/models/x%2Fy")).status == 404, "decoded once only"


async def test_a_key_sees_and_uses_only_its_models() -> None:
    async with front(ok, models=("a1", "b1"), keys={KEY: Key("k", models=("a*",))}) as (pharos, engine):
        auth = f"Authorization: Bearer {KEY}\r\n"
        assert [model["id"] for model in (await pharos.fetch("/v1/models", auth)).json()["data"]] == ["a1"]
        assert (await pharos.fetch("/v1/models/b1", auth)).status == 404
        assert (await pharos.ask(chat("a1", stream=False), auth)).status == 200
        refused = await pharos.ask(chat("b1", stream=False), auth)
        assert refused.status == 404
        assert refused.json()["error"]["code"] == "model_not_found"
        assert len(engine.turns) == 1
        assert ("admission", "model_not_allowed") in (await pharos.finished(2)).stages


@pytest.mark.parametrize("header", ["Authorization: Bearer", "x-api-key:", "api-key:"])
async def test_the_key_may_come_in_three_places_and_never_reaches_the_engine(header: str) -> None:
    async with front(ok, keys={KEY: Key("k")}) as (pharos, engine):
        assert (await pharos.ask(chat(stream=False), f"{header} {KEY}\r\n")).status == 200
        assert KEY.encode() not in engine.turns[0].head
        assert (await pharos.finished()).key == "k"
        wrong = await pharos.ask(chat(stream=False), f"{header} wrong\r\n")
        assert wrong.status == 401
        assert wrong.json()["error"]["code"] == "invalid_api_key"
        assert (await pharos.ask(chat(stream=False))).status == 401
        assert (await pharos.fetch("/v1/models")).status == 401
        assert (await pharos.fetch("/livez")).status == 200
        assert len(engine.turns) == 1


@pytest.mark.parametrize("method", ["GET", "HEAD"])
async def test_health_and_metrics_need_no_key_while_keys_are_configured(method: str) -> None:
    pages = {"/metrics": lambda _query, _accept, _is_admin: (200, "text/plain", b"pharos_up 1\n")}
    async with front(ok, keys={KEY: Key("k")}, pages=pages) as (pharos, _):
        for path in ("/healthz", "/livez", "/metrics"):
            assert (await pharos.fetch(path, method=method)).status == 200, path
            assert (await pharos.fetch(path, "Authorization: Bearer wrong\r\n", method)).status == 200, path
        assert (await pharos.fetch("/metrics")).body == b"pharos_up 1\n"
        assert (await pharos.fetch("/v1/models", method=method)).status == 401


async def test_unknown_paths_are_404_in_the_caller_s_shape() -> None:
    async with front(ok) as (pharos, _):
        for path in ("/nowhere", "/v1/chat/completions/", "//v1/models", "/v1%2Fmodels"):
            reply = await pharos.fetch(path)
            assert reply.status == 404
            assert "message" in reply.json()["error"]
        assert isinstance((await pharos.fetch("/api/nowhere")).json()["error"], str)
        assert (await pharos.fetch("/v1/messages/nowhere")).json()["type"] == "error"


@pytest.mark.parametrize(
    ("path", "meant"),
    [
        ("/chat/completions", "/v1/chat/completions"),
        ("/v1/v1/chat/completions", "/v1/chat/completions"),
        ("/v1/v1/messages", "/v1/messages"),
        ("/v1/chat/completions/", "/v1/chat/completions"),
        ("/v1/api/chat", "/api/chat"),
        ("/api/v1/chat/completions", "/v1/chat/completions"),
        ("/models", "/v1/models"),
        ("/v1/healthz", "/healthz"),
    ],
)
async def test_a_path_of_a_wrong_base_url_is_told_with_the_right_one(path: str, meant: str) -> None:
    async with front(ok) as (pharos, _):
        told = (await pharos.fetch(path)).json()["error"]
        assert f"Did you mean {meant}?" in (told if isinstance(told, str) else told["message"])


@pytest.mark.parametrize("path", ["/v1", "/v1/", "//", "/api", "/nowhere", "/v1/nowhere"])
async def test_where_no_path_was_meant_none_is_told(path: str) -> None:
    async with front(ok) as (pharos, _):
        assert b"Did you mean" not in (await pharos.fetch(path)).body


@pytest.mark.parametrize(
    ("method", "path", "allow"),
    [
        ("GET", "/v1/chat/completions", "POST"),
        ("DELETE", "/v1/completions", "POST"),
        ("OPTIONS", "/v1/chat/completions", "POST"),
        ("POST", "/v1/models", "GET, HEAD"),
        ("PUT", "/livez", "GET, HEAD"),
    ],
)
async def test_a_wrong_method_is_a_405_that_names_the_right_ones(method: str, path: str, allow: str) -> None:
    async with front(ok) as (pharos, _):
        reply = await pharos.fetch(path, method=method)
        assert reply.status == 405
        assert reply.header("allow") == [allow]
        assert f"{path} takes {allow}, not {method}." in reply.json()["error"]["message"]


async def test_head_gets_the_head_of_get() -> None:
    async with front(ok) as (pharos, _):
        client = await pharos.client()
        client.get("/livez", method="HEAD")
        reply = await client.reply(no_body=True)
        assert reply.status == 200
        assert reply.header("content-length") == ["3"]
        client.get("/livez")
        assert (await client.reply()).body == b"ok\n"


async def test_until_it_is_ready_only_liveness_answers_well() -> None:
    async with front(ok) as (pharos, engine):
        pharos.proxy.ready = False
        assert (await pharos.fetch("/livez")).status == 200
        for reply in (await pharos.fetch("/healthz"), await pharos.fetch("/v1/models"), await pharos.ask()):
            assert reply.status == 503
            assert reply.header("retry-after") == ["1"]
        assert ("admission", "not_ready") in (await pharos.finished()).stages
        assert engine.turns == []
        pharos.proxy.ready = True
        assert (await pharos.fetch("/healthz")).status == 200


async def test_pages_get_query_accept_and_whether_the_key_is_an_administrator_s() -> None:
    seen = []

    def page(query: object, accept: str, is_admin: bool) -> tuple[int, str, bytes]:  # noqa: FBT001
        seen.append((query, accept, is_admin))
        return 200, "text/html; charset=utf-8", b"<p>"

    keys = {KEY: Key("k"), "boss": Key("boss", admin=True)}
    async with front(ok, keys=keys, pages={"/status": page}) as (pharos, _):
        reply = await pharos.fetch("/status?format=json&x=", "Accept: text/html\r\nAuthorization: Bearer boss\r\n")
        assert reply.status == 200
        assert reply.header("content-type") == ["text/html; charset=utf-8"]
        assert reply.body == b"<p>"
        await pharos.fetch("/status", f"Authorization: Bearer {KEY}\r\n")
        await pharos.fetch("/status")
    assert seen == [({"format": "json", "x": ""}, "text/html", True), ({}, "", False), ({}, "", False)]


async def test_a_url_that_never_answered_makes_a_mistyped_name_a_404_that_names_it_after_a_while() -> None:
    clock = Clock()
    async with front(ok, clock=clock) as (pharos, engine):
        live = pharos.fleet.backends["a"].spec
        pharos.fleet.set_backends([live, BackendSpec("dead", "http://127.0.0.1:9")], clock.now)
        pharos.fleet.unreachable(pharos.fleet.backends["dead"], "refused")
        early = await pharos.ask(chat("none"))
        assert (early.status, early.header("retry-after")) == (503, ["5"])
        assert "dead (does not answer) has not told its models yet" in early.json()["error"]["message"]
        clock.now += 301.0
        pharos.bring_up("a")
        late = await pharos.ask(chat("none"))
        assert (late.status, late.json()["error"]["code"]) == (404, "model_not_found")
        assert late.json()["error"]["message"].endswith("which never told their models: dead.")
        assert (await pharos.ask(chat(stream=False))).status == 200
        assert len(engine.turns) == 1


async def test_an_unknown_model_is_a_404_and_a_full_queue_a_429() -> None:
    async def play(turn: Turn) -> None:
        await turn.until_closed()

    async with front(play, capacity=1, queue_size=1) as (pharos, _):
        missing = await pharos.ask(chat("none"))
        assert missing.status == 404
        assert missing.json()["error"]["code"] == "model_not_found"
        assert ("route", "unknown_model") in (await pharos.finished()).stages
        for count in range(2):
            client = await pharos.client()
            client.post(chat())
            async with asyncio.timeout(WAIT_S):
                while pharos.ledger.leased + pharos.ledger.waiting <= count:
                    await asyncio.sleep(0)
        full = await pharos.ask()
        assert full.status == 429
        assert full.header("retry-after") != []
        assert ("route", "queue_full") in (await pharos.finished(2)).stages


async def test_a_long_name_of_no_model_is_kept_in_part() -> None:
    known = "k" * 300
    async with front(ok, models=(known,)) as (pharos, _):
        assert (await pharos.ask(chat("n" * 300, stream=False))).status == 404
        assert (await pharos.finished()).model == "n" * 128
        assert (await pharos.ask(chat(known, stream=False))).status == 200
        assert (await pharos.finished(2)).model == known


async def test_others_are_answered_while_a_page_that_takes_long_is_made() -> None:
    others = asyncio.Event()
    turns = 0

    def long(_query: object, _accept: str, _is_admin: bool) -> Generator[None, None, tuple[int, str, bytes]]:  # noqa: FBT001
        nonlocal turns
        while not others.is_set():
            turns += 1
            yield
        return 200, "text/plain", b"made"

    async with front(ok, pages={"/status": long}) as (pharos, _):
        first = await pharos.client()
        first.get("/status")
        async with asyncio.timeout(WAIT_S):
            while turns < 3:
                await asyncio.sleep(0)
        assert (await pharos.fetch("/livez")).status == 200
        assert (await pharos.ask(chat(stream=False))).status == 200
        others.set()
        reply = await first.reply()
        assert (reply.status, reply.body) == (200, b"made")
        first.get("/status")
        assert (await first.reply()).body == b"made", "and the connection carries the next request"


async def test_a_client_that_leaves_while_its_page_is_made_ends_the_work() -> None:
    turns, ended = 0, asyncio.Event()

    def endless(_query: object, _accept: str, _is_admin: bool) -> Generator[None, None, tuple[int, str, bytes]]:  # noqa: FBT001
        nonlocal turns
        try:
            while True:
                turns += 1
                yield
        finally:
            ended.set()

    async with front(ok, pages={"/status": endless}) as (pharos, _):
        client = await pharos.client()
        client.get("/status")
        async with asyncio.timeout(WAIT_S):
            while turns < 3:
                await asyncio.sleep(0)
            client.close()
            await ended.wait()
            while pharos.proxy.inflight:
                await asyncio.sleep(0)


async def test_a_page_that_fails_inside_is_a_500_in_our_shape() -> None:
    def broken(_query: object, _accept: str, _is_admin: bool) -> Generator[None, None, tuple[int, str, bytes]]:  # noqa: FBT001
        yield
        raise RuntimeError("secret")

    async with front(ok, pages={"/status": broken}) as (pharos, _):
        reply = await pharos.fetch("/status")
        assert reply.status == 500
        assert b"secret" not in reply.raw
