"""A reply that breaks off on its way through the proxy, whatever the reason: its client is told in its own protocol,
and the slot is given back once.
"""

import asyncio
import re
from collections.abc import Callable
from typing import Any

import pytest

from pharos.core.sched import Ledger
from pharos.proxy import deadlines
from pharos.proxy.settings import ProxySettings
from pharos.proxy.table import ROUTES
from tests.fakes import captures
from tests.proxy.engine_script import WAIT_S, Script, Turn
from tests.proxy.harness import Front, Reply, chat, front

SSE, LINES = b"text/event-stream", b"application/x-ndjson"
STREAMS = {
    "/v1/chat/completions": ("llamacpp", "b11434", "chat_stream_usage", SSE, b'data: {"error":'),
    "/v1/completions": ("llamacpp", "b11434", "completion_stream_usage", SSE, b'data: {"error":'),
    "/v1/responses": ("vllm", "0.32.0", "responses_stream", SSE, b"event: response.failed\n"),
    "/v1/messages": ("llamacpp", "b11434", "messages_stream", SSE, b"event: error\n"),
    "/api/chat": ("ollama", "0.33.0-rc2", "api_chat_stream", LINES, b'{"error":'),
    "/api/generate": ("ollama", "0.33.0-rc2", "api_generate_stream", LINES, b'{"error":'),
}
SUCCESS = re.compile(rb'\[DONE\]|message_stop|response\.completed|"done": ?true')
CAUSES = ["closes", "resets", "ends in order", "stalls", "talks nonsense", "shutdown", "client leaves"]
BODY = chat(max_tokens=9, prompt="hi", input="hi")


def ends(how: str) -> Callable[[Turn], Any]:
    async def play(turn: Turn) -> None:
        if how == "closes":
            turn.close()
        elif how == "resets":
            turn.reset()
        elif how == "ends in order":
            await turn.write(b"0\r\n\r\n")
            await turn.until_closed()
        elif how == "talks nonsense":
            await turn.write(b"zz\r\nno chunk\r\n")
            await turn.until_closed()
        else:
            await turn.until_closed()

    return play


def half(path: str, how: str, seen: asyncio.Event) -> Script:
    """Half of a captured stream, which ends inside an event; once the client has some of it, the cause."""
    engine, version, name, kind, _ = STREAMS[path]
    body = captures.exchange(engine, version, name).body

    async def play(turn: Turn) -> None:
        await turn.write(b"HTTP/1.1 200 OK\r\nContent-Type: " + kind + b"\r\nTransfer-Encoding: chunked\r\n\r\n")
        await turn.chunk(body[: len(body) // 2])
        await seen.wait()
        await ends(how)(turn)

    return play


class Counted:
    """How often each lease is released while it is held."""

    def __init__(self, ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
        self.effective = 0
        release = ledger.release

        def counted(lease: Any, *arguments: Any) -> Any:
            self.effective += not lease.released
            return release(lease, *arguments)

        monkeypatch.setattr(ledger, "release", counted)


async def broken(pharos: Front, path: str, how: str, seen: asyncio.Event) -> Reply | None:
    client = await pharos.client()
    client.post(BODY, path=path)
    head = await client.head()
    seen.set()
    if how == "client leaves":
        client.writer.transport.abort()
        return None
    draining = asyncio.create_task(pharos.proxy.drain(0.0, 0.0)) if how == "shutdown" else None
    got, _ = await client.rest()
    if draining is not None:
        await draining
    return Reply(head, got, is_whole=got.endswith(b"0\r\n\r\n"), raw=head + got)


@pytest.mark.parametrize("how", CAUSES)
@pytest.mark.parametrize("path", STREAMS)
async def test_a_stream_that_breaks_off_ends_with_the_error_of_its_protocol_and_frees_its_slot_once(
    path: str, how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(deadlines, "HEARD_EVERY_S", 0.0)
    settings = ProxySettings(reply_idle_s=0.05 if how == "stalls" else None)
    kind = "ollama" if ROUTES[path].kinds else "vllm"
    seen = asyncio.Event()
    async with front(half(path, how, seen), settings=settings, kind=kind) as (pharos, engine):
        released = Counted(pharos.ledger, monkeypatch)
        reply = await broken(pharos, path, how, seen)
        done = await pharos.finished()
        if reply is not None:
            assert not reply.is_whole
            assert not SUCCESS.search(reply.body)
            error = STREAMS[path][4]
            assert b"\n" + error in reply.body, "it begins on a line of its own"
            assert reply.body.count(error) == 1
        assert done.status == (499 if reply is None else 200)
        assert released.effective == 1
        assert pharos.inflight == pharos.ledger.leased == 0
        assert len(engine.turns) == 1, "nothing is sent again once the client has a byte"
        async with asyncio.timeout(WAIT_S):
            while not engine.turns[0].is_over:
                await asyncio.sleep(0)


@pytest.mark.parametrize("how", ["closes", "resets"])
@pytest.mark.parametrize("path", STREAMS)
async def test_a_reply_in_one_piece_that_breaks_off_is_cut_short_of_its_length(path: str, how: str) -> None:
    async def play(turn: Turn) -> None:
        await turn.write(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 99\r\n\r\n{")
        await seen.wait()
        await ends(how)(turn)

    seen = asyncio.Event()
    kind = "ollama" if ROUTES[path].kinds else "openai"
    async with front(play, kind=kind) as (pharos, _):
        client = await pharos.client()
        client.post(BODY.replace(b'"stream": true', b'"stream": false'), path=path)
        assert b"Content-Length: 99\r\n" in await client.head()
        await client.until(b"{")
        seen.set()
        assert await client.rest() == (b"", True)
        assert ("upstream", "died_mid_reply") in (await pharos.finished()).stages
        assert pharos.inflight == 0
