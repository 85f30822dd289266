"""Connections to engines for the HTTP client: whose names are looked up aside, and what is no answer at all is cut off.

Forbidden here: requests, and reading what an answer says.
"""

import socket
from functools import partial
from typing import Any, Final, cast

import aiohttp
from aiohttp.abc import AbstractResolver, ResolveResult
from aiohttp.client_proto import ResponseHandler
from aiohttp.http_exceptions import HttpProcessingError

from pharos import names

MOST_INTERIM: Final = 64
"""Answers of the kind "100 Continue" on one connection; nothing that is sent here asks for any."""
_INTERIM: Final = b"\r\n\r\nHTTP/1.1 1"


def connector() -> aiohttp.TCPConnector:
    """Return a connector without limits of its own and without a memory of names."""
    made = aiohttp.TCPConnector(limit=0, limit_per_host=0, use_dns_cache=False, resolver=_Resolver())
    made._factory = cast("partial[ResponseHandler]", partial(_Handler, loop=made._loop))  # noqa: SLF001 (there is no other way in)
    return made


class _Handler(ResponseHandler):
    """The client's protocol, which would read interim answers for as long as they come, all of one read at once."""

    _interim = 0

    def data_received(self, data: bytes) -> None:
        """Take bytes in, unless they are one interim answer after the other."""
        self._interim += data.count(_INTERIM)
        if self._interim > MOST_INTERIM:
            self.set_exception(HttpProcessingError(code=400, message="interim answers without end"))
            if self.transport is not None:
                self.transport.abort()
            return
        super().data_received(data)


class _Resolver(AbstractResolver):
    """Names for the session, looked up where no dead name holds up the others."""

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_UNSPEC
    ) -> list[ResolveResult]:
        """Every address; the connector tries one after the other."""
        found = await names.lookup(host)
        return [
            ResolveResult(
                hostname=host, host=_written(where), port=port, family=kind, proto=proto, flags=socket.AI_NUMERICHOST
            )
            for kind, _, proto, _, where in found
            if family in (socket.AF_UNSPEC, kind)
        ]

    async def close(self) -> None:
        """Nothing is its own."""


def _written(where: tuple[Any, ...]) -> str:
    """An address as text, with the zone that it needs when it is link-local."""
    is_zoned = len(where) > 3 and where[3] != 0  # noqa: PLR2004 (host, port, flow, zone)
    return f"{where[0]}%{where[3]}" if is_zoned else str(where[0])
