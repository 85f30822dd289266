"""Engines are rolled, die and leave under streaming clients: what can be finished is, what cannot is cut honestly."""

import asyncio
import collections
from collections.abc import Iterator
from typing import Any

import pytest

from e2e import objects
from e2e.clients import Load, load
from e2e.cluster import Namespace, later, until

ON = {"pharos.enable": "true"}
KILL = "ps | grep '[l]lama_server' | while read pid rest; do kill -9 $pid; done"


@pytest.fixture(scope="module")
def installed(namespace: Namespace) -> Namespace:
    values = {**objects.TEST_VALUES, "replicaCount": 1, "config": {"response_headers": {"target": True}}}
    namespace.helm("install", "pharos", values)
    return namespace


@pytest.fixture
def served(installed: Namespace) -> Iterator[Namespace]:
    """Without engines, before and after."""
    yield installed
    for name in ("llama", "bare", "mortal"):
        installed.kubectl("delete", "deploy", name, "--ignore-not-found")
        force = ("--force", "--grace-period=0", "--ignore-not-found")
        installed.kubectl("delete", "pod", "-l", f"app={name}", *force)
    until("no engine is left", lambda: installed.backends() == {})


def ready(where: Namespace, name: str, count: int = 2) -> None:
    where.kubectl("rollout", "status", f"deploy/{name}", "--timeout", "180s")

    def up() -> bool:
        return count == sum(bool(one["up"]) and one["drained_by"] is None for one in where.backends().values())

    until(f"{count} engines are up and take requests", up)


def ended(where: Namespace, names: set[str]) -> bool:
    """Whether these take no new requests."""
    return all(one["drained_by"] is not None for name, one in where.backends().items() if name in names)


def warned(where: Namespace) -> bool:
    """Whether doctor in the Pod says that a rollout of these engines cuts streams."""
    return any("no preStop" in one["text"] for one in where.doctor()["kubernetes"]["remarks"])


async def many(clients: Load, count: int) -> None:
    """Wait until so many further replies are there."""
    before = len(clients.replies)
    async with asyncio.timeout(300):
        while len(clients.replies) < before + count:
            await asyncio.sleep(0.2)


def running(where: Namespace) -> Any:
    return load(where.address("pharos"), clients=8, shortest=20, longest=400)


async def test_a_rollout_of_engines_with_the_preStop_drops_nothing(served: Namespace) -> None:  # noqa: N802 - as written
    served.apply(objects.engines("llama", annotations=ON, pre_stop_s=45))
    ready(served, "llama")
    before = set(served.backends())
    assert not warned(served)
    async with running(served) as clients:
        await many(clients, 10)
        served.apply(objects.engines("llama", annotations=ON, pre_stop_s=45, version="2"))
        await later(served.kubectl, "rollout", "status", "deploy/llama", "--timeout", "300s")
        await later(until, "Pharos knows that the old ones end", lambda: ended(served, before))
        rolled = asyncio.get_running_loop().time()
        await many(clients, 16)
    after = [reply for reply in clients.replies if reply.began_at > rolled]
    print(f"engine rollout with preStop: {dict(collections.Counter(one.outcome for one in clients.replies))}")
    assert clients.bad == []
    assert after
    assert not {reply.backend for reply in after} & before, "an engine that ends got a new request"


async def test_without_the_preStop_streams_are_cut_and_told_so(served: Namespace) -> None:  # noqa: N802 - as written
    served.apply(objects.engines("bare", annotations=ON, pre_stop_s=0))
    ready(served, "bare")
    assert warned(served)
    async with running(served) as clients:
        await many(clients, 10)
        served.apply(objects.engines("bare", annotations=ON, pre_stop_s=0, version="2"))
        await later(served.kubectl, "rollout", "status", "deploy/bare", "--timeout", "300s")
        await many(clients, 10)
    outcomes = collections.Counter(one.outcome for one in clients.replies)
    print(f"engine rollout without preStop: {dict(outcomes)}")
    assert set(outcomes) <= {"whole", "cut"}, clients.bad


async def test_a_killed_engine_ends_its_own_streams_honestly_and_no_others(served: Namespace) -> None:
    served.apply(objects.engines("mortal", annotations=ON, killable=True))
    ready(served, "mortal")
    victim = served.pods("app=mortal")[0]["metadata"]["name"]
    async with running(served) as clients:
        await many(clients, 10)
        await later(served.kubectl, "exec", victim, "--", "sh", "-c", KILL)
        await many(clients, 16)
    outcomes = collections.Counter(one.outcome for one in clients.replies)
    print(f"engine killed: {dict(outcomes)}")
    assert set(outcomes) <= {"whole", "cut"}, clients.bad
    assert {one.backend for one in clients.bad} <= {f"{served.name}/{victim}"}
    ready(served, "mortal")
