"""An HTTP/1.1 server double with all its framing in hand: it answers, hangs, resets and dies as a test says.

It knows nothing of engines; those are built on it. Nothing here sleeps.
"""

import asyncio
import json
import socket
import ssl
import struct
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import Any, Self

import msgspec

from pharos.clock import Clock, monotonic

ACCEPTING = 4
"""Turns of the loop between a connection that was accepted and its protocol."""
LINGER_NONE = struct.pack("ii", 1, 0)
REASONS = {
    200: "OK",
    302: "Found",
    400: "Bad Request",
    401: "Unauthorized",
    404: "Not Found",
    503: "Service Unavailable",
}


class Seen(msgspec.Struct, frozen=True):
    """One request as it arrived."""

    at: float
    method: str
    path: str
    headers: Mapping[str, str]
    body: bytes = b""

    def json(self) -> Any:
        return json.loads(self.body)


class Reply(msgspec.Struct, frozen=True):
    """A whole reply with its length."""

    status: int = 200
    body: bytes = b""
    headers: Mapping[str, str] = {}


class Raw(msgspec.Struct, frozen=True):
    """Bytes sent as they are, then the connection closes; `endless` is repeated until the client goes."""

    data: bytes
    endless: bytes = b""


class Hang(msgspec.Struct, frozen=True):
    """Takes the request, sends `data`, then nothing more."""

    data: bytes = b""


class Reset(msgspec.Struct, frozen=True):
    """Sends `data`, then resets the connection."""

    data: bytes = b""


Answer = Reply | Raw | Hang | Reset


class Connection(asyncio.Protocol):
    """One client connection; requests on it are answered in order."""

    def __init__(self, owner: "HttpDouble") -> None:
        self._owner = owner
        self._buffer = b""
        self._task: asyncio.Task[None] | None = None
        self._writable = asyncio.Event()
        self._writable.set()
        self.transport: asyncio.Transport
        self.lost = False
        self.wants_close = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        self._owner.connections.append(self)
        if not self._owner.is_listening:  # it was accepted as the double died
            transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002
        self.lost = True
        self._writable.set()
        if self in self._owner.connections:
            self._owner.connections.remove(self)
        self._owner.changed()
        if self._task is not None:
            self._task.cancel()

    def pause_writing(self) -> None:
        self._writable.clear()

    def resume_writing(self) -> None:
        self._writable.set()

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        self._next()

    def _next(self) -> None:
        if self._task is not None or self.lost:
            return
        cut = take_request(self._buffer, self._owner.clock())
        if cut is not None:
            request, self._buffer = cut
            self.wants_close = request.headers.get("connection", "").lower() == "close"
            self._owner.seen.append(request)
            self._task = asyncio.get_running_loop().create_task(self._serve(request))

    async def _serve(self, request: Seen) -> None:
        try:
            await self._owner.serve(request, self)
        except Exception as error:  # noqa: BLE001 (raised at the end of the double's `async with`)
            self._owner.faults.append(error)
            self.transport.abort()
        finally:
            self._task = None
            if not self.lost and self.wants_close:
                self.transport.close()
            elif not self.lost:
                self._next()

    async def write(self, data: bytes) -> None:
        """Write and wait while the client does not take it."""
        self.transport.write(data)
        self._owner.written += len(data)
        await self._writable.wait()

    async def head(self, status: int, headers: Mapping[str, str]) -> None:
        lines = [f"HTTP/1.1 {status} {REASONS.get(status, 'Status')}"]
        lines += [f"{name}: {value}" for name, value in headers.items()]
        if self.wants_close:
            lines.append("Connection: close")
        await self.write("\r\n".join([*lines, "", ""]).encode("latin-1"))

    async def chunk(self, data: bytes) -> None:
        """One piece of a chunked body; an empty piece ends it."""
        await self.write(b"%x\r\n%s\r\n" % (len(data), data))

    async def send(self, answer: Answer) -> None:
        match answer:
            case Reply():
                await self.head(answer.status, {**answer.headers, "Content-Length": str(len(answer.body))})
                await self.write(answer.body)
            case Raw():
                await self.write(answer.data)
                while answer.endless and not self.lost:
                    await self.write(answer.endless)
                    await asyncio.sleep(0)
                self.transport.close()
            case Hang():
                await self.write(answer.data)
                await asyncio.get_running_loop().create_future()
            case Reset():
                await self.write(answer.data)
                self.reset()

    def reset(self) -> None:
        """End the connection as a crashed peer would: RST, nothing flushed."""
        sock = self.transport.get_extra_info("socket")
        if sock is not None:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, LINGER_NONE)
        self.transport.abort()


def take_request(buffer: bytes, at: float) -> tuple[Seen, bytes] | None:
    """The first whole request of a buffer and the rest, or `None` when it is not complete."""
    head, found, rest = buffer.partition(b"\r\n\r\n")
    if not found:
        return None
    first, *lines = head.decode("latin-1").split("\r\n")
    method, path, _ = first.split(" ", 2)
    headers = {name.strip().lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
    if headers.get("transfer-encoding", "").lower() == "chunked":
        body = b""
        while True:
            size_line, found, rest = rest.partition(b"\r\n")
            if not found:
                return None
            size = int(size_line.partition(b";")[0], 16)
            if len(rest) < size + 2:
                return None
            body, rest = body + rest[:size], rest[size + 2 :]
            if size == 0:
                return Seen(at, method, path, headers, body), rest
    length = int(headers.get("content-length", "0"))
    if len(rest) < length:
        return None
    return Seen(at, method, path, headers, rest[:length]), rest[length:]


class HttpDouble:
    """Listens on 127.0.0.1 inside `async with`; unknown paths are 404.

    `answers` maps a path to what is sent instead of the double's own reply; `seen` is every request in order.
    """

    def __init__(self, *, port: int = 0, clock: Clock = monotonic, tls: ssl.SSLContext | None = None) -> None:
        self.port = port
        self.clock = clock
        self.tls = tls
        """What it speaks TLS with."""
        self.seen: list[Seen] = []
        self.answers: dict[str, Answer] = {}
        self.every: Answer | None = None
        """When set, the answer to every path."""
        self.connections: list[Connection] = []
        self.written = 0
        """Bytes sent in all."""
        self.faults: list[Exception] = []
        """Errors of the double itself: the first is raised when its `async with` ends."""
        self._listener: asyncio.Server | None = None
        self._changed = asyncio.Event()

    @property
    def url(self) -> str:
        return f"{'http' if self.tls is None else 'https'}://127.0.0.1:{self.port}"

    @property
    def is_listening(self) -> bool:
        """Whether clients can connect."""
        return self._listener is not None

    @property
    def paths(self) -> list[str]:
        """The path of every request seen, in order."""
        return [request.path for request in self.seen]

    async def start(self) -> None:
        loop = asyncio.get_running_loop()
        self._listener = await loop.create_server(lambda: Connection(self), "127.0.0.1", self.port, ssl=self.tls)
        self.port = self._listener.sockets[0].getsockname()[1]

    def kill(self) -> None:
        """Die at once, as a killed process: the port is closed and every connection cut where it stands."""
        if self._listener is not None:
            self._listener.close()
            self._listener = None
        for connection in list(self.connections):
            connection.transport.abort()

    async def restart(self) -> None:
        """Listen again on the same port."""
        self.kill()
        await self.start()

    async def serve(self, request: Seen, connection: Connection) -> None:
        """Answer one request. A subclass overrides `respond`."""
        self.changed()
        answer = self.every if self.every is not None else self.answers.get(request.path)
        if answer is not None:
            await connection.send(answer)
        else:
            await self.respond(request, connection)

    async def respond(self, request: Seen, connection: Connection) -> None:  # noqa: ARG002
        await connection.send(Reply(404, b"not found", {"Content-Type": "text/plain"}))

    def changed(self) -> None:
        """Wake whoever waits in `until`."""
        self._changed.set()
        self._changed = asyncio.Event()

    async def until(self, condition: Callable[[], bool]) -> None:
        """Wait, without polling, until `condition()` holds; the test's own time limit bounds it."""
        while not condition():
            await self._changed.wait()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.kill()
        for _ in range(ACCEPTING):
            await asyncio.sleep(0)
        await self.until(lambda: not self.connections)
        if self.faults and error is None:
            raise self.faults[0]
