"""The Docker Engine API on its unix socket: a session, its errors in our words, and answers of bounded size.

Forbidden here: knowing what is asked, and quoting anything of an answer: a description's environment holds keys.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final, TypeVar

import aiohttp
import msgspec

from pharos.control.follow.fault import Fault, FeedError

SOCKET: Final = "/var/run/docker.sock"
"""Where Docker listens by default."""
CONNECT_S: Final = 5.0
T = TypeVar("T")


def session_at(socket: str) -> aiohttp.ClientSession:
    """A session with the Docker that listens there; nothing is sent yet."""
    return aiohttp.ClientSession(
        "http://docker",
        connector=aiohttp.UnixConnector(socket),
        headers={"User-Agent": "pharos", "Accept-Encoding": "identity"},
        cookie_jar=aiohttp.DummyCookieJar(),
        timeout=aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_S),
        auto_decompress=False,
    )


async def decoded(response: aiohttp.ClientResponse, kind: type[T], what: str, most: int) -> T:
    """The answer, of at most so many bytes, as a type. `what` names it for people. Raises `FeedError`."""
    body = b""
    while part := await response.content.read(most + 1 - len(body)):
        body += part
        if len(body) > most:
            raise FeedError(Fault.UNREADABLE, f"{what} is too long")
    try:
        return msgspec.json.decode(body, type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        raise FeedError(Fault.UNREADABLE, f"{what} cannot be read") from None


@contextmanager
def errors_of(socket: str) -> Iterator[None]:
    """Turn the HTTP client's errors into ours."""
    try:
        yield
    except aiohttp.ClientConnectorError as error:
        raise _no_connection(error.os_error, socket) from None
    except TimeoutError:
        raise FeedError(Fault.SILENT, f"Docker does not answer at {socket}") from None
    except (aiohttp.ClientResponseError, ValueError):
        raise FeedError(Fault.UNREADABLE, f"what answers at {socket} is not Docker") from None
    except (aiohttp.ClientError, OSError):
        raise FeedError(Fault.CUT, "Docker closed the connection") from None


def _no_connection(error: OSError, socket: str) -> FeedError:
    if isinstance(error, FileNotFoundError):
        return FeedError(Fault.NOT_FOUND, f"there is no Docker socket at {socket}")
    if isinstance(error, PermissionError):
        return FeedError(
            Fault.NO_PERMISSION, f"no permission to use {socket}: Pharos must run as a member of the group that owns it"
        )
    return FeedError(Fault.NO_CONNECTION, f"nothing answers at {socket}: is Docker running?")
