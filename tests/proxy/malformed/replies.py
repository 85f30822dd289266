"""What engines may answer that is malformed, ambiguous, or more than one answer."""

import gzip
import json

from tests.proxy.malformed.case import Told, chunk

ANSWER = json.dumps(
    {"choices": [{"message": {"content": "hi"}}], "usage": {"prompt_tokens": 1, "completion_tokens": 1}}
).encode()
SIZE = len(ANSWER)
OK = b"HTTP/1.1 200 OK\r\n"
TYPE = b"Content-Type: application/json\r\n"
LENGTH = b"Content-Length: %d\r\n" % SIZE
CHUNKED = b"Transfer-Encoding: chunked\r\n"
PLAIN = OK + TYPE + LENGTH + b"\r\n" + ANSWER
BAD = "bad_reply"


def _line(name: str, first: bytes) -> Told:
    return Told(f"line {name}", first + b"\r\n" + TYPE + LENGTH + b"\r\n" + ANSWER, BAD)


def _field(name: str, field: bytes) -> Told:
    return Told(f"field {name}", OK + field + b"\r\n" + TYPE + LENGTH + b"\r\n" + ANSWER, BAD)


def _framing(name: str, *fields: bytes, body: bytes = ANSWER) -> Told:
    return Told(f"framing {name}", OK + TYPE + b"".join(field + b"\r\n" for field in fields) + b"\r\n" + body, BAD)


def _chunks(name: str, body: bytes) -> Told:
    """Broken before the first whole byte of a body."""
    return Told(f"chunks {name}", OK + TYPE + CHUNKED + b"\r\n" + body, "bad_reply", status=200)


LINES = [
    _line("of two digits", b"HTTP/1.1 20 OK"),
    _line("of four digits", b"HTTP/1.1 2000 OK"),
    _line("of letters", b"HTTP/1.1 abc OK"),
    _line("of a negative number", b"HTTP/1.1 -200 OK"),
    _line("without a status", b"HTTP/1.1"),
    _line("of status 000", b"HTTP/1.1 000 OK"),
    _line("of status 099", b"HTTP/1.1 099 OK"),
    _line("of status 600", b"HTTP/1.1 600 OK"),
    _line("of status 999", b"HTTP/1.1 999 OK"),
    _line("of HTTP/3", b"HTTP/3.0 200 OK"),
    _line("of HTTP/1.2", b"HTTP/1.2 200 OK"),
    _line("of another protocol", b"ICY 200 OK"),
    _line("of a request", b"POST /x HTTP/1.1"),
    _line("with a bare CR", b"HTTP/1.1 200 O\rK"),
    _line("of TLS", bytes.fromhex("15030300020228")),
    _line("of SSH", b"SSH-2.0-x"),
    _line("of HTML", b"<html>"),
    _line("of JSON", ANSWER),
    Told("lines that end with LF", PLAIN.replace(b"\r\n", b"\n"), BAD),
    Told("zeros", bytes(100), BAD),
]
FIELDS = [
    _field("folded", b"X: a\r\n b"),
    _field("folded into another", b"X: a\r\n Set-Cookie: evil"),
    _field("with a NUL", b"X: a\0b"),
    _field("with a bare CR", b"X: a\rSet-Cookie: evil"),
    _field("with a bare LF", b"X: a\nSet-Cookie: evil"),
    _field("with a control character", b"X: a\x01b"),
    _field("without a colon", b"X"),
    _field("without a name", b": a"),
    _field("with a space in its name", b"X Y: a"),
    _field("with a space before its colon", b"X : a"),
    Told("field that never ends", OK + b"X: " + b"a" * 400_000, BAD),
    Told("fields that never end", OK + b"X: a\r\n" * 60_000, BAD),
]
FRAMING = [
    _framing("of both, length first", b"Content-Length: 5", b"Transfer-Encoding: chunked", body=chunk(ANSWER)),
    _framing("of both, coding first", b"Transfer-Encoding: chunked", b"Content-Length: 5", body=chunk(ANSWER)),
    _framing("of two lengths", b"Content-Length: 5", LENGTH.strip()),
    _framing("of the same length twice", LENGTH.strip(), LENGTH.strip()),
    _framing("of a list of lengths", b"Content-Length: %d, %d" % (SIZE, SIZE)),
    _framing("of a negative length", b"Content-Length: -1"),
    _framing("of a length with a plus", b"Content-Length: +%d" % SIZE),
    _framing("of a length in hex", b"Content-Length: 0x10"),
    _framing("of a length over 64 bits", b"Content-Length: 18446744073709551616"),
    _framing("of an empty length", b"Content-Length:"),
    _framing("of a packing coding", b"Transfer-Encoding: gzip, chunked", body=chunk(gzip.compress(ANSWER))),
    _framing("of a packing coding alone", b"Transfer-Encoding: gzip", body=gzip.compress(ANSWER)),
    _framing("of no coding by name", b"Transfer-Encoding: identity"),
    _framing("of an unknown coding", b"Transfer-Encoding: xchunked", body=chunk(ANSWER)),
    _framing("of chunks twice", b"Transfer-Encoding: chunked", b"Transfer-Encoding: chunked", body=chunk(ANSWER)),
    _framing("of chunks twice in one", b"Transfer-Encoding: chunked, chunked", body=chunk(ANSWER)),
]
CHUNKS = [
    _chunks("of a negative size", b"-5\r\n" + ANSWER),
    _chunks("of no size", b"\r\n" + ANSWER),
    _chunks("of words", b"zz\r\n" + ANSWER),
    _chunks("of a size over 64 bits", b"1" + b"0" * 16 + b"\r\n" + ANSWER),
    _chunks("whose size ends with LF", chunk(ANSWER).replace(b"\r\n", b"\n", 1)),
    _chunks("longer than they say", b"5\r\n" + ANSWER + b"\r\n0\r\n\r\n"),
    _chunks("with an endless extension", b"5;" + b"a" * 400_000),
    _chunks("with a broken trailer", chunk(ANSWER, b"0\r\nX Y: a\r\n\r\n")),
    _chunks("with an endless trailer", chunk(ANSWER, b"0\r\nX: " + b"a" * 600_000)),
]
MANY = [
    Told("two replies at once", PLAIN + PLAIN, "ok", status=200, body=ANSWER),
    Told("rubbish behind the reply", PLAIN + b"rubbish", "ok", status=200, body=ANSWER),
    Told("a length shorter than its body", OK + TYPE + b"Content-Length: 2\r\n\r\n" + ANSWER, "empty_reply",
        status=200, body=ANSWER[:2]),
    Told("a length longer than its body", OK + TYPE + b"Content-Length: 500\r\n\r\n" + ANSWER, "died_mid_reply",
        status=200, then_closes=True),
    Told("chunks that end early", OK + TYPE + CHUNKED + b"\r\n" + chunk(ANSWER, b""), "died_mid_reply", status=200,
        then_closes=True),
    Told("a head that ends early", OK + TYPE, "died_before_reply", status=503, then_closes=True),
    Told("nothing at all", b"", "died_before_reply", status=503, then_closes=True),
    Told("only interim replies", b"HTTP/1.1 100 Go\r\n\r\n" * 3, "died_before_reply", status=503, then_closes=True),
    Told("a flood of interim replies", b"HTTP/1.1 102 Processing\r\n\r\n" * 12_000, BAD),
    Told("a few interim replies", b"HTTP/1.1 103 Early\r\nX: a\r\n\r\n" * 9 + PLAIN, "ok", status=200, body=ANSWER,
        reused=True),
    Told("a switch nobody asked for", b"HTTP/1.1 101 Switching\r\nConnection: upgrade\r\nUpgrade: x\r\n\r\n" + PLAIN,
        BAD),
    Told("a body behind 204", b"HTTP/1.1 204 No\r\n" + LENGTH + b"\r\n" + ANSWER, "ok", status=204, body=b""),
    Told("a body behind 304", b"HTTP/1.1 304 No\r\n" + LENGTH + b"\r\n" + ANSWER, "ok", status=304, body=b""),
    Told("a trailer", OK + TYPE + CHUNKED + b"\r\n" + chunk(ANSWER, b"0\r\nSet-Cookie: evil\r\nX-Evil: 1\r\n\r\n"),
        "ok",
        status=200, body=ANSWER, reused=True),
    Told("a name of a packing that lies", OK + TYPE + b"Content-Encoding: gzip\r\n" + LENGTH + b"\r\n" + ANSWER, "ok",
        status=200, body=ANSWER, reused=True),
    Told("a leg that hides what the body is", OK + TYPE + LENGTH + b"Connection: Content-Type, Content-Length\r\n\r\n"
        + ANSWER, "ok", status=200, body=ANSWER, reused=True),
    Told("headers of another's business", OK + TYPE + LENGTH + b"Set-Cookie: evil\r\nAlt-Svc: evil\r\n\r\n" + ANSWER,
        "ok", status=200, body=ANSWER, reused=True),
]  # fmt: skip
REPLIES = [*LINES, *FIELDS, *FRAMING, *CHUNKS, *MANY]
