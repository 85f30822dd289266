"""One request as the routes see it, and how it is answered by Pharos itself. No decision, no body is read here."""

from collections.abc import Callable, Mapping
from typing import Protocol

import msgspec
from multidict import CIMultiDictProxy

from pharos.proxy import body as bodies
from pharos.proxy import head
from pharos.proxy.answer import Answer
from pharos.proxy.errors import ClientFault, PharosError, PharosFault, render, shape_for
from pharos.proxy.relay import Client

JSON = b"application/json"
TEXT = b"text/plain; charset=utf-8"
RETRY_AFTER_S = 1
"""Seconds after which a client of an instance that is not ready should ask again."""

PageView = Callable[[Mapping[str, str], str, bool], tuple[int, str, bytes]]
"""(query, Accept header, whether the key is an administrator's) -> (status, content type, body)."""


class State(Protocol):
    """What the routes ask of the proxy."""

    ready: bool
    draining: bool


class Incoming(msgspec.Struct, kw_only=True, frozen=True, eq=False):
    """One request."""

    method: str
    path: str
    """As it came, percent-encoded."""
    query: str
    """As it came, without the question mark."""
    headers: CIMultiDictProxy[str]
    raw_headers: head.Headers
    payload: bodies.Payload
    http11: bool
    answer: Answer
    client: Client
    arrived_at: float

    def __repr__(self) -> str:
        return f"<Incoming {self.method} {self.path}>"

    def give(self, body: bytes, content_type: bytes = JSON) -> None:
        """Answer with a whole reply of Pharos's own."""
        if not self.payload.is_eof():
            self.answer.close_after()  # nobody asked for that body
        self.answer.whole(200, content_type, body)

    def refuse(self, fault: PharosError, allow: str = "") -> None:
        """Answer with a fault, in the shape of the path."""
        if self.answer.is_started:
            self.answer.break_off()
            return
        if not self.payload.is_eof():
            self.answer.close_after()  # the rest of the body is not wanted
        headers: list[tuple[bytes, bytes]] = []
        if fault.retry_after_s is not None:
            headers.append((b"Retry-After", b"%d" % fault.retry_after_s))
        if allow:
            headers.append((b"Allow", allow.encode()))
        self.answer.whole(fault.status, JSON, render(fault, shape_for(self.path, self.headers)), headers)

    def wrong_method(self, allowed: tuple[str, ...]) -> None:
        """Answer that the path is right and the method is not."""
        allow = ", ".join(allowed)
        self.refuse(ClientFault(405, "method_not_allowed", f"this route takes {allow}"), allow)


def check_ready(state: State) -> None:
    """Raise PharosFault (503) until the engines were read: before, nobody knows where a request belongs."""
    if not state.ready:
        raise PharosFault(503, "not_ready", "this instance has not read its engines yet", retry_after_s=RETRY_AFTER_S)
