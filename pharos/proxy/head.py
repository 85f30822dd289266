"""The heads of both legs: which headers of a request go to an engine, which of a reply go to the client. No I/O.

Header names and values stay the bytes that came, so nothing is decoded wrongly on the way.
"""

from collections.abc import Collection, Iterable, Sequence
from http import HTTPStatus
from itertools import product

import msgspec

from pharos.proxy.auth import SHORTEST

Headers = Sequence[tuple[bytes, bytes]]
"""Names and values as they came, in order."""


def with_look_alikes(names: Iterable[bytes]) -> frozenset[bytes]:
    """Header names and what some servers take for them: with `_` for any `-`."""
    apart = (name.split(b"-") for name in names)
    return frozenset(
        b"".join((parts[0], *map(bytes.__add__, marks, parts[1:])))
        for parts in apart
        for marks in product((b"-", b"_"), repeat=len(parts) - 1)
    )


HOP_BY_HOP = frozenset({
    b"connection", b"keep-alive", b"proxy-connection", b"proxy-authenticate", b"proxy-authorization", b"te", b"trailer",
    b"transfer-encoding", b"upgrade",
})  # fmt: skip
"""Headers of one leg only, by RFC 9110 §7.6.1 and older practice."""
NOT_TO_ENGINES = with_look_alikes(HOP_BY_HOP | {
    # ours to say
    b"host", b"content-length", b"content-encoding", b"accept-encoding", b"expect", b"x-request-id",
    # the client's credentials
    b"authorization", b"x-api-key", b"api-key", b"x-goog-api-key", b"cookie", b"cookie2",
    # a browser's business with us
    b"origin", b"referer", b"access-control-request-method", b"access-control-request-headers",
    b"access-control-request-private-network",
    b"pharos-queue-events",
    # what makes some servers do another thing than the one that was checked here
    b"x-http-method-override", b"x-http-method", b"x-method-override", b"x-original-url", b"x-rewrite-url",
}) | {b"content_type"}  # fmt: skip
PRESENTING = with_look_alikes((b"authorization", b"x-api-key", b"api-key", b"x-goog-api-key"))
"""Headers in which clients present a key."""
FOR_ALL = frozenset({b"content-type", b"content-encoding"})
"""Headers that belong to a body: no `Connection` can tie them to one leg."""


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
QUOTA_HEADERS = tuple(
    name % (first, second)
    for name, firsts, seconds in (
        (b"x-ratelimit-%b-%b", (b"limit", b"remaining", b"reset"), (b"requests", b"tokens")),
        (b"anthropic-ratelimit-%b-%b", (b"requests", b"tokens"), (b"limit", b"remaining", b"reset")),
    )
    for first, second in product(firsts, seconds)
)
"""What a client's key has left: Pharos's to say, since an engine would tell of the key that Pharos shows it."""
NOT_TO_CLIENTS = HOP_BY_HOP | frozenset(QUOTA_HEADERS) | frozenset({
    b"content-length", b"set-cookie", b"set-cookie2", b"alt-svc",
    b"x-request-id", b"x-pharos-target", b"x-pharos-reason",
    # addresses inside, which no client may be able or allowed to reach
    b"location", b"content-location", b"refresh",
    # which web pages may read a reply is said by Pharos (cors.py)
    b"access-control-allow-origin", b"access-control-allow-credentials", b"access-control-allow-headers",
    b"access-control-allow-methods", b"access-control-allow-private-network", b"access-control-expose-headers",
    b"access-control-max-age",
})  # fmt: skip
STREAM_TYPES = (b"text/event-stream", b"application/x-ndjson")
STATUS_LINES = {status.value: f"HTTP/1.1 {status.value} {status.phrase}\r\n".encode() for status in HTTPStatus}
LAST_CHUNK = b"0\r\n\r\n"
CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"
NO_BODY = frozenset({204, 304})
RESET_CONTENT = 205
REDIRECTS = frozenset({300, 301, 302, 303, 305, 307, 308})
UNREAD = NO_BODY | REDIRECTS | {RESET_CONTENT}
"""Statuses of replies in whose bodies nothing is looked for."""
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


def named_by_connection(headers: Headers) -> Collection[bytes]:
    """Header names that a `Connection` header ties to its leg, in lower case."""
    names: set[bytes] | None = None
    for key, value in headers:
        if len(key) == _CONNECTION_LENGTH and key.lower() == b"connection":
            if names is None:
                names = set()
            names.update([part.strip().lower() for part in value.split(b",")])
    return _NO_NAMES if names is None else names - FOR_ALL


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
    return Own(NOT_TO_ENGINES | with_look_alikes(name.lower() for name, _ in ready), lines + PLAIN.lines)


def request_head(
    path: bytes, host: bytes, headers: Headers, request_id: bytes, own: Own = PLAIN, method: bytes = b"POST"
) -> bytes:
    """The head of a request to an engine up to the value of its Content-Length, which is the last header."""
    tied = named_by_connection(headers)
    refused = own.refused
    lines = [method, b" ", path, b" HTTP/1.1\r\nHost: ", host, b"\r\n"]
    typed = False
    presented: tuple[bytes, ...] = ()
    for name, value in headers:
        low = name.lower()
        if low in refused or low in tied:
            if low in PRESENTING:
                presented += (value,)
            continue
        typed = typed or low == b"content-type"
        lines += (name, b": ", value, b"\r\n")
    if not typed:
        lines.append(b"Content-Type: application/json\r\n")
    lines += (own.lines, request_id, b"\r\nAccept-Encoding: identity\r\nContent-Length: ")
    made = b"".join(lines)
    for value in presented:
        secret = value.rpartition(b" ")[2]
        if secret in made and secret and (kept := _without(headers, secret, tied)) is not headers:
            return request_head(path, host, kept, request_id, own, method)
    return made


def _without(headers: Headers, secret: bytes, tied: Collection[bytes]) -> Headers:
    """The headers without those that show the client's key under another name, if there are any."""

    def shows(name: bytes, value: bytes) -> bool:
        low = name.lower()
        if low in NOT_TO_ENGINES or low in FOR_ALL or low in tied:
            return False
        return secret in value if len(secret) >= SHORTEST else secret == value.strip()

    kept = [(name, value) for name, value in headers if not shows(name, value)]
    return headers if len(kept) == len(headers) else kept


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
