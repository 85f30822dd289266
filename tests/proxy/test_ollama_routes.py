"""What Pharos answers as one Ollama in front of several: lists, version, `/`, and what it does not do."""

import json
from typing import Any

import pytest

from pharos.proxy.auth import Key
from tests.fakes import captures
from tests.proxy.engine_script import Turn
from tests.proxy.harness import KEY, front

AUTH = f"Authorization: Bearer {KEY}\r\n"
OLLAMA = {"kind": "ollama"}
VLLM = {"kind": "vllm"}


async def never(turn: Turn) -> None:
    raise AssertionError(turn.line)


def card(name: str, **more: Any) -> dict[str, Any]:
    return {"name": name, "model": name, "size": 5, "digest": "d", **more}


def page(*cards: dict[str, Any]) -> bytes:
    return json.dumps({"models": list(cards)}).encode()


class Shelf:
    """The last pages of engines, as scraping would have them."""

    def __init__(self, pages: dict[tuple[str, str], bytes]) -> None:
        self.pages = pages

    def last(self, backend: str, path: str) -> bytes | None:
        return self.pages.get((backend, path))


async def test_lists_are_merged_by_name_with_the_entries_that_the_engines_gave() -> None:
    a1, a2 = card("m:a", size=1), card("m:b", digest="same", details={"x": [1]})
    shelf = Shelf(
        {
            ("a", "/api/tags"): page(a1, a2),
            ("b", "/api/tags"): page(card("m:a", size=2), card("m:c", digest="same")),
            ("c", "/api/tags"): page(card("m:v")),
            ("b", "/api/ps"): page(card("m:a", size_vram=9)),
        }
    )
    described = (OLLAMA, OLLAMA, VLLM)
    async with front(never, never, never, described=described, last_page=shelf.last) as (pharos, *_):
        pharos.bring_up("a", ("m:a", "m:b"))
        pharos.bring_up("b", ("m:a", "m:c"))
        pharos.bring_up("c", ("m:v",))
        assert (await pharos.fetch("/api/tags")).json()["models"] == [a1, a2, card("m:c", digest="same")]
        assert (await pharos.fetch("/api/ps")).json()["models"] == [card("m:a", size_vram=9)]
        names = [model["id"] for model in (await pharos.fetch("/v1/models")).json()["data"]]
        assert names == ["m", "m:a", "m:b", "m:c", "m:v"][1:]


async def test_a_list_shows_only_the_models_of_the_key() -> None:
    shelf = Shelf({("a", path): page(card("a1"), card("b1")) for path in ("/api/tags", "/api/ps")})
    keys = {KEY: Key("k", models=("a*",))}
    async with front(never, kind="ollama", models=("a1", "b1"), keys=keys, last_page=shelf.last) as (pharos, _):
        for path in ("/api/tags", "/api/ps"):
            assert (await pharos.fetch(path)).status == 401
            assert [entry["name"] for entry in (await pharos.fetch(path, AUTH)).json()["models"]] == ["a1"]


async def test_a_list_follows_the_pages_and_leaves_out_what_is_not_up() -> None:
    shelf = Shelf({("a", "/api/tags"): page(card("m")), ("b", "/api/tags"): page(card("n"))})
    async with front(never, never, kind="ollama", last_page=shelf.last) as (pharos, *_):
        pharos.bring_up("b", ("n",))
        assert [entry["name"] for entry in (await pharos.fetch("/api/tags")).json()["models"]] == ["m", "n"]
        shelf.pages["a", "/api/tags"] = page(card("m", size=7))
        assert (await pharos.fetch("/api/tags")).json()["models"][0]["size"] == 7
        pharos.fleet.unreachable(pharos.fleet.backends["a"], "gone")
        assert [entry["name"] for entry in (await pharos.fetch("/api/tags")).json()["models"]] == ["n"]


@pytest.mark.parametrize(
    "body", [b"", b"nope", b"[]", b'{"models":5}', b'{"models":[5,{"name":7},{}]}', b"[" * 100_000], ids=range(6)
)
async def test_a_page_that_tells_nothing_hides_no_model_that_can_be_used(body: bytes) -> None:
    shelf = Shelf({("a", "/api/tags"): body, ("a", "/api/ps"): body})
    async with front(never, kind="ollama", last_page=shelf.last) as (pharos, _):
        assert (await pharos.fetch("/api/tags")).json() == {"models": [{"name": "m", "model": "m"}]}
        assert (await pharos.fetch("/api/ps")).json() == {"models": []}


@pytest.mark.parametrize("version", ["0.17.4", "0.33.0-rc2"])
async def test_the_list_of_one_recorded_engine_is_that_engine_s_own(version: str) -> None:
    pages = captures.state("ollama", version, "two_models" if version == "0.17.4" else "idle")
    shelf = Shelf({("a", path): pages[path].body for path in ("/api/tags", "/api/ps")})
    models = tuple(entry["name"] for entry in json.loads(pages["/api/tags"].body)["models"])
    async with front(never, kind="ollama", models=models, last_page=shelf.last) as (pharos, _):
        for path in ("/api/tags", "/api/ps"):
            told = (await pharos.fetch(path)).json()["models"]
            assert sorted(told, key=str) == sorted(json.loads(pages[path].body)["models"], key=str)


@pytest.mark.parametrize(
    ("versions", "oldest"),
    [
        (("0.17.4",), "0.17.4"),
        (("0.33.0", "0.9.12"), "0.9.12"),
        (("0.33.0", "0.33.0-rc2"), "0.33.0-rc2"),
        (("0.33.1", "0.33.0"), "0.33.0"),
    ],
)
async def test_the_version_is_the_oldest_there_is_and_needs_no_key(versions: tuple[str, ...], oldest: str) -> None:
    described = (*(OLLAMA for _ in versions), VLLM)
    async with front(*[never] * len(described), described=described, keys={KEY: Key("k")}) as (pharos, *_):
        for name, version in zip("abc", versions, strict=False):
            pharos.bring_up(name, version=version)
        reply = await pharos.fetch("/api/version")
        assert reply.json() == {"version": oldest}
        assert (await pharos.fetch("/api/version", "Authorization: Bearer wrong\r\n")).json() == {"version": oldest}


async def test_without_an_ollama_that_is_up_there_is_no_version_and_no_model() -> None:
    async with front(never, described=(VLLM,)) as (pharos, _):
        reply = await pharos.fetch("/api/version")
        assert reply.status == 503
        assert reply.header("retry-after") != []
        assert reply.json() == {"error": "no Ollama backend is up"}
        assert (await pharos.fetch("/api/tags")).json() == {"models": []}


async def test_an_engine_without_a_version_says_so_as_it_does_itself() -> None:
    async with front(never, kind="ollama") as (pharos, _):
        pharos.fleet.backends["a"].version = None
        assert (await pharos.fetch("/api/version")).json() == {"version": "0.0.0"}


@pytest.mark.parametrize("method", ["GET", "HEAD"])
async def test_the_root_says_what_clients_look_for_before_all_else(method: str) -> None:
    async with front(never, keys={KEY: Key("k")}) as (pharos, _):
        for ready in (True, False):
            pharos.proxy.ready = ready
            reply = await pharos.fetch("/", method=method)
            assert reply.status == 200
            assert reply.header("content-type") == ["text/plain; charset=utf-8"]
            assert reply.header("content-length") == ["17"]
            assert reply.body == (b"Ollama is running" if method == "GET" else b"")


async def test_lists_wait_until_the_engines_were_read() -> None:
    async with front(never, kind="ollama") as (pharos, _):
        pharos.proxy.ready = False
        for path in ("/api/tags", "/api/ps", "/api/version"):
            reply = await pharos.fetch(path)
            assert reply.status == 503
            assert isinstance(reply.json()["error"], str)


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("POST", "/api/pull"),
        ("POST", "/api/push"),
        ("POST", "/api/create"),
        ("POST", "/api/copy"),
        ("DELETE", "/api/delete"),
        ("POST", "/api/blobs/sha256:29fdb92e57cf0827ded04ae6461b5931d01fa595843f55d36f5b275a52087dd2"),
        ("HEAD", "/api/blobs/sha256:29fdb92e57cf0827ded04ae6461b5931d01fa595843f55d36f5b275a52087dd2"),
    ],
)
async def test_management_of_models_is_a_501_that_people_can_read(method: str, path: str) -> None:
    async with front(never, kind="ollama", keys={KEY: Key("k")}) as (pharos, _):
        for headers in ("", AUTH):
            reply = await pharos.fetch(path, headers, method)
            assert reply.status == 501
            if method != "HEAD":
                assert "does not manage models" in reply.json()["error"]
                assert path.split("/")[2] in reply.json()["error"]


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("POST", "/api/me"),  # asked before a push
        ("POST", "/api/signout"),
        ("DELETE", "/api/user/keys/c3NoLWVkMjU1MTk"),
        ("GET", "/api/experimental/aliases"),
    ],
)
async def test_accounts_and_aliases_of_an_ollama_are_a_501_too(method: str, path: str) -> None:
    async with front(never, kind="ollama", keys={KEY: Key("k")}) as (pharos, _):
        reply = await pharos.fetch(path, method=method)
        assert reply.status == 501
        assert "manages neither models nor accounts" in reply.json()["error"]
        assert path.removeprefix("/api/").split("/")[0] in reply.json()["error"]


async def test_a_large_upload_that_nobody_takes_ends_at_once() -> None:
    async with front(never, kind="ollama") as (pharos, _):
        client = await pharos.client()
        client.send(b"POST /api/blobs/sha256:0 HTTP/1.1\r\nHost: p\r\nContent-Length: 1000000000\r\n\r\nsome")
        reply = await client.reply()
        assert reply.status == 501
        assert reply.header("connection") == ["close"]


async def test_a_request_that_only_loads_or_unloads_teaches_nothing() -> None:
    async def play(turn: Turn) -> None:
        await turn.reply(200, b'{"model":"m","done_reason":"load","done":true}')

    async with front(play, kind="ollama") as (pharos, _):
        target = pharos.fleet.backends["a"].targets["m"]
        for path, body in (("/api/generate", {"model": "m"}), ("/api/chat", {"model": "m", "messages": []})):
            for more in ({}, {"keep_alive": 0}):
                reply = await pharos.ask(json.dumps({**body, **more, "stream": False}).encode(), path=path)
                assert reply.status == 200
        assert (await pharos.finished(4)).stages[-1] == ("upstream", "ok")
        assert target.loaded_at is None
        assert target.stats.service_s.value is None
        assert pharos.inflight == 0
