"""What is said to bytes that never became a request, or to a connection too many: whole replies, echoing nothing.

Forbidden here: parsing HTTP. Of the bytes only the path and the page's origin are looked for.
"""

import asyncio
import re
import secrets
from typing import Final

from aiohttp.http_exceptions import BadHttpMethod, BadStatusLine, InvalidURLError, LineTooLong

from pharos.proxy.answer import OPENING
from pharos.proxy.cors import Cors
from pharos.proxy.errors import ClientFault, PharosError, PharosFault, render, shape_for
from pharos.proxy.head import status_line
from pharos.proxy.incoming import JSON
from pharos.proxy.strict import BAD_FRAMING

START_LIMIT: Final = 4096
"""Bytes of the beginning that are looked at."""
TOO_BIG: Final = ClientFault(431, "headers_too_large", "The request line and its headers are too large: shorten them.")
FULL: Final = PharosFault(
    503, "too_many_connections", "Too many connections are open: try again shortly.", retry_after_s=1
)
_BROKEN: Final = ClientFault(400, "bad_request", "This is no valid HTTP request.")
_TLS: Final = ClientFault(400, "bad_request", "This port speaks plain HTTP, not TLS: use http:// in the URL.")
_LINE: Final = ClientFault(400, "bad_request", "This is no valid HTTP request: its first line is wrong.")
_HEADER: Final = ClientFault(
    400, "bad_request", "This is no valid HTTP request: a header is malformed, missing or there twice."
)
_FRAMING: Final = ClientFault(
    400,
    BAD_FRAMING,
    "This is no valid HTTP request: what it says about its body's end is wrong, or has two meanings.",
)
_REASONS: Final = (
    (b"Received HTTPS", _TLS),
    (b"Content-Length", _FRAMING),
    (b"Transfer-Encoding", _FRAMING),
    (b"hunk", _FRAMING),
    (b"after version", _LINE),
    (b"header", _HEADER),
)
"""Words of aiohttp's parser, ahead of the bytes that it quotes."""
_PATH: Final = re.compile(rb"[\r\n]*[!-~]+ +(?:https?://[^/\s]*)?(/[^\s?]*)")
_ORIGIN: Final = re.compile(rb"\r\norigin:[ \t]*([!-~]+)", re.IGNORECASE)


def fault_of(error: BaseException | None) -> ClientFault:
    """Which class of thing was wrong, by the parser's word for it; what it quotes is not looked at."""
    if error is None:
        return _BROKEN
    said = str(getattr(error, "message", error)).partition("\n")[0].encode("utf-8", "replace")
    if isinstance(error, LineTooLong) or said.startswith(b"Too many headers"):
        return TOO_BIG
    for words, fault in _REASONS:
        if words in said:
            return fault
    return _LINE if isinstance(error, BadHttpMethod | BadStatusLine | InvalidURLError) else _BROKEN


def dismiss(
    wire: asyncio.Transport, fault: PharosError, linger_s: float, start: bytes = b"", cors: Cors | None = None
) -> None:
    """Answer and close, but read on for a moment: closing on unread bytes would reset before the client has it.

    `start`: the beginning of what the client sent, as far as it is known.
    """
    wire.write(_whole(fault, start[:START_LIMIT], cors))
    if wire.can_write_eof():
        wire.write_eof()
    asyncio.get_running_loop().call_later(linger_s, wire.close)


def _whole(fault: PharosError, start: bytes, cors: Cors | None) -> bytes:
    """A whole reply for a client whose request is not known."""
    asked = _PATH.match(start)
    body = render(fault, shape_for("/" if asked is None else asked[1].decode("latin-1"), {}))
    opening = OPENING
    if cors is not None:
        page = _ORIGIN.search(start)
        opening = cors.opening({} if page is None else {"Origin": page[1].decode("latin-1")})
    lines = [
        status_line(fault.status),
        b"Content-Type: ", JSON, b"\r\n",
        b"Content-Length: %d\r\n" % len(body),
        opening, secrets.token_hex(16).encode(), b"\r\n",
    ]  # fmt: skip
    if fault.retry_after_s is not None:
        lines.append(b"Retry-After: %d\r\n" % fault.retry_after_s)
    lines += (b"Connection: close\r\n\r\n", body)
    return b"".join(lines)
