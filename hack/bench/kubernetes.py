"""What watching a cluster costs, without reading its engines: 1,000 annotated Pods as long as real ones, and changes.

Times are of the processor, of one turn of the event loop each: for so long a stream waits at most. The API server is
the tests' double, in a process of its own. Run from the repository's root: `python -m hack.bench.kubernetes`.
"""

import asyncio
import gc
import multiprocessing
import random
import time
from collections.abc import Callable
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, Final

from pharos.app.process import GARBAGE
from pharos.config.schema import Kubernetes
from pharos.control.discovery.kubernetes.login import Login
from pharos.control.discovery.kubernetes.source import Hooks, KubernetesObjects, Pace
from pharos.control.fetch import new_session
from tests.fakes.kubernetes import FakeCluster, pod

PODS: Final = 1000
CHANGES: Final = 50
MOST_MB: Final = 150
MOST_TURN_MS: Final = 20
MOST_LOOK_MS: Final = 5


def described(number: int, *, ready: bool = True) -> dict[str, Any]:
    """A Pod with some 8 KB of what nobody here reads, and annotations that no other has."""
    made = pod(
        f"engine-{number:04}", f"127.1.{number // 250}.{number % 250 + 1}", ready=ready,
        ports=(("http", 9),),
        annotations={"pharos.enable": "true", "pharos.kind": "vllm", "pharos.memory_gb": str(24 + number / 100)},
    )  # fmt: skip
    made["metadata"]["managedFields"] = [{"fieldsV1": {f"f:field-{n}": {"f:of": {}} for n in range(150)}}]
    made["spec"]["volumes"] = [{"name": f"volume-{n}", "configMap": {"name": "x" * 40}} for n in range(30)]
    return made


def serve(pipe: Connection) -> None:
    """The API server: says where it is, then changes a Pod whenever it is told a number, and ends at a negative one."""

    async def run() -> None:
        cluster = FakeCluster()
        for number in range(PODS):
            await cluster.put("pods", described(number))
        cluster.happened.clear()
        async with cluster.serve():
            pipe.send(cluster.url)
            while (number := await asyncio.to_thread(pipe.recv)) >= 0:
                cluster.happened.clear()
                await cluster.put("pods", described(number % PODS, ready=False))

    asyncio.run(run())


class Turns:
    """How long each turn of the loop takes, by processor time."""

    def __init__(self) -> None:
        self.longest = 0.0
        inner = asyncio.Handle._run  # type: ignore[attr-defined]  # noqa: SLF001

        def run(handle: asyncio.Handle) -> None:
            began = time.thread_time()
            inner(handle)
            self.longest = max(self.longest, time.thread_time() - began)

        asyncio.Handle._run = run  # type: ignore[attr-defined]  # noqa: SLF001

    def taken(self) -> float:
        """The longest since last asked, in ms."""
        longest, self.longest = self.longest, 0.0
        return longest * 1000


def rss_mb() -> float:
    """Memory of this process."""
    text = Path("/proc/self/status").read_text(encoding="ascii")
    return int(text.split("VmRSS:")[1].split()[0]) / 1024


async def until(claim: Callable[[], object]) -> None:
    """Wait for something."""
    while not claim():  # noqa: ASYNC110 (the state of somebody else)
        await asyncio.sleep(0.02)


async def measure(url: str, pipe: Connection) -> list[tuple[str, float, float, str]]:
    """What was measured: its meaning, the value, the most that it may be, and the unit."""

    async def enter() -> Login:
        async def headers() -> dict[str, str]:
            return {"Authorization": "Bearer first"}

        return Login(url, None, headers, "models", "the bench")

    turns = Turns()
    async with new_session() as session:
        hooks = Hooks(lambda _: None, dict, lambda event: print(event.text))
        objects = KubernetesObjects(Kubernetes(enabled=True), session, enter, hooks, Pace(random.Random(1)))  # noqa: S311
        task = asyncio.create_task(objects.run())
        await until(lambda: len(objects.found.specs) == PODS)
        begin, looks = turns.taken(), []
        gc.collect()
        gc.freeze()  # as `pharos serve` does once it is ready
        gc.set_threshold(*GARBAGE)
        await asyncio.sleep(0)
        turns.taken()
        for number in range(CHANGES):
            before = objects.found
            pipe.send(number)
            await until(lambda before=before: objects.found is not before)  # type: ignore[misc]  # bound now
            began = time.thread_time()
            await objects.look()
            looks.append((time.thread_time() - began) * 1000)
        changes, memory = turns.taken(), rss_mb()
        task.cancel()
        await asyncio.wait([task])
    looks.sort()
    return [
        ("longest turn while 1,000 Pods are listed and first looked at", begin, MOST_TURN_MS, "ms"),
        ("longest turn while Pods change", changes, MOST_TURN_MS, "ms"),
        ("one look at everything, p50", looks[CHANGES // 2], MOST_LOOK_MS, "ms"),
        ("one look at everything, longest", looks[-1], MOST_LOOK_MS, "ms"),
        ("memory of a process with all of Pharos loaded", memory, MOST_MB, "MB"),
    ]


def main() -> int:
    """Measure, print, and fail where something costs more than it may."""
    ours, theirs = multiprocessing.Pipe()
    server = multiprocessing.get_context("spawn").Process(target=serve, args=(theirs,))
    server.start()
    try:
        rows = asyncio.run(measure(ours.recv(), ours))
    finally:
        ours.send(-1)
        server.join()
    for what, value, most, unit in rows:
        print(f"{'ok ' if value <= most else 'NOT'} {value:8.2f} {unit} (≤ {most:g})  {what}")
    return 0 if all(value <= most for _, value, most, _ in rows) else 1


if __name__ == "__main__":
    raise SystemExit(main())
