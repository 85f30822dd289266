"""Every route of the table: methods, keys, unknown models, and the rows of the README."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from pharos.proxy.auth import Key
from pharos.proxy.ollama import ACCOUNT, ACCOUNT_KEYS, BLOBS, MANAGEMENT
from pharos.proxy.table import ALL, ROUTES, Route
from tests.proxy.engine_script import Turn
from tests.proxy.harness import KEY, front

README = Path(__file__).parents[2] / "README.md"
AUTH = f"Authorization: Bearer {KEY}\r\n"
PAGES = {name: lambda _query, _accept, _is_admin: (200, "text/plain", b"page\n") for name in ("/metrics", "/status")}
OURS = {
    "/": False,
    "/v1/models": True,
    "/v1/models/m": True,
    "/api/tags": True,
    "/api/ps": True,
    "/api/version": False,
    "/healthz": False,
    "/livez": False,
    "/metrics": False,
}
"""What Pharos answers itself -> whether that needs a key."""
BOUNDARY = "multipart/form-data; boundary=B"


async def ok(turn: Turn) -> None:
    await turn.reply(200, b'{"served":true}')


def body_of(route: Route, model: str = "m") -> bytes:
    if route.body == "multipart":
        return (
            b'--B\r\nContent-Disposition: form-data; name="file"; filename="a"\r\n\r\nx\r\n'
            b'--B\r\nContent-Disposition: form-data; name="model"\r\n\r\n' + model.encode() + b"\r\n--B--\r\n"
        )
    return json.dumps({"model": model, "messages": [{"role": "user", "content": "hi"}], "stream": False}).encode()


def headers_of(route: Route) -> str:
    kind = BOUNDARY if route.body == "multipart" else "application/json"
    return f"Content-Type: {kind}\r\n{AUTH}"


def error_of(shape: str, body: Any) -> str:
    """The message of an error, which has the shape that it should have."""
    if shape == "ollama":
        assert list(body) == ["error"]
        return str(body["error"])
    if shape == "anthropic":
        assert body["type"] == "error"
        assert list(body["error"]) == ["type", "message"]
    else:
        assert list(body["error"]) == ["message", "type", "param", "code"]
    return str(body["error"]["message"])


def path_of(route: Route) -> str:
    return route.path.replace("{id}", "resp_1")


@pytest.mark.parametrize("path", ROUTES)
async def test_a_route_is_forwarded_byte_for_byte_with_its_query(path: str) -> None:
    route = ROUTES[path]
    async with front(ok, keys={KEY: Key("k")}, kind="ollama") as (pharos, engine):
        body = body_of(route)
        reply = await pharos.ask(body, headers_of(route), path=f"{path}?beta=true")
        assert (reply.status, reply.body) == (200, b'{"served":true}')
        (turn,) = engine.turns
        assert turn.line == f"POST {path}?beta=true HTTP/1.1"
        assert turn.body == body
        done = await pharos.finished()
        assert (done.path, done.model, done.key) == (path, "m", "k")
        assert pharos.inflight == 0


@pytest.mark.parametrize("route", ALL, ids=lambda route: route.path)
async def test_a_wrong_method_is_a_405_in_the_caller_s_protocol(route: Route) -> None:
    async with front(ok, keys={KEY: Key("k")}) as (pharos, engine):
        for method in ("GET", "POST", "PUT", "DELETE", "PATCH"):
            if method in route.methods:
                continue
            for headers in ("", AUTH):
                reply = await pharos.fetch(path_of(route), headers, method)
                assert reply.status == 405
                assert reply.header("allow") == [", ".join(route.methods)]
                assert "takes" in error_of(route.shape, reply.json())
        assert engine.turns == []


@pytest.mark.parametrize("route", ALL, ids=lambda route: route.path)
async def test_without_a_key_or_with_a_wrong_one_nothing_is_served(route: Route) -> None:
    async with front(ok, keys={KEY: Key("k")}, kind="ollama") as (pharos, engine):
        for headers in ("", "Authorization: Bearer wrong\r\n", "x-api-key: wrong\r\n"):
            for method in route.methods:
                if method == "POST":
                    reply = await pharos.ask(body_of(route), headers, path=path_of(route))
                else:
                    reply = await pharos.fetch(path_of(route), headers, method)
                assert reply.status == 401
                if method != "HEAD":
                    assert "API key" in error_of(route.shape, reply.json())
        assert engine.turns == []


@pytest.mark.parametrize("path", ROUTES)
async def test_an_unknown_model_is_a_404_and_so_is_one_that_the_key_may_not_use(path: str) -> None:
    route = ROUTES[path]
    async with front(ok, keys={KEY: Key("k", models=("a*",))}, models=("a1", "b1"), kind="ollama") as (pharos, engine):
        for model in ("none", "b1", "a2"):
            reply = await pharos.ask(body_of(route, model), headers_of(route), path=path)
            assert reply.status == 404
            assert f"`{model}` does not exist here" in error_of(route.shape, reply.json())
        assert (await pharos.ask(body_of(route, "a1"), headers_of(route), path=path)).status == 200
        assert len(engine.turns) == 1


@pytest.mark.parametrize("path", ROUTES)
async def test_the_model_is_named_in_the_body_only(path: str) -> None:
    route = ROUTES[path]
    async with front(ok, keys={KEY: Key("k")}, kind="ollama") as (pharos, engine):
        for query in ("model=m", "x=1&MODEL=other"):
            reply = await pharos.ask(body_of(route), headers_of(route), path=f"{path}?{query}")
            assert reply.status == 400
            error_of(route.shape, reply.json())
        assert engine.turns == []


@pytest.mark.parametrize("path", ROUTES)
async def test_a_body_that_cannot_be_read_is_a_400_in_the_caller_s_protocol(path: str) -> None:
    route = ROUTES[path]
    async with front(ok, keys={KEY: Key("k")}, kind="ollama") as (pharos, engine):
        for body in (b"", b"nope", b"[1]", b"{}"):
            reply = await pharos.ask(body, headers_of(route), path=path)
            assert reply.status == 400
            error_of(route.shape, reply.json())
        assert engine.turns == []


@pytest.mark.parametrize("path", [path for path, route in ROUTES.items() if not route.takes_slot])
async def test_what_takes_no_slot_does_not_wait_for_one(path: str) -> None:
    async def play(turn: Turn) -> None:
        if turn.line.startswith("POST /v1/chat/completions"):
            await turn.until_closed()
        else:
            await turn.reply(200, b"{}")

    route = ROUTES[path]
    async with front(play, capacity=1, kind="ollama") as (pharos, engine):
        busy = await pharos.client()
        busy.post(body_of(ROUTES["/v1/chat/completions"]))
        await engine.got(1)
        reply = await pharos.ask(body_of(route), headers_of(route), path=path)
        assert reply.status == 200
        assert pharos.ledger.leased == 1


@pytest.mark.parametrize("path", [path for path, route in ROUTES.items() if route.takes_slot])
async def test_what_takes_a_slot_waits_for_one(path: str) -> None:
    async def play(turn: Turn) -> None:
        if len(turn.engine.turns) == 1:
            await turn.until_closed()
        else:
            await turn.reply(200, b"{}")

    route = ROUTES[path]
    async with front(play, capacity=1, kind="ollama") as (pharos, engine):
        busy = await pharos.client()
        busy.post(body_of(ROUTES["/v1/chat/completions"]))
        await engine.got(1)
        waiting = await pharos.client()
        waiting.post(body_of(route), headers_of(route), path)
        busy.close()
        assert (await waiting.reply()).status == 200
        assert (await pharos.finished(2)).queue_wait_s > 0


@pytest.mark.parametrize("path", [path for path, route in ROUTES.items() if route.kinds is not None])
async def test_ollama_s_own_routes_go_to_ollama_only(path: str) -> None:
    route = ROUTES[path]
    described = ({"kind": "vllm"}, {"kind": "ollama"}, {"kind": "llamacpp"})
    async with front(ok, ok, ok, described=described) as (pharos, vllm, engine, llamacpp):
        for _ in range(6):
            assert (await pharos.ask(body_of(route), headers_of(route), path=path)).status == 200
        assert (len(vllm.turns), len(engine.turns), len(llamacpp.turns)) == (0, 6, 0)
    async with front(ok, described=({"kind": "vllm"},)) as (pharos, vllm):
        reply = await pharos.ask(body_of(route), headers_of(route), path=path)
        assert reply.status == 400
        message = error_of("ollama", reply.json())
        assert "No backend of kind ollama has the model `m`" in message
        assert "/v1/chat/completions" in message
        assert vllm.turns == []


@pytest.mark.parametrize(("path", "needs_key"), OURS.items())
async def test_what_pharos_answers_itself_has_a_head_and_a_405(path: str, *, needs_key: bool) -> None:
    async with front(ok, keys={KEY: Key("k")}, kind="ollama", pages=PAGES) as (pharos, engine):
        whole = await pharos.fetch(path, AUTH)
        assert whole.status == 200
        head = await pharos.fetch(path, AUTH, "HEAD")
        assert head.status == 200
        assert head.header("content-length") == [str(len(whole.body))]
        assert head.header("content-type") == whole.header("content-type")
        assert (await pharos.fetch(path)).status == (401 if needs_key else 200)
        for method in ("POST", "PUT", "DELETE"):
            reply = await pharos.fetch(path, AUTH, method)
            assert reply.status == 405
            assert reply.header("allow") == ["GET, HEAD"]
        assert engine.turns == []


@pytest.mark.parametrize(
    ("path", "shape"),
    [
        ("/nowhere", "openai"),
        ("/v1/nowhere", "openai"),
        ("/v1/chat", "openai"),
        ("/v1/responses/", "openai"),
        ("/v1/responses/resp_1/", "openai"),
        ("/v1/responses/resp_1/nowhere", "openai"),
        ("/v1/audio/speech", "openai"),
        ("/v1/messages/batches", "anthropic"),
        ("/v1/messages/", "anthropic"),
        ("/api/nowhere", "ollama"),
        ("/api", "ollama"),
        ("/api/", "ollama"),
        ("/api/chat/", "ollama"),
    ],
)
async def test_an_unknown_path_is_a_404_in_the_caller_s_protocol(path: str, shape: str) -> None:
    async with front(ok, keys={KEY: Key("k")}) as (pharos, engine):
        for method in ("GET", "POST", "DELETE"):
            reply = await pharos.fetch(path, AUTH, method)
            assert reply.status == 404
            assert path in error_of(shape, reply.json())
        assert engine.turns == []


def rows_of_readme() -> dict[str, set[str]]:
    """Path to methods; of rows that say 501, which no method changes, there must be none."""
    told: dict[str, set[str]] = {}
    for row, what in re.findall(r"^\| (`.+?`) \| (.+) \|$", README.read_text(encoding="utf-8"), re.MULTILINE):
        for methods, path in re.findall(r"`(?:([A-Z|\\]+) )?(/[^`]*)`", row):
            if what.startswith("501"):
                assert not methods, row
                told[path] = set()
            else:
                told.setdefault(path, set()).update(methods.replace("\\", "").split("|"))
    return told


def refused() -> dict[str, set[str]]:
    """Routes of an Ollama that Pharos does not serve, whatever the method."""
    return {path: set() for path in (*MANAGEMENT, *ACCOUNT, BLOBS + "…", ACCOUNT_KEYS + "…")}


@pytest.mark.parametrize("path", sorted(refused()))
async def test_what_is_not_managed_is_a_501_with_every_method_and_asks_no_engine(path: str) -> None:
    async with front(ok, keys={KEY: Key("k")}, kind="ollama") as (pharos, engine):
        for method in ("GET", "POST", "PUT", "DELETE", "HEAD"):
            reply = await pharos.fetch(path.replace("…", "x1"), AUTH, method)
            assert reply.status == 501, method
        assert engine.turns == []


def test_the_readme_lists_exactly_the_routes_there_are() -> None:
    ours = {"/v1/models/{id}" if path == "/v1/models/m" else path: {"GET"} for path in (*OURS, "/status", "/usage")}
    assert rows_of_readme() == {route.path: {*route.methods} - {"HEAD"} for route in ALL} | ours | refused()
