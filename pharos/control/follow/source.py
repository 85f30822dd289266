"""Where an engine's log is: one interface for files, containers and what may come.

Whatever opens a log is called without arguments and gives an asynchronous context manager; entered, that is an iterator
of lines as bytes, from the log's start (of the process that runs now), without line ends, none longer than
`lines.LineSplitter` lets through. It ends, or raises `FeedError`, when the log can be followed no longer; a last line
without an end is not given.

Forbidden here: reading configuration.
"""

import asyncio
import re
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager
from typing import Final
from urllib.parse import unquote

import msgspec

from pharos.control.follow.docker import open_container
from pharos.control.follow.dockerapi import SOCKET
from pharos.control.follow.file import open_file
from pharos.control.tasks import Sleep

OpenedLog = AbstractAsyncContextManager[AsyncIterator[bytes]]
OpenLog = Callable[[], OpenedLog]
"""What a source of logs is to those who follow it."""

IN_A_CLUSTER: Final = "kubernetes://"
"""How the place of a log begins that discovery found in a cluster; nobody can configure one."""

_CONTAINER: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]*")


class FileLog(msgspec.Struct, frozen=True):
    """A log in a file."""

    path: str


class DockerLog(msgspec.Struct, frozen=True):
    """A log of a container."""

    name: str
    """Its name or id."""


def parse_where(where: str) -> FileLog | DockerLog:
    """Read `file:///PATH` (percent-encoded where needed) or `docker://NAME`; raises `ValueError` for people."""
    scheme, _, rest = where.partition("://")
    if scheme == "file":
        path = unquote(rest)
        if not path.startswith("/") or "\0" in path:
            raise ValueError(
                "a log in a file is named by its absolute path, with three slashes: file:///var/log/engine.log"
            )
        return FileLog(path)
    if scheme == "docker":
        if _CONTAINER.fullmatch(rest) is None:
            raise ValueError("a log of a container is named by the container's name or id: docker://ollama")
        return DockerLog(rest)
    raise ValueError("a log is docker://NAME or file:///PATH")


def open_logs(
    where: str, *, docker_socket: str = SOCKET, follow: bool = True, sleep: Sleep = asyncio.sleep
) -> OpenedLog:
    """Return the log at `where`, unopened. Without `follow` its lines end where the log ends at that time.

    Raises `ValueError` for a place that is none; `FeedError` comes on entering and while lines are read.
    """
    match parse_where(where):
        case FileLog(path):
            return open_file(path, follow=follow, sleep=sleep)
        case DockerLog(name):
            return open_container(name, socket=docker_socket, follow=follow)
