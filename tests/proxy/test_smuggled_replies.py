"""Malformed replies of engines: never a wrong success, never a header of somebody else, never a connection kept."""

import asyncio
import logging

import pytest

from pharos.proxy.chunks import framed
from tests.proxy.engine_script import Turn
from tests.proxy.harness import DONE, chat, event, front
from tests.proxy.malformed import reference
from tests.proxy.malformed.case import Told
from tests.proxy.malformed.leftovers import until_nothing_is_left
from tests.proxy.malformed.replies import ANSWER, PLAIN, REPLIES

ALONE = "Connection: close\r\n"


@pytest.mark.parametrize("told", REPLIES, ids=str)
async def test_a_malformed_reply_is_never_taken_for_a_good_one_and_its_connection_not_used_again(
    told: Told, caplog: pytest.LogCaptureFixture
) -> None:
    async def play(turn: Turn) -> None:
        is_first = len(turn.engine.turns) == 1
        await turn.write(told.sent if is_first else PLAIN)
        if is_first and told.then_closes:
            turn.close()

    caplog.set_level(logging.INFO)
    async with front(play, absent_wait_s=0.0) as (pharos, engine):
        client = await pharos.client()
        client.post(chat(stream=False), ALONE)
        got, _ = await client.rest()
        (reply,) = reference.replies(got)
        assert reply.status == told.status
        is_whole = reply.is_whole and reply.status < 400
        assert (reply.body if is_whole else None) == told.body
        if told.body is None and told.status >= 400:
            assert b'"error"' in reply.body
            assert ANSWER not in reply.body
        assert b"evil" not in got.lower()
        assert ("upstream", told.outcome) in (await pharos.finished()).stages

        pharos.bring_up("a")
        good = await pharos.ask(chat(stream=False))
        assert (good.status, good.body) == (200, ANSWER)
        assert b"evil" not in good.raw.lower()
        assert engine.connections == (1 if told.reused else 2)
        for kept in (client, *pharos._clients):
            kept.close()
        await until_nothing_is_left(pharos)
    assert "fault of Pharos" not in caplog.text


@pytest.mark.parametrize(
    "spoiled",
    [
        b"zz\r\n",
        b"-5\r\nhello\r\n",
        framed(event("evil")).replace(b"\r\n", b"\n"),
        b"2\r\n" + event("evil") + b"\r\n",
        framed(event("a"))[:-2] + b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n",
        PLAIN,
    ],
    ids=["words", "negative", "LF", "shorter", "no end", "another reply"],
)
async def test_a_stream_whose_chunks_break_is_never_taken_for_a_whole_one(spoiled: bytes) -> None:
    async def play(turn: Turn) -> None:
        await turn.sse_head()
        for _ in range(3):
            await turn.chunk(event("a"))
            await came.wait()
        await turn.write(spoiled)
        await turn.write(framed(DONE) + b"0\r\n\r\n")

    came = asyncio.Event()
    async with front(play) as (pharos, engine):
        client = await pharos.client()
        client.post(chat(), ALONE)
        await client.until(b'"a"')
        came.set()
        rest, _ = await client.rest()
        assert b"[DONE]" not in rest
        assert b'"error"' in rest
        assert ("upstream", "bad_reply") in (await pharos.finished()).stages
        assert pharos.proxy.pool.idle(engine.url) == 0
        client.close()
        await until_nothing_is_left(pharos)


def test_the_table_of_replies_is_as_large_as_promised() -> None:
    assert len({told.name for told in REPLIES}) == len(REPLIES) >= 40
