"""A backend that fails fast, in any way, beside a good one: it looks idle, and must not draw the traffic."""

import asyncio
import gc

import pytest

from pharos.core.fleet import State
from pharos.proxy.done import Done
from tests.proxy.engine_script import WAIT_S, Script, Turn
from tests.proxy.harness import DONE, Front, chat, event, front
from tests.proxy.test_forward import OK_BODY, dies, first_to, ok, refuses

SLOTS = 4
A_HANDFUL = 3 * SLOTS
"""A first burst, the next one that was already chosen, and a few that try it again."""


def says(data: bytes) -> Script:
    async def play(turn: Turn) -> None:
        await turn.write(data)
        turn.close()

    return play


async def empty_stream(turn: Turn) -> None:
    await turn.sse_head()
    await turn.write(b"0\r\n\r\n")


async def only_done(turn: Turn) -> None:
    await turn.sse_head()
    await turn.chunk(DONE)
    await turn.write(b"0\r\n\r\n")


async def error_in_stream(turn: Turn) -> None:
    await turn.sse_head()
    await turn.chunk(b'data: {"error":{"message":"oom"}}\n\n' + DONE)
    await turn.write(b"0\r\n\r\n")


def answers(stream: bool) -> Script:  # noqa: FBT001
    async def play(turn: Turn) -> None:
        await asyncio.sleep(0.02)  # what a good engine needs; the bad one is faster
        if stream:
            await turn.sse_head()
            await turn.chunk(event() + DONE)
            await turn.write(b"0\r\n\r\n")
        else:
            await turn.reply(200, OK_BODY)

    return play


async def crowd(pharos: Front, count: int = 100, *, stream: bool = False) -> list[Done]:
    """So many requests, eight at once."""
    turn = asyncio.Semaphore(8)

    async def one() -> None:
        async with turn:
            await pharos.ask(chat(stream=stream))

    await asyncio.gather(*[one() for _ in range(count)])
    await pharos.finished(count)
    return pharos.done


RETRIED = {
    **{str(status): refuses(status) for status in (500, 503, 429, 409, 404, 405, 501, 401, 403)},
    "no http": says(b"SSH-2.0-OpenSSH\r\n"),
    "closes": dies("close"),
    "resets": dies("reset"),
}
PASSED_ON = {
    "error object": (refuses(200, body=b'{"error":{"message":"oom"}}'), False),
    "blank body": (refuses(200, body=b""), False),
    "torn body": (refuses(200, body=b'{"choices":['), False),
    "empty stream": (empty_stream, True),
    "nothing but an end": (only_done, True),
    "error in the stream": (error_in_stream, True),
}


@pytest.mark.parametrize("script", RETRIED.values(), ids=RETRIED)
async def test_a_backend_that_fails_before_a_reply_costs_no_request(script: Script) -> None:
    async with front(script, answers(stream=False), capacity=SLOTS) as (pharos, a, _):
        done = await crowd(pharos)
        assert [one.status for one in done].count(200) == 100
        assert len(a.turns) <= A_HANDFUL


@pytest.mark.parametrize(("script", "stream"), PASSED_ON.values(), ids=PASSED_ON)
async def test_a_backend_whose_200_holds_no_answer_spoils_a_handful(script: Script, stream: bool) -> None:  # noqa: FBT001
    async with front(script, answers(stream=stream), capacity=SLOTS) as (pharos, a, b):
        done = await crowd(pharos, stream=stream)
        assert len(a.turns) <= A_HANDFUL
        assert len(b.turns) == 100 - len(a.turns)
        assert sum(("upstream", "ok") in one.stages for one in done) == len(b.turns)


async def test_a_first_attempt_avoids_a_failing_backend_when_no_retry_is_left() -> None:
    async with front(refuses(503), answers(stream=False), capacity=SLOTS) as (pharos, a, _):
        budget = pharos.proxy.routes._forwarder._judge.budget
        now = pharos.clock()
        while budget.take(now):
            pass
        statuses = [one.status for one in await crowd(pharos)]
        assert statuses.count(503) + statuses.count(200) == 100
        # The requests of the crowd pay for new retries: one late try at it, after a pause, may be made good.
        assert 0 < statuses.count(503) <= len(a.turns) <= A_HANDFUL


async def test_who_waits_for_the_good_backend_is_not_sent_to_the_failing_one_in_the_end() -> None:
    async def slow(turn: Turn) -> None:
        await go_on.wait()
        await turn.reply(200, OK_BODY)

    go_on = asyncio.Event()
    async with front(refuses(500), slow, capacity=1) as (pharos, a, b):
        standing = pharos.proxy.routes._forwarder._judge.standing
        for target in pharos.fleet.backends["a"].targets.values():
            for _ in range(3):
                standing.failed(target.id, "/v1/chat/completions", 500, pharos.clock())
        asking = [asyncio.create_task(pharos.ask(chat(stream=False))) for _ in range(3)]
        await b.got(1)
        async with asyncio.timeout(WAIT_S):
            while pharos.ledger.waiting < 2:
                await asyncio.sleep(0)
        assert pharos.ledger.next_deadline() is None, "they wait as long as others do"
        go_on.set()
        assert [(await one).status for one in asking] == [200] * 3
        assert not a.turns


async def test_a_failing_backend_is_used_when_it_is_the_only_one() -> None:
    async with front(refuses(503), answers(stream=False)) as (pharos, a, _):
        await crowd(pharos, 20)
        asked = len(a.turns)
        pharos.fleet.eject(pharos.fleet.backends["b"], "gone", pharos.clock(), connected_at=pharos.clock())
        assert (await pharos.ask(chat(stream=False))).status == 503
        assert len(a.turns) == asked + 1


async def test_a_failing_backend_is_used_by_who_waits_when_the_good_one_goes_away() -> None:
    """For a first attempt and for one that was sent to a dead engine before."""

    async def hangs(turn: Turn) -> None:
        await turn.until_closed()

    async with front(ok, hangs, dies("close"), capacity=1) as (pharos, a, b, _):
        a_id, c_id = (pharos.fleet.backends[name].targets["m"].id for name in "ac")
        standing = pharos.proxy.routes._forwarder._judge.standing
        for _attempt in range(3):
            standing.failed(a_id, "/v1/chat/completions", 500, pharos.clock())
        target = pharos.fleet.backends["b"].targets["m"]
        target.slots.inflight = 1
        asking = [asyncio.create_task(pharos.ask(chat(stream=False))) for _ in range(2)]
        async with asyncio.timeout(WAIT_S):
            while pharos.ledger.waiting < 2:
                await asyncio.sleep(0)
        assert pharos.fleet.backends["c"].state is State.EJECTED
        assert c_id != a_id
        pharos.fleet.eject(pharos.fleet.backends["b"], "gone", pharos.clock(), connected_at=pharos.clock())
        pharos.gate.kick()
        assert [(await one).status for one in asking] == [200, 200]
        assert len(a.turns) == 2
        assert not b.turns


async def test_nobody_takes_a_request_that_the_engine_has_no_credential_for() -> None:
    async with front(refuses(401, b"WWW-Authenticate: Bearer\r\n"), refuses(403)) as (pharos, a, b):
        first_to(pharos, "a")
        reply = await pharos.ask(chat(stream=False))
        assert reply.status == 502
        assert (len(a.turns), len(b.turns)) == (1, 1)


async def test_a_stream_in_which_the_model_says_nothing_is_no_failure_when_usage_tells_so() -> None:
    async def play(turn: Turn) -> None:
        await turn.sse_head()
        await turn.chunk(b'data: {"choices":[],"usage":{"prompt_tokens":3,"completion_tokens":0}}\n\n' + DONE)
        await turn.write(b"0\r\n\r\n")

    async with front(play) as (pharos, _):
        assert (await pharos.ask(chat())).status == 200
        assert ("upstream", "ok") in (await pharos.finished()).stages


# --- a request that no engine survives


async def test_a_request_on_which_two_engines_close_takes_only_the_first_from_the_others() -> None:
    async with front(dies("close"), dies("reset"), ok) as (pharos, a, b, c):
        for other in pharos.fleet.backends.values():
            for target in other.targets.values():
                target.slots.inflight = "abc".index(other.name)
        reply = await pharos.ask(chat(stream=False))
        assert reply.status == 502
        assert (len(a.turns), len(b.turns), len(c.turns)) == (1, 1, 0)
        assert [one.state for one in pharos.fleet.backends.values()] == [State.EJECTED, State.UP, State.UP]
        assert (await pharos.finished()).stages.count(("upstream", "died_before_reply")) == 2


# --- a body that an engine does not want


async def test_an_engine_that_closes_on_a_large_body_is_neither_ejected_nor_asked_again() -> None:
    async with front(ok, ok) as (pharos, _, b):
        closing = await asyncio.start_server(_closes_on_heads, "127.0.0.1", 0)
        url = f"http://127.0.0.1:{closing.sockets[0].getsockname()[1]}"
        backend = pharos.fleet.backends["a"]
        backend.spec = type(backend.spec)(name="a", url=url, capacity=4)
        first_to(pharos, "a")
        reply = await pharos.ask(chat(stream=False, filler="x" * 20_000_000))
        assert reply.status == 502
        assert b"before it had taken the whole request" in reply.body
        assert backend.state is State.UP
        assert not b.turns
        closing.close()


async def _closes_on_heads(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await reader.readuntil(b"\r\n\r\n")
    writer.transport.abort()


async def test_a_large_body_that_gets_a_field_added_is_not_copied() -> None:
    async def play(turn: Turn) -> None:
        await turn.sse_head()
        await turn.chunk(event() + DONE)
        await turn.write(b"0\r\n\r\n")

    body = chat(filler="x" * 5_000_000)
    async with front(play, play) as (pharos, a, b):
        reply = await pharos.ask(body)
        assert reply.status == 200
        (turn,) = a.turns + b.turns
        assert turn.body == body[:-1] + b',"stream_options":{"include_usage":true}}'
        assert turn.header("content-length") == [str(len(turn.body))]


async def test_scores_are_made_when_they_are_looked_at() -> None:
    async with front(ok, ok) as (pharos, _a, _b):
        await pharos.ask(chat(stream=False))
        done = await pharos.finished()
        gc.collect()
        assert len(done.scores) == 2
        assert [score.name for score in done.scores] == ["a", "b"]
        assert done.scores[0] == done.scores[:1][0]
