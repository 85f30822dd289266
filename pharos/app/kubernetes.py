"""Backends of a Kubernetes cluster: who looks for them, who is told of refusals, and how their logs are read.

Forbidden here: looking.
"""

import os
import random
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Final

import aiohttp

from pharos import clock
from pharos.app import clustered
from pharos.app.backends import Backends
from pharos.config.schema import Config, Drain, Kubernetes
from pharos.control.discovery.kubernetes import checkup, login, podlog
from pharos.control.discovery.kubernetes.api import Api
from pharos.control.discovery.kubernetes.refusals import Refusals
from pharos.control.discovery.kubernetes.source import Hooks, KubernetesObjects, Pace
from pharos.control.follow.source import OpenedLog
from pharos.control.tasks import Tasks
from pharos.core.fleet import Event, Fleet

KEEP_S: Final = 10.0
"""Seconds for which the cluster's answers to the doctor are good: `--watch` looks every two."""
SOURCE: Final = "Kubernetes annotations"
Enter = Callable[[], Awaitable[login.Login]]


class Cluster:
    """The cluster that is looked at."""

    def __init__(
        self,
        settings: Kubernetes,
        session: aiohttp.ClientSession,
        on_event: Callable[[Event], None],
        rng: random.Random,
        enter: Enter | None = None,
        environ: Mapping[str, str] = os.environ,
    ) -> None:
        """`enter` finds the way in; `None`: as configured.

        `environ`: `POD_NAME`, `POD_NAMESPACE` and `POD_UID` tell the Pod that this runs in, as the chart sets them.
        """
        self._settings = settings
        self._session = session
        self._on_event = on_event
        self._rng = rng
        self._environ = environ
        self._enter = enter if enter is not None else self._login
        self._answers = checkup.Answers()
        self._asked_at = -KEEP_S
        self.objects: KubernetesObjects | None = None
        """Known once it has started."""

    def __repr__(self) -> str:
        return f"<Cluster {self.objects}>"

    def start(self, tasks: Tasks, backends: Backends, config: Callable[[], Config]) -> None:
        """Look from now on."""
        settings = self._settings
        instance = self._environ.get("POD_NAME", "")
        refusals = Refusals(instance, wall=clock.wall, on_event=self._on_event)
        hooks = Hooks(
            tell=lambda specs: backends.tell(SOURCE, specs),
            credentials=lambda: config().credentials,
            on_event=self._on_event,
            on_refusal=refusals.add,
        )
        objects = KubernetesObjects(
            settings,
            self._session,
            self._enter,
            hooks,
            Pace(self._rng),
            own_uid=self._environ.get("POD_UID"),
        )
        self.objects = objects
        tasks.start(SOURCE, objects.run)
        tasks.start("Events on refused objects", refusals.run)

    async def ask(self) -> None:
        """Ask the cluster what the doctor wants to know, at most every few seconds."""
        objects, now = self.objects, clock.monotonic()
        if objects is None or objects.api is None or now - self._asked_at < KEEP_S:
            return
        self._asked_at = now
        own = self._environ.get("POD_NAMESPACE"), self._environ.get("POD_NAME")
        rights = checkup.needs(objects.namespaces, pod_logs=self._settings.pod_logs)
        mine = (own[0], own[1]) if own[0] and own[1] else None
        self._answers = await checkup.ask(objects.api, rights, mine)

    def told(self, fleet: Fleet, drain: Drain, peers: Sequence[Mapping[str, Any]] | None) -> dict[str, Any] | None:
        """What the doctor tells of the cluster; `None`: it has not been looked at yet."""
        if self.objects is None:
            return None
        return clustered.told(self.objects, self._answers, fleet, drain, peers)

    def wake(self) -> None:
        """Look again: credentials may have changed."""
        if self.objects is not None:
            self.objects.wake()

    async def _login(self) -> login.Login:
        return await login.login(self._settings.kubeconfig, self._settings.context)

    def open_log(self, place: str) -> OpenedLog:
        """A container's log, opened."""
        return podlog.open_pod_log(place, self._api)()

    def _api(self) -> Api | None:
        return self.objects.api if self.objects is not None else None


def cluster_of(
    config: Config,
    session: aiohttp.ClientSession,
    on_event: Callable[[Event], None],
    rng: random.Random,
    enter: Enter | None,
) -> Cluster | None:
    """The cluster that the configuration wants looked at; `None`: it wants none."""
    wanted = config.discovery.kubernetes
    return Cluster(wanted, session, on_event, rng, enter) if wanted.enabled else None
