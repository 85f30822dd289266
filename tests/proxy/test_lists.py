"""The list of models in the caller's protocol, made without asking any engine."""

import re

import pytest

from pharos.proxy.auth import Key
from tests.proxy.engine_script import Turn
from tests.proxy.harness import KEY, front

ANTHROPIC = "anthropic-version: 2023-06-01\r\n"


async def never(turn: Turn) -> None:
    raise AssertionError(turn.line)


async def test_openai_s_clients_get_openai_s_list() -> None:
    async with front(never, models=("a", "b")) as (pharos, _):
        listed = (await pharos.fetch("/v1/models")).json()
        assert listed["object"] == "list"
        assert [sorted(card) for card in listed["data"]] == [["created", "id", "object", "owned_by"]] * 2
        assert [card["id"] for card in listed["data"]] == ["a", "b"]
        assert (await pharos.fetch("/v1/models/b")).json() == listed["data"][1]


async def test_anthropic_s_clients_get_anthropic_s_list() -> None:
    async with front(never, models=("a", "b")) as (pharos, _):
        listed = (await pharos.fetch("/v1/models", ANTHROPIC)).json()
        assert (listed["has_more"], listed["first_id"], listed["last_id"]) == (False, "a", "b")
        assert [sorted(card) for card in listed["data"]] == [["created_at", "display_name", "id", "type"]] * 2
        assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", listed["data"][0]["created_at"])
        assert (await pharos.fetch("/v1/models/b", ANTHROPIC)).json() == listed["data"][1]
        missing = await pharos.fetch("/v1/models/c", ANTHROPIC)
        assert (missing.status, missing.json()["error"]["type"]) == (404, "not_found_error")
    async with front(never, models=()) as (pharos, _):
        empty = (await pharos.fetch("/v1/models?limit=1000", ANTHROPIC)).json()
        assert empty == {"data": [], "has_more": False, "first_id": None, "last_id": None}


@pytest.mark.parametrize("headers", ["", ANTHROPIC])
@pytest.mark.parametrize("name", ["org/name", "hf.co/org/n:Q4_K_M", "a@b", "x%2Fy", "模型"])
async def test_every_listed_name_can_be_fetched_back(headers: str, name: str) -> None:
    async with front(never, models=("other", name)) as (pharos, _):
        whole = "".join(f"%{byte:02X}" for byte in name.encode())
        paths = [whole]
        if name.isascii() and "%" not in name:
            paths += [name, name.replace("/", "%2F"), name.replace("/", "%2f")]
        for path in paths:
            assert (await pharos.fetch(f"/v1/models/{path}", headers)).json()["id"] == name


@pytest.mark.parametrize("path", ["/v1/models/", "/v1/models/none", "/v1/models/%", "/v1/models/%00", "/v1/models//"])
async def test_an_unknown_name_is_a_404_in_json(path: str) -> None:
    async with front(never) as (pharos, _):
        reply = await pharos.fetch(path)
        assert (reply.status, reply.json()["error"]["code"]) == (404, "model_not_found")


async def test_lists_come_from_those_that_live_while_others_refuse_or_hang() -> None:
    async with front(never, never, never, keys={KEY: Key("k")}, kind="ollama") as (pharos, *_):
        pharos.fleet.unreachable(pharos.fleet.backends["a"], "refused")
        pharos.bring_up("b", ("hung",))
        pharos.bring_up("c", ("live",))
        pharos.fleet.unreachable(pharos.fleet.backends["b"], "no answer in time")
        auth = f"Authorization: Bearer {KEY}\r\n"
        assert (await pharos.fetch("/healthz")).status == 200
        assert [card["id"] for card in (await pharos.fetch("/v1/models", auth)).json()["data"]] == ["live"]
        assert [card["name"] for card in (await pharos.fetch("/api/tags", auth)).json()["models"]] == ["live"]


async def test_two_names_of_the_same_weights_are_two_models() -> None:
    async def served(turn: Turn) -> None:
        await turn.reply(200, b"{}")

    async with front(served, served, kind="ollama") as (pharos, a, b):
        pharos.bring_up("a", ("m:a", "m:b"))
        pharos.bring_up("b", ("m:a",))
        names = [card["id"] for card in (await pharos.fetch("/v1/models")).json()["data"]]
        assert names == ["m:a", "m:b"]
        for _ in range(20):
            body = b'{"model":"m:b","messages":[{"role":"user","content":"hi"}],"stream":false}'
            assert (await pharos.ask(body, path="/api/chat")).status == 200
        assert (len(a.turns), len(b.turns)) == (20, 0)
