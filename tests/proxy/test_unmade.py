"""What never became a request is answered in the protocol of its path all the same, and told which fault it has."""

import asyncio
import json
import re

import pytest

from pharos.proxy.errors import shape_for
from pharos.proxy.settings import ProxySettings
from tests.proxy.engine_script import Turn
from tests.proxy.harness import Front, front
from tests.proxy.malformed.case import CHUNKED, MARK, post
from tests.proxy.malformed.framing import FRAMING
from tests.proxy.malformed.heads import CHAT, HEADS
from tests.proxy.malformed.reference import read, replies
from tests.proxy.test_smuggling import until_answered

PATHS = (b"/api/chat", b"/v1/messages", b"/v1/messages/count_tokens", b"/v1/chat/completions")
REFUSED = [
    case
    for case in (*FRAMING, *HEADS)
    if len(case.answers) == 1 and case.answers[0] >= 400 and not case.leaves and read(case.sent).end != "short"
]
PAGE = "https://page.example"
TURNS = 5
"""Of the loop, after which what was sent was read."""


@pytest.fixture(autouse=True)
def _no_lingering(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pharos.proxy.serving.LINGER_S", 0.05)
    monkeypatch.setattr("pharos.proxy.client.LINGER_S", 0.05)


async def ok(turn: Turn) -> None:
    await turn.reply(200, b"{}")


def shape_of(body: bytes) -> str:
    said = json.loads(body)
    if isinstance(said["error"], str):
        return "ollama"
    return "anthropic" if said.get("type") == "error" else "openai"


def told(body: bytes) -> str:
    error = json.loads(body)["error"]
    return str(error if isinstance(error, str) else error["message"])


async def answer(pharos: Front, *reads: bytes) -> bytes:
    """The body of the one answer to what comes in these reads."""
    client = await pharos.client()
    for piece in reads:
        client.send(piece)
        for _ in range(TURNS):
            await asyncio.sleep(0)
    (reply,) = replies(await until_answered(client, 1))
    client.close()
    return reply.body


@pytest.mark.parametrize("path", PATHS, ids=bytes.decode)
async def test_each_row_of_the_tables_is_answered_in_the_shape_of_its_path(path: bytes) -> None:
    seen = 0
    async with front(ok, kind="ollama") as (pharos, _):
        for case in REFUSED:
            sent = case.sent.replace(CHAT, path, 1)
            if re.match(rb"[A-Z]{1,20} " + re.escape(path) + rb"[ ?]", sent) is None:
                continue
            for reads in ((sent,), (sent[:40], sent[40:])):
                try:
                    body = await answer(pharos, *reads)
                except TimeoutError:
                    pytest.fail(case.name)
                assert shape_of(body) == shape_for(path.decode(), {}), case.name
                seen += 1
    assert seen > 200


@pytest.mark.parametrize(
    ("sent", "word"),
    [
        (post(CHUNKED, b"Content-Length: 3"), "body's end"),
        (post(b"Content-Length: ten"), "body's end"),
        (post(CHUNKED, body=b"zz\r\n"), "body's end"),
        (post(b"Bad Header: 1", b"Content-Length: 0", body=b""), "a header"),
        (post(b"Content-Length: 0", body=b"").replace(b"Host: x\r\n", b""), "a header"),
        (b"BREW /api/chat HTTP/1.1\r\nHost: x\r\n\r\n", "first line"),
        (b"GET /\x01chunk HTTP/1.1\r\nHost: x\r\n\r\n", "first line"),
        (b"GET /api/chat HTTP/1.7\r\nHost: x\r\n\r\n", "first line"),
        (b"GET /api/chat HTTP/1.1\r\nHost: x\r\nX: " + b"x" * 70_000 + b"\r\n\r\n", "too large"),
        (bytes.fromhex("16030100ba010000b60303") + bytes(range(1, 180)), "http://"),
    ],
)
async def test_it_is_told_which_class_of_thing_was_wrong_and_nothing_that_it_sent(sent: bytes, word: str) -> None:
    async with front(ok) as (pharos, _):
        body = await answer(pharos, sent)
        assert word in told(body)
        assert MARK not in body


@pytest.mark.parametrize(("origins", "allowed"), [((PAGE,), PAGE), (("*",), "*"), ((), None)])
async def test_a_page_may_read_the_answer_to_its_broken_request(origins: tuple[str, ...], allowed: str | None) -> None:
    async with front(ok, settings=ProxySettings(cors_origins=origins)) as (pharos, _):
        client = await pharos.client()
        client.send(f"POST /v1/messages HTTP/1.1\r\nHost: x\r\nOrigin: {PAGE}\r\nContent-Length: x\r\n\r\n".encode())
        reply = await client.reply()
        assert reply.status == 400
        assert reply.header("access-control-allow-origin") == ([] if allowed is None else [allowed])
        assert len(reply.header("x-request-id")) == 1


async def test_the_start_of_a_request_that_went_well_is_not_taken_for_that_of_a_broken_one() -> None:
    async with front(ok, kind="ollama") as (pharos, _):
        client = await pharos.client()
        for piece in (b"GET /api/tags HT", b"TP/1.1\r\nHost: x\r\n\r\n"):
            client.send(piece)
            for _ in range(TURNS):
                await asyncio.sleep(0)
        assert (await client.reply()).status == 200
        client.send(b"GET /v1/messages HTTP/1.1\r\nBad Header: x\r\n\r\n")
        assert shape_of((await client.reply()).body) == "anthropic"
