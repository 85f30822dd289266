"""Requests that go on from a response which one engine keeps, and what token counts of an engine mean."""

import json

import pytest

from pharos.core.fleet import State
from tests.proxy.engine_script import Script, Turn
from tests.proxy.harness import Front, chat, front
from tests.proxy.test_forward import dies, first_to, refuses

RESPONSES = "/v1/responses"


def response(response_id: str = "resp_1", **usage: object) -> bytes:
    return json.dumps({"id": response_id, "object": "response", "status": "completed", "usage": usage}).encode()


def turn_of(**more: object) -> bytes:
    return json.dumps({"model": "m", "input": "hi", **more}).encode()


def then(second: Script) -> Script:
    """A first response, then what `second` does."""

    async def play(turn: Turn) -> None:
        if b"previous_response_id" in turn.body:
            await second(turn)
        else:
            await turn.reply(200, response())

    return play


async def made_on_a(pharos: Front) -> None:
    first_to(pharos, "a")
    assert (await pharos.ask(turn_of(), path=RESPONSES)).status == 200
    first_to(pharos, "b")


async def test_the_next_turn_goes_to_the_engine_that_made_the_response_though_another_is_freer() -> None:
    answers = then(refuses(200, body=response("resp_2")))
    async with front(answers, answers) as (pharos, a, b):
        await made_on_a(pharos)
        reply = await pharos.ask(turn_of(previous_response_id="resp_1"), path=RESPONSES)
        assert reply.json()["id"] == "resp_2"
        assert (len(a.turns), len(b.turns)) == (2, 0)


@pytest.mark.parametrize("status", [500, 503, 429])
async def test_it_is_never_sent_elsewhere_when_that_engine_refuses(status: int) -> None:
    async with front(then(refuses(status)), then(refuses(200))) as (pharos, a, b):
        await made_on_a(pharos)
        assert (await pharos.ask(turn_of(previous_response_id="resp_1"), path=RESPONSES)).status == status
        assert (len(a.turns), len(b.turns)) == (2, 0)


async def test_nor_when_that_engine_dies_on_it() -> None:
    async with front(then(dies("close")), then(refuses(200))) as (pharos, a, b):
        await made_on_a(pharos)
        reply = await pharos.ask(turn_of(previous_response_id="resp_1"), path=RESPONSES)
        assert reply.status == 502
        assert len(a.turns) == 2, "on a new connection, which cannot be stale: it may have read it"
        assert a.turns[0].connection != a.turns[1].connection
        assert len(b.turns) == 0
        assert pharos.fleet.backends["a"].state is State.EJECTED
        assert pharos.fleet.backends["a"].targets["m"].inflight == 0


async def test_with_that_engine_down_the_client_is_told_to_come_back() -> None:
    async with front(then(refuses(200)), then(refuses(200))) as (pharos, _, b):
        await made_on_a(pharos)
        now = pharos.clock()
        pharos.fleet.eject(pharos.fleet.backends["a"], "gone", now, connected_at=now)
        reply = await pharos.ask(turn_of(previous_response_id="resp_1"), path=RESPONSES)
        assert reply.status == 503
        assert reply.header("retry-after") == ["1"]
        assert "a" in reply.json()["error"]["message"].split()
        assert len(b.turns) == 0
        assert ("route", "maker_gone") in (await pharos.finished(2)).stages


# --- token counts


def usage_reply(cached: int) -> bytes:
    return response(input_tokens=20, output_tokens=3, total_tokens=23, input_tokens_details={"cached_tokens": cached})


@pytest.mark.parametrize(("kind", "cached"), [("llamacpp", 0), ("openai", None), ("vllm", None)])
async def test_a_zero_counts_as_its_kind_of_engine_means_it(kind: str, cached: int | None) -> None:
    async with front(refuses(200, body=usage_reply(0)), kind=kind) as (pharos, _):
        await pharos.ask(turn_of(), path=RESPONSES)
        usage = (await pharos.finished()).usage
        assert usage is not None
        assert usage.cached_tokens == cached


async def test_a_zero_counts_once_the_engine_has_stated_cached_tokens() -> None:
    details = {"prompt_tokens": 20, "completion_tokens": 3, "prompt_tokens_details": {"cached_tokens": 16}}

    async def play(turn: Turn) -> None:
        is_chat = b"/chat/" in turn.head
        body = json.dumps({"choices": [{"message": {"content": "x"}}], "usage": details}).encode()
        await turn.reply(200, body if is_chat else usage_reply(0))

    async with front(play, kind="vllm") as (pharos, _):
        await pharos.ask(turn_of(), path=RESPONSES)
        await pharos.ask(chat(stream=False))
        await pharos.ask(turn_of(), path=RESPONSES)
        await pharos.finished(3)
        assert [done.usage and done.usage.cached_tokens for done in pharos.done] == [None, 16, 0]
        pharos.bring_up("a", version="2")
        await pharos.ask(turn_of(), path=RESPONSES)
        usage = (await pharos.finished(4)).usage
        assert usage is not None
        assert usage.cached_tokens is None
