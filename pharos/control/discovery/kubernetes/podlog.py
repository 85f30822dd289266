"""A container's log through the API, as a feed of lines: from its start, followed, until the container ends.

Facts: the API ends a followed log when the container ends, and sometimes when the file is rotated; a Pod of several
containers must be asked for one of them; a container that waits to start is answered with 400. Forbidden here: keeping
a line, or quoting one.
"""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from http import HTTPStatus
from typing import Final
from urllib.parse import quote

import aiohttp

from pharos.control.discovery.kubernetes.api import Api, ApiError
from pharos.control.follow.fault import Fault, FeedError
from pharos.control.follow.lines import LineSplitter
from pharos.control.follow.source import IN_A_CLUSTER, OpenLog

NO_RIGHT: Final = 'no right to read logs: a Role needs resources: ["pods/log"], verbs: ["get"]'
_FAULTS: Final[dict[int, tuple[Fault, str]]] = {
    HTTPStatus.NOT_FOUND: (Fault.NOT_FOUND, "its Pod is not there (any more)"),
    HTTPStatus.FORBIDDEN: (Fault.NO_PERMISSION, NO_RIGHT),
    HTTPStatus.UNAUTHORIZED: (Fault.UNAUTHORIZED, "the API server does not accept the token"),
    HTTPStatus.BAD_REQUEST: (Fault.NOT_RUNNING, "its container does not run (yet)"),
}  # fmt: skip


def where(namespace: str, pod: str, container: str) -> str:
    """How a backend names such a log."""
    return f"{IN_A_CLUSTER}{namespace}/{pod}/{container}"


def open_pod_log(place: str, api: Callable[[], Api | None], *, follow: bool = True) -> OpenLog:
    """The log at such a place, unopened. `api`: the way to the cluster, `None` while there is none."""
    namespace, pod, container = place.removeprefix(IN_A_CLUSTER).split("/")
    path = f"/api/v1/namespaces/{quote(namespace, safe='')}/pods/{quote(pod, safe='')}/log"
    params = {"container": container, "follow": "true" if follow else "false"}

    @asynccontextmanager
    async def opened() -> AsyncIterator[AsyncIterator[bytes]]:
        cluster = api()
        if cluster is None:
            raise FeedError(Fault.NO_CONNECTION, "Kubernetes cannot be asked")
        try:
            async with cluster.get(path, params) as response:
                if response.status != HTTPStatus.OK:
                    fault, text = _FAULTS.get(response.status, (Fault.STATUS, "the API server refuses it"))
                    raise FeedError(fault, text)
                yield _lines(response)
        except (aiohttp.ClientError, OSError, ApiError, TimeoutError):
            raise FeedError(Fault.CUT, "the API server does not answer (any more)") from None

    return opened


async def _lines(response: aiohttp.ClientResponse) -> AsyncIterator[bytes]:
    splitter = LineSplitter()
    async for part in response.content.iter_any():
        for line in splitter.feed(part):
            yield line
