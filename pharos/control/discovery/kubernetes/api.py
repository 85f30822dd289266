"""List and watch on the Kubernetes API: pages, lines, and every way in which either fails as one of a few errors.

Facts (API concepts of Kubernetes 1.29 to 1.37): a `continue` token and a resourceVersion may be too old (410, or an
ERROR event with that code); a watch ends by itself; bookmarks carry only a resourceVersion.

Forbidden here: deciding when to ask again, and quoting what the API says.
"""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager
from http import HTTPStatus
from typing import Final

import aiohttp
import msgspec

from pharos.control.discovery.kubernetes.login import Login, LoginError
from pharos.control.discovery.kubernetes.objects import Change, RawList, Status

PAGE: Final = 100
"""Objects of a page: read at once, so few enough that streams do not wait for it."""
ANSWER_S: Final = 30.0
"""Seconds within which one page must be there."""
WHOLE_S: Final = 120.0
"""The same for a list in one piece."""
CONNECT_S: Final = 5.0
MAX_PAGE: Final = 64 * 1024 * 1024
"""Bytes of a page: an object has at most 1.5 MiB or so, most Pods have some 10 KiB."""
OPENED: Final = "OPENED"
"""The type of a change that is none: the API has begun the watch."""
MAX_LINE: Final = 8 * 1024 * 1024
"""Bytes of one event."""
LATE_S: Final = 15.0
"""Seconds that a watch may last beyond what it was asked for: then the connection is dead."""

_NO_ANSWER: Final = f"no answer within {ANSWER_S:g} s"
_list: Final = msgspec.json.Decoder(RawList)
_change: Final = msgspec.json.Decoder(Change)
_status: Final = msgspec.json.Decoder(Status)


class ApiError(Exception):
    """The API cannot be asked, or said no; the text is for people."""

    def __init__(self, text: str, *, retry_s: float | None = None) -> None:
        super().__init__(text)
        self.retry_s = retry_s
        """Seconds after which the API wants to be asked again."""


class GoneError(ApiError):
    """What was asked for is too old: list again."""


class DeniedError(ApiError):
    """The account has no right to it."""


class UnauthorizedError(ApiError):
    """The token is not (or no longer) accepted."""


class Resource(msgspec.Struct, frozen=True):
    """One kind of object in one namespace, or in all."""

    group: str
    """`api/v1`, `apis/discovery.k8s.io/v1`."""
    name: str
    """Plural: `pods`."""
    namespace: str | None
    """`None`: all."""

    @property
    def path(self) -> str:
        """Where it is listed."""
        inside = f"/namespaces/{self.namespace}" if self.namespace is not None else ""
        return f"/{self.group}{inside}/{self.name}"

    def __str__(self) -> str:
        return f"{self.name} in {f'namespace {self.namespace}' if self.namespace is not None else 'all namespaces'}"


class Api:
    """One cluster's API as one account sees it."""

    def __init__(self, session: aiohttp.ClientSession, login: Login) -> None:
        """`session`: without a limit on the total time of a request; not closed here."""
        self._session = session
        self.login = login

    def __repr__(self) -> str:
        return f"<Api {self.login.url}>"

    async def list(self, resource: Resource, *, whole: bool = False) -> AsyncGenerator[RawList, None]:
        """All objects, as bytes, page by page; the last one's resourceVersion is where to watch from.

        `whole`: in one piece, for lists whose pages take so long that the later ones are gone. Raises `ApiError`.
        """
        params = {} if whole else {"limit": str(PAGE)}
        while True:
            body = await self._page(resource, params, WHOLE_S if whole else ANSWER_S)
            try:
                page = _list.decode(body)
            except (msgspec.DecodeError, RecursionError):
                raise ApiError(f"the list of {resource} cannot be read") from None
            yield page
            if not page.metadata.continue_:
                return
            params = params | {"continue": page.metadata.continue_}

    async def _page(self, resource: Resource, params: dict[str, str], within_s: float) -> bytes:
        with _errors(f"no list of {resource} within {within_s:g} s"):
            async with asyncio.timeout(within_s), self.get(resource.path, params) as response:
                _check(response, resource, "list")
                return await _limited(response)

    async def watch(self, resource: Resource, version: str, seconds: int) -> AsyncGenerator[Change, None]:
        """Changes from a resourceVersion on, `OPENED` first, until the API ends the watch. Raises `ApiError`."""
        params = {
            "watch": "true", "resourceVersion": version, "allowWatchBookmarks": "true", "timeoutSeconds": str(seconds),
        }  # fmt: skip
        tail = b""
        with _errors(f"the watch of {resource} fell silent"):
            async with asyncio.timeout(seconds + LATE_S), self.get(resource.path, params) as response:
                _check(response, resource, "watch")
                yield Change(OPENED, msgspec.Raw(b"{}"))
                async for part in response.content.iter_any():
                    *lines, tail = (tail + part).split(b"\n")
                    if len(tail) > MAX_LINE:
                        raise GoneError(f"an event of {resource} is too long")
                    for line in lines:
                        if line.strip():
                            yield _read(line, resource)

    async def post(self, path: str, body: object) -> tuple[int, bytes]:
        """Create an object; returns the status and what was made. Raises `ApiError`."""
        with _errors(_NO_ANSWER):
            async with asyncio.timeout(ANSWER_S), self._sent("POST", path, body=msgspec.json.encode(body)) as response:
                return response.status, await _limited(response)

    async def read(self, path: str) -> bytes | None:
        """One object; `None`: the API does not give it. Raises `ApiError`."""
        with _errors(_NO_ANSWER):
            async with asyncio.timeout(ANSWER_S), self.get(path, {}) as response:
                return await _limited(response) if response.status == HTTPStatus.OK else None

    def get(self, path: str, params: Mapping[str, str]) -> AbstractAsyncContextManager[aiohttp.ClientResponse]:
        """One GET, entered for its response; without a limit on its time. Raises the HTTP client's errors."""
        return self._sent("GET", path, params)

    @asynccontextmanager
    async def _sent(
        self, method: str, path: str, params: Mapping[str, str] | None = None, body: bytes | None = None
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        """One request with the token that is right now."""
        headers = {"Accept": "application/json", **await self._headers()}
        if body is not None:
            headers["Content-Type"] = "application/json"
        response = await self._session.request(
            method,
            self.login.url + path,
            params=params,
            data=body,
            headers=headers,
            ssl=self.login.tls if self.login.tls is not None else True,
            allow_redirects=False,
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_S),
        )
        try:
            yield response
        finally:
            response.close()  # a watch is given up in its middle: its connection is of no more use

    async def _headers(self) -> dict[str, str]:
        try:
            return await self.login.headers()
        except LoginError as error:
            raise UnauthorizedError(str(error)) from None


def rule(group: str, resource: str, verbs: Sequence[str], namespace: str | None) -> str:
    """The rule of a Role (of a ClusterRole, for all namespaces) that gives rights to a resource."""
    where = f"a Role in namespace {namespace}" if namespace is not None else "a ClusterRole"
    listed = ", ".join(f'"{verb}"' for verb in verbs)
    return f'{where} with apiGroups: ["{group}"], resources: ["{resource}"], verbs: [{listed}]'


@contextmanager
def _errors(silence: str) -> Iterator[None]:
    """Turn the HTTP client's errors into ours. `silence`: what is said where nothing came in time."""
    try:
        yield
    except TimeoutError:
        raise ApiError(silence) from None
    except (aiohttp.ClientError, OSError, ValueError) as error:
        raise _unreachable(error) from None


def _read(line: bytes, resource: Resource) -> Change:
    """One event. Raises `GoneError` where only a new list helps, and `ApiError`."""
    try:
        change = _change.decode(line)
    except (msgspec.DecodeError, RecursionError):
        raise GoneError(f"an event of {resource} cannot be read") from None
    if change.type != "ERROR":
        return change
    try:
        status = _status.decode(change.object)
    except msgspec.DecodeError:
        status = Status()
    if status.code in {HTTPStatus.GONE, 0} or status.reason in {"Expired", "Gone"}:
        raise GoneError(f"the watch of {resource} is too old")
    raise ApiError(f"the watch of {resource} ended with error {status.code}")


def _check(response: aiohttp.ClientResponse, resource: Resource, verb: str) -> None:
    status = response.status
    if status == HTTPStatus.OK:
        return
    if status == HTTPStatus.GONE:
        raise GoneError(f"what was listed of {resource} is too old")
    if status == HTTPStatus.UNAUTHORIZED:
        raise UnauthorizedError("the API server does not accept the token")
    if status == HTTPStatus.FORBIDDEN:
        raise DeniedError(f"no right to {verb} {resource}")
    again = response.headers.get("Retry-After", "")
    raise ApiError(
        f"the API server answers {status} to {verb} {resource}",
        retry_s=float(again) if again.isascii() and again.isdecimal() else None,
    )


async def _limited(response: aiohttp.ClientResponse) -> bytes:
    body = bytearray()
    async for part in response.content.iter_any():
        body += part
        if len(body) > MAX_PAGE:
            raise ApiError("the API server's answer is too long")
    return bytes(body)


def _unreachable(error: Exception) -> ApiError:
    if isinstance(error, aiohttp.ClientConnectorCertificateError):
        return ApiError("the API server's certificate is not the cluster's")
    return ApiError("the API server does not answer")
