"""Recorded replies as an engine puts them on the wire, and how much of one it takes to call it whole.

A reply is whole once its protocol's own end has been sent: the `[DONE]` of chats and completions, the event
`response.completed` (or `.incomplete`), `message_stop`, Ollama's record with `"done": true`, or the last brace of a
reply in one piece. In every recording that end stands last, so that a reply is whole from its last byte that is no
blank on. An engine that dies before has sent less than its reply, whatever the client may have read by then.
"""

import functools
import json
import re
from collections.abc import Iterator
from typing import Final, NamedTuple

from tests.fakes import captures

LLAMACPP, VLLM, OLLAMA = ("llamacpp", "b11434"), ("vllm", "0.32.0"), ("ollama", "0.33.0-rc2")
FRAMINGS: Final = ("chunked", "length", "close")
"""How the engine tells where its reply ends; `close`: by the end of its connection."""


class Kind(NamedTuple):
    """One route and its recordings."""

    path: str
    is_ollama: bool
    """Whether only backends of that kind serve it."""
    streams: tuple[tuple[tuple[str, str], str], ...]
    bodies: tuple[tuple[tuple[str, str], str], ...]
    error: bytes
    """How the event begins that tells of a failure."""


def _of_all(name: str) -> tuple[tuple[tuple[str, str], str], ...]:
    return tuple((engine, name) for engine in (LLAMACPP, VLLM, OLLAMA))


KINDS: Final = {
    "chat": Kind("/v1/chat/completions", False, _of_all("chat_stream_usage"), _of_all("chat_full"), b'data: {"error":'),  # noqa: FBT003
    "completions": Kind(
        "/v1/completions",
        False,  # noqa: FBT003
        _of_all("completion_stream_usage"),
        _of_all("completion_full"),
        b'data: {"error":',
    ),
    "responses": Kind(
        "/v1/responses",
        False,  # noqa: FBT003
        _of_all("responses_stream"),
        _of_all("responses_full"),
        b"event: response.failed\n",
    ),
    "messages": Kind(
        "/v1/messages",
        False,  # noqa: FBT003
        _of_all("messages_stream"),
        _of_all("messages_full"),
        b"event: error\n",
    ),
    "ollama chat": Kind(
        "/api/chat",
        True,  # noqa: FBT003
        ((OLLAMA, "api_chat_stream"),),
        ((OLLAMA, "api_chat_full"),),
        b'{"error":',
    ),
    "ollama generate": Kind(
        "/api/generate",
        True,  # noqa: FBT003
        ((OLLAMA, "api_generate_stream"),),
        ((OLLAMA, "api_generate_full"),),
        b'{"error":',
    ),
}
_USAGE_EVENT: Final = re.compile(rb'data: (?=[^\n]*"choices":\[\])(?=[^\n]*"usage":\{)[^\n]*\n\n')


class Recorded(NamedTuple):
    """One recorded reply."""

    protocol: str
    streamed: bool
    engine: str
    content_type: str
    body: bytes

    @property
    def kind(self) -> Kind:
        """Its route."""
        return KINDS[self.protocol]

    @property
    def enough(self) -> int:
        """Bytes of the body from which on the reply is whole."""
        return len(self.body.rstrip())

    @property
    def last_said(self) -> int:
        """Bytes of the body from which on an orderly end of the connection makes it whole as well.

        A chat that has told why it finished lacks only an ornament, once that line has its end: without it, more of
        it may have been to come. All other protocols want their own end.
        """
        if not self.streamed or self.protocol not in ("chat", "completions"):
            return self.enough
        return self.body.index(b"\n", self.body.rindex(b'"finish_reason":"')) + 1

    @property
    def without_usage(self) -> bytes:
        """What a client gets that did not ask for the event of nothing but usage."""
        return _USAGE_EVENT.sub(b"", self.body) if self.protocol in ("chat", "completions") else self.body

    @property
    def events(self) -> list[bytes]:
        """The body in the pieces in which an engine makes it."""
        if not self.streamed:
            return [self.body]
        end = b"\n" if self.kind.is_ollama else b"\n\n"
        return [part + end for part in self.body.split(end) if part]


class Wire(NamedTuple):
    """A reply as bytes of its connection."""

    reply: Recorded
    framing: str
    head: int
    """Bytes of the head."""
    pieces: tuple[bytes, ...]
    """Head, then an event each."""
    is_body: tuple[tuple[int, int], ...]
    """From where to where the body's bytes stand."""

    @property
    def data(self) -> bytes:
        """All of it."""
        return b"".join(self.pieces)

    @property
    def enough(self) -> int:
        """Bytes from which on the reply is whole."""
        return self.place(self.reply.enough)

    def place(self, left: int) -> int:
        """Where so many bytes of the body have been sent."""
        for start, stop in self.is_body:
            if left <= stop - start:
                return start + left
            left -= stop - start
        raise AssertionError("the body is not on the wire")

    def ended_at(self, at: int) -> tuple[bytes, ...]:
        """What the engine sends when it takes the first `at` bytes for all there is, and ends its framing there."""
        body, data = self.is_body, self.data
        parts = [data[start : min(stop, at)] for start, stop in body if start < at]
        return (self.pieces[0], *(b"%x\r\n%b\r\n" % (len(part), part) for part in parts), b"0\r\n\r\n")

    def body_until(self, at: int) -> bytes:
        """The bytes of the body among the first `at` of the wire."""
        data = self.data[:at]
        return b"".join(data[start:stop] for start, stop in self.is_body)


@functools.cache
def recorded(protocol: str, streamed: bool) -> tuple[Recorded, ...]:  # noqa: FBT001
    """The recordings of one route."""
    kind = KINDS[protocol]
    found = []
    for (engine, version), name in kind.streams if streamed else kind.bodies:
        reply = captures.exchange(engine, version, name)
        types = [value for key, value in reply.headers.items() if key.lower() == "content-type"]
        found.append(Recorded(protocol, streamed, engine, types[0], reply.body))
    return tuple(found)


@functools.cache
def wire(reply: Recorded, framing: str) -> Wire:
    """Put a reply on the wire: each event as one chunk, as engines do."""
    head = f"HTTP/1.1 200 OK\r\nServer: scripted\r\nContent-Type: {reply.content_type}\r\n"
    if framing == "chunked":
        head += "Transfer-Encoding: chunked\r\n"
    elif framing == "length":
        head += f"Content-Length: {len(reply.body)}\r\n"
    pieces, places = [head.encode() + b"\r\n"], []
    at = len(pieces[0])
    for piece in reply.events:
        lead = b"%x\r\n" % len(piece) if framing == "chunked" else b""
        places.append((at + len(lead), at + len(lead) + len(piece)))
        pieces.append(lead + piece + (b"\r\n" if framing == "chunked" else b""))
        at += len(pieces[-1])
    if framing == "chunked":
        pieces.append(b"0\r\n\r\n")
    return Wire(reply, framing, len(pieces[0]), tuple(pieces), tuple(places))


def edges(whole: Wire) -> Iterator[int]:
    """Places where cuts go wrong first: about the ends of head, events and lines, and before the last bytes."""
    at = 0
    for piece in whole.pieces:
        at += len(piece)
        yield from (at - 2, at - 1, at)
    yield from (0, 1, whole.enough - 1, whole.enough, len(whole.data))


def request(protocol: str, model: str, *, streamed: bool, wants_usage: bool) -> bytes:
    """The body that asks for it, as a client without an SDK writes it."""
    said = [{"role": "user", "content": "hi"}]
    body: dict[str, object] = {"model": model, "stream": streamed}
    if protocol in ("chat", "messages", "ollama chat"):
        body["messages"] = said
    elif protocol == "responses":
        body["input"] = "hi"
    else:
        body["prompt"] = "hi"
    if protocol == "messages":
        body["max_tokens"] = 12
    if wants_usage:
        body["stream_options"] = {"include_usage": True}
    return json.dumps(body).encode()
