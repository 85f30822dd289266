"""One request to an engine, brought home as a `Page` whatever happens: bounded in bytes and time.

Forbidden here: redirects, proxies from the environment, cookies, and reading what a body means.
"""

import asyncio
import errno
import ssl
from collections.abc import Callable
from contextlib import suppress
from typing import Final
from urllib.parse import urlsplit

import aiohttp
from aiohttp.http_exceptions import HttpProcessingError
from yarl import URL

from pharos import names
from pharos.clock import Clock, monotonic
from pharos.config.credentials import Credentials, Pairs
from pharos.control.wire import connector
from pharos.core.engine.probe import FetchFault, Page, split_ask
from pharos.core.engine.values import MAX_BODY
from pharos.core.fleet.backend import BackendSpec

MAX_BYTES: Final = MAX_BODY + 1
"""The longest body read: one that is too long to be parsed is still told from one that never ends."""
CONNECT_SHARE: Final = 0.75
"""Share of a fetch's time that connecting may take: 'cannot connect' and 'connected, then silence' stay apart."""

HEADERS: Final = {"User-Agent": "pharos", "Accept": "*/*", "Accept-Encoding": "identity"}


def new_session() -> aiohttp.ClientSession:
    """A session for fetching from engines: no proxy, no cookies, bodies as sent. The caller closes it."""
    return aiohttp.ClientSession(
        connector=connector(),
        headers=HEADERS,
        cookie_jar=aiohttp.DummyCookieJar(),
        trust_env=False,
        auto_decompress=False,
    )


class Fetcher:
    """Fetches pages from engines over one session, which it does not own."""

    def __init__(
        self,
        session: aiohttp.ClientSession,
        *,
        clock: Clock = monotonic,
        credentials: Credentials | None = None,
        on_page: Callable[[BackendSpec, str, Page], None] | None = None,
    ) -> None:
        """`on_page`: told of each page that a backend's feed gave, and by which path."""
        self._session = session
        self._on_page = on_page
        self.clock = clock
        """The clock that `Page.sent_at` is read from."""
        self.credentials = credentials if credentials is not None else Credentials()
        """What each backend is shown, and what its certificate is checked against."""

    async def ask(self, spec: BackendSpec, ask: str, timeout_s: float, max_bytes: int = MAX_BYTES) -> Page:
        """Make one request to a backend's feed, as `Feed.ask` names it, with what identifies us there; as `get`."""
        method, path, sent = split_ask(ask)
        page = await self.send(spec, method, path, sent, timeout_s, max_bytes)
        if self._on_page is not None:
            self._on_page(spec, path, page)
        return page

    async def send(
        self,
        spec: BackendSpec,
        method: str,
        path: str,
        sent: bytes | None,
        timeout_s: float,
        max_bytes: int = MAX_BYTES,
    ) -> Page:
        """Make one request to a backend, with what identifies us there; as `get`."""
        headers, tls = self.credentials.headers_for(spec), self.credentials.tls_for(spec)
        return await self.get(spec.url, path, timeout_s, max_bytes, method=method, sent=sent, headers=headers, tls=tls)

    async def get(
        self,
        url: str,
        path: str,
        timeout_s: float,
        max_bytes: int = MAX_BYTES,
        *,
        method: str = "GET",
        sent: bytes | None = None,
        headers: Pairs = (),
        tls: ssl.SSLContext | None = None,
    ) -> Page:
        """GET `url` + `path` within `timeout_s` seconds. Never raises, but for the cancellation of its own task.

        A redirect is an answer like any other: following it would read the state of some other program. `sent`: the
        JSON body of another method. `tls`: instead of the certificates that the system trusts.
        """
        sent_at = self.clock()
        timeout = aiohttp.ClientTimeout(total=timeout_s, connect=timeout_s * CONNECT_SHARE)
        extra = dict(headers)
        if sent is not None:
            extra["Content-Type"] = "application/json"
        try:
            async with self._session.request(
                method,
                _url(url, path),
                data=sent,
                headers=extra,
                ssl=True if tls is None else tls,
                timeout=timeout,
                allow_redirects=False,
            ) as response:
                body = await _read(response, max_bytes)
                took = self.clock() - sent_at
                if body is None:
                    response.close()  # what is still on its way is not worth reading
                    return Page(status=None, fault=FetchFault.TOO_LARGE, sent_at=sent_at, took_s=took)
                got = {name.lower(): value for name, value in response.headers.items()}
                return Page(status=response.status, body=body, headers=got, sent_at=sent_at, took_s=took)
        except (aiohttp.ClientError, OSError, ValueError, RuntimeError) as error:
            fault = fault_of(error)
            if isinstance(error, aiohttp.ConnectionTimeoutError) and url.startswith("https:"):
                fault = await _timed_out_fault(url, timeout_s * (1 - CONNECT_SHARE))
            return Page(status=None, fault=fault, sent_at=sent_at, took_s=self.clock() - sent_at)


def _url(url: str, path: str) -> URL:
    """The address of a path on an engine, whose own bytes stay as they are. Raises `ValueError`."""
    return URL(str(URL(url)).removesuffix("/") + path, encoded=True)


async def _timed_out_fault(url: str, timeout_s: float) -> FetchFault:
    """Why an https:// connection did not come about: no way to it, or a greeting that a plain HTTP server ignores."""
    parts = urlsplit(url)
    try:
        async with asyncio.timeout(timeout_s):
            port = parts.port if parts.port is not None else 443
            found = await names.lookup(parts.hostname if parts.hostname is not None else "")
            _, writer = await asyncio.open_connection(found[0][4][0], port)
    except OSError:
        return FetchFault.UNREACHABLE
    writer.transport.abort()
    with suppress(OSError):
        await writer.wait_closed()
    return FetchFault.TLS


async def _read(response: aiohttp.ClientResponse, max_bytes: int) -> bytes | None:
    """The whole body, or `None` when it is longer than `max_bytes`; never holds more than that and one read."""
    if response.content_length is not None and response.content_length > max_bytes:
        return None
    parts: list[bytes] = []
    size = 0
    while part := await response.content.readany():
        size += len(part)
        if size > max_bytes:
            return None
        parts.append(part)
    return b"".join(parts)


def fault_of(error: Exception) -> FetchFault:
    """Which of the closed set of faults an exception of the HTTP client stands for."""
    if isinstance(error, aiohttp.ConnectionTimeoutError):
        return FetchFault.UNREACHABLE
    if isinstance(error, aiohttp.ClientConnectorError):
        return _connect_fault(error)
    if isinstance(error, asyncio.TimeoutError):
        return FetchFault.TIMEOUT
    if isinstance(error, aiohttp.ClientResponseError):
        return FetchFault.NOT_HTTP
    if isinstance(error, aiohttp.ClientPayloadError):
        return FetchFault.RESET if _was_cut(error) else FetchFault.NOT_HTTP
    if isinstance(error, (aiohttp.ServerDisconnectedError, aiohttp.ClientOSError, ConnectionError)):
        return FetchFault.RESET
    # A name that cannot be written for a name server is one that none knows.
    return FetchFault.NAME if isinstance(error, UnicodeError) else FetchFault.UNREACHABLE


def _connect_fault(error: aiohttp.ClientConnectorError) -> FetchFault:
    if isinstance(error, aiohttp.ClientConnectorDNSError):
        return FetchFault.NAME
    if isinstance(error, aiohttp.ClientConnectorCertificateError):
        return FetchFault.CERTIFICATE
    if isinstance(error, aiohttp.ClientSSLError):
        return FetchFault.TLS
    if error.errno == errno.ECONNREFUSED:
        return FetchFault.REFUSED
    # Made and then closed before any request was sent: in the middle of a TLS greeting.
    return FetchFault.TLS if isinstance(error.os_error, ConnectionError) else FetchFault.UNREACHABLE


def _was_cut(error: aiohttp.ClientPayloadError) -> bool:
    """Whether a body ended too early, rather than being framed wrongly."""
    cause = error.__cause__
    return not isinstance(cause, HttpProcessingError) or "Not enough data" in str(cause)
