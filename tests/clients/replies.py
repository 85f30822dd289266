"""What an engine answers to a client's request, out of its recordings, and whether a reply is whole in its protocol."""

import json
from typing import Any

from pharos.proxy.table import ROUTES
from tests.fakes.replies import Exchange, book, events_of
from tests.proxy.engine_script import Script, Turn

RECORDED = {"llamacpp": "b11434", "ollama": "0.17.4"}
"""Kind to the version whose replies are used."""
LISTS = {"/api/tags": "models", "/api/ps": "models", "/v1/models": "data"}


def answer_of(kind: str, route: str, asked: dict[str, Any], *, streams: bool) -> Exchange:
    """The engine's own recorded reply, or where it has none of that form another engine's."""
    for engine in (kind, *(other for other in RECORDED if other != kind)):
        found = book(engine, RECORDED[engine])
        like = found.like(route, asked, streams=streams)
        fitting = [one for one in found.exchanges if one.path == route and one.reply.status == 200]
        if like is not None:
            return like
        if fitting and ROUTES[route].streams == "never":
            return fitting[0]
    raise AssertionError(f"nothing was recorded for {route}")


def answering(exchange: Exchange) -> Script:
    """An engine that answers so, event by event where it streamed."""
    told = {name: value for name, value in exchange.reply.headers.items() if name.lower() != "date"}
    extra = b"".join(f"{name}: {value}\r\n".encode() for name, value in told.items())

    async def play(turn: Turn) -> None:
        reply = exchange.reply
        if not exchange.is_stream:
            length = b"Content-Length: %d\r\n\r\n" % len(reply.body)
            await turn.write(b"HTTP/1.1 %d X\r\n%b%b%b" % (reply.status, extra, length, reply.body))
            return
        await turn.write(b"HTTP/1.1 %d X\r\n%bTransfer-Encoding: chunked\r\n\r\n" % (reply.status, extra))
        for event in events_of(reply):
            await turn.chunk(event)
        await turn.write(b"0\r\n\r\n")

    return play


async def nobody(turn: Turn) -> None:
    """An engine that must not be asked."""
    raise AssertionError(turn.line)


def check_whole(route: str, body: bytes, *, streams: bool, wants_usage: bool) -> None:
    """Fail unless a reply is what a client of the route's protocol takes for a whole one."""
    if not streams:
        assert isinstance(json.loads(body), dict)
        _check_document(route, json.loads(body))
    elif route.startswith("/api/"):
        *lines, last = [json.loads(line) for line in body.splitlines()]
        assert last["done"] is True
        assert not any(line["done"] for line in lines)
    else:
        _check_events(route, [part for part in body.split(b"\n\n") if part], wants_usage=wants_usage)


def _check_document(route: str, told: dict[str, Any]) -> None:
    assert "error" not in told or told["error"] is None
    wanted = {
        "/v1/chat/completions": ("choices", "usage", "model"),
        "/v1/completions": ("choices", "usage", "model"),
        "/v1/embeddings": ("data", "model"),
        "/v1/responses": ("id", "output", "status"),
        "/v1/messages": ("id", "content", "stop_reason", "usage"),
        "/v1/messages/count_tokens": ("input_tokens",),
        "/api/chat": ("message", "done"),
        "/api/generate": ("response", "done"),
        "/api/embed": ("embeddings",),
        "/api/embeddings": ("embedding",),
        "/api/show": ("details", "capabilities"),
    }[route]
    assert set(wanted) <= set(told)


def _check_events(route: str, parts: list[bytes], *, wants_usage: bool) -> None:
    data = [part.rpartition(b"data: ")[2] for part in parts]
    if route in ("/v1/chat/completions", "/v1/completions"):
        assert data[-1] == b"[DONE]"
        chunks = [json.loads(one) for one in data[:-1]]
        assert any(chunk["choices"] and chunk["choices"][0]["finish_reason"] for chunk in chunks)
        assert any(not chunk["choices"] for chunk in chunks) <= wants_usage  # what Pharos asked for has gone
        return
    kinds = [json.loads(one)["type"] for one in data if one != b"[DONE]"]
    first, last = {
        "/v1/messages": ("message_start", "message_stop"),
        "/v1/responses": ("response.created", "response.completed"),
    }[route]
    assert (kinds[0], kinds[-1]) == (first, last)


def check_error(route: str, is_anthropic: bool, body: bytes) -> str:  # noqa: FBT001 - a fact about the caller
    """Fail unless an error has the shape of its protocol; its sentence."""
    told = json.loads(body)
    if route.startswith("/api/"):
        assert isinstance(told["error"], str)
        return str(told["error"])
    if is_anthropic:
        assert told["type"] == "error"
        assert {"type", "message"} <= set(told["error"])
    else:
        assert {"message", "type", "code"} <= set(told["error"])
    return str(told["error"]["message"])
