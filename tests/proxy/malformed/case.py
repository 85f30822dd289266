"""What a row of the tables of malformed requests and replies says."""

from typing import Any

from msgspec import Struct

MARK = b"sk-very-secret"
"""In the headers of each request: must be found in no answer and in no log."""
MODEL = b'{"model":"m","messages":[]}'
"""A body that an engine gets."""
LENGTH = len(MODEL)


class Case(Struct, frozen=True):
    """One stream of bytes from a client."""

    name: str
    sent: bytes
    answers: tuple[int, ...]
    """Statuses of all answers, in order."""
    goes_on: bool = False
    """Whether the connection serves another request afterwards. If not, it is closed."""
    leaves: bool = False
    """Whether the client shuts its side afterwards, as it does when its request is not whole."""
    engine: int = 0
    """How many requests reach an engine, all as the strict reader understands them."""

    def __str__(self) -> str:
        return self.name


class Told(Struct, frozen=True):
    """One stream of bytes from an engine."""

    name: str
    sent: bytes
    outcome: str
    """What is counted, of the stage `upstream`."""
    status: int = 502
    body: bytes | None = None
    """What a whole reply holds; `None`: the client gets an error of Pharos, or a reply that is not whole."""
    reused: bool = False
    """Whether the connection carries another request."""
    then_closes: bool = False

    def __str__(self) -> str:
        return self.name


def line(target: bytes = b"/v1/chat/completions", method: bytes = b"POST", version: bytes = b"HTTP/1.1") -> bytes:
    return b"%b %b %b\r\nHost: x\r\nAuthorization: Bearer %b\r\n" % (method, target, version, MARK)


def post(*fields: bytes, body: bytes = MODEL, **more: Any) -> bytes:
    """A request whose framing is among the fields."""
    return line(**more) + b"".join(field + b"\r\n" for field in fields) + b"\r\n" + body


def sized(*fields: bytes, body: bytes = MODEL, **more: Any) -> bytes:
    """A request with a right Content-Length."""
    return post(*fields, b"Content-Length: %d" % len(body), body=body, **more)


def chunk(data: bytes = MODEL, after: bytes = b"0\r\n\r\n") -> bytes:
    return b"%x\r\n%b\r\n%b" % (len(data), data, after)


HIDDEN = sized(b"X-Hidden: 1", body=b'{"model":"m","messages":[],"hidden":1}')
CHUNKED = b"Transfer-Encoding: chunked"
OF_LENGTH = b"Content-Length: %d" % LENGTH
