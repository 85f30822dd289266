"""A large request body on its way to an engine: handed to the transport in slices, as the engine takes them."""

import asyncio
import contextlib
import os
import socket
from collections.abc import Sequence

SLICE = 256 * 1024
"""Bytes of a request body handed to the transport at once, so that it holds no second copy of a big one."""


class Upload:
    """The part of a body that the transport has not got yet."""

    __slots__ = ("_spare", "_transport", "_unsent", "is_paused")

    def __init__(self, transport: asyncio.Transport, body: Sequence[bytes | memoryview], *, is_paused: bool) -> None:
        self.is_paused = is_paused
        """Whether the engine reads slower than we send."""
        self._transport = transport
        self._unsent = [memoryview(part) for part in reversed(body)]
        """The last part first."""
        self._spare = _second_hold(transport)
        """A second hold on the socket: what the engine sent outlives a failed write."""

    def __repr__(self) -> str:
        return f"<Upload {sum(map(len, self._unsent))} left>"

    @property
    def is_sent(self) -> bool:
        """Whether the transport has all of it."""
        return not self._unsent

    def send_more(self) -> None:
        """Hand on as much as the engine takes now."""
        while self._unsent and not self.is_paused and not self._transport.is_closing():
            part = self._unsent.pop()
            if len(part) > SLICE:
                self._unsent.append(part[SLICE:])
            self._transport.write(part[:SLICE])

    def let_go(self) -> None:
        """Send no more."""
        self._unsent = []
        if self._spare is not None:
            self._spare.close()
            self._spare = None

    def unread(self, limit: int) -> bytes:
        """What the engine sent and nobody read, up to `limit` bytes."""
        if self._spare is not None:
            with contextlib.suppress(OSError):
                return self._spare.recv(limit)
        return b""


def _second_hold(transport: asyncio.Transport) -> socket.socket | None:
    if transport.get_extra_info("sslcontext") is not None:
        return None  # its bytes are not the reply's
    spare = socket.socket(fileno=os.dup(transport.get_extra_info("socket").fileno()))
    spare.settimeout(0)
    return spare
