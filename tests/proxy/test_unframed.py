import gzip
import json

import pytest

from pharos.proxy.protocol import Protocol
from pharos.proxy.tap import make_tap
from pharos.proxy.unframed import JsonEnd, Unframed
from tests.proxy.engine_script import Turn
from tests.proxy.harness import DONE, USAGE, chat, event, front

ANSWER = json.dumps({"choices": [{"message": {"content": 'a "quoted" } ] \\ text'}}], "usage": USAGE}).encode()
BIG = json.dumps({"choices": [{"message": {"content": '{"x\\' * 60_000}}], "usage": USAGE}).encode()


def opened(*parts: bytes) -> bool:
    end = JsonEnd()
    for part in parts:
        end.feed(part)
    return end.is_open


@pytest.mark.parametrize("size", [1, 3, 1000])
def test_a_document_is_open_at_each_of_its_bytes_but_the_last(size: int) -> None:
    for end in range(1, len(ANSWER)):
        assert opened(*(ANSWER[at : min(at + size, end)] for at in range(0, end, size))), ANSWER[:end]
    assert not opened(*(ANSWER[at : at + size] for at in range(0, len(ANSWER), size)))


@pytest.mark.parametrize("body", [b"", b"  \n", b"no json", b'it"s', b"12", b"{}\n", b' [1, "]"] ', b'"a\\""', b"}{"])
def test_what_is_whole_or_unknown_is_not_open(body: bytes) -> None:
    assert not opened(body)


@pytest.mark.parametrize(
    ("protocol", "kind", "whole", "torn"),
    [
        ("openai_chat", "text/event-stream", DONE, event("a")),
        ("anthropic", "text/event-stream", b'data: {"type":"message_stop"}\n\n', b'data: {"type":"ping"}\n\n'),
        ("openai_responses", "text/event-stream", b'data: {"type":"error"}\n\n', DONE),
        ("ollama_chat", "application/x-ndjson", b'{"done":true}\n', b'{"done":false}\n'),
        (
            "plain",
            "text/event-stream",
            b"data: {}\n\n",
            b"",
        ),  # how such a stream ends is not known: any bytes may be all
    ],
)
def test_a_stream_whose_end_is_known_is_torn_without_it(
    protocol: Protocol, kind: str, whole: bytes, torn: bytes
) -> None:
    for body, is_torn in ((whole, False), (torn, True)):
        tap = make_tap(protocol, streamed=True, content_type=kind, strip_usage=False)
        unframed = Unframed(200, kind.encode(), tap, is_stream=True)
        unframed.feed(body)
        tap.feed(body)
        tap.finish()
        assert unframed.is_torn() is is_torn
        assert unframed.can_tell is (protocol != "plain")


def says(body: bytes, kind: bytes, version: bytes = b"1.1", status: bytes = b"200 OK", extra: bytes = b"") -> bytes:
    head = b"HTTP/%b %b\r\nContent-Type: %b\r\n%bConnection: close\r\n\r\n" % (version, status, kind, extra)
    return head + body


@pytest.mark.parametrize("version", [b"1.1", b"1.0"])
@pytest.mark.parametrize(
    "body",
    [b"", b" \n", ANSWER[:60], ANSWER[:-1], ANSWER[: ANSWER.index(b"}") + 1], BIG[:-1], BIG[:100_000]],
    ids=["empty", "blank", "torn", "last byte", "torn at a brace", "big, last byte", "big, torn"],
)
async def test_a_torn_json_reply_is_never_whole(body: bytes, version: bytes) -> None:
    async def play(turn: Turn) -> None:
        await turn.write(says(body, b"application/json", version))
        turn.close()

    async with front(play) as (pharos, _):
        reply = await pharos.ask(chat(stream=False))
        assert not reply.is_whole
        assert ("upstream", "died_mid_reply") in (await pharos.finished()).stages
        client = await pharos.client()
        pharos.bring_up("a")
        client.post(chat(stream=False), version="1.0")
        _, clean = await client.rest()
        assert not clean


@pytest.mark.parametrize("body", [ANSWER, BIG, ANSWER + b"\n"], ids=["small", "big", "newline"])
async def test_a_whole_json_reply_is_whole_and_metered(body: bytes) -> None:
    async def play(turn: Turn) -> None:
        await turn.write(says(body, b"application/json; charset=utf-8", b"1.0"))
        turn.close()

    async with front(play) as (pharos, _):
        reply = await pharos.ask(chat(stream=False))
        assert reply.is_whole
        assert reply.body == body
        assert reply.header("transfer-encoding") == ["chunked"]
        assert (await pharos.finished()).usage is not None


@pytest.mark.parametrize(
    ("kind", "extra"),
    [
        (b"text/event-stream", b"Content-Encoding: gzip\r\n"),
        (b"application/json", b"Content-Encoding: gzip\r\n"),
        (b"text/plain", b""),
    ],
)
async def test_a_reply_whose_end_cannot_be_told_ends_with_the_connection(kind: bytes, extra: bytes) -> None:
    packed = gzip.compress(event("a") + DONE)[:30]

    async def play(turn: Turn) -> None:
        await turn.write(says(packed, kind, extra=extra))
        turn.close()

    async with front(play) as (pharos, _):
        reply = await pharos.ask(chat(stream=False))
        assert reply.header("transfer-encoding") == []
        assert reply.header("content-length") == []
        assert reply.header("connection") == ["close"]
        assert reply.body == packed
        assert reply.is_whole


async def test_an_empty_reply_whose_end_cannot_be_told_is_no_clean_end() -> None:
    async def play(turn: Turn) -> None:
        await turn.write(says(b"", b"text/plain", extra=b"Content-Encoding: gzip\r\n"))
        turn.close()

    async with front(play) as (pharos, _):
        client = await pharos.client()
        client.post(chat(stream=False))
        _, clean = await client.rest()
        assert not clean


async def test_a_last_done_without_its_line_end_ends_a_stream() -> None:
    async def play(turn: Turn) -> None:
        await turn.write(says(event("a") + DONE.rstrip(), b"text/event-stream"))
        turn.close()

    async with front(play) as (pharos, _):
        reply = await pharos.ask()
        assert reply.is_whole
        assert reply.body == event("a") + DONE.rstrip()
        assert ("upstream", "ok") in (await pharos.finished()).stages


async def test_half_a_last_line_is_dropped_when_a_stream_is_torn() -> None:
    async def play(turn: Turn) -> None:
        await turn.write(says(event("a") + b'data: {"cho', b"text/event-stream"))
        turn.close()

    async with front(play) as (pharos, _):
        reply = await pharos.ask()
        assert not reply.is_whole
        assert b'{"cho\n' not in reply.body
        assert b'"engine_lost"' in reply.body


async def test_a_torn_refusal_is_not_passed_on_as_a_whole_one() -> None:
    async def play(turn: Turn) -> None:
        await turn.write(says(b'{"err', b"application/json", status=b"500 E"))
        turn.close()

    async with front(play) as (pharos, _):
        reply = await pharos.ask(chat(stream=False))
        assert reply.status in (502, 503)
        assert reply.json()["error"]["message"]
        assert ("upstream", "bad_reply") in (await pharos.finished()).stages


async def test_a_reset_content_reply_says_that_it_is_empty() -> None:
    async def play(turn: Turn) -> None:
        await turn.write(b"HTTP/1.1 205 Reset Content\r\nContent-Length: 2\r\n\r\nhi")

    async with front(play) as (pharos, engine):
        client = await pharos.client()
        client.post(chat(stream=False))
        reply = await client.reply()
        assert reply.status == 205
        assert reply.header("content-length") == ["0"]
        assert reply.body == b""
        client.get("/livez")
        assert (await client.reply()).status == 200
        assert engine.connections == 1
