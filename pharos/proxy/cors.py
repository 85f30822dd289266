"""Which web pages may read replies (CORS): the header lines for them, and the answer to a browser that asks first.

# ops: opening, is_asked, allow · goal: nothing of it costs a request anything where no origin is configured
# plan: lines are made ready for each origin at the start; a reply begins with them
# warning: this keeps no request out; it tells browsers whom to show the reply

Forbidden here: looking at keys; I/O.
"""

import re
from collections.abc import Collection, Mapping
from typing import Final

from aiohttp import hdrs
from multidict import istr

from pharos.proxy.answer import OPENING
from pharos.proxy.errors import ClientFault
from pharos.proxy.head import QUOTA_HEADERS
from pharos.proxy.incoming import Incoming

ANY: Final = "*"
METHODS: Final = b"GET, HEAD, POST, DELETE"
"""Of all routes together: what a route does not take gets a 405, which the page can read."""
MAX_AGE_S: Final = 7200
"""Seconds for which a browser need not ask again; Chromium keeps no answer for longer."""
EXPOSED: Final = b", ".join([
    b"X-Request-Id, Retry-After, X-Pharos-Target, X-Pharos-Reason, Allow, Accept-Encoding", *QUOTA_HEADERS
])  # fmt: skip
"""Headers of replies that a page may read beside those that all may."""
_PRIVATE_NETWORK: Final = istr("Access-Control-Request-Private-Network")
_TOKEN: Final = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]{1,256}")
_PREFLIGHT: Final = (
    b"Access-Control-Allow-Methods: %b\r\n"
    b"Access-Control-Max-Age: %d\r\n"
    b"Vary: Access-Control-Request-Headers, Access-Control-Request-Private-Network\r\n"
) % (METHODS, MAX_AGE_S)


class Cors:
    """What browsers are told, by the origin of their page."""

    def __init__(self, origins: Collection[str]) -> None:
        """`origins`: as browsers write them, or `*` for every page."""
        exposed = b"Access-Control-Expose-Headers: " + EXPOSED + b"\r\n"
        self._openings: dict[str, bytes] = {}
        if ANY in origins:
            self._others = b"Access-Control-Allow-Origin: *\r\n" + exposed + OPENING
            self._is_open = True
        else:
            vary = b"Vary: Origin\r\n"  # else a cache may show one page what was meant for another
            for origin in origins:
                allowed = b"Access-Control-Allow-Origin: " + origin.encode("ascii") + b"\r\n"
                self._openings[origin] = allowed + vary + exposed + OPENING
            self._others = vary + OPENING
            self._is_open = False

    def __repr__(self) -> str:
        return f"<Cors {ANY if self._is_open else sorted(self._openings)}>"

    def opening(self, headers: Mapping[str, str]) -> bytes:
        """How the head of a reply begins: see `Answer`."""
        origin = headers.get(hdrs.ORIGIN)
        return self._others if origin is None else self._openings.get(origin, self._others)

    def answer(self, incoming: Incoming) -> bool:
        """Answer a browser that asks whether a page may send a request. False when this is no such question."""
        headers = incoming.headers
        origin = headers.get(hdrs.ORIGIN)
        if origin is None or hdrs.ACCESS_CONTROL_REQUEST_METHOD not in headers:
            return False
        if not self._is_open and origin not in self._openings:
            incoming.refuse(
                ClientFault(403, "origin_not_allowed", "Pages of this origin may not call: add it to `cors.origins`.")
            )
            return True
        lines = [_PREFLIGHT]
        wanted = _names(headers.getall(hdrs.ACCESS_CONTROL_REQUEST_HEADERS, ()))
        if wanted:
            lines.append(b"Access-Control-Allow-Headers: %b\r\n" % wanted)
        if headers.get(_PRIVATE_NETWORK, "").strip().lower() == "true":
            lines.append(b"Access-Control-Allow-Private-Network: true\r\n")
        incoming.answer.extra = lines
        incoming.agree()
        return True


def _names(values: Collection[str]) -> bytes:
    """The names of headers in these values: whatever else stands there does not come back."""
    named = (name.strip(" \t") for name in ",".join(values).split(","))
    return ", ".join(name for name in named if _TOKEN.fullmatch(name)).encode("ascii")
