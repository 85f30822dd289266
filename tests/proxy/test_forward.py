import asyncio
import json
import socket
import tracemalloc

import pytest

from pharos.core.fleet import BackendSpec, State
from pharos.proxy.retry import Standing
from pharos.proxy.settings import ProxySettings
from tests.proxy.engine_script import WAIT_S, Script, ScriptedEngine, Turn
from tests.proxy.harness import DONE, Front, chat, event, front

OK_BODY = b'{"choices":[]}'
BUSY = b'{"error":{"message":"full"}}'
TOLD = {
    **dict.fromkeys((429, 409, 503), "busy_retried"),
    **dict.fromkeys((405, 501), "route_lacking"),
    **dict.fromkeys((401, 403), "credential_refused"),
}


async def ok(turn: Turn) -> None:
    await turn.reply(200, OK_BODY)


def refuses(status: int, extra: bytes = b"", body: bytes = BUSY) -> Script:
    async def play(turn: Turn) -> None:
        await turn.reply(status, body, extra)

    return play


def dies(ending: str) -> Script:
    async def play(turn: Turn) -> None:
        getattr(turn, ending)()

    return play


def first_to(pharos: Front, name: str) -> None:
    """Make the other backends look occupied, so that the first attempt goes to this one."""
    for other in pharos.fleet.backends.values():
        for target in other.targets.values():
            target.slots.inflight = 0 if other.name == name else 1


@pytest.mark.parametrize("status", [500, 502, 503, 429, 409, 404, 405, 501, 401, 403])
async def test_a_refusal_is_tried_once_elsewhere(status: int) -> None:
    async with front(refuses(status), ok) as (pharos, a, b):
        first_to(pharos, "a")
        reply = await pharos.ask(chat(stream=False))
        assert reply.status == 200
        assert reply.body == OK_BODY
        assert (len(a.turns), len(b.turns)) == (1, 1)
        done = await pharos.finished()
        assert ("upstream", TOLD.get(status, "error_retried")) in done.stages
        assert done.backend == "b"
        assert pharos.fleet.backends["a"].state is State.UP
        assert a.turns[0].body == b.turns[0].body


@pytest.mark.parametrize("status", [500, 503, 429, 404])
async def test_when_nobody_takes_the_retry_the_client_gets_the_refusal_itself(status: int) -> None:
    async with front(refuses(status, b"Retry-After: 5\r\nX-Why: full\r\n")) as (pharos, a):
        reply = await pharos.ask(chat(stream=False))
        assert reply.status == status
        assert reply.body == BUSY
        assert reply.header("retry-after") == ["5"]
        assert reply.header("x-why") == ["full"]
        assert len(a.turns) == 1
        done = await pharos.finished()
        assert ("upstream", "retry_refused") in done.stages
        assert done.status == status
        assert pharos.inflight == 0


@pytest.mark.parametrize("status", [400, 413, 422])
async def test_the_client_s_own_mistake_is_never_retried(status: int) -> None:
    async with front(refuses(status), refuses(status)) as (pharos, a, b):
        reply = await pharos.ask(chat(stream=False))
        assert reply.status == status
        assert len(a.turns) + len(b.turns) == 1


async def test_two_refusals_give_the_second_one() -> None:
    async with front(refuses(500), refuses(503)) as (pharos, a, b):
        first_to(pharos, "a")
        reply = await pharos.ask(chat(stream=False))
        assert reply.status == 503
        assert (len(a.turns), len(b.turns)) == (1, 1)
        assert ("upstream", "error_status") in (await pharos.finished()).stages


async def test_a_refusal_too_big_to_hold_passes_without_a_retry() -> None:
    big = b"x" * 100_000
    async with front(refuses(500, body=big), ok) as (pharos, _, b):
        first_to(pharos, "a")
        reply = await pharos.ask(chat(stream=False))
        assert reply.status == 500
        assert reply.body == big
        assert len(b.turns) == 0


async def test_a_refusal_that_turns_out_too_big_passes_without_a_retry() -> None:
    big = b"x" * 100_000

    async def play(turn: Turn) -> None:
        await turn.write(b"HTTP/1.1 500 Oops\r\nTransfer-Encoding: chunked\r\n\r\n")
        await turn.chunk(big)
        await turn.write(b"0\r\n\r\n")

    async with front(play, ok) as (pharos, _, b):
        first_to(pharos, "a")
        reply = await pharos.ask(chat(stream=False))
        assert reply.body == big
        assert reply.is_whole
        assert len(b.turns) == 0


async def test_a_target_is_passed_over_for_the_time_it_asked_for() -> None:
    async with front(refuses(429, b"Retry-After: 30\r\n"), ok) as (pharos, a, b):
        first_to(pharos, "a")
        for count in range(3):
            first_to(pharos, "a")
            assert (await pharos.ask(chat(stream=False))).status == 200
            assert len(b.turns) == count + 1
        assert len(a.turns) == 1


async def test_a_backend_that_refuses_connections_is_ejected_and_the_request_goes_elsewhere() -> None:
    async with front(ok, ok) as (pharos, a, b):
        await a.stop()
        first_to(pharos, "a")
        assert (await pharos.ask(chat(stream=False))).status == 200
        assert len(b.turns) == 1
        assert pharos.fleet.backends["a"].state is State.EJECTED
        assert [event.backend for event in pharos.events] == ["a"]
        assert ("upstream", "connect_failed") in (await pharos.finished()).stages
        await a.start()


@pytest.mark.parametrize("ending", ["close", "reset"])
async def test_an_engine_that_dies_before_a_reply_is_ejected_and_the_request_goes_elsewhere(ending: str) -> None:
    async with front(dies(ending), ok) as (pharos, a, b):
        first_to(pharos, "a")
        assert (await pharos.ask(chat(stream=False))).status == 200
        assert (len(a.turns), len(b.turns)) == (1, 1)
        assert pharos.fleet.backends["a"].state is State.EJECTED
        assert ("upstream", "died_before_reply") in (await pharos.finished()).stages
        assert pharos.inflight == 0 or pharos.fleet.backends["b"].inflight == 1  # the one that first_to set


async def test_an_engine_that_dies_inside_a_held_refusal_is_ejected() -> None:
    async def play(turn: Turn) -> None:
        await turn.write(b"HTTP/1.1 500 Oops\r\nContent-Length: 100\r\n\r\nhalf")
        turn.close()

    async with front(play, ok) as (pharos, _, b):
        first_to(pharos, "a")
        assert (await pharos.ask(chat(stream=False))).status == 200
        assert len(b.turns) == 1
        assert pharos.fleet.backends["a"].state is State.EJECTED


@pytest.mark.parametrize("ending", ["close", "reset"])
async def test_a_stale_kept_connection_is_replaced_on_the_same_engine(ending: str) -> None:
    async def play(turn: Turn) -> None:
        if turn.connection == 1 and len(turn.engine.turns) == 2:
            getattr(turn, ending)()
        else:
            await turn.reply(200, OK_BODY)

    settings = ProxySettings(retry_attempts=0)  # a stale connection is no retry
    async with front(play, settings=settings) as (pharos, engine):
        assert (await pharos.ask(chat(stream=False))).status == 200
        assert (await pharos.ask(chat(stream=False))).status == 200
        assert engine.connections == 2
        assert len(engine.turns) == 3
        assert pharos.fleet.backends["a"].state is State.UP
        assert ("upstream", "stale_connection") in (await pharos.finished(2)).stages


async def test_a_connection_that_the_engine_closed_while_idle_is_not_used_again() -> None:
    async def play(turn: Turn) -> None:
        await turn.reply(200, OK_BODY)
        turn.close()

    async with front(play) as (pharos, engine):
        for _ in range(3):
            assert (await pharos.ask(chat(stream=False))).status == 200
        async with asyncio.timeout(WAIT_S):
            while pharos.proxy.pool.idle(engine.url):
                await asyncio.sleep(0)
        assert len(engine.turns) == engine.connections == 3


async def test_bytes_nobody_asked_for_close_an_idle_connection() -> None:
    async def play(turn: Turn) -> None:
        await turn.reply(200, OK_BODY)
        if turn.connection == 1:
            await answered.wait()
            await turn.write(b"HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\npoison")
            await turn.until_closed()

    answered = asyncio.Event()
    async with front(play) as (pharos, engine):
        assert (await pharos.ask(chat(stream=False))).status == 200
        assert pharos.proxy.pool.idle(engine.url) == 1
        answered.set()
        async with asyncio.timeout(WAIT_S):
            while pharos.proxy.pool.idle(engine.url):
                await asyncio.sleep(0)
        reply = await pharos.ask(chat(stream=False))
        assert reply.body == OK_BODY


async def test_two_replies_to_one_request_do_not_poison_the_next() -> None:
    async def play(turn: Turn) -> None:
        one = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%b"
        await turn.write(one % (len(OK_BODY), OK_BODY) + one % (6, b"poison"))

    async with front(play) as (pharos, engine):
        for _ in range(3):
            assert (await pharos.ask(chat(stream=False))).body == OK_BODY
        assert engine.connections == 3


async def test_ejection_closes_the_engine_s_idle_connections() -> None:
    async def play(turn: Turn) -> None:
        if turn.engine.turns.index(turn) < 2:
            await both.wait()
            await turn.reply(200, OK_BODY)
        else:
            turn.close()

    both = asyncio.Event()
    async with front(play) as (pharos, engine):
        first, second = await pharos.client(), await pharos.client()
        first.post(chat(stream=False))
        second.post(chat(stream=False))
        await engine.got(2)
        both.set()
        assert (await first.reply()).status == (await second.reply()).status == 200
        assert pharos.proxy.pool.idle(engine.url) == 2
        for backend in pharos.fleet.backends.values():
            for target in backend.targets.values():
                assert target.slots.inflight == 0
        reply_task = asyncio.create_task(pharos.ask(chat(stream=False)))
        await engine.got(4)  # the stale one, then a fresh one: both die
        async with asyncio.timeout(WAIT_S):
            while pharos.fleet.backends["a"].state is not State.EJECTED:
                await asyncio.sleep(0)
        assert pharos.proxy.pool.idle(engine.url) == 0
        reply_task.cancel()


async def test_while_the_only_backend_is_gone_the_retry_waits_for_it_to_come_back() -> None:
    async def play(turn: Turn) -> None:
        if len(turn.engine.turns) == 1:
            turn.reset()
        else:
            await turn.reply(200, OK_BODY)

    async with front(play) as (pharos, engine):
        client = await pharos.client()
        client.post(chat(stream=False))
        async with asyncio.timeout(WAIT_S):
            while not pharos.ledger.waiting:
                await asyncio.sleep(0)
        pharos.bring_up("a")
        pharos.gate.kick()
        assert (await client.reply()).status == 200
        assert len(engine.turns) == 2


async def test_without_retries_left_a_dead_engine_is_a_502_in_our_shape() -> None:
    async with front(dies("close"), settings=ProxySettings(retry_attempts=0)) as (pharos, _):
        reply = await pharos.ask(chat(stream=False))
        assert reply.status == 502
        assert reply.json()["error"]["code"] == "bad_gateway"
        assert len(reply.header("x-request-id")) == 1


async def test_what_is_no_http_reply_is_tried_elsewhere_and_does_not_eject() -> None:
    async def play(turn: Turn) -> None:
        await turn.write(b"SSH-2.0-OpenSSH\r\n")
        await turn.until_closed()

    async with front(play, ok) as (pharos, _, b):
        first_to(pharos, "a")
        assert (await pharos.ask(chat(stream=False))).status == 200
        assert len(b.turns) == 1
        assert ("upstream", "bad_reply") in (await pharos.finished()).stages
        assert pharos.fleet.backends["a"].state is State.UP


async def test_a_400_that_names_the_added_field_is_sent_again_without_it_and_remembered() -> None:
    async def play(turn: Turn) -> None:
        if b"stream_options" in turn.body:
            await turn.reply(400, b'{"error":{"message":"stream_options: extra fields not permitted"}}')
        else:
            await turn.sse_head()
            await turn.chunk(event() + DONE)
            await turn.write(b"0\r\n\r\n")

    async with front(play) as (pharos, engine):
        for _ in range(2):
            reply = await pharos.ask()
            assert reply.status == 200
            assert reply.body == event() + DONE
        assert [b"stream_options" in turn.body for turn in engine.turns] == [True, False, False]
        assert ("usage", "refused_by_engine") in (await pharos.finished()).stages


async def test_a_400_about_something_else_is_passed_on_though_a_field_was_added() -> None:
    body = b'{"error":{"message":"max_tokens is too large"}}'
    async with front(refuses(400, body=body)) as (pharos, engine):
        reply = await pharos.ask()
        assert reply.status == 400
        assert reply.body == body
        assert len(engine.turns) == 1


async def test_llama_cpp_is_not_asked_for_usage() -> None:
    async def play(turn: Turn) -> None:
        await turn.sse_head()
        await turn.chunk(event(timings={"prompt_n": 5, "cache_n": 2, "predicted_n": 1}) + DONE)
        await turn.write(b"0\r\n\r\n")

    async with front(play, kind="llamacpp") as (pharos, engine):
        body = chat()
        assert (await pharos.ask(body)).status == 200
        assert engine.turns[0].body == body
        done = await pharos.finished()
        assert ("usage", "not_needed") in done.stages
        assert done.usage is not None
        assert done.usage.cached_tokens == 2


async def test_retries_stop_when_the_budget_is_spent() -> None:
    async with front(refuses(500), ok) as (pharos, _, b):
        statuses = []
        for _attempt in range(12):
            first_to(pharos, "a")
            pharos.proxy.routes._forwarder._judge.standing = Standing()  # this is about the budget alone
            statuses.append((await pharos.ask(chat(stream=False))).status)
        assert statuses == [200] * 10 + [500] * 2
        assert len(b.turns) == 10


async def test_a_large_body_goes_up_in_pieces_and_memory_is_given_back_after_the_first_reply_byte() -> None:
    async def play(turn: Turn) -> None:
        await turn.sse_head()
        await turn.chunk(event())
        await go_on.wait()
        await turn.chunk(DONE)
        await turn.write(b"0\r\n\r\n")

    go_on = asyncio.Event()
    body = chat(filler="x" * 5_000_000, stream_options={"include_usage": True})
    async with front(play) as (pharos, engine):
        client = await pharos.client()
        client.post(body)
        await client.until(b'"hi"')
        assert engine.turns[0].body == body
        assert pharos.proxy.routes.buffers.used == 0
        go_on.set()
        await client.until(b"0\r\n\r\n")


async def test_an_engine_on_a_silent_address_fails_within_the_connect_deadline() -> None:
    silent = socket.socket()
    silent.bind(("127.0.0.1", 0))
    silent.listen(0)
    port = silent.getsockname()[1]
    fill = [socket.socket() for _ in range(4)]
    for sock in fill:  # fills the backlog, so that the next connection gets no answer
        sock.settimeout(0)
        sock.connect_ex(("127.0.0.1", port))
    engine = ScriptedEngine(ok)
    await engine.start()
    specs = [
        BackendSpec(name="silent", url=f"http://127.0.0.1:{port}", capacity=4),
        BackendSpec(name="b", url=engine.url, capacity=4),
    ]
    pharos = Front(specs, ProxySettings(connect_s=0.2))
    await pharos.proxy.start("127.0.0.1:0")
    first_to(pharos, "silent")
    reply = await pharos.ask(chat(stream=False))
    assert reply.status == 200
    assert ("upstream", "connect_failed") in (await pharos.finished()).stages
    await pharos.stop()
    await engine.stop()
    for sock in [silent, *fill]:
        sock.close()


async def test_replies_name_their_target_and_reason_when_asked_to() -> None:
    async with front(ok, settings=ProxySettings(show_target=True, show_reason=True)) as (pharos, _):
        reply = await pharos.ask(chat(stream=False))
        assert reply.header("x-pharos-target") == ["a"]
        assert reply.header("x-pharos-reason") == [(await pharos.finished()).reason]
    async with front(ok) as (pharos, _):
        reply = await pharos.ask(chat(stream=False))
        assert reply.header("x-pharos-target") == reply.header("x-pharos-reason") == []


async def test_completions_are_routed_too() -> None:
    async with front(ok) as (pharos, engine):
        body = json.dumps({"model": "m", "prompt": "hi"}).encode()
        assert (await pharos.ask(body, path="/v1/completions")).status == 200
        assert engine.turns[0].line == "POST /v1/completions HTTP/1.1"
        assert engine.turns[0].body == body


async def test_a_backend_that_fails_fast_does_not_draw_the_traffic() -> None:
    async with front(refuses(500), ok) as (pharos, a, b):
        statuses = [(await pharos.ask(chat(stream=False))).status for _ in range(100)]
        assert statuses == [200] * 100
        assert len(b.turns) == 100
        assert len(a.turns) < 10


async def test_the_body_is_held_by_nobody_once_the_reply_has_begun() -> None:
    async def play(turn: Turn) -> None:
        await turn.sse_head()
        await turn.chunk(event())
        await go_on.wait()
        await turn.chunk(DONE)
        await turn.write(b"0\r\n\r\n")

    go_on = asyncio.Event()
    async with front(play) as (pharos, _):
        client = await pharos.client()
        tracemalloc.start()
        try:
            client.post(chat(filler="x" * 5_000_000))
            await client.until(b'"hi"')
            taken = tracemalloc.take_snapshot().filter_traces([tracemalloc.Filter(True, "*/pharos/proxy/*")])  # noqa: FBT003
        finally:
            tracemalloc.stop()
        assert sum(trace.size for trace in taken.traces) < 1_000_000
        go_on.set()
        await client.until(b"0\r\n\r\n")
