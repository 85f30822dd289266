"""A whole data plane with several lanes: each is a model of its own on an engine of its own, so that no case meets the
trouble that another one made.
"""

import asyncio
import contextlib
import sys
import tempfile
from collections.abc import AsyncIterator, Iterator, Mapping
from pathlib import Path
from typing import Final

from pharos.core.fleet import BackendSpec, State
from pharos.proxy import deadlines, relay, steady
from pharos.proxy.settings import ProxySettings
from tests.kill.mortal import Mortal, Play
from tests.proxy.harness import Front

WAIT_S: Final = 20.0
"""Longest wait for anything; reached only where something is wrong."""
SILENCE_S: Final = 0.04
"""Deadline between two reads, and for the first one, where engines fall silent."""
DOOMED: Final = Path(__file__).with_name("doomed.py")


class Lane:
    """One model on one engine."""

    def __init__(self, stand: "Stand", name: str, mortal: Mortal) -> None:
        self.model = f"model-{name}"
        self.mortal = mortal
        self._stand = stand
        self._name = name

    async def settled(self) -> None:
        """Wait until what the last death meant has been judged: a client may hear of it a turn of the loop earlier."""
        async with asyncio.timeout(WAIT_S):
            while self._stand.front.fleet.backends[self._name].inflight:
                await asyncio.sleep(0)

    def ready(self, play: Play) -> None:
        """Set what the engine does next, and take it back where its last death had it ejected."""
        self.mortal.play = play
        self.bring_up()

    def bring_up(self) -> None:
        """One round of a scraper that finds the engine up."""
        front = self._stand.front
        if front.fleet.backends[self._name].state is not State.UP:
            front.bring_up(self._name, (self.model,))


class Stand:
    """The proxy, its lanes, and what must be true once nothing runs."""

    def __init__(self, front: Front, lanes: dict[str, list[Lane]]) -> None:
        self.front = front
        self.lanes = lanes
        """By kind of backend."""

    @property
    def url(self) -> str:
        """Where clients find it."""
        return f"http://127.0.0.1:{self.front.proxy.port}"

    def is_clean(self) -> bool:
        """Whether no request holds anything any more: slot, lease, place in the queue, bytes, engine."""
        front = self.front
        return not (
            front.inflight
            or front.ledger.leased
            or front.ledger.waiting
            or front.proxy.inflight
            or front.proxy.routes.buffers.used
            or any(connection.relay is not None for connection in front.proxy.connections)
        )

    async def until_clean(self) -> None:
        """Wait for that."""
        async with asyncio.timeout(WAIT_S):
            while not self.is_clean():
                await asyncio.sleep(0)


@contextlib.contextmanager
def _exact_deadlines() -> Iterator[None]:
    """Silence counts from the last read on, where it counts to about a second otherwise."""
    modules = (deadlines, relay, steady)
    before = [module.HEARD_EVERY_S for module in modules]
    for module in modules:
        module.HEARD_EVERY_S = 0.0  # type: ignore[misc]
    yield
    for module, value in zip(modules, before, strict=True):
        module.HEARD_EVERY_S = value  # type: ignore[misc]


@contextlib.asynccontextmanager
async def stand(
    lanes: Mapping[str, int], *, capacity: int = 4, silent: bool = False, url: str | None = None
) -> AsyncIterator[Stand]:
    """So many lanes of each kind. `silent`: engines fall silent, hence deadlines; `url`: of an engine elsewhere."""
    limit = SILENCE_S if silent else None
    settings = ProxySettings(reply_idle_s=limit, first_byte_warm_s=limit, first_byte_cold_s=limit)
    specs: list[BackendSpec] = []
    mortals: list[Mortal] = []
    for kind, count in lanes.items():
        for number in range(count):
            mortals.append(Mortal())
            own = await mortals[-1].start()
            specs.append(BackendSpec(name=f"{kind}-{number}", url=url or own, capacity=capacity, kind=kind))
    with _exact_deadlines() if silent else contextlib.nullcontext():
        front = Front(specs, settings, absent_wait_s=0.0)
        await front.proxy.start("127.0.0.1:0")
        found = Stand(front, {kind: [] for kind in lanes})
        for spec, mortal in zip(specs, mortals, strict=True):
            lane = Lane(found, spec.name, mortal)
            front.bring_up(spec.name, (lane.model,))
            found.lanes[spec.name.rpartition("-")[0]].append(lane)
        try:
            yield found
        finally:
            await front.stop()
            for mortal in mortals:
                await mortal.stop()


class Doomed:
    """The process whose children die by SIGKILL."""

    def __init__(self, process: asyncio.subprocess.Process, port: int, file: Path) -> None:
        self._process = process
        self._file = file
        self.url = f"http://127.0.0.1:{port}"

    def say(self, data: bytes) -> None:
        """What its next child sends before it dies."""
        self._file.write_bytes(data)


@contextlib.asynccontextmanager
async def doomed() -> AsyncIterator[Doomed]:
    """A running one; it ends with its standard input, whatever becomes of this process."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "reply"
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-I", "-S", str(DOOMED), str(file),
            stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, start_new_session=True,
        )  # fmt: skip
        assert process.stdout is not None
        assert process.stdin is not None
        port = int(await process.stdout.readline())
        try:
            yield Doomed(process, port, file)
        finally:
            process.stdin.close()
            await process.wait()
