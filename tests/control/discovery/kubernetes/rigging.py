"""A source over a double of the API, what it told and said. For the tests beside this file."""

import asyncio
import contextlib
import random
from collections.abc import AsyncIterator, Callable, Coroutine
from typing import TYPE_CHECKING, Any

import aiohttp

from pharos.config.schema import Credential, Kubernetes
from pharos.control.discovery.kubernetes.login import Login, LoginError
from pharos.control.discovery.kubernetes.source import Hooks, KubernetesObjects, Pace
from tests.fakes.kubernetes import FakeCluster, endpoint, endpoint_slice, pod, service
from tests.waiting import until

if TYPE_CHECKING:
    from pharos.control.discovery.kubernetes.finding import Subject
    from pharos.core.fleet import BackendSpec, Event

ON = {"pharos.enable": "true"}


def login(cluster: FakeCluster, token: Callable[[], str] = lambda: "first") -> Login:
    """A way into a double."""

    async def headers() -> dict[str, str]:
        return {"Authorization": f"Bearer {token()}"}

    return Login(cluster.url, None, headers, "models", "the test")


class Rig:
    """A source over a double, what it told and said. Pauses take a turn of the loop each and move the clock."""

    def __init__(self, cluster: FakeCluster, session: aiohttp.ClientSession, **settings_: Any) -> None:
        self.cluster = cluster
        self.token = "first"
        self.told: list[list[BackendSpec]] = []
        self.events: list[Event] = []
        self.refused: list[tuple[Subject, str]] = []
        self.pauses: list[float] = []
        self.now = 0.0
        self.logins: list[str] = []
        self.credentials: dict[str, Credential] = {}
        self.it = KubernetesObjects(
            Kubernetes(enabled=True, **settings_),
            session,
            self._enter,
            Hooks(
                lambda specs: self.told.append(list(specs)),
                lambda: dict(self.credentials),
                self.events.append,
                lambda _, subject, why: self.refused.append((subject, why)),
            ),
            Pace(random.Random(1), lambda: self.now, self._pause),
            own_uid="uid-pharos-own",
        )

    async def _enter(self) -> Login:
        if self.logins:
            raise LoginError(self.logins.pop(0))

        return login(self.cluster, lambda: self.token)

    async def _pause(self, seconds: float) -> None:
        self.pauses.append(seconds)
        self.now += seconds
        await asyncio.sleep(0.001)

    @property
    def names(self) -> list[str]:
        return sorted(spec.name for spec in self.told[-1] if not spec.drain) if self.told else []

    @property
    def draining(self) -> list[str]:
        return sorted(spec.name for spec in self.told[-1] if spec.drain) if self.told else []

    @property
    def said(self) -> list[str]:
        return [event.text for event in self.events]

    async def until(self, claim: Callable[[], object]) -> None:
        await until(claim)


@contextlib.asynccontextmanager
async def in_background(work: Coroutine[Any, Any, None]) -> AsyncIterator[None]:
    """Do it beside the block, and end it after."""
    task = asyncio.create_task(work)
    try:
        yield
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


@contextlib.asynccontextmanager
async def rig(cluster: FakeCluster, **settings_: Any) -> AsyncIterator[Rig]:
    async with cluster.serve(), aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=None)) as session:
        made = Rig(cluster, session, **settings_)
        async with in_background(made.it.run()):
            yield made


async def cluster_with_a_pod() -> FakeCluster:
    cluster = FakeCluster()
    await cluster.put("pods", pod("a", annotations=ON))
    return cluster


async def cluster_with_a_service() -> FakeCluster:
    """Of two Pods, `a` and `b`."""
    cluster = FakeCluster()
    await cluster.put("services", service("llm", annotations=ON))
    await cluster.put("endpointslices", endpoint_slice("llm", endpoint("10.0.0.1", "a"), endpoint("10.0.0.2", "b")))
    await cluster.put("pods", pod("a", "10.0.0.1"))
    await cluster.put("pods", pod("b", "10.0.0.2"))
    return cluster
