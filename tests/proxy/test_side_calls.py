"""What coding agents ask beside their main request: the query is kept, and a count of tokens comes from an engine."""

import json

from pharos.proxy.auth import Key
from tests.proxy.engine_script import Turn
from tests.proxy.harness import KEY, front

BODY = json.dumps({"model": "m", "max_tokens": 5, "messages": [{"role": "user", "content": "hi"}]}).encode()
COUNT = "/v1/messages/count_tokens"


async def only_messages(turn: Turn) -> None:
    if turn.line.split(" ")[1].startswith(COUNT):
        await turn.reply(404, b"404 page not found", kind=b"text/plain")
    else:
        await turn.reply(200, b'{"type":"message","content":[],"usage":{"input_tokens":1,"output_tokens":1}}')


async def both(turn: Turn) -> None:
    if turn.line.split(" ")[1].startswith(COUNT):
        await turn.reply(200, b'{"input_tokens":14}')
    else:
        await turn.reply(200, b'{"type":"message","content":[],"usage":{"input_tokens":1,"output_tokens":1}}')


async def test_messages_keep_their_query_and_take_their_key_in_either_header() -> None:
    async with front(both, keys={KEY: Key("k")}) as (pharos, engine):
        for header in ("x-api-key:", "Authorization: Bearer"):
            reply = await pharos.ask(BODY, f"{header} {KEY}\r\n", path="/v1/messages?beta=true")
            assert reply.status == 200
        assert [turn.line for turn in engine.turns] == ["POST /v1/messages?beta=true HTTP/1.1"] * 2


async def test_tokens_are_counted_by_an_engine_that_can_and_otherwise_not_at_all() -> None:
    async with front(only_messages, both, capacity=1) as (pharos, a, _):
        for _ in range(4):
            reply = await pharos.ask(BODY, path=f"{COUNT}?beta=true")
            assert (reply.status, reply.json()) == (200, {"input_tokens": 14})
        assert len(a.turns) <= 1, "what it lacks is known after one request"
        pharos.fleet.unreachable(pharos.fleet.backends["b"], "gone")
        for status in (503, 400):  # the one that can is away for a while, then for good
            reply = await pharos.ask(BODY, path=COUNT)
            assert reply.status == status
            assert reply.json()["type"] == "error"
            assert COUNT in reply.json()["error"]["message"]
            pharos.fleet.set_backends([pharos.fleet.backends["a"].spec], pharos.clock())
        assert (await pharos.ask(BODY, path="/v1/messages")).status == 200


async def test_a_count_takes_no_slot() -> None:
    async def play(turn: Turn) -> None:
        if COUNT in turn.line:
            await turn.reply(200, b'{"input_tokens":14}')
        else:
            await turn.until_closed()

    async with front(play, capacity=1) as (pharos, engine):
        busy = await pharos.client()
        busy.post(BODY, path="/v1/messages")
        await engine.got(1)
        assert (await pharos.ask(BODY, path=COUNT)).status == 200
        assert pharos.ledger.leased == 1
