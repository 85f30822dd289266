"""What an engine sends with a status of success that is no answer: SDKs would take it for one, or follow it."""

import asyncio
import gzip
import json

import pytest

from pharos.proxy import deadlines, holding
from pharos.proxy.settings import ProxySettings
from tests.proxy.engine_script import Script, Turn
from tests.proxy.harness import DONE, USAGE_EVENT, chat, event, front
from tests.proxy.test_forward import OK_BODY, first_to, ok

ALONE = ProxySettings(retry_attempts=0)
WHOLE = json.dumps({"choices": [{"message": {"content": "hi"}, "finish_reason": "stop"}]}).encode()
LINE = json.dumps({"model": "m", "message": {"role": "assistant", "content": "hi"}, "done": False}).encode()
LAST = json.dumps({"model": "m", "message": {"role": "assistant", "content": ""}, "done": True}).encode()


def says(status: int, body: bytes, kind: bytes | None, extra: bytes = b"") -> Script:
    async def play(turn: Turn) -> None:
        typed = b"" if kind is None else b"Content-Type: %b\r\n" % kind
        length = b"" if status == 204 else b"Content-Length: %d\r\n" % len(body)
        await turn.write(b"HTTP/1.1 %d Status\r\n%b%b%b\r\n%b" % (status, typed, extra, length, body))

    return play


async def streams(turn: Turn) -> None:
    await turn.sse_head()
    await turn.chunk(event() + DONE)
    await turn.write(b"0\r\n\r\n")


# --- redirects


@pytest.mark.parametrize("status", [300, 301, 302, 303, 305, 307, 308])
@pytest.mark.parametrize("stream", [False, True])
async def test_a_redirect_is_the_backend_s_fault_and_leads_nobody_there(status: int, stream: bool) -> None:  # noqa: FBT001
    for kind in (b"text/plain", b"text/event-stream"):
        script = says(status, b"http://inner", kind, b"Location: http://inner:99/secret\r\n")
        async with front(script, settings=ALONE) as (pharos, _):
            reply = await pharos.ask(chat(stream=stream))
            assert reply.status == 502
            assert b"inner" not in reply.raw
            assert reply.json()["error"]["message"] == (
                f"The backend a failed: it answered with a redirect ({status}), which is not followed: "
                "set its `url` to where it really is."
            )


async def test_another_backend_is_asked_instead() -> None:
    async with front(says(307, b"", b"text/plain", b"Location: /x\r\n"), ok) as (pharos, _, b):
        first_to(pharos, "a")
        assert (await pharos.ask(chat(stream=False))).body == OK_BODY
        assert len(b.turns) == 1
        assert ("upstream", "bad_reply") in (await pharos.finished()).stages


async def test_an_engine_s_own_address_does_not_reach_clients_in_other_replies_either() -> None:
    extra = b"Location: http://inner/x\r\nContent-Location: http://inner/y\r\nRefresh: 0; url=http://inner/z\r\n"
    async with front(says(201, OK_BODY, b"application/json", extra)) as (pharos, _):
        reply = await pharos.ask(chat(stream=False))
        assert (reply.status, reply.body) == (201, OK_BODY)
        assert b"inner" not in reply.raw


# --- no stream where one was asked for

NO_STREAMS = [
    (200, b'{"error":{"message":"out of memory"}}', b"application/json"),
    (200, WHOLE, b"application/json; charset=utf-8"),
    (201, WHOLE, b"application/json"),
    (200, b"all good", b"text/plain"),
    (200, b"<html>", b"application/xhtml+xml"),
    (200, LAST, b"application/x-ndjson"),
    (204, b"", None),
    (205, b"", b"text/event-stream"),
]


@pytest.mark.parametrize(("status", "body", "kind"), NO_STREAMS)
@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/completions", "/v1/responses", "/v1/messages"])
async def test_what_is_no_stream_is_no_answer_to_who_asked_for_one(
    status: int, body: bytes, kind: bytes | None, path: str
) -> None:
    async with front(says(status, body, kind), settings=ALONE) as (pharos, _):
        asked = chat(prompt="hi", input="hi", max_tokens=5)
        reply = await pharos.ask(asked, path=path)
        assert reply.status == 502
        said = reply.json()["error"]["message"]
        assert said.startswith("The backend a failed: it answered a request for a stream with what is no stream")
        assert ("upstream", "bad_reply") in (await pharos.finished()).stages
    async with front(says(status, body, kind), streams) as (pharos, *_):
        first_to(pharos, "a")
        assert (await pharos.ask()).body == event() + DONE


async def test_who_asked_for_no_stream_gets_what_comes() -> None:
    async with front(says(200, WHOLE, b"application/json")) as (pharos, _):
        assert (await pharos.ask(chat(stream=False))).body == WHOLE


@pytest.mark.parametrize("body", [b"<html>login</html>", b'{"error":"x"}', b""])
async def test_without_a_type_it_is_read_as_the_stream_that_was_asked_for(body: bytes) -> None:
    async with front(says(200, body, None), settings=ALONE) as (pharos, _):
        reply = await pharos.ask()
        assert not reply.is_whole
        assert b'data: {"error"' in reply.body
        assert ("upstream", "ended_early") in (await pharos.finished()).stages


@pytest.mark.parametrize("end", [DONE, b""])
async def test_events_without_a_type_are_a_stream_with_an_end_and_a_cost(end: bytes) -> None:
    async def play(turn: Turn) -> None:
        usage = USAGE_EVENT if end else b""
        await turn.write(b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n" + event("a") + usage + end)
        turn.close()

    async with front(play, settings=ALONE) as (pharos, _):
        reply = await pharos.ask()
        assert reply.body.startswith(event("a") + end)
        assert USAGE_EVENT not in reply.body
        assert reply.is_whole is bool(end)
        done = await pharos.finished()
        assert done.ttft_s is not None
        assert (done.usage is not None) is bool(end)


async def test_what_is_packed_cannot_be_judged() -> None:
    packed = gzip.compress(event("a"))
    script = says(200, packed, b"text/event-stream", b"Content-Encoding: gzip\r\n")
    async with front(script) as (pharos, _):
        assert (await pharos.ask()).body == packed


# --- lines of JSON, whatever they are called


@pytest.mark.parametrize("kind", [b"application/x-ndjson", b"application/json", b"text/plain", None])
async def test_lines_are_whole_with_their_last_one_only(kind: bytes | None) -> None:
    for body, outcome in (
        (LINE + b"\n" + LAST + b"\n", "ok"),
        (LAST, "ok"),
        (LINE + b"\n", "ended_early"),
        (b'{"error":"no memory"}', "error_in_stream"),
    ):
        async with front(says(200, body, kind), kind="ollama", settings=ALONE) as (pharos, _):
            reply = await pharos.ask(path="/api/chat")
            assert reply.status == 200
            assert reply.is_whole is (outcome != "ended_early")
            assert reply.body.startswith(body)
            assert outcome in [row for _, row in (await pharos.finished()).stages]


# --- a refusal that is held back


async def test_a_refusal_that_stops_is_cut_though_it_was_held_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(holding, "HELD_S", 0.05)
    monkeypatch.setattr(deadlines, "HEARD_EVERY_S", 0.0)

    async def play(turn: Turn) -> None:
        await turn.write(b"HTTP/1.1 503 X\r\nContent-Type: application/json\r\nContent-Length: 100\r\n\r\nabc")
        await turn.until_closed()

    settings = ProxySettings(reply_idle_s=0.01)
    async with front(play, settings=settings) as (pharos, _):
        async with asyncio.timeout(5.0):
            reply = await pharos.ask(chat(stream=False))
        assert not reply.is_whole
        assert ("upstream", "stalled") in (await pharos.finished()).stages
