"""Requests that ask for too much, and prompts made to hurt others: clear answers, bounded memory, nothing lost."""

import asyncio
import json
import tracemalloc

import pytest

from pharos.core.policy import Decision
from pharos.core.prefix import Known
from pharos.core.prefix.chain import MOST_LINKS
from pharos.core.prefix.index import MOST_NEW
from pharos.core.sched import Refusal, Submit, Ticket
from pharos.proxy.auth import Key
from pharos.proxy.reading import Reader, memory
from pharos.proxy.settings import ProxySettings
from pharos.proxy.table import ROUTES
from tests.app.running import pharos as program
from tests.app.test_prompt_caches import TEXT, answers, talk
from tests.fakes.llamacpp import FakeLlamaCpp
from tests.proxy.engine_script import Turn
from tests.proxy.harness import Front, front

MIB = 2**20
ANSWER = b'{"choices":[{"text":"x"}],"usage":{"prompt_tokens":9,"completion_tokens":4}}'
TAKES_ALL = ProxySettings(body_bytes=64 * MIB, buffered_bytes=256 * MIB)


async def counts(turn: Turn) -> None:
    await turn.reply(200, ANSWER)


async def test_a_million_tokens_asked_for_are_no_million_expected_and_reach_the_engine_as_they_are() -> None:
    async with front(counts) as (pharos, engine):
        pharos.know_another()
        body = talk("Hi.", stream=False, max_tokens=1_000_000)
        assert (await pharos.ask(body)).status == 200
        req = (await pharos.finished()).choice.req
        assert req.max_tokens == 1_000_000
        assert req.expected_tokens < 1000
        assert engine.turns[0].body == body
        await pharos.ask(body)
        assert (await pharos.finished(2)).choice.req.expected_tokens == 4.0


@pytest.mark.parametrize("tokens", [0, -1, 10**30, 1.5, "many"])
async def test_a_limit_that_is_none_is_for_the_engine_to_judge(tokens: object) -> None:
    async with front(counts) as (pharos, engine):
        pharos.know_another()
        body = talk("Hi.", stream=False, max_tokens=tokens)
        assert (await pharos.ask(body)).status == 200
        assert engine.turns[0].body == body


async def test_a_hundred_thousand_messages_pass_and_leave_a_handful_of_entries() -> None:
    async with front(counts, settings=TAKES_ALL) as (pharos, engine):
        pharos.know_another()
        body = talk(*map(str, range(100_000)), stream=False)
        assert (await pharos.ask(body)).status == 200
        done = await pharos.finished()
        assert engine.turns[0].body == body
        assert len(done.chain.hashes) == MOST_LINKS
        assert len(pharos.ledger.caches.index) <= MOST_NEW


async def test_one_message_of_thirty_megabytes_passes_is_found_again_and_is_let_go() -> None:
    async with front(answers, settings=TAKES_ALL) as (pharos, engine):
        pharos.know_another()
        body = talk("x" * 30_000_000)
        for number in (1, 2):
            assert (await pharos.ask(body)).status == 200
            await pharos.finished(number)
            assert engine.turns.pop().body.startswith(body[:-1])
        first, second = pharos.done
        assert first.chain == second.chain
        assert second.choice.matched_tokens > 1_000_000
        assert pharos.proxy.routes.buffers.used == 0


async def test_a_cancelled_wait_leaves_the_queue_and_the_next_is_served() -> None:
    free = asyncio.Event()

    async def holds(turn: Turn) -> None:
        await free.wait()
        await turn.reply(200, ANSWER)

    async with front(holds, capacity=1) as (pharos, engine):
        runs = asyncio.create_task(pharos.ask(talk("first", stream=False)))
        async with asyncio.timeout(10):
            while not engine.turns:
                await asyncio.sleep(0)
        leaves = await pharos.client()
        leaves.post(talk("second", stream=False))
        async with asyncio.timeout(10):
            while pharos.ledger.waiting < 1:
                await asyncio.sleep(0)
        leaves.writer.close()
        async with asyncio.timeout(10):
            while pharos.ledger.waiting:
                await asyncio.sleep(0)
        free.set()
        assert (await runs).status == 200
        assert (await pharos.ask(talk("third", stream=False))).status == 200
        assert [b"second" in turn.body for turn in engine.turns] == [False, False]


async def test_a_deadline_in_the_past_is_told_at_once_and_takes_no_slot() -> None:
    async with front(answers, capacity=1) as (pharos, _):
        pharos.ledger._room._max_wait_s = -5.0  # as if the loop had stood still since it came
        now = pharos.clock()
        held = pharos.ledger.submit(Submit("k", 1, "m", 9), now, 0)
        waits = pharos.ledger.submit(Submit("k", 1, "m", 9), now, 0)
        if isinstance(waits, Ticket):
            [expiry] = pharos.ledger.kick(now, 0)
            waits = expiry.refusal
        assert isinstance(waits, Refusal)
        assert waits.outcome == "wait_too_long"
        pharos.ledger.release(held, now, 0)
        assert (await pharos.ask(talk("Hi."))).status == 200


# --- prompts that shall be taken for others

WIDE, NARROW = "\u4241\u4443" * 200, "ABCD" * 200
"""Alike in Python's memory, and so by its hash of texts."""


async def held_of(pharos: Front, body: bytes) -> tuple[str | None, int]:
    """Where a prompt went, and how many of its tokens were thought to be there."""
    count = len(pharos.done) + 1
    assert (await pharos.ask(body)).status == 200
    done = await pharos.finished(count)
    assert isinstance(done.choice, Decision)
    return done.backend, done.choice.matched_tokens


async def test_prompts_whose_texts_have_equal_hashes_take_nobody_s_hits() -> None:
    assert hash(WIDE) == hash(NARROW)
    async with front(answers, answers) as (pharos, _, _):
        where, _ = await held_of(pharos, talk(NARROW, "Yes."))
        for number in range(5):
            assert (await held_of(pharos, talk(WIDE, str(number))))[1] in (0, len(WIDE) * 3 // 4)
        assert await held_of(pharos, talk(NARROW, "Yes.", "And?")) == (where, len(NARROW) // 4 + 1)


async def test_a_flood_of_prompts_leaves_who_came_back_its_hits_and_memory_bounded() -> None:
    async with front(answers, answers) as (pharos, _, _):
        index = pharos.ledger.caches.index
        index._capacity, index._share, index._step = 200, 150, 2
        where, _ = await held_of(pharos, talk(TEXT, "Yes."))
        await held_of(pharos, talk(TEXT, "Yes.", "And?"))
        for number in range(40):
            await held_of(pharos, talk(*(f"{number} {turn}" for turn in range(30))))
        assert len(index) <= 200
        backend, held = await held_of(pharos, talk(TEXT, "Yes.", "And?", "No.", "Why?"))
        assert (backend, held > 500) == (where, True)


async def test_how_many_beginnings_are_known_is_told() -> None:
    async with FakeLlamaCpp() as one, FakeLlamaCpp() as other, program(one, other) as running:
        assert "pharos_prefix_entries 0" in (await running.get("/metrics"))[1].splitlines()
        async with running.chat() as response:
            assert response.status == 200
            await response.read()
        await running.until(lambda: len(running.app.ledger.caches.index))
        assert "pharos_prefix_entries 1" in (await running.get("/metrics"))[1].splitlines()


def test_what_a_reader_remembers_of_millions_of_prompts_is_bounded() -> None:
    known = Known(100)
    reader = Reader(_Choice(), known)  # type: ignore[arg-type]
    tracemalloc.start()
    try:
        for number in range(2000):
            assert reader.read(talk(str(number), "x" * 5000), ROUTES["/v1/chat/completions"], Key("k")).chain
        assert tracemalloc.get_traced_memory()[0] < MIB
    finally:
        tracemalloc.stop()
    assert len(known.young) <= 100


class _Choice:
    """A fleet in which all models have a choice."""

    def resolve(self, name: str) -> str:
        return name

    def has_choice(self, _: str) -> bool:
        return True


@pytest.mark.parametrize(("seed", "is_secret"), [("", True), ("random", True), ("0", False), ("42", False)])
def test_nothing_is_remembered_while_the_key_of_python_s_hashes_may_be_known(
    monkeypatch: pytest.MonkeyPatch, *, seed: str, is_secret: bool
) -> None:
    monkeypatch.setenv("PYTHONHASHSEED", seed)
    assert (memory() is not None) == is_secret


async def test_a_large_prompt_is_read_once_and_as_others_are() -> None:
    """One step or two, in the loop or beside it: the same links."""
    body = json.loads(talk(TEXT, "Yes.", "And?"))
    known = Known()
    reader = Reader(_Choice(), known)  # type: ignore[arg-type]
    route, key = ROUTES["/v1/chat/completions"], Key("k")
    small = reader.read(json.dumps(body).encode(), route, key)
    large = reader.read(json.dumps(body | {"x": "y" * 300_000}).encode(), route, key)
    two = Reader(_Choice(), None).read(json.dumps({"x": "y" * 3000} | body).encode(), route, key)  # type: ignore[arg-type]
    assert small.chain is not None
    assert small.chain == large.chain == two.chain
    assert small.prompt_bytes == large.prompt_bytes == two.prompt_bytes
