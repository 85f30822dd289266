"""A stream that ends in good order without the end of its protocol is cut, wherever that end is known to come."""

import asyncio
import json
from collections.abc import Iterator

import pytest

from pharos.core.engine.usage_fields import PLAIN, Dialect
from pharos.core.fleet import State
from pharos.proxy.protocol import Protocol
from pharos.proxy.tap import Ending, Tap, make_tap
from tests.core.engine.test_usage_replay import dialect_of
from tests.fakes import captures
from tests.proxy.engine_script import Script, Turn
from tests.proxy.harness import DONE, USAGE_EVENT, Front, Reply, chat, event, front
from tests.proxy.test_cuts import BODY, STREAMS
from tests.proxy.test_endings import CASES
from tests.proxy.test_tap_replay import CHUNKED

LAST = b"0\r\n\r\n"
SAYS_DONE = Dialect(says_done=True)
FINISH = b'data: {"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}\n\n'
KINDS = {path: "ollama" if path.startswith("/api") else "vllm" for path in STREAMS}
FAILURES = {
    "/v1/chat/completions": b'data: {"error":{"message":"oom","code":500}}\n\n',
    "/v1/completions": b'data: {"error":{"message":"oom","code":500}}\n\n' + DONE,
    "/v1/responses": b'event: response.failed\ndata: {"type":"response.failed","response":{"error":{}}}\n\n',
    "/v1/messages": b'event: error\ndata: {"type":"error","error":{"type":"api_error","message":"oom"}}\n\n',
    "/api/chat": b'{"error":"oom"}\n',
    "/api/generate": b'{"error":"oom"}\n',
}
"""How engines say inside a stream of status 200 that they failed."""


def says(*chunks: bytes, kind: bytes = b"text/event-stream", status: int = 200) -> Script:
    """A stream of these chunks, each in a write of its own, that ends in good order."""

    async def play(turn: Turn) -> None:
        await turn.write(
            b"HTTP/1.1 %d Status\r\nContent-Type: %b\r\nTransfer-Encoding: chunked\r\n\r\n" % (status, kind)
        )
        for chunk in chunks:
            await turn.chunk(chunk)
        await turn.write(LAST)

    return play


def recorded(path: str) -> tuple[bytes, bytes]:
    """A captured stream of a path, and its content type."""
    engine, version, name, kind, _ = STREAMS[path]
    return captures.exchange(engine, version, name).body, kind


async def asked(pharos: Front, path: str = "/v1/chat/completions") -> tuple[Reply, str]:
    """The reply, and how the attempt is counted."""
    before = len(pharos.done)
    reply = await pharos.ask(BODY, path=path)
    done = await pharos.finished(before + 1)
    return reply, [outcome for stage, outcome in done.stages if stage == "upstream"][-1]


# --- what a tap knows


def prefixes(protocol: Protocol, body: bytes) -> Iterator[tuple[bytes, bool]]:
    """Beginnings of a stream, each with whether it lacks the end."""
    whole = make_tap(protocol, streamed=True, content_type=_kind(protocol), strip_usage=False)
    for at, line in enumerate(lines := body.splitlines(keepends=True)):
        before = b"".join(lines[:at])
        is_open = whole.ending is Ending.OPEN and not _is_finish(b"".join(lines[:at]))
        yield before, is_open
        yield before + line[: len(line) // 2], is_open
        whole.feed(line)
    yield body, False


def _kind(protocol: Protocol) -> str:
    return "application/x-ndjson" if protocol.startswith("ollama") else "text/event-stream"


def _is_finish(body: bytes) -> bool:
    return b'"finish_reason":"' in body or b'"finish_reason": "' in body


def _ended(protocol: Protocol, body: bytes, dialect: Dialect = SAYS_DONE, *, says_done: bool = False) -> Tap:
    tap = make_tap(
        protocol,
        streamed=True,
        content_type=_kind(protocol),
        strip_usage=True,
        dialect=dialect,
        says_done=says_done,
    )
    tap.feed(body)
    tap.finish()
    return tap


@pytest.mark.parametrize(("protocol", "reply"), CASES)
def test_a_beginning_of_any_stream_is_short_until_it_shows_its_end(
    protocol: Protocol, reply: tuple[str, str, str]
) -> None:
    body = captures.exchange(*reply).body
    told = 0
    for beginning, is_open in prefixes(protocol, body):
        if is_open:
            assert _ended(protocol, beginning).is_short, beginning[-200:]
            told += 1
    assert told > 5
    assert not _ended(protocol, body).is_short


@pytest.mark.parametrize(
    ("body", "is_short"),
    [
        (event("a"), True),
        (event("a") + DONE, False),
        (event("a") + DONE.rstrip(), False),
        (event("a") + USAGE_EVENT, False),
        (FINISH, False),
        (event("a") + FINISH.replace(b"}]}", b'}],"usage":{"prompt_tokens":1,"completion_tokens":1}}'), False),
        (event("a") + b'data: {"error":"x"}\n\n', False),
        (b'data: {"choices":[{"finish_reason":"stop"},{"finish_reason":null}]}\n\n', True),
        (b'data: {"choices":[]}\n\n', True),
        (b"", True),
    ],
)
def test_a_stream_of_chunks_may_end_without_done_once_its_choices_have_finished(body: bytes, is_short: bool) -> None:  # noqa: FBT001
    assert _ended("openai_chat", body).is_short is is_short
    assert _ended("openai_chat", body, PLAIN, says_done=True).is_short is is_short
    assert not _ended("plain", body).is_short, "how such a stream ends is not known"


@pytest.mark.parametrize(("body", "is_short"), [(event("a"), False), (b"", True), (b": comment\n\n", True)])
def test_of_an_engine_that_never_said_done_only_an_empty_stream_is_short(body: bytes, is_short: bool) -> None:  # noqa: FBT001
    assert _ended("openai_chat", body, PLAIN).is_short is is_short


@pytest.mark.parametrize(
    ("last", "is_torn"),
    [
        (b'data: {"choices":[],"us', True), (b"data: [DONE", True), (b"data:", True), (b"da", True),
        (b'data: {"a":{}', True), (b'data: {"a":{}}', True), (b"data: [DONE]", False), (b": comm", False),
        (b"event: mess", True), (FINISH.rstrip(), True), (USAGE_EVENT.rstrip(), True), (b'data: {"error":"x"}', False),
        (b"data: text", True), (b"data: {" + b"x" * 100_000, True), (b":" + b"x" * 100_000, False),
    ],
)  # fmt: skip
def test_half_a_line_at_the_end_never_goes_out_and_shows_that_a_stream_is_torn(last: bytes, is_torn: bool) -> None:  # noqa: FBT001
    for protocol, before, dialect in (
        ("openai_chat", event("a") + FINISH + USAGE_EVENT, SAYS_DONE),
        ("openai_chat", event("a"), PLAIN),
        ("plain", event("a"), PLAIN),
    ):
        tap = _ended(protocol, before + last, dialect)  # type: ignore[arg-type]
        assert tap.is_short is is_torn
    tap = make_tap("openai_chat", streamed=True, content_type="text/event-stream", strip_usage=True)
    tap.feed(event("a"))
    sent = tap.feed(last) + tap.finish()
    kept = b"" if is_torn and len(last) < 99_000 else last
    assert sent == (kept + b"\n\n" if b'"error"' in last else kept)
    if is_torn:
        assert tap.error_event("x", "y").lstrip(b"\n").startswith(b'data: {"error"')
        assert sent or tap.at_event_boundary


@pytest.mark.parametrize("size", [1 << 30, 1000])
def test_a_long_last_record_without_its_end_is_no_end(size: int) -> None:
    """Its beginning says that it ends the reply: that proves nothing before its last byte."""
    numbers = b",".join(b"%d" % n for n in range(50_000))
    for protocol, before, start, last, good in (
        ("ollama_generate", b"", b'{"response":"","done":true,"context":[', b'],"eval_count":3}', True),
        ("openai_responses", b"event: response.completed\ndata: ", b'{"type":"response.completed","response":{"x":[',
         b'],"usage":{"input_tokens":1}}}', False),
    ):  # fmt: skip
        whole = before + start + numbers + last
        for cut, is_short in ((100_000, True), (len(whole), not good)):
            tap = make_tap(protocol, streamed=True, content_type=_kind(protocol), strip_usage=False)  # type: ignore[arg-type]
            body = whole[:cut]
            sent = b"".join(tap.feed(body[at : at + size]) for at in range(0, len(body), size)) + tap.finish()
            assert tap.is_short is is_short
            assert body.startswith(sent)
            assert tap.error_event("x", "y").startswith(b"\n") or not is_short
        ended = _ended(protocol, whole + b"\n\n")  # type: ignore[arg-type]
        assert not ended.is_short


@pytest.mark.parametrize(
    ("body", "is_short"), [(b"", True), (b" \n", True), (b"{}", False), (b'{"choices":[', False), (b"null", False)]
)
def test_of_a_body_in_one_piece_only_blanks_are_called_short(body: bytes, is_short: bool) -> None:  # noqa: FBT001
    for kind, wanted in (("application/json", is_short), ("text/plain", False)):
        tap = make_tap("openai_chat", streamed=False, content_type=kind, strip_usage=False, says_done=True)
        tap.feed(body)
        tap.finish()
        assert tap.is_short is wanted


def says_blanks(framing: bytes, body: bytes) -> Script:
    async def play(turn: Turn) -> None:
        await turn.write(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n" + framing + b"\r\n\r\n" + body)

    return play


@pytest.mark.parametrize("version", ["1.1", "1.0"])
@pytest.mark.parametrize(
    ("framing", "body"),
    [
        (b"Content-Length: 0", b""),
        (b"Content-Length: 2", b" \n"),
        (b"Transfer-Encoding: chunked", LAST),
        (b"Transfer-Encoding: chunked", b"2\r\n\r\n\r\n" + LAST),
    ],
)
async def test_a_200_without_an_answer_is_no_answer(framing: bytes, body: bytes, version: str) -> None:
    async with front(says_blanks(framing, body)) as (pharos, _):
        client = await pharos.client()
        client.post(chat(stream=False), version=version)
        reply = await client.reply()
        assert (reply.status, reply.is_whole) == (502, True)
        assert "The backend a failed: its reply had no end" in reply.json()["error"]["message"]
        done = await pharos.finished()
        assert done.status == 502
        assert done.stages[-1] == ("upstream", "ended_early")
        assert pharos.inflight == 0


async def test_a_blank_answer_is_not_asked_for_again_since_the_question_is_let_go() -> None:
    blank = says_blanks(b"Content-Length: 0", b"")
    async with front(blank, blank) as (pharos, a, b):
        reply = await pharos.ask(chat(stream=False))
        assert reply.status == 502
        assert len(a.turns) + len(b.turns) == 1


@pytest.mark.parametrize("framing", [b"Content-Length: 2", b"Transfer-Encoding: chunked"])
async def test_blanks_behind_a_head_that_has_gone_are_no_answer(framing: bytes) -> None:
    async def play(turn: Turn) -> None:
        await turn.write(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n" + framing + b"\r\n\r\n")
        await seen.wait()
        await turn.write(b" \n" if framing.endswith(b"2") else LAST)

    seen = asyncio.Event()
    async with front(play) as (pharos, _):
        client = await pharos.client()
        client.post(chat(stream=False))
        assert framing in await client.head()
        seen.set()
        assert await client.rest() == (b"", True)
        assert ("upstream", "ended_early") in (await pharos.finished()).stages


def test_engines_that_are_said_to_say_done_do_so_in_each_recording() -> None:
    told = [reply for reply in CHUNKED if dialect_of(*reply[:2]).says_done]
    assert {reply[0] for reply in told} == {"llamacpp", "ollama", "vllm"}
    for reply in told:
        assert captures.exchange(*reply).body.endswith(DONE), reply


# --- through the proxy


@pytest.mark.parametrize("share", [0.0, 0.3, 0.8])
@pytest.mark.parametrize("path", STREAMS)
async def test_a_stream_that_ends_early_in_good_order_is_cut_and_counted_and_ejects_nobody(
    path: str, share: float
) -> None:
    body, kind = recorded(path)
    lines = body.splitlines(keepends=True)
    part = b"".join(lines[: int(len(lines) * share)])
    chunks = [part[at : at + 300] for at in range(0, len(part), 300)]
    async with front(says(*chunks, kind=kind), kind=KINDS[path]) as (pharos, engine):
        reply, outcome = await asked(pharos, path)
        assert outcome == "ended_early"
        assert not reply.is_whole
        is_begun = part or path != "/v1/responses"  # a response without an id cannot be called failed
        assert (STREAMS[path][4] if is_begun else b"event: error\n") in reply.body
        assert (await pharos.finished()).usage is None
        assert pharos.fleet.backends["a"].state is State.UP
        assert pharos.inflight == pharos.ledger.leased == 0
        await asked(pharos, path)
        assert engine.connections == 2, "that connection is not used again"


@pytest.mark.parametrize("path", STREAMS)
async def test_an_error_inside_a_stream_of_any_protocol_passes_unchanged_and_is_no_success(path: str) -> None:
    body, kind = recorded(path)
    begun = b"".join(body.splitlines(keepends=True)[:6])
    async with front(says(begun, FAILURES[path], kind=kind), kind=KINDS[path]) as (pharos, engine):
        reply, outcome = await asked(pharos, path)
        assert outcome == "error_in_stream"
        assert reply.body == begun + FAILURES[path]
        assert reply.is_whole, "the engine has said all itself"
        assert (await pharos.finished()).usage is None
        assert len(engine.turns) == 1


@pytest.mark.parametrize("path", STREAMS)
async def test_a_whole_stream_of_any_protocol_is_whole(path: str) -> None:
    body, kind = recorded(path)
    async with front(says(body, kind=kind), kind=KINDS[path]) as (pharos, _):
        reply, outcome = await asked(pharos, path)
        assert outcome == "ok"
        assert reply.is_whole


@pytest.mark.parametrize("is_whole", [True, False])
@pytest.mark.parametrize("path", STREAMS)
async def test_a_stream_that_only_the_connection_ends_is_whole_only_with_its_protocol_s_end(
    path: str, *, is_whole: bool
) -> None:
    body, kind = recorded(path)
    sent = body if is_whole else body[: len(body) // 2]

    async def play(turn: Turn) -> None:
        await turn.write(b"HTTP/1.1 200 OK\r\nContent-Type: " + kind + b"\r\nConnection: close\r\n\r\n" + sent)
        turn.close()

    async with front(play, kind=KINDS[path]) as (pharos, _):
        reply, outcome = await asked(pharos, path)
        assert (outcome, reply.is_whole) == (("ok", True) if is_whole else ("died_mid_reply", False))
        assert (b"\n" + STREAMS[path][4] in reply.body) is not is_whole
        assert (pharos.fleet.backends["a"].state is State.UP) is is_whole


@pytest.mark.parametrize("is_whole", [True, False])
@pytest.mark.parametrize("path", STREAMS)
async def test_trailers_change_nothing_about_an_end(path: str, *, is_whole: bool) -> None:
    body, kind = recorded(path)
    sent = body if is_whole else body[: len(body) // 2]

    async def play(turn: Turn) -> None:
        await turn.write(b"HTTP/1.1 200 OK\r\nContent-Type: " + kind + b"\r\nTransfer-Encoding: chunked\r\n\r\n")
        await turn.chunk(sent)
        await turn.write(b"0\r\nX-Status: done\r\n\r\n")

    async with front(play, kind=KINDS[path]) as (pharos, _):
        reply, outcome = await asked(pharos, path)
        assert (outcome, reply.is_whole) == (("ok", True) if is_whole else ("ended_early", False))
        assert b"X-Status" not in reply.raw
        assert (b"\n" + STREAMS[path][4] in reply.body) is not is_whole


async def test_events_that_came_with_the_end_are_not_lost() -> None:
    async def play(turn: Turn) -> None:
        head = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
        chunks = b"".join(b"%x\r\n%b\r\n" % (len(one), one) for one in (event("a"), event("b"), b'data: {"cho'))
        await turn.write(head + chunks + LAST)

    async with front(play, kind="vllm") as (pharos, _):
        reply, outcome = await asked(pharos)
        assert outcome == "ended_early"
        assert reply.body.startswith(event("a") + event("b"))
        assert b'{"cho' not in reply.body
        assert json.loads(reply.body.rpartition(b"data: ")[2])["error"]["code"] == "engine_lost"


async def test_an_http_1_0_client_gets_no_clean_close() -> None:
    async with front(says(event("a")), kind="vllm") as (pharos, _):
        client = await pharos.client()
        client.post(chat(), version="1.0")
        _, clean = await client.rest()
        assert not clean


async def test_what_an_engine_has_shown_is_expected_of_it_from_then_on() -> None:
    async def play(turn: Turn) -> None:
        await scripts.pop(0)(turn)

    scripts = [says(event("a")), says(event("a") + DONE), says(event("a")), says(FINISH), says(event("a"))]
    async with front(play) as (pharos, _):
        outcomes = [(await asked(pharos))[1] for _ in range(4)]
        assert outcomes == ["ok", "ok", "ended_early", "empty_reply"]
        target = pharos.fleet.backends["a"].targets["m"]
        assert target.says_done
        target.says_done = False
        assert (await asked(pharos))[1] == "ok"


async def test_only_streams_of_chunks_tell_whether_an_engine_says_done() -> None:
    body, kind = recorded("/v1/messages")
    async with front(says(body, kind=kind)) as (pharos, _):
        assert (await asked(pharos, "/v1/messages"))[1] == "ok"
        assert not pharos.fleet.backends["a"].targets["m"].says_done


async def test_a_target_that_ends_streams_early_is_passed_over_though_its_tokens_came() -> None:
    async with front(says(event("a")), says(event("a") + DONE), kind="vllm", capacity=1) as (pharos, a, b):
        for _ in range(12):
            await asked(pharos)
        assert len(a.turns) <= 4
        assert len(b.turns) >= 8


async def test_a_refusal_in_the_shape_of_a_stream_passes_as_it_is() -> None:
    async with front(says(b"data: no\n\n", status=400), kind="vllm") as (pharos, _):
        reply, outcome = await asked(pharos)
        assert (reply.status, reply.is_whole, outcome) == (400, True, "error_status")
