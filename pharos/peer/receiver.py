"""The listener for peers: who shows the secret may tell a delta and pull a snapshot, and nobody else anything.

# ops: start, close · goal: what is not a peer costs a header and no more
# plan: the secret is looked at first, then the size, then the body; all refusals are named, each address once a minute
# warning: what strangers sent never reaches the log; only where they came from and what was wrong does

Forbidden here: clients of the API, and knowing what a delta says.
"""

import asyncio
import logging
import ssl
from collections.abc import AsyncIterator, Callable
from typing import Final, Protocol

import msgspec
from aiohttp import web

from pharos.clock import Clock
from pharos.core.fleet.events import Event
from pharos.peer import wire
from pharos.peer.door import Door
from pharos.peer.http import DELTA_PATH, SNAPSHOT_PATH
from pharos.peer.node import Refused
from pharos.peer.secret import Secret

log = logging.getLogger(__name__)

MOST_SNAPSHOTS: Final = 2
"""Snapshots that are sent at a time; who asks for one more is told to come again."""
SAY_EVERY_S: Final = 60.0
"""So often the same trouble with one address is said."""
MOST_SAID: Final = 256
"""Troubles that are remembered."""
BODY_S: Final = 10.0
TAKEN_S: Final = 20.0
"""Seconds in which a piece of a snapshot is taken: one that was stopped must not keep others from theirs."""
READ: Final = 64 * 1024
TYPE: Final = "application/msgpack"


_quiet = logging.getLogger("pharos.peer.http")
"""What aiohttp says of strangers quotes what they sent: nobody hears it."""
_quiet.setLevel(logging.CRITICAL + 1)


class Told(Protocol):
    """Who takes what comes; see `Node`."""

    async def receive(self, body: bytes) -> bytes:
        """Take a delta. Raises `Refused`."""

    def frames(self) -> AsyncIterator[bytes]:
        """Give a snapshot."""


class Receiver:
    """The listener."""

    def __init__(self, told: Told, secret: Secret, *, clock: Clock, on_event: Callable[[Event], None]) -> None:
        self._told = told
        self._secret = secret
        self._clock = clock
        self._on_event = on_event
        self._said: dict[tuple[str, str], float] = {}
        self._sending = 0
        self._door: Door | None = None
        self._runner: web.ServerRunner | None = None
        self.port: int | None = None

    def __repr__(self) -> str:
        return f"<Receiver port {self.port}>"

    async def start(self, host: str | None, port: int, tls: ssl.SSLContext | None) -> None:
        """Listen; `host` `None`: everywhere, on both families. Raises `OSError`."""
        door = Door(self._serve, access_log=None, logger=_quiet, lingering_time=0, keepalive_timeout=75)
        self._door = door
        runner = web.ServerRunner(door, shutdown_timeout=1.0)
        await runner.setup()
        site = web.TCPSite(runner, host, port, ssl_context=tls, backlog=64)
        try:
            await site.start()
        except OSError:
            await runner.cleanup()
            raise
        self._runner = runner
        self.port = int(runner.addresses[0][1])

    async def close(self) -> None:
        """Stop listening and part from everybody."""
        if self._runner is not None:
            runner, self._runner = self._runner, None
            await runner.cleanup()

    async def _serve(self, request: web.BaseRequest) -> web.StreamResponse:
        whence = request.remote if request.remote is not None else "an unknown address"
        if not self._secret.is_valid(request.headers.get("Authorization")):
            return self._refuse(
                whence, 401, "showed a wrong secret" if "Authorization" in request.headers else "showed no secret"
            )
        if self._door is not None:
            self._door.know(request)
        try:
            if request.path == DELTA_PATH and request.method == "POST":
                return await self._delta(request, whence)
            if request.path == SNAPSHOT_PATH and request.method == "GET":
                return await self._snapshot(request)
        except OSError:  # it went away
            raise
        except Exception:
            log.exception("peers.listen: a fault of ours")
            raise
        return self._refuse(whence, 404, "asked for something that peers do not ask for")

    async def _delta(self, request: web.BaseRequest, whence: str) -> web.StreamResponse:
        if request.content_length is not None and request.content_length > wire.MOST_DELTA:
            return self._refuse(
                whence, 413, f"sent a delta of {request.content_length} bytes, and {wire.MOST_DELTA} are allowed"
            )
        body = bytearray()
        try:
            async with asyncio.timeout(BODY_S):
                while data := await request.content.read(READ):
                    body += data
                    if len(body) > wire.MOST_DELTA:
                        return self._refuse(whence, 413, f"sent a delta of more than {wire.MOST_DELTA} bytes")
        except (TimeoutError, OSError, web.RequestPayloadError):
            return self._refuse(whence, 400, "sent a delta that did not end")
        try:
            answer = await self._told.receive(bytes(body))
        except Refused as fault:
            if fault.status == 400:  # noqa: PLR2004 - the only one that is a fault of theirs
                return self._refuse(whence, 400, f"sent what {fault}")
            told = msgspec.msgpack.encode({"proto": wire.PROTO, "text": str(fault)})
            return web.Response(status=fault.status, body=told, content_type=TYPE)
        return web.Response(body=answer, content_type=TYPE)

    async def _snapshot(self, request: web.BaseRequest) -> web.StreamResponse:
        if self._sending >= MOST_SNAPSHOTS:
            return web.Response(status=503, headers={"Retry-After": "1"})
        self._sending += 1
        response = web.StreamResponse(headers={"Content-Type": TYPE})
        try:
            await response.prepare(request)
            async for data in self._told.frames():
                async with asyncio.timeout(TAKEN_S):
                    await response.write(data)
            async with asyncio.timeout(TAKEN_S):
                await response.write_eof()
        except TimeoutError:
            if request.transport is not None:
                request.transport.abort()  # what it has not taken would be waited for
            raise
        finally:
            self._sending -= 1
        return response

    def _refuse(self, whence: str, status: int, what: str) -> web.Response:
        now = self._clock()
        if len(self._said) >= MOST_SAID:
            self._said.clear()
        kind = whence, what.split(" of ", maxsplit=1)[0]
        if now - self._said.get(kind, -SAY_EVERY_S) >= SAY_EVERY_S:
            self._said[kind] = now
            self._on_event(Event("", "", "", "warning", f"peers.listen: {whence} {what}: refused"))
        response = web.Response(status=status, text=f"{what}\n")
        response.force_close()
        return response
