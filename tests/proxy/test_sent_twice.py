"""What an engine may get twice, and what never: a kept connection that was closed, and a field that Pharos added."""

import asyncio
import json
from collections.abc import Callable

import pytest

from pharos.core.fleet import State
from pharos.proxy import attempt
from pharos.proxy.settings import ProxySettings
from tests.proxy.engine_script import Script, Turn
from tests.proxy.harness import DONE, Front, chat, event, front
from tests.proxy.test_bound import RESPONSES, response, turn_of
from tests.proxy.test_forward import OK_BODY, first_to, ok

BAD_OPTIONS = b'{"error":{"message":"stream_options: extra fields not permitted"}}'


class Shifted:
    """A clock that a test can put forward."""

    def __init__(self) -> None:
        self.by = 0.0

    def __call__(self) -> float:
        return asyncio.get_running_loop().time() + self.by


def kept_then_closes(before: Callable[[], object] = lambda: None) -> Script:
    """Answers a connection's first request, and closes on its next one."""

    async def play(turn: Turn) -> None:
        if sum(other.connection == turn.connection for other in turn.engine.turns) == 1:
            await turn.reply(200, OK_BODY)
        else:
            before()
            turn.close()

    return play


# --- a kept connection


async def test_one_that_ends_after_the_engine_could_work_is_no_stale_one() -> None:
    clock = Shifted()

    def works() -> None:
        clock.by += 3.0

    async with front(kept_then_closes(works), ok, clock=clock) as (pharos, a, b):
        first_to(pharos, "a")
        assert (await pharos.ask(chat(stream=False))).status == 200
        first_to(pharos, "a")
        assert (await pharos.ask(chat(stream=False))).body == OK_BODY
        assert (len(a.turns), len(b.turns)) == (2, 1), "tried elsewhere, as a retry"
        stages = (await pharos.finished(2)).stages
        assert ("upstream", "stale_connection") not in stages
        assert ("upstream", "died_before_reply") in stages
        assert pharos.fleet.backends["a"].state is State.EJECTED


async def test_a_request_meets_one_stale_connection_at_most() -> None:
    async def second(turn: Turn) -> None:
        if len(turn.engine.turns) == 2:
            turn.close()  # stale
        elif len(turn.engine.turns) == 3:
            await turn.reply(503, b"{}")  # again, elsewhere
        else:
            await turn.reply(200, OK_BODY)

    async with front(second, kept_then_closes()) as (pharos, a, b):
        for name in ("a", "b"):
            first_to(pharos, name)
            assert (await pharos.ask(chat(stream=False))).status == 200
        first_to(pharos, "a")
        assert (await pharos.ask(chat(stream=False))).status == 200
        assert (len(a.turns), len(b.turns)) == (3, 2)
        assert b.turns[0].connection != b.turns[1].connection
        stages = (await pharos.finished(3)).stages
        assert stages.count(("upstream", "stale_connection")) == 1


async def made(pharos: Front) -> None:
    assert (await pharos.ask(turn_of(), path=RESPONSES)).status == 200


def keeper(method: str) -> Script:
    """Makes a response, and closes on the first request of this method."""

    async def play(turn: Turn) -> None:
        lines = [one.line for one in turn.engine.turns]
        if turn.line.startswith(method) and len(lines) > 1 and sum(line.startswith(method) for line in lines[1:]) == 1:
            turn.close()
        else:
            await turn.reply(200, response())

    return play


async def test_reading_a_response_is_tried_again_on_a_stale_connection() -> None:
    async with front(keeper("GET")) as (pharos, a):
        await made(pharos)
        assert (await pharos.fetch(f"{RESPONSES}/resp_1")).status == 200
        assert len(a.turns) == 3


@pytest.mark.parametrize("method", ["POST", "DELETE"])
async def test_nothing_that_changes_a_kept_response_is_sent_twice(method: str) -> None:
    async with front(keeper(method)) as (pharos, a):
        await made(pharos)
        if method == "POST":
            reply = await pharos.ask(turn_of(previous_response_id="resp_1"), path=RESPONSES)
        else:
            reply = await pharos.fetch(f"{RESPONSES}/resp_1", method="DELETE")
        assert reply.status == 502
        assert len(a.turns) == 2
        assert a.turns[0].connection != a.turns[1].connection, "no kept connection can be to blame"


def test_a_stale_connection_ends_sooner_than_any_work() -> None:
    assert 0 < attempt.STALE_WITHIN_S < 1.0


# --- the field that asks for usage


async def streams(turn: Turn) -> None:
    await turn.sse_head()
    await turn.chunk(event() + DONE)
    await turn.write(b"0\r\n\r\n")


async def test_a_client_s_own_bad_option_is_sent_once_and_says_nothing_of_the_engine() -> None:
    async def play(turn: Turn) -> None:
        options = json.loads(turn.body).get("stream_options", {})
        await (streams(turn) if set(options) <= {"include_usage"} else turn.reply(400, BAD_OPTIONS))

    async with front(play) as (pharos, a):
        reply = await pharos.ask(chat(stream_options={"bogus": 1}))
        assert (reply.status, reply.body) == (400, BAD_OPTIONS)
        assert len(a.turns) == 1
        assert (await pharos.ask()).status == 200
        assert b"include_usage" in a.turns[-1].body


async def test_a_refusal_that_stays_without_the_field_says_nothing_of_the_engine() -> None:
    async def play(turn: Turn) -> None:
        await (turn.reply(400, BAD_OPTIONS) if b"odd" in turn.body else streams(turn))

    async with front(play, settings=ProxySettings(retry_attempts=0)) as (pharos, a):
        reply = await pharos.ask(chat(user="odd stream_options"))
        assert (reply.status, reply.body) == (400, BAD_OPTIONS)
        assert len(a.turns) == 2
        assert (await pharos.ask()).status == 200
        assert b"include_usage" in a.turns[-1].body
