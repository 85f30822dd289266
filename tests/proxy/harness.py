"""A whole data plane over scripted engines, and a client that shows every byte it gets."""

import asyncio
import contextlib
import hashlib
import json
import ssl
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from typing import Any

from pharos.core.engine.plan import Plan, Round
from pharos.core.fleet import BackendSpec, Event, Fleet
from pharos.core.fleet.names import Aliases
from pharos.core.sched import Ledger
from pharos.core.signals import BACKEND, Reading, Signal
from pharos.proxy.auth import Key, Keyring
from pharos.proxy.done import Done
from pharos.proxy.gate import Gate
from pharos.proxy.identity import Identity
from pharos.proxy.incoming import PageView
from pharos.proxy.ollama import LastPage, no_page
from pharos.proxy.quotas import Quotas
from pharos.proxy.server import Proxy
from pharos.proxy.settings import ProxySettings
from tests.proxy.engine_script import WAIT_S, Script, ScriptedEngine

KEY = "pk-test"
DONE = b"data: [DONE]\n\n"


def event(text: str = "hi", **more: Any) -> bytes:
    """One content event of a chat stream."""
    data = {"id": "x", "object": "chat.completion.chunk", "choices": [{"index": 0, "delta": {"content": text}}], **more}
    return b"data: " + json.dumps(data).encode() + b"\n\n"


USAGE = {"prompt_tokens": 7, "completion_tokens": 3, "total_tokens": 10}
USAGE_EVENT = b"data: " + json.dumps({"choices": [], "usage": USAGE}).encode() + b"\n\n"


def chat(model: str = "m", *, stream: bool = True, **more: Any) -> bytes:
    """A chat body."""
    return json.dumps(
        {"model": model, "messages": [{"role": "user", "content": "hi"}], "stream": stream, **more}
    ).encode()


class Reply:
    """A whole HTTP reply, with its bytes as they came."""

    def __init__(self, head: bytes, body: bytes, *, is_whole: bool, raw: bytes) -> None:
        self.head = head
        self.body = body
        self.is_whole = is_whole
        """Whether it ended as its framing says."""
        self.raw = raw

    @property
    def status(self) -> int:
        return int(self.head.split(b" ", 2)[1])

    def header(self, name: str) -> list[str]:
        pairs = (line.split(b":", 1) for line in self.head.split(b"\r\n")[1:] if line)
        return [value.strip().decode("latin-1") for key, value in pairs if key.decode().lower() == name]

    def json(self) -> Any:
        return json.loads(self.body)


class RawClient:
    """One client connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    def send(self, data: bytes) -> None:
        self.writer.write(data)

    def post(self, body: bytes, headers: str = "", path: str = "/v1/chat/completions", *, version: str = "1.1") -> None:
        self.send(
            f"POST {path} HTTP/{version}\r\nHost: pharos\r\nContent-Length: {len(body)}\r\n{headers}\r\n".encode()
            + body
        )

    def get(self, path: str, headers: str = "", method: str = "GET") -> None:
        self.send(f"{method} {path} HTTP/1.1\r\nHost: pharos\r\n{headers}\r\n".encode())

    async def head(self) -> bytes:
        async with asyncio.timeout(WAIT_S):
            return await self.reader.readuntil(b"\r\n\r\n")

    async def until(self, data: bytes) -> bytes:
        """Everything up to these bytes."""
        async with asyncio.timeout(WAIT_S):
            return await self.reader.readuntil(data)

    async def rest(self) -> tuple[bytes, bool]:
        """Everything up to the end of the connection, and whether that was a clean end."""
        got = b""
        async with asyncio.timeout(WAIT_S):
            try:
                while data := await self.reader.read(65536):
                    got += data
            except ConnectionError:
                return got, False
        return got, True

    async def reply(self, *, no_body: bool = False) -> Reply:
        head = await self.head()
        start = Reply(head, b"", is_whole=True, raw=head)
        if no_body or start.status in (204, 304):
            return start
        async with asyncio.timeout(WAIT_S):
            if start.header("content-length"):
                assert not start.header("transfer-encoding")
                return await self._by_length(head, int(start.header("content-length")[0]))
            if start.header("transfer-encoding") == ["chunked"]:
                return await self._chunked(head)
        body, clean = await self.rest()
        return Reply(head, body, is_whole=clean, raw=head + body)

    async def _by_length(self, head: bytes, length: int) -> Reply:
        try:
            body = await self.reader.readexactly(length)
        except asyncio.IncompleteReadError as cut:
            return Reply(head, cut.partial, is_whole=False, raw=head + cut.partial)
        return Reply(head, body, is_whole=True, raw=head + body)

    async def _chunked(self, head: bytes) -> Reply:
        body, raw = b"", head
        try:
            while True:
                line = await self.reader.readuntil(b"\r\n")
                data = await self.reader.readexactly(int(line, 16) + 2)
                raw += line + data
                if line == b"0\r\n":
                    return Reply(head, body, is_whole=True, raw=raw)
                body += data[:-2]
        except (asyncio.IncompleteReadError, ConnectionError):
            return Reply(head, body, is_whole=False, raw=raw)

    def close(self) -> None:
        self.writer.close()


class Front:
    """Proxy, fleet and ledger, wired as the program does it."""

    def __init__(
        self,
        specs: list[BackendSpec],
        settings: ProxySettings | None = None,
        *,
        keys: Mapping[str, Key] | None = None,
        pages: Mapping[str, PageView] | None = None,
        models: tuple[str, ...] = ("m",),
        kind: str = "openai",
        queue_size: int = 1000,
        absent_wait_s: float = 30.0,
        clock: Callable[[], float] = time.monotonic,
        identity: Identity | None = None,
        policy: str = "cost",
        last_page: LastPage = no_page,
        aliases: Aliases | None = None,
        quotas: Quotas | None = None,
    ) -> None:
        self.clock = clock
        self.fleet = Fleet(aliases)
        self.models = models
        self.kind = kind
        self.fleet.set_backends(specs, self.clock())
        for name in self.fleet.backends:
            self.bring_up(name)
        self.ledger = Ledger(self.fleet, policy=policy, queue_size=queue_size, absent_wait_s=absent_wait_s)
        self.gate = Gate(self.ledger, self.clock, lambda: 0)
        self.done: list[Done] = []
        self.events: list[Event] = []
        self._finished = asyncio.Condition()
        secrets = {} if keys is None else keys
        keyring = Keyring((hashlib.sha256(secret.encode()).hexdigest(), key) for secret, key in secrets.items())
        self.proxy = Proxy(
            settings if settings is not None else ProxySettings(),
            ledger=self.ledger,
            fleet=self.fleet,
            gate=self.gate,
            keyring=keyring,
            on_done=self._on_done,
            on_event=self.events.append,
            pages=pages if pages is not None else {},
            clock=self.clock,
            wall=time.time,
            identity=identity,
            last_page=last_page,
            quotas=quotas,
        )
        self.proxy.ready = True
        self._clients: list[RawClient] = []
        self._told: set[asyncio.Task[None]] = set()

    def bring_up(self, name: str, models: tuple[str, ...] | None = None, version: str = "1") -> None:
        """One round of a scraper that found the backend up. Its kind is as it is described, else that of all."""
        now = self.clock()
        listed = self.models if models is None else models
        reading = Reading(value=listed, at=now, probe="test", interval_s=None)
        kind = self.fleet.backends[name].spec.kind or self.kind
        plan = Plan(kind=kind, kind_source="config", version=version, active=(), dropped=())
        found = Round(readings={(Signal.MODELS, BACKEND): reading}, failed=(), read=frozenset({Signal.MODELS}))
        self.fleet.publish(self.fleet.backends[name], plan, found, now, full=True, started_at=now)

    def know_another(self) -> None:
        """Another backend has the models, too, but is away: so there is a choice, with one outcome."""
        specs = [backend.spec for backend in self.fleet.backends.values()]
        self.fleet.set_backends([*specs, BackendSpec("away", "http://127.0.0.1:9")], self.clock())
        self.bring_up("away")
        self.fleet.unreachable(self.fleet.backends["away"], "away")

    def _on_done(self, done: Done) -> None:
        self.done.append(done)
        task = asyncio.get_running_loop().create_task(self._tell())
        self._told.add(task)
        task.add_done_callback(self._told.discard)

    async def _tell(self) -> None:
        async with self._finished:
            self._finished.notify_all()

    async def finished(self, count: int = 1) -> Done:
        """Wait until so many requests have ended."""
        async with asyncio.timeout(WAIT_S), self._finished:
            await self._finished.wait_for(lambda: len(self.done) >= count)
        return self.done[count - 1]

    @property
    def inflight(self) -> int:
        """Slots taken on all targets."""
        return sum(backend.inflight for backend in self.fleet.backends.values())

    async def client(self, **options: Any) -> RawClient:
        reader, writer = await asyncio.open_connection("127.0.0.1", self.proxy.port, limit=2**24, **options)
        client = RawClient(reader, writer)
        self._clients.append(client)
        return client

    async def ask(self, body: bytes | None = None, headers: str = "", **more: Any) -> Reply:
        """One POST on a connection of its own."""
        client = await self.client()
        client.post(chat() if body is None else body, headers, **more)
        return await client.reply()

    async def fetch(self, path: str, headers: str = "", method: str = "GET") -> Reply:
        """One GET on a connection of its own."""
        client = await self.client()
        client.get(path, headers, method)
        return await client.reply(no_body=method == "HEAD")

    async def stop(self) -> None:
        for client in self._clients:
            client.writer.transport.abort()
        await self.proxy.close()
        await asyncio.gather(*self._told)


@contextlib.asynccontextmanager
async def front(
    *scripts: Script,
    capacity: int | None = 4,
    settings: ProxySettings | None = None,
    described: Sequence[Mapping[str, Any]] = (),
    tls: ssl.SSLContext | None = None,
    **more: Any,
) -> AsyncIterator[Any]:
    """`async with front(script_a, script_b) as (pharos, a, b)`: backends are named a, b, ...

    `described`: for each backend what its description says besides; `tls`: what all engines speak TLS with.
    """
    engines = [ScriptedEngine(script, tls) for script in scripts]
    for engine in engines:
        await engine.start()
    said = [*described, *({} for _ in engines[len(described) :])]
    specs = [
        BackendSpec(**{"name": chr(ord("a") + i), "url": engine.url, "capacity": capacity, **said[i]})
        for i, engine in enumerate(engines)
    ]
    pharos = Front(specs, settings, **more)
    await pharos.proxy.start("127.0.0.1:0")
    try:
        yield (pharos, *engines)
    finally:
        await pharos.stop()
        for engine in engines:
            await engine.stop()
