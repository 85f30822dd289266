"""A client that waits is told its place inside its stream, if it wants to be; what fails then fails in the stream."""

import asyncio
import json
from typing import Any

import pytest

from pharos.core.sched import Place
from pharos.proxy.answer import Answer
from pharos.proxy.auth import Key
from pharos.proxy.settings import ProxySettings
from pharos.proxy.table import ROUTES
from pharos.proxy.telling import Telling, comment, said
from tests.proxy.engine_script import Turn
from tests.proxy.harness import DONE, Front, RawClient, chat, event, front
from tests.proxy.test_asking import until_waiting

ASKS = "Pharos-Queue-Events: 1\r\n"
AT_ONCE = ProxySettings(queue_told_s=(0.0, 0.001))
COMMENT = b": pharos queue position=1"


async def streams(turn: Turn) -> None:
    await turn.sse_head()
    await turn.chunk(event())
    if len(turn.engine.turns) == 1:
        await turn.engine.go_on.wait()  # type: ignore[attr-defined]
    await turn.chunk(DONE)
    await turn.write(b"0\r\n\r\n")


def second(then: Any) -> Any:
    """The first request is held until it is let go, the second one is answered so."""

    async def play(turn: Turn) -> None:
        await (streams if len(turn.engine.turns) == 1 else then)(turn)

    return play


async def busy(pharos: Front, engine: Any) -> RawClient:
    """The only slot is taken."""
    engine.go_on = asyncio.Event()
    first = await pharos.client()
    first.post(chat())
    await first.until(b'"hi"')
    return first


async def waiting(pharos: Front, headers: str = ASKS, body: bytes | None = None, **more: Any) -> RawClient:
    client = await pharos.client()
    client.post(chat() if body is None else body, headers, **more)
    await until_waiting(pharos, 1)
    return client


async def test_a_stream_that_waits_is_told_its_place_and_then_goes_on_under_the_same_head() -> None:
    async with front(streams, capacity=1, settings=AT_ONCE) as (pharos, engine):
        await busy(pharos, engine)
        client = await waiting(pharos)
        head = await client.until(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 200 OK\r\n")
        assert b"text/event-stream" in head
        assert COMMENT in await client.until(b"\n\n")
        assert COMMENT in await client.until(b"\n\n"), "again and again"
        engine.go_on.set()
        rest = await client.until(b"0\r\n\r\n")
        assert event() in rest
        assert b"HTTP/1.1" not in rest
        assert rest.endswith(b"data: [DONE]\n\n\r\n0\r\n\r\n")
        assert not engine.turns[1].header("pharos-queue-events")
        done = await pharos.finished(2)
        assert (done.status, ("upstream", "ok") in done.stages, ("queue", "waited") in done.stages) == (200, True, True)


async def test_whoever_does_not_ask_and_whoever_cannot_be_told_hears_nothing() -> None:
    async with front(streams, capacity=1, settings=AT_ONCE, kind="ollama") as (pharos, engine):
        await busy(pharos, engine)
        plain = await waiting(pharos, headers="")
        others = [await pharos.client() for _ in range(2)]
        others[0].post(chat(stream=False), ASKS)
        others[1].post(chat(), ASKS, path="/api/chat")
        await until_waiting(pharos, 3)
        await asyncio.gather(*[asyncio.sleep(0) for _ in range(50)])
        engine.go_on.set()
        for client in (plain, *others):
            assert b"queue" not in await client.until(b"0\r\n\r\n")


async def test_a_key_may_ask_for_all_its_streams() -> None:
    keys = {"pk": Key("alice", queue_events=True)}
    async with front(streams, capacity=1, settings=AT_ONCE, keys=keys) as (pharos, engine):
        engine.go_on = asyncio.Event()
        first = await pharos.client()
        first.post(chat(), "Authorization: Bearer pk\r\n")
        await first.until(b'"hi"')
        client = await waiting(pharos, "Authorization: Bearer pk\r\n")
        await client.until(COMMENT)
        engine.go_on.set()
        await client.until(b"0\r\n\r\n")


BROKEN = {
    "/v1/chat/completions": b'data: {"error":',
    "/v1/completions": b'data: {"error":',
    "/v1/messages": b"event: error\ndata: ",
    "/v1/responses": b"event: error\ndata: ",
}


@pytest.mark.parametrize("path", BROKEN)
async def test_a_wait_that_ends_in_a_refusal_ends_the_stream_in_its_protocol(path: str) -> None:
    async with front(streams, capacity=1, settings=AT_ONCE, absent_wait_s=0.01) as (pharos, engine):
        await busy(pharos, engine)
        client = await waiting(pharos, path=path, body=chat(input="hi", prompt="hi"))
        await client.until(COMMENT)
        engine.turns[0].reset()
        rest, _ = await client.rest()
        assert BROKEN[path] in rest
        assert b"came back" in rest
        assert b"HTTP/1.1" not in rest
        assert b"[DONE]" not in rest
        done = next(one for one in [await pharos.finished(1), await pharos.finished(2)] if one.target is None)
        assert done.stages[-1] == ("route", "wait_too_long")


async def refuses(turn: Turn) -> None:
    await turn.reply(400, b'{"error":{"message":"too hot"}}')


async def in_one_piece(turn: Turn) -> None:
    await turn.reply(200, b'{"choices":[]}')


async def dies(turn: Turn) -> None:
    turn.reset()


async def dies_inside(turn: Turn) -> None:
    await turn.sse_head()
    await turn.chunk(event())
    turn.reset()


@pytest.mark.parametrize(
    ("then", "text"),
    [(refuses, b"too hot"), (in_one_piece, b"failed: "), (dies, b"failed: "), (dies_inside, b"stopped inside")],
)
async def test_what_an_engine_does_wrong_behind_a_comment_is_an_error_of_the_stream(then: Any, text: bytes) -> None:
    settings = ProxySettings(queue_told_s=AT_ONCE.queue_told_s, retry_attempts=0)
    async with front(second(then), capacity=1, settings=settings) as (pharos, engine):
        await busy(pharos, engine)
        client = await waiting(pharos)
        await client.until(COMMENT)
        engine.go_on.set()
        rest, _ = await client.rest()
        assert b'data: {"error":' in rest
        assert text in rest
        assert b"HTTP/1.1" not in rest
        assert b"[DONE]" not in rest


async def test_a_retry_behind_a_comment_goes_on_in_the_same_stream() -> None:
    async def play(turn: Turn) -> None:
        await (dies if len(turn.engine.turns) == 2 else streams)(turn)

    async with front(play, streams, capacity=1, settings=AT_ONCE, absent_wait_s=5.0) as (pharos, a, b):
        await busy(pharos, a)
        b.go_on = a.go_on
        other = await pharos.client()
        other.post(chat())
        await other.until(b'"hi"')
        client = await waiting(pharos)
        await client.until(COMMENT)
        a.go_on.set()
        rest = await client.until(b"0\r\n\r\n")
        assert rest.count(b"HTTP/1.1") == 0
        assert event() in rest


async def test_on_http_1_0_the_stream_ends_with_its_connection() -> None:
    async with front(streams, capacity=1, settings=AT_ONCE, absent_wait_s=0.01) as (pharos, engine):
        await busy(pharos, engine)
        client = await waiting(pharos, version="1.0")
        await client.until(b"\n\n")
        engine.turns[0].reset()
        rest, _ = await client.rest()
        assert b'data: {"error":' in rest


async def test_a_client_that_leaves_while_it_is_told_leaves_the_queue() -> None:
    async with front(streams, capacity=1, settings=AT_ONCE) as (pharos, engine):
        await busy(pharos, engine)
        client = await waiting(pharos)
        await client.until(COMMENT)
        client.close()
        assert (await pharos.finished(1)).status == 499
        assert pharos.ledger.waiting == 0
        engine.go_on.set()


@pytest.mark.looptime
async def test_it_is_told_after_5_s_and_then_every_10_s_until_it_waits_no_longer() -> None:
    class Wire:
        def __init__(self) -> None:
            self.got: list[float] = []

        def is_closing(self) -> bool:
            return False

        def write(self, data: bytes) -> None:
            if data.startswith(b"HTTP"):
                return
            self.got.append(round(asyncio.get_running_loop().time() - began))

    class Door:
        draining = False

    class Asked:
        route, key = ROUTES["/v1/chat/completions"], Key("alice", queue_events=True)
        parsed = type("Parsed", (), {"stream": True})
        headers = ()
        answer: Answer

    began = asyncio.get_running_loop().time()
    wire, call = Wire(), Asked()
    call.answer = Answer(wire, Door(), http11=True, keep_alive=True, is_head=False, request_id="x")  # type: ignore[arg-type]
    places = iter([Place(3, 12.2), Place(2, None), None])
    with Telling(call, lambda: next(places), ProxySettings().queue_told_s) as telling:  # type: ignore[arg-type]
        assert repr(telling).startswith("<Telling ")
        await asyncio.sleep(60)
    assert wire.got == [5, 15]


def test_what_is_told_is_a_comment_with_the_place_and_the_time_if_it_is_known() -> None:
    assert comment(Place(3, 11.2)) == b": pharos queue position=3 eta_s=12\n\n"
    assert comment(Place(1, None)) == b": pharos queue position=1\n\n"
    assert comment(Place(1, -2.0)) == b": pharos queue position=1 eta_s=0\n\n"


@pytest.mark.parametrize(
    ("body", "text"),
    [
        ({"error": {"message": "no"}}, "no"), ({"error": "no"}, "no"), ({"message": "no"}, "no"),
        ({"detail": "no"}, "no"),
        ({"error": {"message": ""}}, "The engine answered 418."), ([1], "The engine answered 418."),
        ({"error": "x" * 900}, "x" * 500), ({"error": "\ud800"}, "?"),
    ],
)  # fmt: skip
def test_an_engine_s_message_is_taken_out_of_whatever_it_says(body: Any, text: str) -> None:
    assert said(418, json.dumps(body).encode()) == text
