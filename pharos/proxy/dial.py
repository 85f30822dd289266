"""Opens one TCP or TLS connection to an engine, all its addresses tried (happy eyeballs: uvloop has none of its own).

Nothing is sent here and no engine is judged.
"""

import asyncio
import re
import socket
import ssl
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any, TypeVar
from urllib.parse import unquote, urlsplit

import aiohappyeyeballs
import msgspec

from pharos import names
from pharos.proxy.turn import as_task

NEXT_ADDRESS_S = 0.25
"""Seconds until the next address is tried beside a silent one (RFC 8305 recommends 250 ms)."""
PORTS = {"http": 80, "https": 443}

IDLE_PROBE_S = 30
"""Seconds of silence after which the system asks whether the other side is still there."""
PROBE_EVERY_S = 10
PROBES = 3
"""No TCP_USER_TIMEOUT beside these: it would also end a peer that lives and only reads nothing for a while."""

_ZONE = re.compile(r"%[^\]]*\]")
_UNTRUSTED = {
    9: "it is not valid yet",
    10: "it has expired",
    62: "it is for another name",
    64: "it is for another name",
}
"""OpenSSL's codes of faults; its own texts name addresses."""
_UNKNOWN = "it is of no authority that is known here"

P = TypeVar("P", bound=asyncio.Protocol)


class DialError(Exception):
    """No connection to the engine. The text is for people and names no address."""


class Endpoint(msgspec.Struct, frozen=True):
    """The parts of a backend's URL that connections and heads need."""

    address: str
    port: int
    tls: bool
    host: bytes
    """Value of the Host header."""
    path: bytes
    """What stands before every path, without a slash at its end."""


@lru_cache(maxsize=1024)
def endpoint(url: str) -> Endpoint:
    """Take a backend's URL apart. Raises ValueError when it is none."""
    parts = urlsplit(url)
    if parts.scheme not in PORTS or not parts.hostname:
        raise ValueError("a backend's URL starts with http:// or https:// and names an address")
    address, host = parts.hostname, parts.netloc.rpartition("@")[2]
    if host.startswith("[") and "%" in host:  # of IPv6, with the interface of this machine: no business of the engine
        address, host = unquote(address), _ZONE.sub("]", host)
    port = parts.port if parts.port is not None else PORTS[parts.scheme]
    return Endpoint(
        address,
        port,
        parts.scheme == "https",
        host.encode("idna" if not host.isascii() else "ascii"),
        parts.path.rstrip("/").encode(),
    )


def watch(sock: socket.socket) -> None:
    """Have the system find a peer that vanished: no packet tells of a lost node. Accepted sockets inherit this."""
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in (
        ("TCP_KEEPIDLE", IDLE_PROBE_S),
        ("TCP_KEEPINTVL", PROBE_EVERY_S),
        ("TCP_KEEPCNT", PROBES),
    ):
        option = getattr(socket, name, None)  # not every platform has all of them
        if option is not None:
            sock.setsockopt(socket.IPPROTO_TCP, option, value)


@lru_cache(maxsize=1)
def _tls() -> ssl.SSLContext:
    return ssl.create_default_context()


async def dial(url: str, make: Callable[[], P], timeout_s: float, tls: ssl.SSLContext | None = None) -> P:
    """Connect within `timeout_s` (0: no limit). Raises DialError; never leaves a socket behind.

    `tls`: instead of the certificates that the system trusts.
    """
    where = endpoint(url)
    await as_task()
    try:
        async with asyncio.timeout(timeout_s if timeout_s > 0 else None):
            return await _connect(where, make, tls)
    except TimeoutError as error:
        raise DialError("connecting took too long") from error
    except (socket.gaierror, UnicodeError) as error:  # the second: no name at all, such as one with an empty part
        raise DialError("its name cannot be resolved") from error
    except ssl.SSLCertVerificationError as error:
        raise DialError(f"its certificate is not trusted ({_UNTRUSTED.get(error.verify_code, _UNKNOWN)})") from error
    except ssl.SSLError as error:
        raise DialError("TLS failed") from error
    except ConnectionRefusedError as error:
        raise DialError("connection refused") from error
    except OSError as error:
        raise DialError("no connection") from error


async def _connect(where: Endpoint, make: Callable[[], P], tls: ssl.SSLContext | None) -> P:
    loop = asyncio.get_running_loop()
    found: Sequence[Any]
    if names.is_address(where.address):
        found = await loop.getaddrinfo(where.address, where.port, type=socket.SOCK_STREAM, proto=socket.IPPROTO_TCP)
    else:
        found = [names.with_port(address, where.port) for address in await names.lookup(where.address)]
    sock = await aiohappyeyeballs.start_connection(found, happy_eyeballs_delay=NEXT_ADDRESS_S, loop=loop)
    try:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        watch(sock)
        if where.tls:
            _, made = await loop.create_connection(
                make, sock=sock, ssl=tls if tls is not None else _tls(), server_hostname=where.address.partition("%")[0]
            )
        else:
            _, made = await loop.create_connection(make, sock=sock)
    except BaseException:
        sock.close()
        raise
    return made
