"""Reads that are one whole chunk pass the parser by: nobody may notice."""

import asyncio
import socket
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pharos.proxy.answer import Answer
from pharos.proxy.chunks import END, LONGEST, STARTS, framed, is_whole
from pharos.proxy.protocol import Protocol
from pharos.proxy.relay import Relay
from pharos.proxy.steady import Flow, steady
from pharos.proxy.tap import Ending, make_tap
from pharos.proxy.upstream import Connection
from tests.proxy.harness import DONE, USAGE_EVENT, event

HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
LAST = b"0\r\n\r\n"


class Wire:
    """A transport that keeps what it gets."""

    def __init__(self) -> None:
        self.sent = b""
        self.closing = False
        self.protocol: Any = None

    def set_protocol(self, protocol: Any) -> None:
        self.protocol = protocol

    def write(self, data: bytes) -> None:
        self.sent += data

    def writelines(self, parts: Any) -> None:
        self.write(b"".join(parts))

    def get_write_buffer_size(self) -> int:
        return 0

    def get_extra_info(self, name: str) -> None:
        """It has neither a socket nor TLS."""

    def is_closing(self) -> bool:
        return self.closing

    def abort(self) -> None:
        self.closing = True

    def resume_reading(self) -> None:
        pass


class Peer:
    """Writer, front and client of an answer."""

    draining = False
    relay: Any = None
    writing_paused = False


def relayed(
    *reads: bytes, strip: bool = True, heard: Any = lambda _: None, protocol: Protocol = "openai_chat"
) -> tuple[bytes, Relay, Connection]:
    """What the client got of these reads, and the two sides."""
    wire, peer = Wire(), Peer()
    answer = Answer(wire, peer, http11=True, keep_alive=True, is_head=False, request_id="x")  # type: ignore[arg-type]
    relay = Relay(
        peer,
        answer,
        make_tap=lambda s, k: make_tap(protocol, streamed=s, content_type=k, strip_usage=strip),
        may_hold=lambda _: False,
        heard=heard,
        clock=time.monotonic,
    )
    up = Connection("u", lambda _: None, 0.0)
    engine = Wire()
    engine.protocol = up
    up.connection_made(engine)  # type: ignore[arg-type]
    up.begin(relay, b"", b"")
    relay.attach(up, lambda: None, 0.0)
    for read in reads:
        engine.protocol.data_received(read)
    return wire.sent, relay, up


def body_of(sent: bytes) -> bytes:
    """The body of a chunked reply, whole or not."""
    rest, body = sent.partition(b"\r\n\r\n")[2], b""
    while rest:
        size, _, rest = rest.partition(b"\r\n")
        body += rest[: int(size, 16)]
        assert rest[int(size, 16) :][:2] == b"\r\n"
        rest = rest[int(size, 16) + 2 :]
    return body


@pytest.mark.parametrize("size", [1, 9, 15, 16, 17, 254, 255, 256, 257, 1000])
def test_a_chunk_begins_as_its_size_says(size: int) -> None:
    chunk = framed(b"x" * size)
    assert chunk.startswith(STARTS[len(chunk)])
    assert is_whole(chunk, b"x" * size)


def test_no_chunk_has_the_sizes_at_which_the_length_takes_a_digit_more() -> None:
    assert not any(framed(b"x" * n).startswith(STARTS[21]) for n in range(1, 40))


@pytest.mark.parametrize(
    ("read", "body"),
    [
        (b"1\r\n1\r\n", b"1"),  # could be the last byte of a chunk and the head of the next
        (b"A\r\n" + b"x" * 10 + END, b"x" * 10),  # not in the form that everybody writes
        (b"03\r\nabc\r\n", b"abc"),
        (b"3;a\r\nabc\r\n", b"abc"),
        (b"3\r\nabc\r", b"abc"),
        (b"3\r\nabc\r\n3", b"abc"),
        (b"4\r\nabc\r\n", b"abc\r\n"),
        (framed(b"x" * LONGEST), b"x" * LONGEST),
    ],
)
def test_what_is_not_surely_one_chunk_is_not_taken_for_one(read: bytes, body: bytes) -> None:
    assert not is_whole(read, body)


async def test_a_whole_chunk_goes_out_as_it_came() -> None:
    sent, _, up = relayed(HEAD + framed(event("a")), *(framed(event(word)) for word in "bcd"))
    assert sent.endswith(b"".join(framed(event(word)) for word in "bcd"))
    assert up._transport.protocol is not up  # type: ignore[union-attr]


async def test_usage_and_the_end_are_seen_behind_whole_chunks() -> None:
    events = [event("a"), event("b"), event("c"), USAGE_EVENT, DONE]
    sent, relay, _ = relayed(HEAD, *map(framed, events), LAST)
    assert body_of(sent) == b"".join(events).replace(USAGE_EVENT, b"")
    assert relay.tap is not None
    assert relay.tap.usage is not None
    assert relay.end.value == "whole"


@given(
    st.lists(st.sampled_from([event("a"), event("b" * 300), USAGE_EVENT, b": ping\n\n", b"data: 5\r\n5\r\n\r\n"])),
    st.lists(st.integers(1, 400), min_size=1),
)
async def test_where_reads_end_changes_nothing(events: list[bytes], sizes: list[int]) -> None:
    chunks = [HEAD, framed(event("first")), *map(framed, events), framed(DONE), LAST]
    stream = b"".join(chunks)
    cut = []
    while stream:
        size = sizes[len(cut) % len(sizes)]
        cut.append(stream[:size])
        stream = stream[size:]
    whole, torn = relayed(*chunks), relayed(*cut)
    assert body_of(whole[0]) == body_of(torn[0]) == body_of(relayed(b"".join(chunks))[0])
    assert whole[1].end is torn[1].end


async def test_bytes_that_look_like_a_chunk_inside_a_chunk_are_data() -> None:
    inner = framed(event("inner"))
    outer = event("a") + inner + event("b")
    size = b"%x\r\n" % len(outer)
    sent, _, _ = relayed(HEAD + framed(event("first")), framed(event("x")), size + event("a"), inner, event("b") + END)
    assert body_of(sent).endswith(event("x") + outer)


async def test_a_client_that_closes_ends_the_engine_s_work_at_the_next_chunk() -> None:
    sent, relay, up = relayed(HEAD + framed(event("a")), framed(event("b")))
    relay._answer.transport.abort()
    up._transport.protocol.data_received(framed(event("c")))  # type: ignore[union-attr]
    assert relay.end.value == "client left"
    assert up.is_closed
    assert event("c") not in sent


async def test_a_running_reply_tells_that_its_engine_lives() -> None:
    told: list[float] = []
    relayed(HEAD + framed(event("a")), *(framed(event("b")) for _ in range(5)), heard=told.append)
    assert 1 <= len(told) <= 3


TYPED: dict[Protocol, tuple[bytes, bytes]] = {
    "openai_responses": (
        b'event: response.output_text.delta\ndata: {"type":"response.output_text.delta","delta":"a"}\n\n',
        b'event: response.completed\ndata: {"type":"response.completed","response":{"status":"completed"}}\n\n',
    ),
    "anthropic": (
        b'event: content_block_delta\ndata: {"type":"content_block_delta","delta":{"text":"a"}}\n\n',
        b'event: message_stop\ndata: {"type":"message_stop"}\n\n',
    ),
    "ollama_chat": (
        b'{"message":{"role":"assistant","content":"a"},"done":false}\n',
        b'{"message":{"role":"assistant","content":""},"done":true,"prompt_eval_count":3,"eval_count":4}\n',
    ),
}
"""Protocol -> an event with output, and the last event."""


@pytest.mark.parametrize("protocol", TYPED)
async def test_chunks_of_every_protocol_go_out_as_they_came_until_the_end_is_seen(protocol: Protocol) -> None:
    token, last = TYPED[protocol]
    head = HEAD.replace(b"text/event-stream", b"application/x-ndjson") if protocol == "ollama_chat" else HEAD
    _, _, running = relayed(head + framed(token), *(framed(token) for _ in range(3)), protocol=protocol)
    assert running._transport.protocol is not running  # type: ignore[union-attr]
    sent, relay, _ = relayed(head, *map(framed, [token, token, token, last]), LAST, protocol=protocol)
    assert body_of(sent) == token * 3 + last
    assert relay.tap is not None
    assert relay.tap.ending is Ending.COMPLETED
    assert relay.end.value == "whole"


@pytest.mark.parametrize("protocol", TYPED)
async def test_a_stream_whose_engine_dies_gets_the_failure_of_its_protocol_and_no_last_chunk(
    protocol: Protocol,
) -> None:
    token, _ = TYPED[protocol]
    head = HEAD.replace(b"text/event-stream", b"application/x-ndjson") if protocol == "ollama_chat" else HEAD
    half = b"%x\r\n" % len(token) + token[:-9]
    _, relay, up = relayed(head + framed(token), framed(token), half, protocol=protocol)
    up.connection_lost(None)
    assert relay.end.value == "died mid reply"
    wire: Any = relay._answer.transport
    assert body_of(wire.sent).startswith(token * 2)
    assert b"error" in body_of(wire.sent)[len(token) * 2 :]
    assert not wire.sent.endswith(LAST)


class Running:
    """The reply and the tap of a stream between two events."""

    is_between = True
    signs = make_tap("openai_chat", streamed=True, content_type="text/event-stream", strip_usage=True).bare.signs
    error: Exception | None = None

    def client_left(self) -> None:
        raise AssertionError

    def fault(self, error: Exception) -> None:
        self.error = error

    def feed(self, data: bytes) -> bytes:
        return data


@asynccontextmanager
async def to_client() -> AsyncIterator[tuple[Flow, asyncio.StreamReader, asyncio.WriteTransport, Running]]:
    """The short way to a client at the other end of a small socket, who reads when asked to."""
    ours, theirs = socket.socketpair()
    ours.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
    client, away = await asyncio.open_connection(sock=theirs, limit=4096)
    wire, _ = await asyncio.get_running_loop().create_connection(asyncio.Protocol, sock=ours)
    running: Any = Running()

    def parse(read: bytes) -> None:
        raise AssertionError(read)

    try:
        yield steady(running, running, wire, time.monotonic, lambda _: None, parse)[1], client, wire, running
    finally:
        wire.abort()
        away.close()


async def test_what_a_slow_client_s_socket_does_not_take_at_once_comes_in_order() -> None:
    chunks = [framed(event(f"{number:04} " * 20)) for number in range(3000)]
    async with to_client() as (take, client, wire, running):
        got = b""
        for number, chunk in enumerate(chunks):
            take(chunk)
            if number % 100 == 0:  # some go straight to the socket, some wait in the transport, one is parted
                got += await client.read(20_000)
        assert wire.get_write_buffer_size() > 0
        whole = b"".join(chunks)
        assert got + await client.readexactly(len(whole) - len(got)) == whole
        assert running.error is None


async def test_a_client_that_is_gone_is_found_out_by_its_transport_and_is_no_fault_of_the_engine_s() -> None:
    async with to_client() as (take, client, wire, running):
        client._transport.abort()  # type: ignore[attr-defined]
        while not wire.is_closing():
            take(framed(event("a")))
            await asyncio.sleep(0)
        assert running.error is None
