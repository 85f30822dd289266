"""An engine in this process that sends the beginning of a reply and dies, by every means that a socket has."""

import asyncio
import socket
import struct
from typing import Final, NamedTuple, cast

HOPS: Final = 2
"""Turns of the loop between two writes, so that each is a read of its own at the other end."""


class Play(NamedTuple):
    """What to do with the next request."""

    pieces: tuple[bytes, ...]
    way: str
    """`close`, `reset`, `silence` (nothing more, until the other side closes), or `stay` (a whole reply)."""


class Peer(asyncio.Protocol):
    """One connection."""

    def __init__(self, engine: "Mortal") -> None:
        self._engine = engine
        self._buffer = b""
        self._wire: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._wire = cast("asyncio.Transport", transport)
        self._engine.open.add(self)

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002
        self._wire = None
        self._engine.open.discard(self)
        self._engine.busy.discard(self)

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        head, mark, rest = self._buffer.partition(b"\r\n\r\n")
        if not mark:
            return
        length = next(int(line[15:]) for line in head.split(b"\r\n") if line.lower().startswith(b"content-length:"))
        if len(rest) < length:
            return
        self._buffer = rest[length:]
        self._engine.asked += 1
        self._engine.busy.add(self)
        play = self._engine.play
        self._write(list(reversed(play.pieces)), play.way)

    def _write(self, left: list[bytes], way: str) -> None:
        if self._wire is None:
            return
        if not left:
            self._engine.said += 1
            self._end(way)
            return
        self._wire.write(left.pop())
        self._hop(HOPS, left, way)

    def _hop(self, hops: int, left: list[bytes], way: str) -> None:
        loop = asyncio.get_running_loop()
        if hops:
            loop.call_soon(self._hop, hops - 1, left, way)
        else:
            self._write(left, way)

    def _end(self, way: str) -> None:
        assert self._wire is not None
        if way == "close":
            self._wire.close()
        elif way == "reset":
            reset(self._wire)
        elif way == "stay":
            self._engine.busy.discard(self)

    def abort(self) -> None:
        """End the test."""
        if self._wire is not None:
            self._wire.abort()


class Mortal:
    """The engine of one lane: it plays `play` for every request."""

    def __init__(self) -> None:
        self.play = Play((), "close")
        self.asked = 0
        """Requests that came whole."""
        self.said = 0
        """Those that were answered as far as they will be."""
        self.open: set[Peer] = set()
        self.busy: set[Peer] = set()
        """Connections with a request that has not been answered whole."""
        self._server: asyncio.Server | None = None
        self.url = ""

    async def start(self) -> str:
        """Listen; returns the URL."""
        self._server = await asyncio.get_running_loop().create_server(lambda: Peer(self), "127.0.0.1", 0)
        self.url = f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"
        return self.url

    async def stop(self) -> None:
        """Close everything."""
        assert self._server is not None
        self._server.close()
        for peer in list(self.open):
            peer.abort()
        while self.open:
            await asyncio.sleep(0)
        await self._server.wait_closed()


def reset(wire: asyncio.BaseTransport) -> None:
    """End a connection with RST."""
    sock = wire.get_extra_info("socket")
    with socket.socket(fileno=socket.dup(sock.fileno())) as same:  # uvloop's sockets take no options
        same.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    cast("asyncio.Transport", wire).abort()
