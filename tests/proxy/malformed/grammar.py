"""Makes requests of every protocol at random, and spoils them. One seed, one stream of bytes."""

import json
import random
from typing import Any

from msgspec import Struct

from tests.proxy.malformed.case import MARK

TALK = [{"role": "user", "content": "hi"}]
BODIES: dict[str, dict[str, Any]] = {
    "/v1/chat/completions": {"messages": TALK},
    "/v1/completions": {"prompt": "once"},
    "/v1/messages": {"max_tokens": 5, "messages": TALK},
    "/v1/messages/count_tokens": {"messages": TALK},
    "/v1/responses": {"input": "hi"},
    "/v1/embeddings": {"input": ["a", "b"]},
    "/v1/rerank": {"query": "a", "documents": ["b"]},
    "/tokenize": {"prompt": "hi"},
    "/api/chat": {"messages": TALK, "stream": False},
    "/api/generate": {"prompt": "hi", "stream": False},
    "/api/embed": {"input": "hi"},
}
FORM = (
    b'--x\r\nContent-Disposition: form-data; name="model"\r\n\r\nm\r\n'
    b'--x\r\nContent-Disposition: form-data; name="file"; filename="a"\r\n\r\n\0\1\r\n--x--\r\n'
)
PAGES = [("GET", "/livez"), ("GET", "/v1/models"), ("HEAD", "/"), ("GET", "/api/tags"), ("GET", "/nowhere")]
PLAIN = [b"Accept: */*", b"User-Agent: x/1", b"X-Request-Id: a-1", b"anthropic-version: 2023-06-01", b"X:", b"X: \xff"]
NASTY = [
    b"Content-Length: 5", b"Content-Length: 0", b"Content-Length: -1", b"Content-Length: +27", b"Content-Length: 5, 5",
    b"Content-Length:", b"Transfer-Encoding: chunked", b"Transfer-Encoding: gzip, chunked", b"Transfer-Encoding: x",
    b"Transfer-Encoding:",
    b"Transfer-Encoding:\tchunked", b"Transfer-Encoding : chunked", b"Host: evil", b"Host: a b", b"Connection: close",
    b"Connection: Content-Length", b"Connection: keep-alive", b"Connection: Upgrade\r\nUpgrade: h2c", b"Expect: x",
    b"Expect: 100-continue", b"Connection: Upgrade\r\nUpgrade: websocket", b"X: a\r\n b", b"X: a\nb", b"X: a\rb",
    b"X\0: a", b": a", b"X", b" X: a", b"Trailer: X", b"Content_Length: 3", b"Content-Type: text/plain",
]  # fmt: skip
TARGETS = [b"#x", b"\t", b"?a=\tb", b"?a#b", b"/", b"/..", b"%00", b"\x0c", b" ", b"\xff", b"%2f", b";a"]
BYTES = [b"\r", b"\n", b"\r\n", b"\0", b" ", b"\t", b":", b",", b";", b"0", b"9", b"\x0b", b"\x7f", b"\xff", b"#", b"/"]


class Sent(Struct, frozen=True):
    """One stream of a client."""

    pieces: tuple[bytes, ...]
    requests: int
    """How many were made."""
    is_whole: bool
    """Whether nothing was spoiled."""

    @property
    def data(self) -> bytes:
        return b"".join(self.pieces)


def stream(chance: random.Random) -> Sent:
    """One connection's bytes."""
    count = chance.choice([1, 1, 1, 2, 2, 3, 4])
    made = [_request(chance) for _ in range(count)]
    spoils = chance.choice([0, 1, 1, 1, 1, 2, 2, 3])
    data = b"".join(made)
    for _ in range(spoils):
        data = chance.choice(SPOILS)(data, chance)
    return Sent(tuple(_cut(data, chance)), count, is_whole=spoils == 0)


def _request(chance: random.Random) -> bytes:
    if chance.random() < 0.15:
        method, path = chance.choice(PAGES)
        return _head(chance, method, path, []) + b"\r\n"
    if chance.random() < 0.08:
        kind = b"Content-Type: multipart/form-data; boundary=x"
        return _framed(chance, _head(chance, "POST", "/v1/audio/transcriptions", [kind]), FORM)
    path, fields = chance.choice(list(BODIES.items()))
    body = json.dumps({"model": "m", **fields, "pad": "x" * chance.choice([0, 0, 3, 200])}).encode()
    return _framed(chance, _head(chance, "POST", path, []), body)


def _head(chance: random.Random, method: str, path: str, fields: list[bytes]) -> bytes:
    target = chance.choice(["", "", "", "", "http://y.example"]) + path + chance.choice(["", "", "", "?a=1&b=%2f"])
    minor = chance.choice("1111111110")
    if minor == "0":
        fields = [*fields, b"Connection: keep-alive"]
    fields = [b"Host: x", b"Authorization: Bearer " + MARK, *fields, *chance.sample(PLAIN, chance.randrange(3))]
    chance.shuffle(fields)
    return f"{method} {target} HTTP/1.{minor}\r\n".encode() + b"".join(field + b"\r\n" for field in fields)


def _framed(chance: random.Random, head: bytes, body: bytes) -> bytes:
    if b" HTTP/1.0\r\n" in head or chance.random() < 0.6:
        return head + chance.choice([b"Content-Length: ", b"content-length:"]) + b"%d\r\n\r\n" % len(body) + body
    parts, at = [], 0
    while at < len(body):
        size = chance.choice([1, 7, 30, len(body)])
        piece = body[at : at + size]
        parts.append(b"%x%b\r\n%b\r\n" % (len(piece), chance.choice([b"", b"", b"", b";a=b"]), piece))
        at += size
    last = chance.choice([b"0\r\n\r\n"] * 4 + [b"0\r\nX-Sum: 1\r\n\r\n", b"0\r\nX-Api-Key: other\r\nA: b\r\n\r\n"])
    return head + b"Transfer-Encoding: chunked\r\n\r\n" + b"".join(parts) + last


def _cut(data: bytes, chance: random.Random) -> list[bytes]:
    how = chance.random()
    if how < 0.35:
        return [data]
    if how < 0.45 and len(data) < 600:
        return [data[at : at + 1] for at in range(len(data))]
    cuts = sorted(chance.randrange(len(data) + 1) for _ in range(chance.choice([1, 1, 2, 5])))
    return [piece for start, end in zip([0, *cuts], [*cuts, len(data)], strict=True) if (piece := data[start:end])]


# --- how a stream is spoiled


def _flip(data: bytes, chance: random.Random) -> bytes:
    at = chance.randrange(len(data)) if data else 0
    return data[:at] + bytes([chance.randrange(256)]) + data[at + 1 :]


def _insert(data: bytes, chance: random.Random) -> bytes:
    at = chance.randrange(len(data) + 1)
    return data[:at] + chance.choice(BYTES) + data[at:]


def _delete(data: bytes, chance: random.Random) -> bytes:
    at = chance.randrange(len(data) + 1)
    return data[:at] + data[at + chance.choice([1, 1, 2, 10, 100]) :]


def _repeat(data: bytes, chance: random.Random) -> bytes:
    at = chance.randrange(len(data) + 1)
    return data[:at] + data[max(0, at - chance.choice([1, 5, 60, 400])) :]


def _end(data: bytes, chance: random.Random) -> bytes:
    return data[: chance.randrange(len(data) + 1)]


def _of_lines(data: bytes, chance: random.Random, change: Any) -> bytes:
    lines = data.split(b"\r\n")
    at = chance.randrange(len(lines))
    return b"\r\n".join([*lines[:at], *change(lines[at]), *lines[at + 1 :]])


def _repeat_line(data: bytes, chance: random.Random) -> bytes:
    return _of_lines(data, chance, lambda line: [line, line])


def _drop_line(data: bytes, chance: random.Random) -> bytes:
    return _of_lines(data, chance, lambda _: [])


def _add_line(data: bytes, chance: random.Random) -> bytes:
    return _of_lines(data, chance, lambda line: [line, chance.choice(NASTY)])


def _change_number(data: bytes, chance: random.Random) -> bytes:
    lines = data.split(b"\r\n")
    numbered = [at for at, line in enumerate(lines) if line.lower().startswith(b"content-length") or line.isalnum()]
    if not numbered:
        return data
    at = chance.choice(numbered)
    name, colon, _ = lines[at].partition(b":")
    value = chance.choice([b"0", b"1", b"5", b"30", b"400", b"-1", b"0x5", b"1b", b"9" * 20, b" 7", b"7 "])
    lines[at] = name + colon + value if colon else value
    return b"\r\n".join(lines)


def _bare(data: bytes, chance: random.Random) -> bytes:
    ends = [at for at in range(len(data)) if data.startswith(b"\r\n", at)]
    if not ends:
        return data
    at = chance.choice(ends)
    return data[:at] + chance.choice([b"\n", b"\r", b"\r\r\n", b" \r\n", b""]) + data[at + 2 :]


def _change_target(data: bytes, chance: random.Random) -> bytes:
    at = data.find(b" HTTP/1.", chance.randrange(len(data) + 1))
    return data if at < 0 else data[:at] + chance.choice(TARGETS) + data[at:]


SPOILS = [
    _flip, _flip, _insert, _insert, _delete, _repeat, _end, _repeat_line, _drop_line, _add_line, _add_line, _add_line,
    _change_number, _change_number, _bare, _bare, _change_target,
]  # fmt: skip
