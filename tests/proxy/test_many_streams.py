"""Many streams at once and very large replies: others are still answered, little is held, and nothing is left over."""

import asyncio
import gc
import hashlib
import json
import resource
from collections.abc import Iterator
from typing import Any

import pytest

from pharos.proxy.relay import Relay
from pharos.proxy.settings import MIB, ProxySettings
from pharos.proxy.upstream import IDLE_LIMIT
from tests.proxy.engine_script import WAIT_S, Turn
from tests.proxy.harness import DONE, Front, RawClient, chat, event, front

MANY = 1000
FLOWING = 20
"""Streams that send one event after another while others are asked about; the rest stands open."""
LONG_S = 60.0
"""Longest wait for a thousand of something; reached only when a test fails."""


@pytest.fixture
def _open_files() -> Iterator[None]:
    """Four sockets for each stream, since engine and clients are in this process too."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = 5 * MANY
    if soft != resource.RLIM_INFINITY and soft < wanted:
        if hard != resource.RLIM_INFINITY and hard < wanted:
            pytest.skip("this system does not allow so many open files")
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


class Engine:
    """Answers with one event, then flows or stands still until it is told to end."""

    def __init__(self) -> None:
        self.begun = 0
        self.rounds = 0
        """How many events each flowing stream has sent at least."""
        self.end = asyncio.Event()
        self.late = asyncio.Event()
        self._sent: dict[Turn, int] = {}

    async def __call__(self, turn: Turn) -> None:
        if b'"stream": true' not in turn.body:
            await turn.reply(200, b'{"choices":[{"message":{"content":"x"}}]}')
            return
        self.begun += 1
        await turn.sse_head()
        await turn.chunk(event("first"))
        if self.begun <= FLOWING:
            await self._flow(turn)
        else:
            await self.end.wait()
        await turn.chunk(event("last") + DONE)
        await turn.write(b"0\r\n\r\n")

    async def _flow(self, turn: Turn) -> None:
        self._sent[turn] = 0
        while not self.end.is_set():
            await turn.chunk(event())
            self._sent[turn] += 1
            self.rounds = min(self._sent.values())
            await asyncio.sleep(0)


def page(_query: object, _accept: str, _is_admin: bool) -> tuple[int, str, bytes]:  # noqa: FBT001
    return 200, "text/plain", b"metrics"


async def opened(pharos: Front, count: int) -> list[RawClient]:
    """So many clients whose streams have begun, each with a prompt of 8 KiB."""
    body = chat(filler="x" * 8192)
    clients = []
    for _ in range(count):
        client = await pharos.client()
        client.post(body)
        clients.append(client)
    for client in clients:
        await client.until(b'"first"')
    return clients


async def nothing_left(pharos: Front) -> None:
    async with asyncio.timeout(LONG_S):
        while pharos.proxy.connections or pharos.proxy.inflight or pharos.inflight:
            await asyncio.sleep(0)
    assert pharos.ledger.leased == pharos.ledger.waiting == 0
    assert pharos.proxy.routes.buffers.used == 0
    async with asyncio.timeout(LONG_S):  # until no relay outlives its request
        while _relays():
            await asyncio.sleep(0)


def _relays() -> int:
    gc.collect()
    return sum(isinstance(it, Relay) for it in gc.get_objects())


@pytest.mark.usefixtures("_open_files")
async def test_b51_a_thousand_streams_and_large_bodies_keep_nobody_from_being_answered() -> None:
    engine = Engine()
    async with front(engine, capacity=2 * MANY, pages={"/metrics": page}) as (pharos, scripted):
        async with asyncio.timeout(LONG_S):
            clients = await opened(pharos, MANY)
        assert pharos.inflight == MANY
        assert pharos.proxy.routes.buffers.used == 0, "no prompt is kept once its reply has begun"
        large = [await pharos.client() for _ in range(20)]
        for client in large:
            client.post(chat(stream=False, filler="x" * (MIB // 2)))
        asking = await pharos.client()
        for path in ("/healthz", "/livez", "/metrics", "/v1/models", "/healthz"):
            before = engine.rounds
            asking.get(path)
            assert (await asking.reply()).status == 200, path
            assert engine.rounds - before < 100, "it waited for its turn and not for the streams"
        for client in large:
            assert (await client.reply()).status == 200
        assert pharos.inflight == MANY
        before = engine.rounds
        async with asyncio.timeout(LONG_S):
            while engine.rounds < before + 3:  # the streams go on
                await asyncio.sleep(0)
            engine.end.set()
            for client in clients:
                assert (await client.until(b"0\r\n\r\n")).endswith(DONE + b"\r\n0\r\n\r\n")
            await pharos.finished(MANY + len(large))
        assert {done.status for done in pharos.done} == {200}
        assert pharos.proxy.pool.idle(scripted.url) <= IDLE_LIMIT
        for client in [*clients, *large, asking]:
            client.close()
        await nothing_left(pharos)


@pytest.mark.usefixtures("_open_files")
async def test_clients_that_leave_all_at_once_leave_nothing_behind() -> None:
    async def play(turn: Turn) -> None:
        await turn.sse_head()
        await turn.chunk(event("first"))
        await turn.until_closed()

    count = 300
    async with front(play, capacity=count // 2) as (pharos, engine):
        clients = await opened(pharos, count // 2)
        waiting = []
        for _ in range(count - len(clients)):
            client = await pharos.client()
            client.post(chat())
            waiting.append(client)
        async with asyncio.timeout(WAIT_S):
            while pharos.ledger.waiting < len(waiting):
                await asyncio.sleep(0)
        for client in [*waiting, *clients]:
            client.writer.transport.abort()
        await nothing_left(pharos)
        async with asyncio.timeout(WAIT_S):
            while not all(turn.is_over for turn in engine.turns):
                await asyncio.sleep(0)
        assert {done.status for done in pharos.done} == {499}


# --- large replies

SIZE = 30_000_000
HELD = 768 * 1024
"""Bytes of a reply that may be on their way through at once: the high-water mark of a transport, a read, two ends."""
NUMBERS = b"0.012345678901," * 4096
USAGE = b'],"model":"m","usage":{"prompt_tokens":8,"total_tokens":8}}'


async def embeddings(turn: Turn, sent: Any, *, chunked: bool) -> None:
    count = SIZE // len(NUMBERS)
    start = b'{"object":"list","data":['
    length = len(start) + count * len(NUMBERS) + 1 + len(USAGE)
    framing = b"Transfer-Encoding: chunked" if chunked else b"Content-Length: %d" % length
    await turn.write(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n" + framing + b"\r\n\r\n")
    for part in (start, *[NUMBERS] * count, b"0" + USAGE):
        sent(part)
        await (turn.chunk(part) if chunked else turn.write(part))
    if chunked:
        await turn.write(b"0\r\n\r\n")


def held_of(pharos: Front) -> int:
    """Bytes of replies that Pharos holds for its clients."""
    total = 0
    for connection in pharos.proxy.connections:
        total += connection.wire.get_write_buffer_size() if connection.wire is not None else 0
        relay = connection.relay
        if relay is not None and relay.tap is not None:
            ends: Any = relay.tap._ends  # type: ignore[attr-defined]  # of a reply in one piece
            total += len(ends._head) + len(ends._tail)
        if relay is not None and relay._up is not None:
            total += sum(map(len, relay._up._parts))
    return total


@pytest.mark.parametrize("chunked", [False, True])
async def test_embeddings_of_30_mb_pass_unchanged_with_little_of_them_held_and_are_counted(*, chunked: bool) -> None:
    wanted, most = hashlib.sha256(), 0

    def sent(part: bytes) -> None:
        nonlocal most
        wanted.update(part)
        most = max(most, held_of(pharos))

    async def play(turn: Turn) -> None:
        await embeddings(turn, sent, chunked=chunked)

    async with front(play) as (pharos, _):
        client = await pharos.client()
        client.post(json.dumps({"model": "m", "input": ["a"]}).encode(), path="/v1/embeddings")
        await client.head()
        got = hashlib.sha256()
        size = 0
        async for part in body_of(client, chunked=chunked):
            got.update(part)
            size += len(part)
        assert size > SIZE - len(NUMBERS)
        assert got.digest() == wanted.digest()
        usage = (await pharos.finished()).usage
        assert usage is not None
        assert usage.prompt_tokens == 8
        assert 0 < most < HELD
        client.close()
        await nothing_left(pharos)


async def body_of(client: RawClient, *, chunked: bool) -> Any:
    """The pieces of a body, as they come."""
    if chunked:
        while size := int((await client.reader.readuntil(b"\r\n")), 16):
            yield (await client.reader.readexactly(size + 2))[:-2]
        return
    async with asyncio.timeout(LONG_S):
        tail = b""
        while not tail.endswith(USAGE):
            part = await client.reader.read(1 << 18)
            assert part
            tail = (tail + part)[-len(USAGE) :]
            yield part


async def test_several_large_replies_to_clients_that_do_not_read_hold_little_each() -> None:
    sizes: list[int] = []

    async def play(turn: Turn) -> None:
        await embeddings(turn, lambda _part: sizes.append(held_of(pharos)), chunked=False)

    async with front(play, settings=ProxySettings()) as (pharos, engine):
        clients = [await pharos.client() for _ in range(4)]
        for client in clients:
            client.writer.transport.pause_reading()
            client.post(b'{"model":"m","input":["a"]}', path="/v1/embeddings")
        await engine.got(4)
        async with asyncio.timeout(WAIT_S):
            while not all(connection.writing_paused for connection in pharos.proxy.connections):
                await asyncio.sleep(0)
        for _ in range(100):
            await asyncio.sleep(0)
        assert held_of(pharos) < 4 * HELD
        assert max(sizes) < 4 * HELD
        for client in clients:
            client.writer.transport.abort()
        await nothing_left(pharos)
        assert {done.status for done in pharos.done} == {499}


@pytest.mark.parametrize("how", ["client leaves", "whole", "engine dies", "refused"])
@pytest.mark.parametrize("stream", [False, True])
async def test_what_a_request_leaves_is_freed_at_once_and_not_by_a_search_for_garbage(
    how: str, *, stream: bool
) -> None:
    """Such a search walks all that lives: beside thousands of streams it holds them up for tens of milliseconds."""

    async def play(turn: Turn) -> None:
        if b'"filler"' in turn.body or how == "refused":
            await turn.reply(200 if how != "refused" else 400, b"{}")
            return
        if stream:
            await turn.sse_head()
            await turn.chunk(event("first"))
        if how == "whole":
            await (turn.write(b"e\r\n" + DONE + b"\r\n0\r\n\r\n") if stream else turn.reply(200, b"{}"))
        elif how == "engine dies":
            turn.close()
        else:
            await turn.until_closed()

    settings = ProxySettings(retry_attempts=0)
    async with front(play, capacity=100, settings=settings) as (pharos, engine):
        gc.collect()
        gc.disable()
        try:
            for number in range(1, 11):
                pharos.bring_up("a")
                if number % 2:  # a connection kept from the last one, and a new one
                    await pharos.ask(chat(stream=False, filler="x"))
                client = await pharos.client()
                client.post(chat(stream=stream))
                async with asyncio.timeout(WAIT_S):
                    while sum(b'"filler"' not in turn.body for turn in engine.turns) < number:
                        await asyncio.sleep(0)
                if stream and how == "client leaves":
                    await client.until(b'"first"')
                if how != "client leaves":
                    await client.reply()
                client.writer.transport.abort()
            async with asyncio.timeout(WAIT_S):
                while pharos.proxy.inflight or any(isinstance(it, Relay) for it in gc.get_objects()):
                    await asyncio.sleep(0)
        finally:
            gc.enable()
