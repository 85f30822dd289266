"""What aiohttp's parser lets through and another reader may understand otherwise. Such a request is refused.

Nothing is read or sent here. Most requests show by a few of their parts that there is nothing to look for.
"""

import re
from typing import Final

from aiohttp import HttpVersion10, HttpVersion11, hdrs
from aiohttp.http_parser import RawRequestMessage

from pharos.proxy.errors import ClientFault

BAD_FRAMING: Final = "bad_framing"
HOSTS_KEPT: Final = 256
"""Values of `Host` that are remembered as valid."""
LONGEST_LENGTH: Final = 19
"""Digits of a stated length; one of all 64 bits would be taken for none."""
_HOST: Final = re.compile(r"(?:[\w.~!$&'()*+,;=%-]*|\[[0-9A-Fa-f:.]+\])(?::[0-9]*)?\Z", re.ASCII)
_TARGET: Final = re.compile(r"(?:(?:https?://[^/?#@\\]+)?/[!-~]*|https?://[^/?#@\\]+|\*)\Z", re.IGNORECASE)


def doubt(message: RawRequestMessage, hosts: set[str | None]) -> ClientFault | None:
    """Why a request is not to be served; `None` when there is nothing against it. `hosts`: values known to be valid.

    To be asked when it is not of HTTP/1.1, has a transfer coding, asks for another protocol, or has an unknown Host.
    """
    version, headers = message.version, message.headers
    if version not in (HttpVersion10, HttpVersion11):
        return ClientFault(505, "http_version", "Pharos speaks HTTP/1.1 and HTTP/1.0.", type="invalid_request_error")
    if message.method == "CONNECT":
        return ClientFault(405, "method_not_allowed", "Pharos is no forward proxy.")
    host = headers.get(hdrs.HOST)
    if host is not None and host not in hosts:
        if _HOST.match(host) is None:
            return ClientFault(400, "bad_request", "The header `Host` names no host.")
        if len(hosts) >= HOSTS_KEPT:
            hosts.clear()
        hosts.add(host)
    coding = headers.get(hdrs.TRANSFER_ENCODING)
    if coding is not None:
        if coding.lower() != "chunked":  # an empty one passes aiohttp, beside a length too
            return ClientFault(400, BAD_FRAMING, "The only transfer coding that is understood is `chunked`.")
        if version is not HttpVersion11:
            return ClientFault(400, BAD_FRAMING, "HTTP/1.0 knows no transfer coding.")
    return None


def doubtful_target(target: str) -> ClientFault | None:
    """Why a request's target, as it came, is none; `None` when it is one. The paths of routes need not be asked for."""
    if "#" not in target and _TARGET.match(target) is not None:
        return None
    return ClientFault(400, "bad_request", "The target of the request is no path and no URL of HTTP.")
