"""The log of a container, from its present start, through the Docker Engine API on its unix socket.

Facts: a container without a terminal has its output in frames: one byte for the stream (0 input echoed, 1 output,
2 errors, 3 a message of Docker itself), three zero bytes, the length as four bytes (big end first), then that many
bytes; seen on Docker 29.1.3. With a terminal (`Config.Tty`) the output comes as it is. A frame is no line.

Forbidden here: keeping or quoting anything of a container's description (its environment holds keys) or of its log.
"""

import datetime as dt
import re
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing, asynccontextmanager
from http import HTTPStatus
from typing import Final
from urllib.parse import quote

import aiohttp
import msgspec

from pharos.control.follow.dockerapi import SOCKET, decoded, errors_of, session_at
from pharos.control.follow.fault import Fault, FeedError
from pharos.control.follow.lines import LineSplitter

ANSWER_S: Final = 10.0
"""Seconds within which Docker describes a container."""
MAX_DESCRIPTION: Final = 4 * 1024 * 1024
"""Bytes of a container's description; 10 to 20 KiB are usual."""
MAX_FRAME: Final = 16 * 1024 * 1024
"""A frame that claims to be longer is none: Docker cuts output at 16 KiB."""

_HEAD: Final = 8
_DOCKER_ITSELF: Final = 3
_TIME: Final = re.compile(r"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)(?:\.(\d{1,9}))?(Z|[+-]\d\d:\d\d)")


class _State(msgspec.Struct, frozen=True, rename="pascal"):
    started_at: str = ""
    running: bool = False


class _Config(msgspec.Struct, frozen=True, rename="pascal"):
    tty: bool = False


class _Container(msgspec.Struct, frozen=True, rename="pascal"):
    """The little that is read of a container's description."""

    state: _State = _State()
    config: _Config = _Config()


class FrameReader:
    """Takes the frames of a container's output apart: bytes in, lines out; never holds a frame."""

    def __init__(self) -> None:
        self._head = bytearray()
        self._left = 0
        """Bytes that the present frame has yet to give."""
        self._streams: dict[int, LineSplitter] = {}
        self._stream = LineSplitter()

    def __repr__(self) -> str:
        return f"<FrameReader {self._left} bytes of a frame to come>"

    def feed(self, data: bytes) -> list[bytes]:
        """Take the next bytes in; return the lines that end in them. Raises `FeedError` when they are no frames."""
        lines: list[bytes] = []
        at = 0
        while at < len(data):
            if self._left == 0:
                piece = data[at : at + _HEAD - len(self._head)]
                self._head += piece
                if len(self._head) == _HEAD:
                    self._begin()
            else:
                piece = data[at : at + self._left]
                self._left -= len(piece)
                lines += self._stream.feed(piece)
            at += len(piece)
        return lines

    def _begin(self) -> None:
        stream, padding, size = self._head[0], self._head[1:4], int.from_bytes(self._head[4:])
        self._head.clear()
        if stream > _DOCKER_ITSELF or any(padding) or size > MAX_FRAME:
            raise FeedError(Fault.UNREADABLE, "Docker sends the log in a form that is not known here")
        if stream == _DOCKER_ITSELF:
            raise FeedError(Fault.UNREADABLE, "Docker cannot read the log")
        self._stream = self._streams.setdefault(stream, LineSplitter())
        self._left = size


@asynccontextmanager
async def open_container(
    name: str, *, socket: str = SOCKET, follow: bool = True, answer_s: float = ANSWER_S
) -> AsyncIterator[AsyncIterator[bytes]]:
    """Open the log of the container called `name`; what is entered gives its lines since its present start.

    They end when the container does; without `follow` where the log ends now. Docker describes the container within
    `answer_s` seconds. Raises `FeedError`, on entering and while
    lines are read.
    """
    async with session_at(socket) as session:
        with errors_of(socket):
            container = await _describe(session, name, answer_s)
            response = await _ask(session, name, since=unix_time(container.state.started_at), follow=follow)
        try:
            async with aclosing(_lines(response, socket, has_terminal=container.config.tty)) as lines:
                yield lines
        finally:
            response.close()


def unix_time(text: str) -> str:
    """Return a time as Docker writes it as the seconds since 1970 that Docker takes, to the nanosecond."""
    match = _TIME.fullmatch(text)
    if match is None:
        raise FeedError(Fault.UNREADABLE, "Docker does not say when the container was started")
    seconds, fraction, zone = match.groups()
    try:
        moment = dt.datetime.fromisoformat(seconds + zone)
    except ValueError:
        raise FeedError(Fault.UNREADABLE, "Docker does not say when the container was started") from None
    digits = fraction if fraction is not None else ""
    return f"{int(moment.timestamp())}.{digits:0<9}"


async def _describe(session: aiohttp.ClientSession, name: str, answer_s: float) -> _Container:
    what = f"Docker's description of container {name!r}"
    path = f"/containers/{quote(name, safe='')}/json"
    timeout = aiohttp.ClientTimeout(total=answer_s)
    async with session.get(path, timeout=timeout) as response:
        _check(response.status, name, "describe it")
        container = await decoded(response, _Container, what, MAX_DESCRIPTION)
    if not container.state.running:
        raise FeedError(Fault.NOT_RUNNING, f"container {name!r} is not running")
    return container


async def _ask(session: aiohttp.ClientSession, name: str, *, since: str, follow: bool) -> aiohttp.ClientResponse:
    """Ask for the log. No deadline: some Dockers answer only once there is a line."""
    wanted = {"follow": str(int(follow)), "stdout": "1", "stderr": "1", "since": since}
    response = await session.get(f"/containers/{quote(name, safe='')}/logs", params=wanted)
    try:
        _check(response.status, name, "give its log; its logging driver may not be able to")
    except FeedError:
        response.close()
        raise
    return response


def _check(status: int, name: str, what: str) -> None:
    if status == HTTPStatus.NOT_FOUND:
        raise FeedError(Fault.NOT_FOUND, f"Docker knows no container {name!r}")
    if status in {HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN}:
        raise FeedError(Fault.NO_PERMISSION, f"Docker does not let Pharos see container {name!r}")
    if status != HTTPStatus.OK:
        raise FeedError(
            Fault.STATUS, f"Docker answers {status} when asked about container {name!r}: it does not {what}"
        )


async def _lines(response: aiohttp.ClientResponse, socket: str, *, has_terminal: bool) -> AsyncGenerator[bytes, None]:
    reader: LineSplitter | FrameReader = LineSplitter() if has_terminal else FrameReader()
    while True:
        with errors_of(socket):
            data = await response.content.readany()
        if not data:
            return
        for line in reader.feed(data):
            yield line
