"""A listener for pages alone, `/metrics` on an address of its own. Forbidden here: everything that needs a key."""

import asyncio
from collections.abc import Mapping
from typing import Final

from aiohttp import HttpVersion11, StreamReader, web
from aiohttp.http_parser import RawRequestMessage

from pharos.proxy import strict
from pharos.proxy.answer import Answer
from pharos.proxy.client import FAULT, ClientConnection, Listener, log_fault
from pharos.proxy.errors import PharosError, render, unknown_route
from pharos.proxy.incoming import JSON, PAGE_TAKEN_S, PageView, in_steps
from pharos.proxy.server import BACKLOG, CLEANUP_S, bind
from pharos.proxy.settings import ProxySettings
from pharos.proxy.turn import as_task

CONNECTIONS: Final = 32
"""More than a few programs that collect metrics need."""
HEADER_BYTES: Final = 16 * 1024
GETS: Final = ("GET", "HEAD")


class PageListener:
    """Answers GET on a few paths, and nothing else. What it shows needs no key, so it belongs on a private network."""

    draining = False
    """Collectors are served until the very end."""

    def __init__(self, pages: Mapping[str, PageView]) -> None:
        self._pages = pages
        self._hosts: set[str | None] = set()
        self._runner: web.ServerRunner | None = None
        self.port = 0
        """Known once it has started."""

    def __repr__(self) -> str:
        return f"<PageListener {', '.join(self._pages)} on port {self.port}>"

    async def start(self, listen: str) -> None:
        """Accept on `HOST:PORT` or `:PORT`. Raises OSError."""
        settings = ProxySettings(connections=CONNECTIONS, header_bytes=HEADER_BYTES)
        self._runner = web.ServerRunner(Listener(self._serve, settings), shutdown_timeout=CLEANUP_S)
        await self._runner.setup()
        try:
            sock = bind(listen)
        except OSError:
            await self.close()
            raise
        await web.SockSite(self._runner, sock, backlog=BACKLOG).start()
        self.port = sock.getsockname()[1]

    async def close(self) -> None:
        """Close everything at once."""
        if self._runner is not None:
            await self._runner.cleanup()
            self._runner = None

    async def _serve(self, connection: ClientConnection, message: RawRequestMessage, payload: StreamReader) -> None:
        wire = connection.wire
        if wire is None:
            return
        answer = Answer(
            wire, self, http11=message.version is HttpVersion11, keep_alive=not message.should_close,
            is_head=message.method == "HEAD", request_id="-",
        )  # fmt: skip
        if not payload.is_eof():
            answer.close_after()  # nobody asks for a page with a body
        try:
            await self._answer(message, answer)
            await as_task()
            async with asyncio.timeout(PAGE_TAKEN_S):
                await connection.drained()
        except TimeoutError:
            connection.abort()
        except PharosError as fault:
            _refuse(answer, fault)
        except Exception as error:  # noqa: BLE001 - whatever it is, the client must get an end
            log_fault("while making a page", error)
            _refuse(answer, FAULT)
        connection.is_kept = answer.is_started and answer.keep_alive

    async def _answer(self, message: RawRequestMessage, answer: Answer) -> None:
        doubt = strict.doubt(message, self._hosts)
        if doubt is not None:
            answer.close_after()
            raise doubt
        path = message.url.raw_path
        page = self._pages.get(path)
        if page is None or message.method not in GETS:
            raise unknown_route(message.method, path)
        made = page(message.url.query, message.headers.get("Accept", ""), True)  # noqa: FBT003 - as pages are called
        if not isinstance(made, tuple):
            made = await in_steps(made)
        status, content_type, body = made
        answer.whole(status, content_type.encode("ascii"), body)


def _refuse(answer: Answer, fault: PharosError) -> None:
    if answer.is_started:
        answer.break_off()
    else:
        answer.whole(fault.status, JSON, render(fault, "openai"))
