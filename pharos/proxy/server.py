"""The public listener: what the program starts, drains and closes.

No request is judged here: that is the routes' business.
"""

import asyncio
import contextlib
import errno
import logging
import re
import resource
import secrets
import socket
from collections.abc import Callable, Coroutine, Mapping
from itertools import chain, count
from typing import Any, cast

import msgspec
from aiohttp import HttpVersion11, StreamReader, hdrs, web
from aiohttp.http_parser import RawRequestMessage
from multidict import CIMultiDictProxy, istr
from yarl import URL

from pharos.clock import Clock
from pharos.core.fleet import Event, Fleet
from pharos.core.sched import Ledger, Refusal
from pharos.proxy import drain, strict
from pharos.proxy.answer import OPENING, Answer
from pharos.proxy.auth import Keyring, is_presented
from pharos.proxy.client import FAULT, ClientConnection, Listener, log_fault
from pharos.proxy.cors import Cors
from pharos.proxy.dial import watch
from pharos.proxy.done import OnDone
from pharos.proxy.errors import unavailable
from pharos.proxy.forward import Forwarder
from pharos.proxy.gate import Gate
from pharos.proxy.head import Headers
from pharos.proxy.identity import Identity, Nobody, Ways
from pharos.proxy.incoming import Incoming, PageView
from pharos.proxy.ollama import LastPage, no_page
from pharos.proxy.quotas import Quotas
from pharos.proxy.responses import Responses
from pharos.proxy.routes import Routes, TracedRoutes
from pharos.proxy.settings import ProxySettings
from pharos.proxy.table import ROUTES
from pharos.proxy.unmade import FULL, TOO_BIG
from pharos.proxy.upstream import Pool

__all__ = ["PageView", "Proxy", "bind", "raise_open_files"]

log = logging.getLogger(__name__)

BACKLOG = 1024
CLEANUP_S = 2.0
"""Seconds that handlers get to end when everything is closed."""
REQUEST_ID = re.compile(r"[A-Za-z0-9._:/+=@-]{1,128}\Z")
REQUEST_ID_HEADER = istr("X-Request-Id")
HOST, CODING = hdrs.HOST, hdrs.TRANSFER_ENCODING
SPARE_PATHS = frozenset({"/livez", "/healthz", "/metrics"})
"""What is served beyond the limit of connections."""
HEADER_EXTRA = len(": \r\n")
_joined, _flat = b"".join, chain.from_iterable  # a sixth less than to add up lengths
_PROCESS = secrets.token_hex(8)
_NUMBERS = count(secrets.randbits(32))


class Proxy:
    """The data plane: one listener, its routes, its connections to engines."""

    def __init__(  # noqa: PLR0913 - the composition root gives it everything
        self,
        settings: ProxySettings,
        *,
        ledger: Ledger,
        fleet: Fleet,
        gate: Gate,
        keyring: Keyring,
        on_done: OnDone,
        on_event: Callable[[Event], None],
        pages: Mapping[str, PageView],
        clock: Clock,
        wall: Callable[[], float],
        identity: Identity | None = None,
        last_page: LastPage = no_page,
        traced: bool = False,
        quotas: Quotas | None = None,
    ) -> None:
        """`identity`: what engines are shown; `None`: nothing but what their own descriptions say.

        `last_page`: what scraping read last of the pages that lists are made from. `quotas`: what keeps keys within
        theirs; `None`: nothing does. `traced`: whether records keep the trace that a client's request belongs to.
        """
        self.ready = False
        """Whether requests are let in; set by the composition root."""
        self.draining = False
        self.inflight = 0
        """Requests in work, waiting ones included."""
        self.gate = gate
        self.ledger = ledger
        self.pool = Pool(settings.connect_s, clock)
        self._settings = settings
        self._clock = clock
        self._hosts: set[str | None] = set()
        ways = Ways(identity if identity is not None else Nobody(), self.pool.close_idle)
        self.responses = responses = Responses()
        """Which engine made which response, for other instances to know."""
        self._cors = Cors(settings.cors_origins) if settings.cors_origins else None
        forwarder = Forwarder(
            gate=gate, fleet=fleet, caches=ledger.caches, pool=self.pool, settings=settings, on_event=on_event,
            clock=clock, wall=wall, ways=ways, responses=responses,
        )  # fmt: skip
        self.routes = (TracedRoutes if traced else Routes)(
            state=self, settings=settings, fleet=fleet, keyring=keyring, forwarder=forwarder, responses=responses,
            pages=pages, last_page=last_page, on_done=on_done, clock=clock, wall=wall,
            cors=self._cors, quotas=quotas,
        )  # fmt: skip
        self._listener: Listener | None = None
        self._runner: web.ServerRunner | None = None
        self._port: int | None = None

    def __repr__(self) -> str:
        state = "draining" if self.draining else "ready" if self.ready else "not ready"
        return f"<Proxy {state} {self.inflight} in work>"

    @property
    def port(self) -> int:
        """The port of the first listener. Raises RuntimeError before `start`."""
        if self._port is None:
            raise RuntimeError("the proxy is not started")
        return self._port

    @property
    def connections(self) -> list[ClientConnection]:
        """The clients connected now."""
        return [] if self._listener is None else cast("list[ClientConnection]", self._listener.connections)

    async def start(self, listen: str) -> None:
        """Accept clients on `HOST:PORT`, `[V6]:PORT` or `:PORT` (everywhere); several calls add up. Raises OSError."""
        raise_open_files()
        if self._runner is None:
            self._listener = Listener(
                self._serve if self._cors is None else self._serve_pages, self._settings, self._cors
            )
            self._runner = web.ServerRunner(self._listener, shutdown_timeout=CLEANUP_S)
            await self._runner.setup()
        sock = bind(listen)
        watch(sock)
        await web.SockSite(self._runner, sock, backlog=BACKLOG).start()
        if self._port is None:
            self._port = sock.getsockname()[1]

    def adopt(self, settings: ProxySettings) -> None:
        """Go by these from the next request on. The largest head and the origins of web pages stay as they were."""
        kept = msgspec.structs.replace(
            settings, header_bytes=self._settings.header_bytes, cors_origins=self._settings.cors_origins
        )
        self._settings = kept
        self.pool.connect_s = kept.connect_s
        self.routes.adopt(kept)
        if self._listener is not None:
            self._listener.limit = kept.connections

    async def drain(self, grace_s: float, timeout_s: float) -> None:
        """End without breaking a stream: see drain.py. Returns when everything is closed."""
        await drain.drain(self, grace_s, timeout_s)

    async def stop_accepting(self) -> None:
        """Close the listening sockets; connections stay."""
        if self._runner is not None:
            for site in list(self._runner.sites):
                await site.stop()

    def refuse_waiting(self) -> None:
        """Refuse everyone who waits for a slot, comes for one, or still sends a body: no slot is given any more."""
        self.routes.door.uploads.end(unavailable(drain.ENDING, drain.RETRY_AFTER_S))
        self.gate.end(Refusal("unavailable", drain.RETRY_AFTER_S, drain.ENDING))

    async def close(self) -> None:
        """Close everything at once."""
        await self._drop_clients()
        if self._runner is not None:
            await self._runner.cleanup()
            self._runner = None
        self.pool.close()
        self.gate.close()

    async def _drop_clients(self) -> None:
        """Part from clients whose request is in work: aiohttp would wait for each of them, twice."""
        for connection in self.connections:
            if connection.is_busy:
                connection.abort()
        loop = asyncio.get_running_loop()
        until = loop.time() + CLEANUP_S
        while self.inflight > 0 and loop.time() < until:  # noqa: ASYNC110 - many ends at once
            await asyncio.sleep(0.001)

    def _serve_pages(
        self, connection: ClientConnection, message: RawRequestMessage, payload: StreamReader
    ) -> Coroutine[Any, Any, None]:
        """Serve where web pages of some origins may read replies."""
        opening = OPENING if self._cors is None else self._cors.opening(message.headers)
        return self._serve(connection, message, payload, opening)

    async def _serve(
        self, connection: ClientConnection, message: RawRequestMessage, payload: StreamReader, opening: bytes = OPENING
    ) -> None:
        wire = connection.wire
        if wire is None:
            return
        http11 = message.version is HttpVersion11
        method, headers, raw_headers = message.method, message.headers, message.raw_headers
        answer = Answer(
            wire, self, http11=http11, keep_alive=not message.should_close, is_head=method == "HEAD",
            request_id=_request_id(headers), opening=opening,
        )  # fmt: skip
        doubt = None
        if not http11 or CODING in headers or message.upgrade or headers.get(HOST) not in self._hosts:
            doubt = strict.doubt(message, self._hosts)
            connection.look_behind(message, answer)
        path, query = message.path, ""
        route = ROUTES.get(path)
        if route is None:
            doubt = doubt or strict.doubtful_target(path)
            path, query = _parted(message.url)
        incoming = Incoming(
            method=method,
            path=path,
            query=query,
            headers=headers,
            raw_headers=raw_headers,
            payload=payload,
            http11=http11,
            answer=answer,
            client=connection,
            arrived_at=self._clock(),
        )
        self.inflight += 1
        try:
            if doubt is not None or _size(raw_headers) > self._settings.header_bytes:
                answer.close_after()
                incoming.refuse(TOO_BIG if doubt is None else doubt)
            elif connection.is_spare and not _may_use_spare(answer, incoming.path):
                incoming.refuse(FULL)
            elif route is not None and method in route.methods:
                await self.routes.engine(route, incoming)
            else:
                rest = self._beside(incoming)
                if rest is not None:
                    await rest
            if connection.writing_paused:
                await connection.drained()
        except asyncio.CancelledError:
            raise
        except Exception as error:  # noqa: BLE001 - whatever it is, the client must get an end
            log_fault("while answering a request", error)
            incoming.refuse(FAULT)
        finally:
            self.inflight -= 1
        connection.is_kept = answer.is_started and answer.keep_alive

    def _beside(self, incoming: Incoming) -> Coroutine[Any, Any, None] | None:
        """What is no plain request for an engine. aiohttp takes a length of all 64 bits for none, and swallows it."""
        if len(incoming.headers.get(hdrs.CONTENT_LENGTH, "")) > strict.LONGEST_LENGTH:
            incoming.answer.close_after()
        return self.routes.serve(incoming)


def _parted(url: URL) -> tuple[str, str]:
    """Path and query of a target, as they came."""
    if url.absolute:
        url = url.relative()
    return url.raw_path or "/", url.raw_query_string


def _may_use_spare(answer: Answer, path: str) -> bool:
    """Whether a request may be served beyond the limit of connections; either way it is the last one there."""
    answer.close_after()
    return path in SPARE_PATHS


def _request_id(headers: CIMultiDictProxy[str]) -> str:
    """The client's own id when it is harmless, else a new one: a part of its own for this process, then a number.

    It tells requests apart and guards nothing, so it need not ask the system for chance each time.
    """
    given = headers.get(REQUEST_ID_HEADER)
    if given is not None and REQUEST_ID.match(given) and not is_presented(given, headers):
        return given
    return f"{_PROCESS}{next(_NUMBERS):016x}"


def _size(headers: Headers) -> int:
    """The bytes of a request's headers."""
    return len(_joined(_flat(headers))) + HEADER_EXTRA * len(headers)


def bind(listen: str) -> socket.socket:
    """A listening socket; `:PORT` takes IPv4 and IPv6 together where the system can."""
    name, _, port = listen.rpartition(":")
    number = int(port)
    if not name:
        if socket.has_dualstack_ipv6():
            try:
                return socket.create_server(("", number), family=socket.AF_INET6, dualstack_ipv6=True, backlog=BACKLOG)
            except OSError as error:
                if error.errno != errno.EADDRNOTAVAIL:
                    raise
        log.warning("this machine has no IPv6: %s takes clients of IPv4 only", listen)
        return socket.create_server(("", number), backlog=BACKLOG)
    family = socket.AF_INET6 if name.startswith("[") else socket.AF_INET
    return socket.create_server((name.strip("[]"), number), family=family, backlog=BACKLOG)


def raise_open_files() -> None:
    """Lift the soft limit of open files to the hard one: every stream takes two."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        with contextlib.suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
