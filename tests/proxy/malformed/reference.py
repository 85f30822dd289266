"""A strict reader of HTTP/1.1 as RFC 9112 writes it: what a stream of bytes holds, and where it stops making sense.

It shares no code with the proxy, is not fast and forgives nothing that two readers could understand in two ways.
"""

import re
from typing import Literal

from msgspec import Struct

End = Literal["clean", "short", "bad"]
TOKEN = rb"[!#$%&'*+\-.^_`|~0-9A-Za-z]+"
_LINE = re.compile(rb"(%b) +([\x21-\x7e]+) +HTTP/1\.([01])\Z" % TOKEN)
_FIELD = re.compile(rb"(%b):[ \t]*([\t\x20-\x7e\x80-\xff]*?)[ \t]*\Z" % TOKEN)
_STATUS = re.compile(rb"HTTP/1\.1 ([1-5][0-9][0-9]) [\t\x20-\x7e\x80-\xff]*\Z")
_SIZE = re.compile(rb"([0-9A-Fa-f]{1,16})(?:[ \t]*;[\t\x20-\x7e\x80-\xff]*)?\Z")
_HOST = re.compile(rb"(?:[A-Za-z0-9._~!$&'()*+,;=%-]*|\[[0-9A-Fa-f:.]+\])(?::[0-9]*)?\Z")
_LENGTH = re.compile(rb"[0-9]{1,18}\Z")
_ABSOLUTE = re.compile(rb"https?://[^/?#@]+(/[^#]*)?\Z", re.IGNORECASE)
OURS = {b"Host", b"X-Request-Id", b"Accept-Encoding", b"Content-Length", b"Content-Type"}
"""Headers that Pharos writes itself."""


class Request(Struct, frozen=True):
    """One request."""

    method: bytes
    target: bytes
    """Path and query."""
    headers: tuple[tuple[bytes, bytes], ...]
    body: bytes
    is_last: bool
    """Whether nothing behind it may be served."""

    def values(self, name: bytes) -> list[bytes]:
        return [value for key, value in self.headers if key.lower() == name]

    def is_in(self, sent: "Request") -> bool:
        """Whether an engine that got this got what was sent: nothing but our own headers was added."""
        given = {(name.lower(), value) for name, value in sent.headers}
        added = {name for name, value in self.headers if (name.lower(), value) not in given}
        return (self.method, self.target, self.body) == (sent.method, sent.target, sent.body) and added <= OURS


class Reply(Struct, frozen=True):
    """One reply."""

    status: int
    headers: tuple[tuple[bytes, bytes], ...]
    body: bytes
    is_whole: bool

    def values(self, name: bytes) -> list[bytes]:
        return [value for key, value in self.headers if key.lower() == name]


class Stream(Struct, frozen=True):
    """What a client sent."""

    requests: tuple[Request, ...]
    end: End
    why: str


class BadError(Exception):
    """These bytes have no meaning, or two."""


class ShortError(Exception):
    """More bytes must come."""


class Bytes:
    """A place in a stream."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.at = 0

    def line(self) -> bytes:
        end = self.data.find(b"\r\n", self.at)
        line = self.data[self.at :] if end < 0 else self.data[self.at : end]
        bare = line.removesuffix(b"\r") if end < 0 else line
        if b"\n" in bare or b"\r" in bare or b"\0" in bare:
            raise BadError("a line end that is none")
        if end < 0:
            raise ShortError
        self.at = end + 2
        return line

    def take(self, size: int) -> bytes:
        if len(self.data) - self.at < size:
            raise ShortError
        self.at += size
        return self.data[self.at - size : self.at]

    def skip_blank(self) -> None:
        while self.data[self.at : self.at + 1] in (b"\r", b"\n"):
            self.at += 1

    @property
    def is_over(self) -> bool:
        return self.at >= len(self.data)


def read(data: bytes) -> Stream:
    """All requests of a stream, up to its end or to where it makes no sense."""
    place, found = Bytes(data), []
    while True:
        place.skip_blank()
        if place.is_over:
            return Stream(tuple(found), "clean", "")
        try:
            request = _request(place)
        except BadError as error:
            return Stream(tuple(found), "bad", str(error))
        except ShortError:
            return Stream(tuple(found), "short", "")
        found.append(request)
        if request.is_last:
            return Stream(tuple(found), "clean", "")


def replies(data: bytes) -> list[Reply]:
    """Strictly read what a client got. Raises BadError."""
    place, found = Bytes(data), []
    while not place.is_over:
        try:
            status = _STATUS.match(place.line())
            if status is None:
                raise BadError("no status line")
            headers = _fields(place)
        except ShortError:
            raise BadError("half a head") from None
        found.append(_reply(place, int(status[1]), headers))
    return found


def _reply(place: Bytes, status: int, headers: list[tuple[bytes, bytes]]) -> Reply:
    by_name = _by_name(headers)
    lengths, codings = by_name.get(b"content-length", []), by_name.get(b"transfer-encoding", [])
    if len(lengths) + len(codings) > 1:
        raise BadError("two framings of a reply")
    start = place.at
    is_next = place.data.startswith(b"HTTP/1.1 ", start)
    if status in (204, 304) or status < 200 or (lengths and (is_next or place.is_over)):  # to HEAD, a length is no body
        return Reply(status, tuple(headers), b"", is_whole=True)
    try:
        if codings:
            if codings != [b"chunked"]:
                raise BadError("an unknown coding of a reply")
            return Reply(status, tuple(headers), _chunks(place), is_whole=True)
        body = place.take(int(lengths[0])) if lengths else place.take(len(place.data) - place.at)
        return Reply(status, tuple(headers), body, is_whole=True)
    except ShortError:
        place.at = len(place.data)
        return Reply(status, tuple(headers), place.data[start:], is_whole=False)


def _request(place: Bytes) -> Request:
    line = _LINE.match(place.line())
    if line is None:
        raise BadError("no request line")
    method, target, minor = line.groups()
    headers = _fields(place)
    by_name = _by_name(headers)
    _check_host(by_name.get(b"host", []), is_needed=minor == b"1")
    options = {part.strip().lower() for value in by_name.get(b"connection", []) for part in value.split(b",")}
    is_last = b"close" in options or (minor == b"0" and b"keep-alive" not in options)
    is_last = is_last or method == b"CONNECT" or (b"upgrade" in options and b"upgrade" in by_name)
    body = _body(place, by_name, minor)
    return Request(method, _path(method, target), tuple(headers), body, is_last)


def _by_name(headers: list[tuple[bytes, bytes]]) -> dict[bytes, list[bytes]]:
    found: dict[bytes, list[bytes]] = {}
    for name, value in headers:
        found.setdefault(name.lower(), []).append(value)
    return found


def _fields(place: Bytes) -> list[tuple[bytes, bytes]]:
    found = []
    while line := place.line():
        field = _FIELD.match(line)
        if field is None:
            raise BadError("no header field")
        found.append((field[1], field[2]))
    return found


def _check_host(hosts: list[bytes], *, is_needed: bool) -> None:
    if len(hosts) > 1 or (is_needed and not hosts):
        raise BadError("not one Host")
    if hosts and not _HOST.match(hosts[0]):
        raise BadError("no valid Host")


def _path(method: bytes, target: bytes) -> bytes:
    if method == b"CONNECT" or (method == b"OPTIONS" and target == b"*"):
        return target
    if target.startswith(b"/"):
        if b"#" in target:
            raise BadError("a fragment in a target")
        return target
    absolute = _ABSOLUTE.match(target)
    if absolute is None:
        raise BadError("no target")
    return absolute[1] or b"/"


def _body(place: Bytes, by_name: dict[bytes, list[bytes]], minor: bytes) -> bytes:
    lengths, codings = by_name.get(b"content-length", []), by_name.get(b"transfer-encoding", [])
    if len(lengths) + len(codings) > 1:
        raise BadError("two framings")
    if lengths:
        if not _LENGTH.match(lengths[0]):
            raise BadError("no length")
        return place.take(int(lengths[0]))
    if codings:
        if codings[0].lower() != b"chunked" or minor == b"0":
            raise BadError("an unknown coding")
        return _chunks(place)
    return b""


def _chunks(place: Bytes) -> bytes:
    parts = []
    while True:
        size = _SIZE.match(place.line())
        if size is None:
            raise BadError("no chunk size")
        if int(size[1], 16) == 0:
            _fields(place)
            return b"".join(parts)
        parts.append(place.take(int(size[1], 16)))
        if place.take(2) != b"\r\n":
            raise BadError("a chunk of another size")
