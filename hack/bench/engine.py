"""A fast fake engine to load a proxy with: it lists its model as vLLM does and imitates no cache and no queue.

usage: engine.py PORT [PORT…]      every port is an engine of its own for the proxy, served by this one process

The request's `user` field says how the reply comes:
- `paced`: one event every 20 ms, so that each is a read of its own; otherwise all `max_tokens` events (64) at once.
- `slow`: one event every 100 ms, so that thousands of streams fit on a core.
- `big`: a reply of 50 MB at once, as events when streamed, as one JSON object otherwise.
An embeddings request gets 30 MB of numbers, with its usage behind them.
Nothing here may be used to judge routing: bodies and times are made up.
"""

import asyncio
import functools
import json
import re
import sys
from collections.abc import Iterator
from itertools import islice
from typing import Final, cast

import uvloop

MODEL: Final = "m"
PACE_S: Final = {b"paced": 0.02, b"slow": 0.1}
BIG_BYTES: Final = 50_000_000
EMBEDDINGS_BYTES: Final = 30_000_000
PIECE: Final = 1 << 20  # a big reply is written in pieces of this size, as the socket takes them
EVENTS: Final = re.compile(rb'"max_tokens": ?(\d+)')
STREAMED: Final = re.compile(rb'"stream": ?true')
MODE: Final = re.compile(rb'"user": ?"(\w+)"')

STREAM_HEAD: Final = (
    b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream; charset=utf-8\r\nTransfer-Encoding: chunked\r\n\r\n"
)
LAST_CHUNK: Final = b"0\r\n\r\n"


def _json(value: object) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()


def _chunk(data: bytes) -> bytes:
    return b"%x\r\n%s\r\n" % (len(data), data)


def _event(choices: list[object], **more: object) -> bytes:
    body = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "model": MODEL, "choices": choices}
    return _chunk(b"data: " + _json(body | more) + b"\n\n")


def _reply(body: bytes, *, status: bytes = b"200 OK", kind: bytes = b"application/json") -> bytes:
    head = b"HTTP/1.1 %s\r\nContent-Type: %s\r\nContent-Length: %d\r\n\r\n" % (status, kind, len(body))
    return head + body


def _usage(prompt: int, completion: int) -> dict[str, int]:
    return {"prompt_tokens": prompt, "completion_tokens": completion, "total_tokens": prompt + completion}


def _prompt_tokens(body: bytes) -> int:
    """About as many as a tokenizer finds in English text: Pharos learns from them how long prompts are."""
    return max(1, len(body) // 4)


@functools.lru_cache(64)
def _usage_event(prompt: int, completion: int) -> bytes:
    return _event([], usage=_usage(prompt, completion))


@functools.lru_cache(64)
def _chat(prompt: int) -> bytes:
    return _whole_chat("hello", prompt)


def _whole_chat(text: str, prompt: int) -> bytes:
    choice = {"index": 0, "message": {"role": "assistant", "content": text}, "finish_reason": "stop"}
    body = {"id": "chatcmpl-1", "object": "chat.completion", "created": 1, "model": MODEL, "choices": [choice]}
    return _reply(_json(body | {"usage": _usage(prompt, 1)}))


TOKEN: Final = _event([{"index": 0, "delta": {"content": " token"}, "finish_reason": None}])
DONE: Final = _chunk(b"data: [DONE]\n\n")
CARD: Final = {"id": MODEL, "object": "model", "created": 1, "owned_by": "vllm", "max_model_len": 131072}
PAGES: Final = {
    b"/v1/models": _reply(_json({"object": "list", "data": [CARD]})),
    b"/version": _reply(_json({"version": "0.30.0"})),
    b"/health": _reply(b"", kind=b"text/plain"),
    b"/ping": _reply(b"", kind=b"text/plain"),
}
NOT_FOUND: Final = _reply(_json({"detail": "Not Found"}), status=b"404 Not Found")
CHAT_PATHS: Final = (b"/v1/chat/completions", b"/v1/completions")
EMBEDDINGS: Final = b"/v1/embeddings"


def _big_pieces(*, streamed: bool, usage: bytes) -> Iterator[bytes]:
    if streamed:
        yield STREAM_HEAD
        many = TOKEN * (PIECE // len(TOKEN))
        yield from (many for _ in range(BIG_BYTES // len(many)))
        yield usage + DONE + LAST_CHUNK
        return
    yield from _in_pieces(_whole_chat("token " * (BIG_BYTES // 6), 10))


def _in_pieces(reply: bytes) -> Iterator[bytes]:
    view = memoryview(reply)
    yield from (bytes(view[at : at + PIECE]) for at in range(0, len(view), PIECE))


@functools.cache
def _embeddings() -> bytes:
    """A whole reply, made when it is asked for first."""
    vector = [0.012345678901] * 1024
    one = len(_json(vector))
    data = [
        {"object": "embedding", "index": index, "embedding": vector} for index in range(EMBEDDINGS_BYTES // one + 1)
    ]
    usage = {"prompt_tokens": 8, "total_tokens": 8}
    return _reply(_json({"object": "list", "data": data, "model": MODEL, "usage": usage}))


class Connection(asyncio.Protocol):
    """One client connection: requests one after another, with a length or chunked."""

    def __init__(self) -> None:
        self._received = b""
        self._writable = asyncio.Event()
        self._writable.set()
        self._running: set[asyncio.Task[None]] = set()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:  # noqa: D102
        self._transport = cast("asyncio.Transport", transport)  # uvloop's own class is no subclass of it

    def connection_lost(self, _exc: Exception | None) -> None:  # noqa: D102
        for task in self._running:
            task.cancel()

    def pause_writing(self) -> None:  # noqa: D102
        self._writable.clear()

    def resume_writing(self) -> None:  # noqa: D102
        self._writable.set()

    def data_received(self, data: bytes) -> None:  # noqa: D102
        self._received += data
        while (found := self._next_request()) is not None:
            self._answer(*found)

    def _next_request(self) -> tuple[bytes, bytes] | None:
        """Path and body of the next whole request; None until it is there."""
        end = self._received.find(b"\r\n\r\n")
        if end < 0:
            return None
        head = self._received[:end].lower()
        if b"transfer-encoding: chunked" in head:  # read only as far as finding its end asks for
            last = self._received.find(b"\r\n0\r\n\r\n", end)
            if last < 0:
                return None
            body, after = self._received[end + 4 : last], last + 7
        else:
            field = head.find(b"content-length:")
            length = int(head[field + 15 :].split(b"\r\n", 1)[0]) if field >= 0 else 0
            after = end + 4 + length
            if len(self._received) < after:
                return None
            body = self._received[end + 4 : after]
        path = self._received[:end].split(b" ", 2)[1].split(b"?", 1)[0]
        self._received = self._received[after:]
        return path, body

    def _answer(self, path: bytes, body: bytes) -> None:
        if path == EMBEDDINGS:
            self._start(self._write_pieces(_in_pieces(_embeddings())))
            return
        if path not in CHAT_PATHS:
            self._transport.write(PAGES.get(path, NOT_FOUND))
            return
        found = MODE.search(body)
        mode = found[1] if found else b""
        streamed = STREAMED.search(body) is not None
        number = EVENTS.search(body)
        events = int(number[1]) if number else 64
        prompt = _prompt_tokens(body)
        usage = _usage_event(prompt, events) if b'"include_usage"' in body else b""
        if mode == b"big":
            self._start(self._write_pieces(_big_pieces(streamed=streamed, usage=usage)))
        elif not streamed:
            self._transport.write(_chat(prompt))
        elif mode in PACE_S:
            _Paced(self._transport, events, PACE_S[mode], usage)
        else:
            self._write_at_once(events, usage)

    def _write_at_once(self, events: int, usage: bytes) -> None:
        """A write for every event, as engines do: one large write would be read as no stream ever is."""
        write = self._transport.write
        write(STREAM_HEAD)
        for _ in range(events):
            write(TOKEN)
        if usage:
            write(usage)
        write(DONE + LAST_CHUNK)

    def _start(self, writing: "asyncio._CoroutineLike[None]") -> None:
        task = asyncio.get_running_loop().create_task(writing)
        self._running.add(task)
        task.add_done_callback(self._running.discard)

    async def _write_pieces(self, pieces: Iterator[bytes]) -> None:
        for piece in pieces:
            await self._writable.wait()
            self._transport.write(piece)


class _Paced:
    """One paced reply, driven by timers: a task per stream would cost the engine more than the write."""

    def __init__(self, transport: asyncio.Transport, events: int, pace_s: float, usage: bytes) -> None:
        self._transport, self._left, self._pace_s, self._usage = transport, events, pace_s, usage
        self._loop = asyncio.get_running_loop()
        self._at = self._loop.time()
        transport.write(STREAM_HEAD)
        self._tick()

    def _tick(self) -> None:
        if self._transport.is_closing():
            return
        if self._left == 0:
            self._transport.write(self._usage + DONE + LAST_CHUNK)
            return
        self._transport.write(TOKEN)
        self._left -= 1
        self._at += self._pace_s
        self._loop.call_at(self._at, self._tick)


async def serve(ports: list[int]) -> None:
    """Listen on every port, for ever."""
    loop = asyncio.get_running_loop()
    servers = [await loop.create_server(Connection, "127.0.0.1", port, backlog=4096) for port in ports]
    await asyncio.gather(*(server.serve_forever() for server in servers))


if __name__ == "__main__":
    uvloop.run(serve([int(port) for port in islice(sys.argv, 1, None)]))
