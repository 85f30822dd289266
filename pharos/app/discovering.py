"""What finds backends beside the list of the configuration, and when it is wanted. Forbidden here: finding any."""

import stat
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

import msgspec

from pharos.app import kubernetes
from pharos.app.backends import Backends
from pharos.config.schema import Config, Docker
from pharos.control.discovery.docker import DockerLabels
from pharos.control.follow.dockerapi import SOCKET
from pharos.control.tasks import Tasks
from pharos.core.fleet import Event

DOCKER: Final = "Docker labels"
"""The source of the backends that labels make."""


def docker_of(config: Config, environ: Mapping[str, str]) -> Docker:
    """Docker as configured; where nothing says otherwise, the one that the variable DOCKER_HOST names."""
    wanted = config.discovery.docker
    named = environ.get("DOCKER_HOST", "")
    if wanted.socket == SOCKET and named.startswith("unix:///"):
        return msgspec.structs.replace(wanted, socket=named.removeprefix("unix://"))
    return wanted


def is_wanted(docker: Docker) -> bool:
    """Whether to look for labels: when told to, or by itself when its socket is there."""
    if docker.enabled == "auto":
        try:
            return stat.S_ISSOCK(Path(docker.socket).stat().st_mode)
        except OSError:
            return False
    return docker.enabled


class Discovering:
    """The sources of one instance beside the configuration."""

    def __init__(self, docker: Docker, cluster: kubernetes.Cluster | None, on_event: Callable[[Event], None]) -> None:
        """`cluster`: `None` where none is looked at."""
        self._docker = docker
        self._cluster = cluster
        self._on_event = on_event
        self.sources = tuple(
            name
            for name, is_asked in ((DOCKER, is_wanted(docker)), (kubernetes.SOURCE, cluster is not None))
            if is_asked
        )
        """Names of those that are asked."""

    def __repr__(self) -> str:
        return f"<Discovering {', '.join(self.sources) if self.sources else 'nothing'}>"

    def wake(self) -> None:
        """Look again at what credentials are named in; Docker is looked at every half minute anyway."""
        if self._cluster is not None:
            self._cluster.wake()

    def start(self, tasks: Tasks, backends: Backends, config: Callable[[], Config]) -> None:
        """Look from now on. `config`: what is served now."""
        if DOCKER in self.sources:
            watcher = DockerLabels(
                self._docker.socket,
                tell=lambda specs: backends.tell(DOCKER, specs),
                credentials=lambda: config().credentials,
                on_event=self._on_event,
                is_asked=self._docker.enabled is True,
            )
            tasks.start("Docker labels", watcher.run)
        if self._cluster is not None:
            self._cluster.start(tasks, backends, config)
