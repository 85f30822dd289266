"""Sends generated streams through a whole proxy and compares what engines got with what the strict reader says.

The client has no socket, so that each read is exactly one piece. Time is the loop's own and jumps when nothing happens.
"""

import asyncio
import logging
import random
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from itertools import count
from typing import Any, cast

from pharos.proxy.client import ClientConnection
from pharos.proxy.head import CONTINUE
from tests.proxy.engine_script import ScriptedEngine, Turn
from tests.proxy.harness import Front, front
from tests.proxy.malformed import grammar, reference
from tests.proxy.malformed.case import MARK
from tests.proxy.malformed.leftovers import leftovers

OWN = frozenset({200, 400, 404, 405, 408, 413, 415, 417, 431, 505})
"""What Pharos may answer when its engine is well."""
QUIET = 10
"""Turns of the loop without a change after which nothing more happens by itself."""
WAITS = (31.0, 2.0, 31.0, 2.0, 621.0, 2.0)
"""Seconds after which a connection must have been answered or closed: for a head or a piece of a body, to linger."""


class Loop(asyncio.SelectorEventLoop):
    """Its time can be put forward."""

    ahead = 0.0

    def time(self) -> float:
        return super().time() + self.ahead


class Wire(asyncio.Transport):
    """A client's transport in memory."""

    def __init__(self, connection: ClientConnection) -> None:
        super().__init__()
        self.connection = connection
        self.sent = b""
        self.is_reading = True
        self.is_closed = False

    def write(self, data: Any) -> None:
        self.sent += bytes(data)

    def close(self) -> None:
        if not self.is_closed:
            self.is_closed = True
            asyncio.get_running_loop().call_soon(self.connection.connection_lost, None)

    def abort(self) -> None:
        self.close()

    def is_closing(self) -> bool:
        return self.is_closed

    def can_write_eof(self) -> bool:
        return True

    def write_eof(self) -> None:
        pass

    def get_write_buffer_size(self) -> int:
        return 0

    def pause_reading(self) -> None:
        self.is_reading = False

    def resume_reading(self) -> None:
        self.is_reading = True


class Tally:
    """What was run and seen."""

    def __init__(self) -> None:
        self.streams = 0
        self.requests = 0
        self.reached = 0
        self.ends: Counter[str] = Counter()
        self.statuses: Counter[int] = Counter()


def run(seed: int, requests: int, progress: Callable[[Tally], None] = lambda _: None) -> Tally:
    """Send so many generated requests. Raises AssertionError that names the first stream that went wrong."""

    def made() -> Iterator[tuple[str, grammar.Sent]]:
        total = 0
        for number in count():
            name = f"{seed}/{number}"
            sent = grammar.stream(random.Random(name))
            yield name, sent
            total += sent.requests
            if total >= requests:
                return

    return run_streams(made(), progress)


def run_streams(
    streams: Iterable[tuple[str, grammar.Sent]], progress: Callable[[Tally], None] = lambda _: None
) -> Tally:
    """Send these, each on a connection of its own. Raises as `run`."""
    with asyncio.Runner(loop_factory=Loop) as runner:
        return runner.run(_run(streams, progress))


async def _run(streams: Iterable[tuple[str, grammar.Sent]], progress: Callable[[Tally], None]) -> Tally:
    tally = Tally()
    async with front(_ok, kind="ollama") as (pharos, engine):
        for name, sent in streams:
            try:
                await _one(pharos, engine, sent, tally)
            except Exception as error:
                raise AssertionError(f"stream {name}: {error!r}\n{sent.pieces}") from error
            tally.streams += 1
            tally.requests += sent.requests
            progress(tally)
    return tally


async def _ok(turn: Turn) -> None:
    await turn.reply(200, b'{"ok":true,"done":true}')  # a whole answer in Ollama's protocol too


async def _one(pharos: Front, engine: ScriptedEngine, sent: grammar.Sent, tally: Tally) -> None:
    engine.turns.clear()
    listener = pharos.proxy._listener
    assert listener is not None
    connection = cast("ClientConnection", listener())
    wire = Wire(connection)
    connection.connection_made(wire)
    for piece in sent.pieces:
        while not wire.is_reading and not wire.is_closed:
            await asyncio.sleep(0)
        if wire.is_closed:
            break
        connection.data_received(piece)
        if len(piece) % 3:  # some come in one turn of the loop, others slower
            await asyncio.sleep(0)
    await _settled(pharos, connection)
    expected = reference.read(sent.data)
    _check_engine(engine, expected, is_spoiled=not sent.is_whole)
    for seconds in WAITS:
        if wire.is_closed:
            break
        cast("Loop", asyncio.get_running_loop()).ahead += seconds
        await _settled(pharos, connection)
    assert wire.is_closed, "it hangs"
    await _settled(pharos, connection)
    assert not leftovers(pharos), leftovers(pharos)
    _check_engine(engine, expected, is_spoiled=not sent.is_whole)
    _check_answers(wire.sent, expected, sent, tally)
    tally.ends[expected.end] += 1
    tally.reached += len(engine.turns)
    if sent.is_whole and sent.requests == 1 and expected.requests[0].method == b"POST":
        assert len(engine.turns) == 1, "a good request is refused"


async def _settled(pharos: Front, connection: ClientConnection) -> None:
    quiet = 0
    while quiet < QUIET:
        await asyncio.sleep(0)
        body = connection._payload
        has_all = connection.is_busy and body is not None and body.is_eof()  # what is done then waits for an engine
        is_working = has_all or pharos.inflight or connection._is_coming
        quiet = 0 if is_working else quiet + 1


def _check_engine(engine: ScriptedEngine, expected: reference.Stream, *, is_spoiled: bool) -> None:
    sent = iter(expected.requests)
    for turn in engine.turns:
        stream = reference.read(turn.head + turn.body)
        assert (len(stream.requests), stream.end) == (1, "clean"), turn.head
        (got,) = stream.requests
        assert (len(got.values(b"content-length")), got.values(b"transfer-encoding")) == (1, [])
        assert is_spoiled or MARK not in turn.head
        assert any(got.is_in(one) for one in sent), f"an engine got {turn.line!r} {got.body!r}, of {expected}"


def _check_answers(got: bytes, expected: reference.Stream, sent: grammar.Sent, tally: Tally) -> None:
    assert MARK not in got
    told = reference.replies(got.replace(CONTINUE, b""))
    assert all(reply.is_whole for reply in told), got
    assert len(told) <= len(expected.requests) + 1, "more answers than requests"
    for reply in told:
        assert reply.status in OWN, got
        tally.statuses[reply.status] += 1
    if sent.is_whole:
        assert told, "no answer to a good request"
        assert told[0].status in (200, 404)


class Log(logging.Handler):
    """Keeps what is logged."""

    def __init__(self) -> None:
        super().__init__(logging.DEBUG)
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(self.format(record))
