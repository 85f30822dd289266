"""Malformed and ambiguous requests: what each is answered, and that an engine never gets what two may understand."""

import asyncio
import contextlib
import logging
from collections.abc import Iterator

import pytest

from pharos.proxy.head import CONTINUE
from tests.proxy.engine_script import WAIT_S, Turn
from tests.proxy.harness import RawClient, chat, front
from tests.proxy.malformed import fuzzing, grammar, reference
from tests.proxy.malformed.case import MARK, Case
from tests.proxy.malformed.framing import FRAMING
from tests.proxy.malformed.heads import HEADS
from tests.proxy.malformed.leftovers import until_nothing_is_left

CASES = [*FRAMING, *HEADS]
SHORT = 2000
"""Bytes up to which a stream is sent one by one."""
LAST = b"GET /livez HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"


async def ok(turn: Turn) -> None:
    await turn.reply(200, b"{}")


@pytest.fixture(autouse=True)
def _no_lingering(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pharos.proxy.serving.LINGER_S", 0.05)
    monkeypatch.setattr("pharos.proxy.client.LINGER_S", 0.05)


async def answers(client: RawClient, case: Case, sent: list[bytes]) -> list[reference.Reply]:
    """Send it and read what comes, up to the end of the connection."""
    for piece in sent:
        client.send(piece)
    got = b""
    if case.goes_on:
        got = await until_answered(client, len(case.answers))
        client.send(LAST)
    elif case.leaves or reference.read(case.sent).end == "short":
        client.writer.write_eof()
    rest, clean = await client.rest()
    assert clean, "a reset may take the answer from its client"
    assert MARK not in got + rest
    return reference.replies((got + rest).replace(CONTINUE, b""))


async def until_answered(client: RawClient, count: int) -> bytes:
    got = b""
    async with asyncio.timeout(WAIT_S):
        while True:
            with contextlib.suppress(reference.BadError):
                told = reference.replies(got.replace(CONTINUE, b""))
                if len(told) >= count and told[-1].is_whole:
                    return got
            data = await client.reader.read(65536)
            if not data:
                return got
            got += data


def check_answers(case: Case, got: list[reference.Reply]) -> None:
    expected = [*case.answers, 200] if case.goes_on else list(case.answers)
    assert [reply.status for reply in got] == expected
    assert all(reply.is_whole and len(reply.values(b"x-request-id")) == 1 for reply in got)
    for reply in got:
        if reply.status >= 400 and reply.body:
            assert reply.values(b"content-type") == [b"application/json"]
            assert b'{"error":{"message":"' in reply.body
            assert b"Traceback" not in reply.body
    if got and not case.goes_on:
        assert got[-1].values(b"connection") == [b"close"]


def check_engine(case: Case, turns: list[Turn]) -> None:
    """What an engine got is one plain request each, and what the strict reader found, in its order."""
    assert len(turns) == case.engine
    sent = iter(reference.read(case.sent).requests)
    for turn in turns:
        stream = reference.read(turn.head + turn.body)
        assert (len(stream.requests), stream.end) == (1, "clean"), turn.head
        (got,) = stream.requests
        assert (len(got.values(b"content-length")), got.values(b"transfer-encoding")) == (1, [])
        assert MARK not in turn.head
        assert any(got.is_in(one) for one in sent), "the engine got what was not sent"


@pytest.mark.parametrize("case", CASES, ids=str)
async def test_a_malformed_request_is_answered_as_the_table_says_and_reaches_no_engine_changed(
    case: Case, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    async with front(ok) as (pharos, engine):
        check_answers(case, await answers(await pharos.client(), case, [case.sent]))
        check_engine(case, engine.turns)
        await until_nothing_is_left(pharos)
        assert (await pharos.ask(chat(stream=False))).status == 200
    assert MARK.decode() not in caplog.text
    assert all(record.exc_info is None for record in caplog.records)


def cut(case: Case) -> Iterator[grammar.Sent]:
    """The same bytes in other reads: one by one, and parted in the middle of each line end."""
    if len(case.sent) < SHORT:
        yield grammar.Sent(tuple(case.sent[at : at + 1] for at in range(len(case.sent))), 1, is_whole=False)
    pieces = case.sent.replace(b"\r\n", b"\r\0\n").split(b"\0\n")
    if len(pieces) < SHORT and b"\0" not in case.sent:
        yield grammar.Sent((pieces[0], *(b"\n" + piece for piece in pieces[1:])), 1, is_whole=False)


def test_however_a_malformed_request_is_cut_it_ends_and_reaches_no_engine_changed() -> None:
    streams = [(case.name, sent) for case in CASES for sent in cut(case)]
    assert all(sent.data == case.sent for case in CASES for sent in cut(case))
    assert fuzzing.run_streams(streams).reached > 0


def test_the_table_is_as_large_as_promised() -> None:
    assert len(CASES) >= 120
    assert len({case.name for case in CASES}) == len({(case.name, case.sent) for case in CASES}), "names tell"
