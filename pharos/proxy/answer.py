"""What one request's client gets, and how: framing, connection rules, the head. The only writer of reply heads.

aiohttp is never asked to write: from the first byte on, whatever happens, no second head may follow (`is_started`).
"""

import asyncio
import contextlib
import enum
import os
import socket
import struct
from collections.abc import Callable
from typing import Protocol

from pharos.proxy import head
from pharos.proxy.head import Headers

COPIED = 65536
"""Bytes of a body up to which it is put behind its head; two writes cost more than a copy."""
OPENING = b"X-Request-Id: "
"""How Pharos's own part of each head begins; what stands before it is whole lines, the same for many replies."""


Failure = Callable[[str, str], bytes]
"""(message, code) -> the last event of a stream that failed."""


class Front(Protocol):
    """What an answer asks of the listener."""

    @property
    def draining(self) -> bool:
        """Whether every reply now says `Connection: close`."""


class Framing(enum.Enum):
    """How the client learns where the reply ends."""

    LENGTH = "length"
    CHUNKED = "chunked"
    CLOSE = "close"
    NONE = "none"
    """No body at all: HEAD, 204, 205, 304."""


class Answer:
    """The reply side of one request. Captures the transport once: aiohttp forgets it as soon as it closes."""

    __slots__ = (
        "_front", "_opening", "_wants_kept", "extra", "failure", "framing", "http11", "is_head", "is_started",
        "keep_alive", "request_id", "status", "transport",
    )  # fmt: skip

    def __init__(
        self,
        transport: asyncio.WriteTransport,
        front: Front,
        *,
        http11: bool,
        keep_alive: bool,
        is_head: bool,
        request_id: str,
        opening: bytes = OPENING,
    ) -> None:
        self.transport = transport
        self._opening = opening
        self._front = front
        self.http11 = http11
        self._wants_kept = keep_alive
        self.is_head = is_head
        self.request_id = request_id
        self.extra: list[bytes] = []
        """Whole header lines to add to any head."""
        self.is_started = False
        self.failure: Failure | None = None
        """Makes the event that ends a stream which was opened before any engine answered; `None`: none was."""
        self.keep_alive = False
        """Whether the connection may carry another request; settled when the head is made."""
        self.status = 0
        self.framing = Framing.NONE

    def __repr__(self) -> str:
        state = f"{self.status} {self.framing.value}" if self.is_started else "not started"
        return f"<Answer {self.request_id} {state}>"

    def close_after(self) -> None:
        """The connection shall not carry another request."""
        self._wants_kept = False
        self.keep_alive = False

    def tell(self, lines: bytes) -> None:
        """Have any head begin with these whole header lines."""
        self._opening = lines + self._opening

    def head(
        self, status: int, headers: Headers, *, length: int | None, stream: bool = False, until_close: bool = False
    ) -> bytes:
        """Make the one head of this reply. `length` of the body as it will be sent, `None` when that is not known.

        `until_close`: nobody knows whether the body will be whole, so that no better end than the connection's is sent.
        """
        if self.failure is not None:
            self.is_started = True
            return b""  # one has gone out
        self.status = status
        if status == head.RESET_CONTENT:
            length = 0  # it never has a body, yet a client reads its framing
        if self.is_head or status in head.NO_BODY or status == head.RESET_CONTENT:
            self.framing = Framing.NONE
        elif length is not None:
            self.framing = Framing.LENGTH
        else:
            self.framing = Framing.CHUNKED if self.http11 and not until_close else Framing.CLOSE
        self.keep_alive = self._wants_kept and not self._front.draining and self.framing is not Framing.CLOSE
        ours = [self._opening, self.request_id.encode(), b"\r\n", *self.extra]
        if self.framing is Framing.CHUNKED:
            ours.append(b"Transfer-Encoding: chunked\r\n")
        elif length is not None and status not in head.NO_BODY:
            ours.append(b"Content-Length: %d\r\n" % length)
        if not self.keep_alive:
            ours.append(b"Connection: close\r\n")
        elif not self.http11:
            ours.append(b"Connection: keep-alive\r\n")
        self.is_started = True
        return head.reply_head(status, headers, ours, stream=stream)

    @property
    def is_opened(self) -> bool:
        """Whether the head of a stream has gone out before any engine answered: a failure is an event of it then."""
        return self.failure is not None

    def open(self, failure: Failure) -> None:
        """Send the head of a stream of events, of which an engine may give the rest."""
        top = self.head(200, [(b"Content-Type", b"text/event-stream")], length=None, stream=True)
        self.is_started = False
        self.failure = failure
        self.write(top)

    def take_back(self) -> None:
        """The head that was made has not been sent, and shall not be."""
        self.is_started = False

    def packed(self, body: bytes, before: bytes, *, is_last: bool) -> bytes:
        """Bytes of a body as they are sent. `before`: its head, if that has not gone out."""
        if self.framing is Framing.CHUNKED:
            last = head.LAST_CHUNK if is_last else b""
            return b"%b%x\r\n%b\r\n%b" % (before, len(body), body, last) if body else before + last
        if self.framing is Framing.NONE:
            return before
        return before + body if before else body

    def write(self, data: bytes) -> bool:
        """Hand bytes to the client's transport; False when the client is gone."""
        if self.transport.is_closing():
            return False
        self.transport.write(data)
        return True

    def break_off(self) -> None:
        """Close without sending what is left, and so that nobody can take it for a clean end."""
        self.close_after()
        sock = self.transport.get_extra_info("socket")
        if self.framing is Framing.CLOSE and sock is not None and not self.transport.is_closing():
            # A plain close would be this framing's clean end: only a reset tells. uvloop's sockets take no options.
            with contextlib.suppress(OSError), socket.socket(fileno=os.dup(sock.fileno())) as same:
                same.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.transport.abort()

    def whole(self, status: int, content_type: bytes, body: bytes, headers: Headers = ()) -> None:
        """Send a complete reply of ours."""
        headers = [(b"Content-Type", content_type), *headers]
        top = self.head(status, headers, length=len(body))
        if self.framing is Framing.NONE:
            self.write(top)
        elif len(body) <= COPIED:
            self.write(top + body)
        elif self.write(top):
            self.transport.write(body)  # as it is: many may be given the same page

    def passed_on(self, status: int, headers: Headers, body: bytes) -> None:
        """Send a complete reply that an engine gave."""
        top = self.head(status, headers, length=len(body))
        self.write(top if self.framing is Framing.NONE else top + body)
