"""A scripted engine on real sockets: it imitates no engine, it does exactly what a test's script says."""

import asyncio
import contextlib
import socket
import ssl
import struct
from collections.abc import Awaitable, Callable

WAIT_S = 5.0


class Turn:
    """One request and the means to answer it."""

    def __init__(
        self, engine: "ScriptedEngine", head: bytes, body: bytes, writer: asyncio.StreamWriter, connection: int
    ) -> None:
        self.engine = engine
        self.head = head
        self.body = body
        self.connection = connection
        self.is_over = False
        self._writer = writer

    @property
    def line(self) -> str:
        return self.head.split(b"\r\n", 1)[0].decode()

    @property
    def headers(self) -> list[tuple[str, str]]:
        pairs = (line.split(b":", 1) for line in self.head.split(b"\r\n")[1:] if line)
        return [(name.decode().lower(), value.strip().decode("latin-1")) for name, value in pairs]

    def header(self, name: str) -> list[str]:
        return [value for key, value in self.headers if key == name]

    async def write(self, data: bytes) -> None:
        self._writer.write(data)
        await self._writer.drain()

    async def chunk(self, data: bytes) -> None:
        await self.write(b"%x\r\n%b\r\n" % (len(data), data))

    async def sse_head(self, extra: bytes = b"") -> None:
        await self.write(
            b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n" + extra + b"Transfer-Encoding: chunked\r\n\r\n"
        )

    async def reply(self, status: int, body: bytes, extra: bytes = b"", kind: bytes = b"application/json") -> None:
        await self.write(
            b"HTTP/1.1 %d Status\r\nContent-Type: %b\r\n%bContent-Length: %d\r\n\r\n%b"
            % (status, kind, extra, len(body), body)
        )

    def close(self) -> None:
        """A plain end of the connection."""
        self.is_over = True
        self._writer.close()

    def reset(self) -> None:
        """A hard one: RST."""
        self.is_over = True
        sock = self._writer.get_extra_info("socket")
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self._writer.transport.abort()

    @property
    def unread(self) -> int:
        """Bytes that the other side has not taken from this process yet."""
        return self._writer.transport.get_write_buffer_size()

    async def until_closed(self) -> None:
        """Until the other side closes."""
        async with asyncio.timeout(WAIT_S):
            with contextlib.suppress(ConnectionError):
                while await self.engine.readers[self.connection].read(65536):
                    pass
        self.is_over = True


Script = Callable[[Turn], Awaitable[None]]


class ScriptedEngine:
    """Plays `script` for every request it gets."""

    def __init__(self, script: Script, tls: ssl.SSLContext | None = None) -> None:
        self.script = script
        self.tls = tls
        self.turns: list[Turn] = []
        self.connections = 0
        self.readers: dict[int, asyncio.StreamReader] = {}
        self.came = asyncio.Condition()
        self._tasks: set[asyncio.Task[None]] = set()
        self._writers: list[asyncio.StreamWriter] = []
        self._server: asyncio.Server | None = None
        self.port = 0
        self.faults: list[BaseException] = []

    @property
    def url(self) -> str:
        return f"{'http' if self.tls is None else 'https'}://127.0.0.1:{self.port}"

    async def start(self) -> None:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", self.port, ssl=self.tls)
        self.port = self._server.sockets[0].getsockname()[1]

    async def stop(self) -> None:
        assert self._server is not None
        self._server.close()
        for writer in self._writers:
            writer.transport.abort()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        assert not self.faults, self.faults

    async def got(self, count: int) -> Turn:
        """Wait for the request with this number, from 1."""
        async with asyncio.timeout(WAIT_S), self.came:
            await self.came.wait_for(lambda: len(self.turns) >= count)
        return self.turns[count - 1]

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        self._writers.append(writer)
        self.connections += 1
        number = self.connections
        self.readers[number] = reader
        try:
            while not await self._one(reader, writer, number):
                pass
        except (ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
            pass
        except Exception as error:  # noqa: BLE001 - told by stop()
            self.faults.append(error)
        finally:
            writer.close()
            self._tasks.discard(task)

    async def _one(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, number: int) -> bool:
        head = await reader.readuntil(b"\r\n\r\n")
        turn = Turn(self, head, b"", writer, number)
        (length,) = turn.header("content-length")
        turn.body = await reader.readexactly(int(length))
        self.turns.append(turn)
        async with self.came:
            self.came.notify_all()
        await self.script(turn)
        return turn.is_over
