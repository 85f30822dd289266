"""The heads of both legs: which headers of a request go to an engine, which of a reply go to the client. No I/O.

Header names and values stay the bytes that came, so nothing is decoded wrongly on the way.
"""

from collections.abc import Iterable, Sequence
from http import HTTPStatus
from urllib.parse import unquote_plus

import msgspec

Headers = Sequence[tuple[bytes, bytes]]
"""Names and values as they came, in order."""

HOP_BY_HOP = frozenset({
    b"connection", b"keep-alive", b"proxy-connection", b"proxy-authenticate", b"proxy-authorization", b"te", b"trailer",
    b"transfer-encoding", b"upgrade",
})  # fmt: skip
"""Headers of one leg only, by RFC 9110 §7.6.1 and older practice."""
NOT_TO_ENGINES = HOP_BY_HOP | frozenset({
    # ours to say
    b"host", b"content-length", b"content-encoding", b"accept-encoding", b"expect", b"x-request-id",
    # the client's credentials
    b"authorization", b"x-api-key", b"api-key", b"x-goog-api-key", b"cookie", b"cookie2",
    # a browser's business with us
    b"origin", b"referer", b"access-control-request-method", b"access-control-request-headers",
    b"pharos-queue-events",
})  # fmt: skip


class Own(msgspec.Struct, frozen=True):
    """What only one engine is told, made ready once."""

    refused: frozenset[bytes]
    """Names in lower case of what does not go to it, since it is not for engines or is replaced here."""
    lines: bytes
    """Whole header lines, then the name of the one for the request's id."""

    def __repr__(self) -> str:
        """Without the lines, in which a key may be."""
        return f"<Own {len(self.lines)} bytes>"


PLAIN = Own(NOT_TO_ENGINES, b"X-Request-Id: ")
"""For engines to which Pharos is nobody in particular."""
SECRET_FIELDS = frozenset({"key", "api_key", "api-key", "apikey", "access_token"})
"""Fields of a query string in which clients present a key."""
NOT_TO_CLIENTS = HOP_BY_HOP | frozenset({
    b"content-length", b"set-cookie", b"set-cookie2", b"alt-svc",
    b"x-request-id", b"x-pharos-target", b"x-pharos-reason",
})  # fmt: skip
STREAM_TYPES = (b"text/event-stream", b"application/x-ndjson")
STATUS_LINES = {status.value: f"HTTP/1.1 {status.value} {status.phrase}\r\n".encode() for status in HTTPStatus}
LAST_CHUNK = b"0\r\n\r\n"
CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"
NO_BODY = frozenset({204, 304})
RESET_CONTENT = 205
_NO_NAMES: frozenset[bytes] = frozenset()
_CONNECTION_LENGTH = len(b"connection")


def status_line(status: int) -> bytes:
    """The first line of a reply, for numbers without a name too."""
    return STATUS_LINES.get(status) or b"HTTP/1.1 %d Unknown\r\n" % status


def find(headers: Headers, name: bytes) -> bytes | None:
    """The first value of a header, by its name in lower case."""
    for key, value in headers:
        if len(key) == len(name) and key.lower() == name:
            return value
    return None


def named_by_connection(headers: Headers) -> frozenset[bytes]:
    """Header names that a `Connection` header ties to its leg, in lower case."""
    names = _NO_NAMES
    for key, value in headers:
        if len(key) == _CONNECTION_LENGTH and key.lower() == b"connection":
            names |= {part.strip().lower() for part in value.split(b",")}
    return names


def media_type(headers: Headers) -> bytes:
    """The content type in lower case without its parameters; empty when there is none."""
    value = find(headers, b"content-type")
    return b"" if value is None else value.partition(b";")[0].strip().lower()


def is_encoded(headers: Headers) -> bool:
    """Whether the body is compressed or otherwise coded: nothing inside can be read."""
    value = find(headers, b"content-encoding")
    return value is not None and value.strip().lower() not in {b"", b"identity"}


def own(pairs: Iterable[tuple[str, str]]) -> Own:
    """Make headers ready that replace what clients send under their names. None of them may be Content-Type."""
    ready = [(name.encode("ascii"), value.encode("ascii")) for name, value in pairs]
    lines = b"".join(b"%b: %b\r\n" % pair for pair in ready)
    return Own(NOT_TO_ENGINES | {name.lower() for name, _ in ready}, lines + PLAIN.lines)


def request_head(
    path: bytes, host: bytes, headers: Headers, request_id: bytes, own: Own = PLAIN, method: bytes = b"POST"
) -> bytes:
    """The head of a request to an engine up to the value of its Content-Length, which is the last header."""
    tied = named_by_connection(headers)
    refused = own.refused
    lines = [method, b" ", path, b" HTTP/1.1\r\nHost: ", host, b"\r\n"]
    typed = False
    for name, value in headers:
        low = name.lower()
        if low in refused or low in tied:
            continue
        typed = typed or low == b"content-type"
        lines += (name, b": ", value, b"\r\n")
    if not typed:
        lines.append(b"Content-Type: application/json\r\n")
    lines += (own.lines, request_id, b"\r\nAccept-Encoding: identity\r\nContent-Length: ")
    return b"".join(lines)


def query_to_engine(query: str) -> str:
    """The query string without fields that hold a client's credentials; all other bytes as they came."""
    fields = query.split("&")
    return "&".join(field for field in fields if unquote_plus(field.partition("=")[0]).lower() not in SECRET_FIELDS)


def with_length(head: bytes, length: int) -> bytes:
    """A request head with its one correct Content-Length."""
    return b"%b%d\r\n\r\n" % (head, length)


def reply_head(status: int, headers: Headers, ours: Iterable[bytes], *, stream: bool) -> bytes:
    """The head of a reply to the client: the engine's headers that may cross, then ours (whole lines)."""
    tied = named_by_connection(headers)
    lines = [status_line(status)]
    for name, value in headers:
        low = name.lower()
        if low in NOT_TO_CLIENTS or low in tied or (stream and low == b"x-accel-buffering"):
            continue
        lines += (name, b": ", value, b"\r\n")
    if stream:
        lines.append(b"X-Accel-Buffering: no\r\n")  # nginx in front would hold the whole stream otherwise
    lines += ours
    lines.append(b"\r\n")
    return b"".join(lines)
