"""A tenth of `make kill`: engines that die and clients that leave, everywhere. SEED=… sets another seed."""

import asyncio
import os
from collections.abc import Awaitable, Callable

import anthropic
import ollama
import openai
import pytest

from tests.kill import leaving, matrix
from tests.kill.cases import WAYS, Case, cases
from tests.kill.matrix import FAULTS, Verdict
from tests.kill.readers import SAID, Ask, ollama_reader, openai_reader
from tests.kill.replies import KINDS, recorded, wire
from tests.kill.stand import WAIT_S, stand

SEED = int(os.environ.get("SEED", "3"))
PLACES = 20
SDKS = {"openai", "anthropic", "ollama"}


async def killed(way: str) -> list[Verdict]:
    verdicts: list[Verdict] = []
    await matrix.run([case for case in cases(SEED, PLACES) if case.way == way], verdicts.append, node=False)
    return verdicts


LEFT_BY_AN_SDK = "ignore:.*<socket.socket .*laddr=:pytest.PytestUnraisableExceptionWarning"
"""A blocking SDK shared by threads left one of its sockets to the garbage collector, once in some 10,000 replies that
were cut: of Pharos's own, `until_clean` counts every connection.
"""


@pytest.mark.filterwarnings(LEFT_BY_AN_SDK)
@pytest.mark.parametrize("way", WAYS)
async def test_an_engine_that_dies_at_any_byte_never_looks_like_a_short_success(way: str) -> None:
    verdicts = await killed(way)
    assert [verdict for verdict in verdicts if verdict.outcome in FAULTS] == [], f"SEED={SEED}"
    told = {verdict.outcome for verdict in verdicts}
    assert "cut" in told
    assert "error event" in told
    assert {verdict.case.protocol for verdict in verdicts} == set(KINDS)
    assert {verdict.reader for verdict in verdicts} == {*matrix.RAW, *SDKS}


async def test_a_client_that_leaves_at_any_byte_stops_its_engine_and_leaves_nothing_behind() -> None:
    left: list[leaving.Left] = []
    await leaving.run(list(leaving.leavers(SEED, PLACES)), left.append)
    assert [one for one in left if one.fault] == [], f"SEED={SEED}"
    assert {one.leaver.phase for one in left} == set(leaving.PHASES)


def test_the_same_seed_gives_the_same_cases_and_another_one_others() -> None:
    assert list(cases(1, 5)) == list(cases(1, 5))
    assert list(cases(1, 5)) != list(cases(2, 5))
    assert {case.way for case in cases(1, 1)} == set(WAYS)


@pytest.mark.parametrize(("protocol", "reader"), [("chat", openai_reader), ("ollama chat", ollama_reader)])
async def test_without_pharos_the_same_readers_do_meet_short_successes(protocol: str, reader: object) -> None:
    """So the matrix can see one: the SDK is asked at the engine, which ends in good order within its reply."""
    reply = recorded(protocol, True)[0]  # noqa: FBT003
    middle = len(reply.events[0]) + len(reply.events[1])
    at = wire(reply, "chunked").place(middle)
    case = Case(2, protocol, True, "orderly", "chunked", reply.engine, reply.engine, "events", at, False)  # noqa: FBT003
    async with stand({reply.engine: 1}) as found, reader() as read:  # type: ignore[operator]
        (lane,) = found.lanes[reply.engine]
        lane.ready(case.play())
        got = await read(Ask(lane.mortal.url, protocol, lane.model, True, False, 2))  # noqa: FBT003
    assert matrix.judged(case, got) == ("short success", "")


async def first_of_openai(url: str, model: str) -> None:
    async with openai.AsyncOpenAI(base_url=url + "/v1", api_key="any", max_retries=0) as client:
        stream = await client.chat.completions.create(model=model, messages=SAID, stream=True)
        assert (await anext(aiter(stream))).choices
        await stream.close()


async def first_of_anthropic(url: str, model: str) -> None:
    async with anthropic.AsyncAnthropic(base_url=url, api_key="any", max_retries=0) as client:
        stream = await client.messages.create(model=model, messages=SAID, max_tokens=9, stream=True)
        assert (await anext(aiter(stream))).type == "message_start"
        await stream.close()


async def first_of_ollama(url: str, model: str) -> None:
    client = ollama.AsyncClient(url)
    stream = await client.chat(model=model, messages=SAID, stream=True)
    assert (await anext(stream)).message.content
    await stream.aclose()
    await client._client.aclose()


@pytest.mark.parametrize(
    ("protocol", "leave"),
    [("chat", first_of_openai), ("messages", first_of_anthropic), ("ollama chat", first_of_ollama)],
)
async def test_a_program_that_closes_its_stream_after_the_first_event_stops_the_engine(
    protocol: str, leave: Callable[[str, str], Awaitable[None]]
) -> None:
    reply = recorded(protocol, True)[-1]  # noqa: FBT003
    at = wire(reply, "chunked").enough - 20
    case = Case(2, protocol, True, "silence", "chunked", reply.engine, "ollama", "events", at, False)  # noqa: FBT003
    async with stand({"ollama": 1}) as found:
        (lane,) = found.lanes["ollama"]
        lane.ready(case.play())
        await leave(found.url, lane.model)
        async with asyncio.timeout(WAIT_S):
            while lane.mortal.busy:
                await asyncio.sleep(0)
        await found.until_clean()
        done = await found.front.finished()
        assert ("upstream", "client_left") in done.stages


async def test_a_client_that_only_seems_to_leave_is_reported() -> None:
    """So the check can see what is left behind: this client stays."""
    (leaver,) = [one for one in leaving.leavers(1, 1, ["chat"]) if one.phase == "reply" and one.streamed]
    async with stand({"openai": 1, "ollama": 1}, capacity=1) as found:
        before = asyncio.all_tasks()
        (lane,) = found.lanes["openai"]
        clients = await leaving.come(found, lane, leaver)
        faults = leaving.left_behind(found, lane, before)
        for client in clients:
            client.writer.transport.abort()
        await found.until_clean()
    assert {fault.partition(" (")[0] for fault in faults} >= {
        "the engine still works", "a slot is taken", "a lease is out", "a request is in work",
        "a client's connection is open",
    }  # fmt: skip
