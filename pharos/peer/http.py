"""Calls to peers over HTTP: `POST /peer/delta`, `GET /peer/snapshot`.

Forbidden here: knowing what a delta says, redirects, proxies from the environment.
"""

import ssl
from collections.abc import AsyncIterator, Callable
from socket import AF_UNSPEC, AI_NUMERICHOST, AddressFamily
from typing import Final

import aiohttp
import msgspec
from aiohttp.abc import AbstractResolver, ResolveResult

from pharos import names
from pharos.peer.link import LinkFault
from pharos.peer.secret import BEARER, Secret

DELTA_PATH: Final = "/peer/delta"
SNAPSHOT_PATH: Final = "/peer/snapshot"
TELL_S: Final = 2.0
CONNECT_S: Final = 1.5
PULL_S: Final = 60.0
"""A snapshot may take so long in all, and a third of that between two reads."""
MOST_ANSWER: Final = 64 * 1024
UNAUTHORIZED: Final = 401
CONFLICT: Final = 409


class HttpLink:
    """Calls over one session of its own, which `close` ends."""

    def __init__(self, secret: Secret, tls: Callable[[], ssl.SSLContext] | None) -> None:
        """`tls`: what to speak TLS with; `None`: plain HTTP."""
        self._secret = secret
        self._tls = tls
        self._shown: dict[str, str] = {}
        """By address, the secret that it took last."""
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0, use_dns_cache=False, resolver=_Resolver(), keepalive_timeout=30),
            cookie_jar=aiohttp.DummyCookieJar(),
            headers={"User-Agent": "pharos", "Accept-Encoding": "identity"},
            trust_env=False,
            auto_decompress=False,
        )

    def __repr__(self) -> str:
        return f"<HttpLink {'plain' if self._tls is None else 'TLS'}>"

    async def close(self) -> None:
        """Close all connections."""
        await self._session.close()

    async def tell(self, address: str, delta: bytes) -> bytes:
        """See `Link.tell`."""
        timeout = aiohttp.ClientTimeout(total=TELL_S, connect=CONNECT_S)
        try:
            for secret in self._secrets(address):
                async with self._call("POST", address, DELTA_PATH, secret, timeout, delta) as response:
                    body = await response.content.read(MOST_ANSWER)
                    if response.status != UNAUTHORIZED:
                        self._shown[address] = secret
                        _check(response, body)
                        return body
        except (aiohttp.ClientError, OSError, ValueError, RuntimeError) as fault:
            raise _fault_of(fault) from None
        raise LinkFault("refused", "refuses our secret: peers.secret_file must be the same everywhere")

    async def pull(self, address: str) -> AsyncIterator[bytes]:
        """See `Link.pull`."""
        timeout = aiohttp.ClientTimeout(total=PULL_S, connect=CONNECT_S, sock_read=PULL_S / 3)
        try:
            for secret in self._secrets(address):
                async with self._call("GET", address, SNAPSHOT_PATH, secret, timeout, None) as response:
                    if response.status == UNAUTHORIZED:
                        continue
                    if response.status != 200:  # noqa: PLR2004 - the one good answer
                        _check(response, await response.content.read(MOST_ANSWER))
                    async for data in response.content.iter_chunked(64 * 1024):
                        yield data
                    return
        except (aiohttp.ClientError, OSError, ValueError, RuntimeError) as fault:
            raise _fault_of(fault) from None
        raise LinkFault("refused", "refuses our secret: peers.secret_file must be the same everywhere")

    def _secrets(self, address: str) -> list[str]:
        """Those to show, the one that was taken last first."""
        valid = self._secret.valid()
        if not valid:
            raise LinkFault("refused", "cannot be asked while peers.secret_file holds no secret")
        last = self._shown.get(address)
        if len(self._shown) > 1000:  # noqa: PLR2004 - many more than there are peers
            self._shown.clear()
        return sorted(valid, key=lambda secret: secret != last) if last in valid[1:] else list(valid)

    def _call(
        self, method: str, address: str, path: str, secret: str, timeout: aiohttp.ClientTimeout, body: bytes | None
    ) -> "aiohttp.client._RequestContextManager":
        scheme = "http" if self._tls is None else "https"
        return self._session.request(
            method,
            f"{scheme}://{address}{path}",
            data=body,
            headers={"Authorization": BEARER + secret},
            ssl=True if self._tls is None else self._tls(),
            timeout=timeout,
            allow_redirects=False,
        )


class _Refusal(msgspec.Struct, frozen=True):
    proto: int | None = None
    text: str = ""


def _check(response: aiohttp.ClientResponse, body: bytes) -> None:
    """Raise `LinkFault` for an answer that takes nothing."""
    if response.status == 200:  # noqa: PLR2004 - the one good answer
        return
    try:
        told = msgspec.msgpack.decode(body, type=_Refusal)
    except (msgspec.MsgspecError, RecursionError, ValueError):
        told = _Refusal()
    if response.status == CONFLICT:
        theirs = f"protocol {told.proto}" if told.proto is not None else "another protocol"
        raise LinkFault("protocol", f"speaks {theirs}", told.proto)
    if response.status == 503:  # noqa: PLR2004 - it says that it cannot now
        raise LinkFault("unreachable", "cannot take anything now")
    raise LinkFault("broken", f"answers with status {response.status}: is it the peer port of a Pharos?")


def _fault_of(fault: Exception) -> LinkFault:
    if isinstance(fault, aiohttp.ClientConnectorCertificateError):
        return LinkFault("broken", "shows a certificate that peers.tls.ca_file does not stand for")
    if isinstance(fault, aiohttp.ClientConnectorDNSError):
        return LinkFault("unreachable", "has a name that cannot be resolved")
    if isinstance(fault, (aiohttp.ClientSSLError, ssl.SSLError)):
        return LinkFault("broken", "cannot agree on TLS with us: peers.tls must be set everywhere or nowhere")
    if isinstance(fault, (aiohttp.ServerTimeoutError, TimeoutError)):
        return LinkFault("unreachable", "does not answer in time")
    if isinstance(fault, (aiohttp.ClientResponseError, aiohttp.ClientPayloadError)):
        return LinkFault("broken", "does not speak HTTP: is it the peer port of a Pharos?")
    if isinstance(fault, aiohttp.InvalidURL):
        return LinkFault("unreachable", "has an address that cannot be one")
    return LinkFault("unreachable", "cannot be reached")


class _Resolver(AbstractResolver):
    """Names for the session, looked up where no dead name holds up the others, and never kept."""

    async def resolve(self, host: str, port: int = 0, family: AddressFamily = AF_UNSPEC) -> list[ResolveResult]:
        """Every address; the connector tries one after the other."""
        found = await names.lookup(host)
        return [
            ResolveResult(hostname=host, host=str(where[0]), port=port, family=kind, proto=proto, flags=AI_NUMERICHOST)
            for kind, _, proto, _, where in found
            if family in (AF_UNSPEC, kind)
        ]

    async def close(self) -> None:
        """Nothing is its own."""
