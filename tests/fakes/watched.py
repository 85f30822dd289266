"""The control path over engine doubles, in virtual time: watches, followed streams, and all that they said."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
import pytest

from pharos.config.credentials import Credentials
from pharos.control.streams import Streams, openers
from pharos.control.tasks import Tasks
from pharos.control.watch import Watch, Wiring
from pharos.core.engine.plan import Plan
from pharos.core.fleet.backend import Backend, BackendSpec, State, Target
from pharos.core.fleet.events import Event
from pharos.core.fleet.registry import Fleet
from pharos.core.signals import BACKEND, Signal
from tests.fakes.http import HttpDouble
from tests.fakes.patience import Patient
from tests.fakes.steps import NoJitter, Steps

T0 = 1000.0
"""When every test begins."""


class Watched:
    """A fleet whose backends are doubles; the first one is what most tests speak of."""

    def __init__(
        self, session: aiohttp.ClientSession, doubles: Sequence[HttpDouble], steps: Steps, tasks: Tasks
    ) -> None:
        self.steps = steps
        self.broken = Steps(steps.now)
        """The sleeps of those who follow a stream that broke off."""
        self.fleet = Fleet()
        self.events = list[Event]()
        self.rounds: list[tuple[str, float]] = []
        self.doubles = doubles
        self._changed = asyncio.Event()
        self._tasks = tasks
        self.streams = Streams(
            self.fleet,
            tasks,
            openers(session, Credentials()),
            on_event=self.events.append,
            on_change=self._on_change,
            clock=steps.clock,
            sleep=self.broken.sleep,
        )
        self._wiring = Wiring(
            fleet=self.fleet,
            fetcher=Patient(session, *doubles, clock=steps.clock),
            on_event=self.events.append,
            on_round=self._on_round,
            on_plan=self.streams.follow,
            clock=steps.clock,
            sleep=steps.sleep,
        )
        self.watches: dict[str, Watch] = {}

    async def start(self, specs: Sequence[BackendSpec]) -> None:
        for backend in self.fleet.set_backends(specs, self.steps.now).added:
            watch = self.watches[backend.name] = Watch(backend, self._wiring, NoJitter())
            self._tasks.start(f"scrape {backend.name}", watch.run)
        await self.steps.settle(len(specs))

    async def until(self, seconds: float) -> None:
        """Let time pass up to so many seconds after the start."""
        await self.steps.run_until(T0 + seconds, sleepers=len(self.fleet.backends))

    async def told(self, condition: Callable[[], bool]) -> None:
        """Wait for what comes over streams, without letting time pass."""
        while not condition():
            await self._changed.wait()

    @property
    def backend(self) -> Backend:
        return next(iter(self.fleet.backends.values()))

    @property
    def plan(self) -> Plan:
        plan = self.backend.plan
        assert plan is not None
        return plan

    @property
    def state(self) -> State:
        return self.backend.state

    def target(self, model: str) -> Target:
        return next(target for target in self.backend.targets.values() if target.served == model)

    def value(self, signal: Signal, model: str = BACKEND) -> Any:
        """What is known of a signal now; `None`: nothing that may be believed."""
        reading = self.backend.readings.get((signal, model))
        return reading.value if reading is not None and reading.is_fresh(self.steps.now) else None

    def counts(self, stage: str) -> Counter[str]:
        return Counter(event.outcome for event in self.events if event.stage == stage and event.outcome)

    def asked(self, since: float = 0.0) -> list[str]:
        """Requests of the control path to the first double."""
        return [f"{seen.method} {seen.path}" for seen in self.doubles[0].seen if seen.at - T0 >= since]

    def _on_round(self, backend: Backend) -> None:
        self.rounds.append((backend.name, self.steps.now))
        self._on_change(backend)

    def _on_change(self, _: Backend) -> None:
        self._changed.set()
        self._changed = asyncio.Event()


@asynccontextmanager
async def watched(
    session: aiohttp.ClientSession, *doubles: HttpDouble, steps: Steps, logs: str | None = None
) -> AsyncIterator[Watched]:
    """Watch doubles as backends named gpu0, gpu1 and so on; the first round of each has ended."""
    specs = [BackendSpec(f"gpu{number}", double.url, logs=logs) for number, double in enumerate(doubles)]
    async with Tasks(lambda restart: pytest.fail(repr(restart.error))) as tasks:
        rig = Watched(session, doubles, steps, tasks)
        await rig.start(specs)
        yield rig
