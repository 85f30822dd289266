"""One request as the routes see it, and how it is answered by Pharos itself. No decision, no body is read here."""

import asyncio
import contextlib
from collections.abc import Callable, Generator, Mapping
from typing import Protocol

import msgspec
from multidict import CIMultiDictProxy

from pharos.proxy import body as bodies
from pharos.proxy import head, telling
from pharos.proxy.answer import Answer
from pharos.proxy.encoding import ACCEPTED, UNSUPPORTED
from pharos.proxy.errors import ClientFault, PharosError, PharosFault, render, shape_for, shown
from pharos.proxy.relay import Client

JSON = b"application/json"
TEXT = b"text/plain; charset=utf-8"
RETRY_AFTER_S = 1
"""Seconds after which a client of an instance that is not ready should ask again."""
TOO_LARGE = 413

PAGE_TAKEN_S = 10.0
"""Seconds for which a page is kept for a client that does not take it: it needs no key, and may be large."""

Page = tuple[int, str, bytes]
"""Status, content type, body."""
Steps = Generator[None, None, Page]
"""The work of one page, which yields where streams may go on: all at once would hold them up for tens of ms."""
PageView = Callable[[Mapping[str, str], str, bool], Page | Steps]
"""(query, Accept header, whether the key is an administrator's) -> the page."""


class State(Protocol):
    """What the routes ask of the proxy."""

    ready: bool
    draining: bool


class Reader(Client, Protocol):
    """The client's connection, as far as pages need it."""

    async def drained(self) -> None:
        """Wait until the client has taken most of what was written."""
        ...


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
    client: Reader
    arrived_at: float

    def __repr__(self) -> str:
        return f"<Incoming {self.method} {self.path}>"

    def give(self, body: bytes, content_type: bytes = JSON) -> None:
        """Answer with a whole reply of Pharos's own."""
        if not self.payload.is_eof():
            self.answer.close_after()  # nobody asked for that body
        self.answer.whole(200, content_type, body)

    def agree(self) -> None:
        """Answer that all is well, and nothing to say: 204."""
        if not self.payload.is_eof():
            self.answer.close_after()
        self.answer.write(self.answer.head(204, (), length=None))

    def refuse(self, fault: PharosError, allow: str = "") -> None:
        """Answer with a fault, in the shape of the path."""
        if self.answer.is_started:
            self.answer.break_off()
            return
        if self.answer.is_opened:
            telling.refuse(self.answer, fault)
            return
        if fault.status == TOO_LARGE or not self.payload.is_eof():
            self.answer.close_after()  # the rest of the body is not wanted
        headers: list[tuple[bytes, bytes]] = []
        if fault.retry_after_s is not None:
            headers.append((b"Retry-After", b"%d" % fault.retry_after_s))
        if fault.code == UNSUPPORTED:
            headers.append((b"Accept-Encoding", ACCEPTED))
        if allow:
            headers.append((b"Allow", allow.encode()))
        self.answer.whole(fault.status, JSON, render(fault, shape_for(self.path, self.headers)), headers)

    @property
    def verb(self) -> str:
        """The method as answers name it: one to HEAD is as long as that to GET."""
        return "GET" if self.method == "HEAD" else self.method

    def wrong_method(self, allowed: tuple[str, ...]) -> None:
        """Answer that the path is right and the method is not."""
        allow = ", ".join(allowed)
        text = f"{shown(self.path)} takes {allow}, not {shown(self.verb)}."
        self.refuse(ClientFault(405, "method_not_allowed", text), allow)


async def in_steps(steps: Steps) -> Page:
    """Make a page a step at a time, each in a turn of the loop."""
    with contextlib.closing(steps):  # also when the client leaves
        while True:
            try:
                next(steps)
            except StopIteration as end:
                made: Page = end.value
                return made
            await asyncio.sleep(0)


def check_ready(state: State) -> None:
    """Raise PharosFault (503) until the engines were read: before, nobody knows where a request belongs."""
    if not state.ready:
        raise PharosFault(503, "not_ready", "this instance has not read its engines yet", retry_after_s=RETRY_AFTER_S)
