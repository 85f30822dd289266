"""The connections of the listener for peers: few of strangers at a time, and nothing that they sent is said back.

# plan: who has shown the secret stays; of all others the one that came first goes when there are too many
# warning: stands on inner parts of aiohttp's server, which tests/peer/test_http.py would see move

Forbidden here: knowing what is asked for, and what the secret is.
"""

import asyncio
from typing import Any, Final

from aiohttp import web
from aiohttp.web_protocol import RequestHandler

MOST: Final = 64
"""Connections of strangers; each holds a descriptor that a client of ours could need."""


class Handler(RequestHandler):
    """One connection. What is no request is told so in our words, for aiohttp's own repeat what was sent."""

    __slots__ = ()

    def handle_error(
        self, request: web.BaseRequest, status: int = 500, exc: BaseException | None = None, message: str | None = None
    ) -> web.StreamResponse:
        """The answer to what cannot be read, or to a fault of ours."""
        del request, exc, message
        is_theirs = status < 500  # noqa: PLR2004 - faults of the server begin there
        text = "this is no request that a peer makes\n" if is_theirs else "a fault of Pharos: its log says more\n"
        response = web.Response(status=status, text=text)
        response.force_close()
        return response

    async def finish_response(
        self, request: web.BaseRequest, resp: web.StreamResponse, start_time: float | None
    ) -> tuple[web.StreamResponse, bool]:
        """Send an answer, which does not name what it was made by."""
        if not resp.prepared:
            resp.headers["Server"] = "Pharos"
        return await super().finish_response(request, resp, start_time)


class Door(web.Server):
    """All connections."""

    def __init__(self, handler: Any, **options: Any) -> None:  # noqa: ANN401 - as aiohttp has them
        super().__init__(handler, **options)
        self._known: set[object] = set()

    def __call__(self) -> Handler:
        """Make a connection."""
        return Handler(self, loop=self._loop, **self._kwargs)

    def know(self, request: web.BaseRequest) -> None:
        """Its sender has shown the secret: this connection is a peer's."""
        self._known.add(request.protocol)

    def connection_made(self, handler: RequestHandler, transport: asyncio.Transport) -> None:
        """Let somebody in; where there are too many strangers, the one that came first leaves."""
        super().connection_made(handler, transport)
        strangers = [one for it, one in self._connections.items() if it not in self._known and not one.is_closing()]
        if len(strangers) > MOST:
            strangers[0].abort()

    def connection_lost(self, handler: RequestHandler, exc: BaseException | None = None) -> None:
        """Somebody left."""
        self._known.discard(handler)
        super().connection_lost(handler, exc)
