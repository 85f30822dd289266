"""Reports about streams and what is in them (docs/field-reports.md), each fed to the whole proxy as it was met."""

import asyncio
import gzip
import json
from typing import Any

import pytest

from pharos.proxy.auth import Key
from pharos.proxy.settings import ProxySettings
from tests.proxy.engine_script import Script, Turn
from tests.proxy.harness import DONE, KEY, USAGE_EVENT, Front, chat, event, front

SSE, LINES, JSON = b"text/event-stream", b"application/x-ndjson", b"application/json"
AUTH = f"x-api-key: {KEY}\r\n"


def streams(*events: bytes, kind: bytes = SSE) -> Script:
    """A chunk for each event."""

    async def play(turn: Turn) -> None:
        await turn.write(b"HTTP/1.1 200 OK\r\nContent-Type: " + kind + b"\r\nTransfer-Encoding: chunked\r\n\r\n")
        for one in events:
            await turn.chunk(one)
        await turn.write(b"0\r\n\r\n")

    return play


def data(record: Any) -> bytes:
    return b"data: " + json.dumps(record).encode() + b"\n\n"


async def counted(pharos: Front) -> tuple[int | None, int | None]:
    usage = (await pharos.finished()).usage
    assert usage is not None
    return usage.prompt_tokens, usage.completion_tokens


B01 = {"choices": [], "usage": {"prompt_tokens": 13, "completion_tokens": 20, "total_tokens": 33}}


@pytest.mark.parametrize("asked", [False, True])
async def test_b01_the_usage_event_goes_to_who_asked_for_it_and_is_counted_either_way(*, asked: bool) -> None:
    content = [event("a"), event("b")]
    async with front(streams(*content, data(B01), DONE)) as (pharos, _):
        reply = await pharos.ask(chat(stream_options={"include_usage": True}) if asked else chat())
        assert reply.is_whole
        assert reply.body == b"".join([*content, data(B01) if asked else b"", DONE])
        assert await counted(pharos) == (13, 20)


async def test_b02_nothing_but_the_real_usage_event_is_taken_out() -> None:
    odd: list[Any] = [
        {"choices": [], "prompt_filter_results": [{"prompt_index": 0}]},
        {"choices": None},
        {"object": "chat.completion.chunk"},
        {"choices": [{"index": 0, "delta": {"content": "a"}}], "usage": None},
        {"choices": [{"index": 0, "delta": None}]},
    ]
    events = [data(record) for record in odd]
    async with front(streams(*events, data(B01), DONE)) as (pharos, engine):
        reply = await pharos.ask()
        assert b'"include_usage"' in engine.turns[0].body, "it was asked for by Pharos alone"
        assert reply.is_whole
        assert reply.body == b"".join(events) + DONE
        assert await counted(pharos) == (13, 20)


@pytest.mark.parametrize("status", [400, 422])
@pytest.mark.parametrize("own", [None, {"include_usage": True}, {"include_usage": False}, {}])
async def test_b03_an_engine_that_refuses_the_field_is_asked_without_it_unless_the_client_sent_it(
    status: int, own: dict[str, bool] | None
) -> None:
    refusal = b'{"error":{"message":"Unsupported parameter: stream_options"}}'

    async def strict(turn: Turn) -> None:
        if b"stream_options" in turn.body:
            await turn.reply(status, refusal)
        else:
            await streams(event("a"), DONE)(turn)

    async with front(strict) as (pharos, engine):
        body = chat() if own is None else chat(stream_options=own)
        for number in (1, 2):
            reply = await pharos.ask(body)
            done = await pharos.finished(number)
            if own is None:
                assert (reply.status, reply.body) == (200, event("a") + DONE)
                assert done.usage is None
            else:
                assert (reply.status, reply.body) == (status, refusal)
        bodies = [turn.body for turn in engine.turns]
        if own is None:
            assert bodies[1:] == [body, body], "asked without it at once, and from then on"
        assert len(bodies) == (3 if own is None else 2), "a client's own 400 is not asked for twice"
        assert pharos.inflight == 0


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"stream": False},
        {"stream": None},
        {"stream": "true"},
        {"stream": False, "stream_options": {"include_usage": True}},
        {"stream": False, "stream_options": {}},
    ],
    ids=repr,
)
@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/completions"])
@pytest.mark.parametrize("status", [200, 400])
async def test_b04_what_does_not_stream_is_left_alone_and_so_is_its_answer(
    fields: dict[str, Any], path: str, status: int
) -> None:
    answer = b'{"choices":[],"note":"as the engine wrote it"}'

    async def play(turn: Turn) -> None:
        await turn.reply(status, answer)

    body = json.dumps(
        {"model": "m", "prompt": "hi", "messages": [{"role": "user", "content": "hi"}], **fields}
    ).encode()
    async with front(play) as (pharos, engine):
        reply = await pharos.ask(body, path=path)
        if fields.get("stream") == "true" and not engine.turns:
            assert reply.status == 400, "a field of the wrong type may be refused, and is never taken for true"
            return
        assert (reply.status, reply.body) == (status, answer)
        assert [turn.body for turn in engine.turns] == [body]


async def test_b05_lines_of_ollama_s_streams_survive_every_cut() -> None:
    lines = [
        json.dumps({"model": "m", "message": {"role": "assistant", "content": text}, "done": False}, ensure_ascii=False)
        for text in ("é", "€", "😀")
    ]
    last = {"model": "m", "message": {"content": ""}, "done": True, "prompt_eval_count": 13, "eval_count": 20}
    stream = "".join(line + "\n" for line in [*lines, json.dumps(last)]).encode()
    went = asyncio.Event()

    async def play(turn: Turn) -> None:
        at = len(turn.engine.turns) - 1
        await turn.write(b"HTTP/1.1 200 OK\r\nContent-Type: " + LINES + b"\r\nTransfer-Encoding: chunked\r\n\r\n")
        if at:
            await turn.chunk(stream[:at])
        await went.wait()  # the client has every whole line of the first part: the cut was seen
        went.clear()
        await turn.chunk(stream[at:])
        await turn.write(b"0\r\n\r\n")

    async with front(play, kind="ollama") as (pharos, _):
        client = await pharos.client()
        for at in range(len(stream)):
            client.post(b'{"model":"m","messages":[{"role":"user","content":"hi"}]}', path="/api/chat")
            whole = stream[: stream.rfind(b"\n", 0, at) + 1]
            got = await client.until(whole.splitlines(keepends=True)[-1]) if whole else b""
            went.set()
            got += await client.until(b"0\r\n\r\n")
            assert unchunked(got) == stream, at
        await pharos.finished(len(stream))
        assert {(done.usage.prompt_tokens, done.usage.completion_tokens) for done in pharos.done} == {(13, 20)}


def unchunked(raw: bytes) -> bytes:
    """Body of a whole chunked reply."""
    rest, body = raw.partition(b"\r\n\r\n")[2], b""
    while rest:
        size, _, rest = rest.partition(b"\r\n")
        body, rest = body + rest[: int(size, 16)], rest[int(size, 16) + 2 :]
    return body


async def test_b06_comments_before_between_and_right_before_the_usage_event_pass_at_once() -> None:
    comment = b":\n\n"
    seen = asyncio.Event()

    async def play(turn: Turn) -> None:
        await turn.sse_head()
        for one in (*[comment] * 5, event("a"), comment, event("b"), comment, USAGE_EVENT):
            await turn.chunk(one)
            if one != USAGE_EVENT:
                await seen.wait()  # nothing of it is held back
                seen.clear()
        await turn.chunk(DONE)
        await turn.write(b"0\r\n\r\n")

    async with front(play) as (pharos, _):
        client = await pharos.client()
        client.post(chat())
        await client.head()
        for one in (*[comment] * 5, event("a"), comment, event("b"), comment):
            assert (await client.until(one)).endswith(one)
            seen.set()
        assert b'"usage"' not in await client.until(b"0\r\n\r\n")
        done = await pharos.finished()
        assert done.first_byte_s is not None
        assert done.ttft_s is not None
        assert done.ttft_s > done.first_byte_s
        assert await counted(pharos) == (7, 3)


@pytest.mark.parametrize("asked", [False, True])
async def test_b07_an_event_of_three_megabytes_and_a_reply_of_eight_pass_and_are_counted(*, asked: bool) -> None:
    huge = event("x" * 3 * 2**20)
    body = json.dumps({"choices": [{"message": {"content": "x" * 8 * 2**20}}], "usage": B01["usage"]}).encode()

    async def play(turn: Turn) -> None:
        if b'"stream": true' in turn.body:
            await streams(huge, USAGE_EVENT, DONE)(turn)
        else:
            await turn.reply(200, body)

    async with front(play) as (pharos, _):
        reply = await pharos.ask(chat(stream_options={"include_usage": True}) if asked else chat())
        assert reply.body == huge + (USAGE_EVENT if asked else b"") + DONE
        assert await counted(pharos) == (7, 3)
        assert (await pharos.ask(chat(stream=False))).body == body
        second = (await pharos.finished(2)).usage
        assert (second.prompt_tokens, second.completion_tokens) == (13, 20)


@pytest.mark.parametrize("path", ["/v1/messages", "/v1/messages/count_tokens", "/v1/chat/completions", "/api/chat"])
async def test_b10_every_refusal_is_in_the_shape_of_its_path_with_the_time_to_wait(path: str) -> None:
    async def busy(turn: Turn) -> None:
        await turn.until_closed()

    settings = ProxySettings(body_bytes=10_000)
    more: dict[str, Any] = {"keys": {KEY: Key("k")}, "settings": settings, "capacity": 1, "queue_size": 0}
    async with front(busy, kind="ollama", absent_wait_s=0.0, **more) as (pharos, engine):
        statuses: list[tuple[int, str]] = []

        async def ask(body: bytes, headers: str = AUTH) -> None:
            reply = await pharos.ask(body, headers, path=path)
            statuses.append((reply.status, kind_of(path, reply.json())))
            assert bool(reply.header("retry-after")) == (reply.status in (429, 503)), reply.status

        await ask(chat(stream=False), "x-api-key: wrong\r\n")
        await ask(chat("none", stream=False))
        await ask(chat(stream=False, filler="x" * 20_000))
        if "count_tokens" not in path:  # that takes no slot, hence no queue
            first = await pharos.client()
            first.post(chat(stream=False), AUTH, path)
            await engine.got(1)
            await ask(chat(stream=False))
            first.close()
        pharos.fleet.unreachable(pharos.fleet.backends["a"], "gone")
        await ask(chat(stream=False))
        wanted = [(401, "authentication_error"), (404, "not_found_error"), (413, "request_too_large")]
        wanted += [] if "count_tokens" in path else [(429, "rate_limit_error")]
        wanted += [(503, "overloaded_error")]
        is_anthropic = path.startswith("/v1/messages")
        assert [status for status, _ in statuses] == [status for status, _ in wanted]
        assert not is_anthropic or statuses == wanted


def kind_of(path: str, body: Any) -> str:
    """The type of an error, after a look at its shape."""
    if path.startswith("/api/"):
        assert list(body) == ["error"]
        assert isinstance(body["error"], str)
        return ""
    if path.startswith("/v1/messages"):
        assert (list(body), body["type"]) == (["type", "error"], "error")
        assert sorted(body["error"]) == ["message", "type"]
    else:
        assert sorted(body["error"]) == ["code", "message", "param", "type"]
    return str(body["error"]["type"])


@pytest.mark.parametrize(
    "extra", [b"", b"X-Accel-Buffering: no\r\n", b"X-Accel-Buffering: no\r\nx-accel-buffering: no\r\n"]
)
@pytest.mark.parametrize(("kind", "path"), [(SSE, "/v1/chat/completions"), (LINES, "/api/chat"), (JSON, "/api/chat")])
async def test_b11_streams_of_every_kind_say_once_that_they_must_not_be_buffered(
    kind: bytes, path: str, extra: bytes
) -> None:
    async def play(turn: Turn) -> None:
        body = DONE if kind == SSE else b'{"done":true}\n'
        await turn.reply(200, body, extra if kind != JSON else b"", kind)

    async with front(play, kind="ollama") as (pharos, _):
        reply = await pharos.ask(chat(stream=kind != JSON), path=path)
        assert reply.status == 200
        assert reply.header("x-accel-buffering") == ([] if kind == JSON else ["no"])


async def test_b12_reasoning_passes_untouched_both_ways_and_is_the_first_token() -> None:
    thoughts = [data({"choices": [{"index": 0, "delta": {"reasoning": f"r{n}"}}]}) for n in range(50)]
    thoughts += [data({"choices": [{"index": 0, "delta": {"reasoning_content": f"c{n}"}}]}) for n in range(3)]
    role = data({"choices": [{"index": 0, "delta": {"role": "assistant", "content": ""}}]})
    history = [{"role": "assistant", "content": "x", "reasoning": "a", "reasoning_content": "b"}]
    go_on = asyncio.Event()

    async def play(turn: Turn) -> None:
        await turn.sse_head()
        await turn.chunk(role)
        await turn.chunk(thoughts[0])
        await go_on.wait()
        for one in (*thoughts[1:], event("a"), USAGE_EVENT, DONE):
            await turn.chunk(one)
        await turn.write(b"0\r\n\r\n")

    async with front(play) as (pharos, engine):
        client = await pharos.client()
        client.post(chat(messages=history))
        await client.until(thoughts[0])
        (connection,) = pharos.proxy.connections
        assert connection.relay is not None
        assert connection.relay.token_at is not None, "the first thought is the first token"
        go_on.set()
        rest = await client.until(b"0\r\n\r\n")
        assert unchunked(b"\r\n\r\n" + rest.lstrip(b"\r\n")) == b"".join(thoughts[1:]) + event("a") + DONE
        assert json.loads(engine.turns[0].body)["messages"] == history
        assert await counted(pharos) == (7, 3)


@pytest.mark.parametrize("broken", ['{"a":1}{"b":2}', '{"a":', "", "\ud83d"])
async def test_b13_tool_calls_of_a_history_and_of_a_stream_are_never_repaired(broken: str) -> None:
    calls = [{"index": 0, "id": f"c{n}", "function": {"name": "f", "arguments": broken}} for n in range(2)]
    history = [{"role": "assistant", "content": None, "tool_calls": calls}, {"role": "tool", "content": broken}]
    said = [data({"choices": [{"index": 0, "delta": {"tool_calls": [call]}}]}) for call in calls]
    async with front(streams(*said, USAGE_EVENT, DONE)) as (pharos, engine):
        body = chat(messages=history, stream_options={"include_usage": True})
        reply = await pharos.ask(body)
        assert reply.body == b"".join(said) + USAGE_EVENT + DONE
        assert engine.turns[0].body == body
        assert (await pharos.finished()).ttft_s is not None


@pytest.mark.parametrize("coding", [b"gzip", b"gzip, gzip", b"br"])
@pytest.mark.parametrize(("kind", "stream"), [(SSE, True), (JSON, False), (LINES, True)])
@pytest.mark.parametrize("chunked", [False, True])
async def test_b19_packed_replies_keep_their_bytes_and_their_header(
    coding: bytes, kind: bytes, *, stream: bool, chunked: bool
) -> None:
    packed = gzip.compress(gzip.compress(event("a") + USAGE_EVENT + DONE))

    async def play(turn: Turn) -> None:
        extra = b"Content-Encoding: " + coding + b"\r\n"
        if chunked:
            head = b"HTTP/1.1 200 OK\r\nContent-Type: " + kind + b"\r\n" + extra + b"Transfer-Encoding: chunked\r\n\r\n"
            await turn.write(head)
            await turn.chunk(packed[:20])
            await turn.chunk(packed[20:])
            await turn.write(b"0\r\n\r\n")
        else:
            await turn.reply(200, packed, extra, kind)

    path = "/api/chat" if kind == LINES else "/v1/chat/completions"
    async with front(play, kind="ollama") as (pharos, engine):
        reply = await pharos.ask(chat(stream=stream), "Accept-Encoding: gzip\r\n", path=path)
        assert engine.turns[0].header("accept-encoding") == ["identity"]
        assert reply.header("content-encoding") == [coding.decode()]
        assert (reply.body, reply.is_whole) == (packed, True)
        assert (await pharos.finished()).usage is None
