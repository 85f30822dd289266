"""Upgrades, an eviction, a deleted Pod and a drained node under streaming clients: nothing is cut, nothing fails."""

import asyncio
import collections
import json
import os
import statistics
import urllib.request
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from e2e import objects
from e2e.clients import Load, Reply, load
from e2e.cluster import Namespace, later, run, until

CLIENTS = 12
SHORTEST, LONGEST = 20, 700
"""Tokens: about one second to half a minute with the engines' share of a processor."""
LONG = (1000, 1300)
"""Tokens of streams of some 20 s."""
LATE_S = 1.0
"""A first token that took longer is printed with where its time went."""
SINGLE = int(os.environ.get("E2E_SINGLE_UPGRADES", "0"))
"""How many single upgrades more, with streams of some 20 s."""
OWN: dict[str, Any] = {}
"""A label of this run's own, so that draining a node ends no Pod of another one."""
SELECTOR = "app.kubernetes.io/name=pharos"


def values(**more: Any) -> dict[str, Any]:
    config = {"response_headers": {"target": True, "reason": True}, **more.pop("config", {})}
    keys = {"inline": objects.KEYS}
    return {**objects.TEST_VALUES, "replicaCount": 2, "keys": keys, "config": config, **OWN, **more}


def image(name: str, **more: Any) -> dict[str, Any]:
    """Values with another image."""
    return values(image={"registry": "localhost", "tag": name.rpartition(":")[2]}, **more)


@pytest.fixture(scope="module")
def served(namespace: Namespace) -> Namespace:
    namespace.apply(objects.engines("llama", replicas=2, annotations={"pharos.enable": "true"}))
    OWN["podLabels"] = {"e2e": namespace.name}
    namespace.helm("install", "pharos", values())
    namespace.kubectl("rollout", "status", "deploy/llama", "--timeout", "180s")
    until("both engines are up", lambda: sum(one["up"] for one in namespace.backends().values()) == 2)
    return namespace


def rolled(where: Namespace) -> None:
    """Wait until the rollout is over and the Pods of before are gone."""
    where.kubectl("rollout", "status", "deploy/pharos", "--timeout", "300s")
    wanted = where.get("deploy", "pharos")["spec"]["replicas"]
    until("the old Pods have ended", lambda: len(where.pods(SELECTOR)) == wanted, wait_s=300)


async def busy(clients: Load, count: int = 15) -> None:
    """Wait until so many further replies are there."""
    before = len(clients.replies)
    async with asyncio.timeout(300):
        while len(clients.replies) < before + count:
            await asyncio.sleep(0.2)


def usage(where: Namespace) -> dict[str, int]:
    """What Pharos counted for the clients' key since it was installed."""
    request = urllib.request.Request(  # noqa: S310 (the cluster's own address)
        f"{where.address('pharos')}/usage", headers={"Authorization": f"Bearer {objects.ADMIN}"}
    )
    with urllib.request.urlopen(request, timeout=20) as response:  # noqa: S310
        rows = json.loads(response.read())
    total: collections.Counter[str] = collections.Counter()
    for row in rows:
        if row["key"] == "client":
            total.update({name: row[name] for name in ("requests", "prompt_tokens", "completion_tokens", "unmetered")})
    return dict(total)


def counted(replies: list[Reply]) -> dict[str, int]:
    """The same as the clients counted it."""
    told = [reply.usage for reply in replies if reply.usage is not None]
    return {
        "requests": len(replies),
        "prompt_tokens": sum(one["prompt_tokens"] for one in told),
        "completion_tokens": sum(one["completion_tokens"] for one in told),
        "unmetered": 0,
    }


class Judge:
    """What all clients of this module saw: usage is counted over all of it, on every instance there was."""

    def __init__(self) -> None:
        self.replies: list[Reply] = []

    def judge(self, where: Namespace, clients: Load, what: str) -> None:
        self.replies += clients.replies
        outcomes = collections.Counter(reply.outcome for reply in clients.replies)
        first = sorted(reply.ttft_s for reply in clients.replies if reply.ttft_s is not None)
        longest = max(reply.lasted_s for reply in clients.replies)
        median, late = statistics.median(first), nth(first, 0.99)
        print(f"{what}: {dict(outcomes)}, TTFT p50 {median:.2f} s, p99 {late:.2f} s, longest stream {longest:.0f} s")
        start = min(reply.began_at for reply in clients.replies)
        for reply in clients.replies:
            if reply.ttft_s is not None and reply.ttft_s > LATE_S:
                connected = f"{reply.connected_s:.2f} s" if reply.connected_s is not None else "kept"
                print(
                    f"  late: {reply.ttft_s:.2f} s, begun at {reply.began_at - start:.1f} s, connection {connected}, "
                    f"head {reply.head_s:.2f} s, {beside(reply, clients.replies)}, {reply.backend}: {reply.reason}"
                )
        assert clients.bad == []
        assert outcomes["whole"] >= CLIENTS
        seen = counted(self.replies)
        until(f"usage is what the clients counted, {seen}", lambda: usage(where) == seen, wait_s=60)
        for pod in where.pods(SELECTOR):
            self._hits(where, pod["metadata"]["name"])

    def _hits(self, where: Namespace, pod: str) -> None:
        """A Pod that never saw a conversation before knows from the others where it is cached."""
        told = {
            outcome: where.metric(pod, "pharos_prefix_predictions_total", outcome=outcome)
            for outcome in ("predicted_hit", "unpredicted_hit", "wrong_prediction", "miss", "unknown")
        }
        print(f"  {pod}: prefixes {told}")
        assert told["predicted_hit"] >= told["unpredicted_hit"]


@pytest.fixture(scope="module")
def judge() -> Judge:
    return Judge()


def running(where: Namespace, shortest: int = SHORTEST, longest: int = LONGEST) -> Any:
    return load(where.address("pharos"), clients=CLIENTS, shortest=shortest, longest=longest, key=objects.KEY)


class Spans:
    """Times during which something was under way, to compare the requests that began then with the others."""

    def __init__(self) -> None:
        self._spans: list[tuple[float, float]] = []

    @asynccontextmanager
    async def one(self) -> AsyncIterator[None]:
        """The time that the block takes."""
        loop = asyncio.get_running_loop()
        began = loop.time()
        yield
        self._spans.append((began, loop.time()))

    def compare(self, replies: list[Reply]) -> None:
        """Print the times to the first token within, and outside of them."""
        groups: dict[bool, list[float]] = {True: [], False: []}
        for reply in replies:
            if reply.ttft_s is not None:
                groups[any(began <= reply.began_at <= end for began, end in self._spans)].append(reply.ttft_s)
        for within, times in groups.items():
            times.sort()
            name = "that began during upgrades" if within else "that began between them"
            print(f"  {len(times)} {name}: TTFT p50 {statistics.median(times):.3f} s, p99 {nth(times, 0.99):.3f} s")


def beside(late: Reply, replies: list[Reply]) -> str:
    """How many others ran on the same engine, and elsewhere, a moment after a request began: it has eight slots."""
    then = late.began_at + 0.2
    running = [one for one in replies if one is not late and one.began_at <= then < one.began_at + one.lasted_s]
    there = sum(one.backend == late.backend for one in running)
    return f"beside {there} there and {len(running) - there} elsewhere"


def nth(times: list[float], share: float) -> float:
    """The quantile of sorted values."""
    return times[min(len(times) - 1, int(len(times) * share))]


async def test_upgrades_of_image_configuration_and_count_drop_nothing(served: Namespace, judge: Judge) -> None:
    limits = {"config": {"limits": {"connections": 9000}}}
    spans = Spans()
    async with running(served) as clients:
        await busy(clients, 60)
        for what in (image(objects.NEXT), image(objects.NEXT, **limits), image(objects.NEXT, **limits, replicaCount=3)):
            async with spans.one():
                await later(served.helm, "upgrade", "pharos", what)
                await later(rolled, served)
            await busy(clients)
    judge.judge(served, clients, "three upgrades")
    spans.compare(clients.replies)


async def test_a_deleted_and_an_evicted_pod_drop_nothing(served: Namespace, judge: Judge) -> None:
    async with running(served) as clients:
        await busy(clients)
        names = [pod["metadata"]["name"] for pod in served.pods(SELECTOR)]
        await later(served.kubectl, "delete", "pod", names[0], "--wait=false")
        await busy(clients)
        await later(rolled, served)
        eviction = {
            "apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": names[1], "namespace": served.name},
        }  # fmt: skip
        path = f"/api/v1/namespaces/{served.name}/pods/{names[1]}/eviction"
        await later(run, "kubectl", "create", "--raw", path, "-f", "-", given=json.dumps(eviction))
        await busy(clients)
        await later(rolled, served)
    judge.judge(served, clients, "a deleted and an evicted Pod")


async def test_a_drained_node_drops_nothing(served: Namespace, judge: Judge) -> None:
    node = served.pods(SELECTOR)[0]["spec"]["nodeName"]
    async with running(served) as clients:
        await busy(clients)
        try:
            await later(
                run, "kubectl", "drain", node, "--ignore-daemonsets", "--delete-emptydir-data", "--timeout", "300s",
                "--pod-selector", f"e2e={served.name}",
            )  # fmt: skip
            await busy(clients)
        finally:
            await later(run, "kubectl", "uncordon", node)
        await later(rolled, served)
    judge.judge(served, clients, "a drained node")


async def test_an_older_image_takes_over_and_hands_back_without_a_drop(served: Namespace, judge: Judge) -> None:
    async with running(served) as clients:
        await busy(clients)
        for name in (objects.PREVIOUS, objects.PHAROS, objects.PREVIOUS, objects.PHAROS):
            await later(served.helm, "upgrade", "pharos", image(name))
            await later(rolled, served)
            await busy(clients)
    judge.judge(served, clients, "to the previous image and back, twice")


@pytest.mark.skipif(SINGLE == 0, reason="E2E_SINGLE_UPGRADES says how many")
async def test_many_single_upgrades_drop_nothing(served: Namespace, judge: Judge) -> None:
    spans = Spans()
    async with running(served, *LONG) as clients:
        await busy(clients, 60)
        for revision in range(SINGLE):
            made = image(
                (objects.PHAROS, objects.NEXT)[revision % 2], replicaCount=3, podAnnotations={"revision": str(revision)}
            )
            async with spans.one():
                await later(served.helm, "upgrade", "pharos", made)
                await later(rolled, served)
            await busy(clients, 5)
    judge.judge(served, clients, f"{SINGLE} single upgrades of three instances")
    spans.compare(clients.replies)
