import random

import aiohttp
import pytest

from pharos.control.scraper import Scraper
from pharos.control.tasks import Restart, Tasks
from pharos.core.fleet.backend import Backend, BackendSpec, State
from pharos.core.fleet.events import Event
from pharos.core.fleet.registry import Fleet
from tests.fakes.http import Hang, HttpDouble
from tests.fakes.llamacpp import FakeLlamaCpp
from tests.fakes.patience import Patient
from tests.fakes.steps import Steps


class Rig:
    def __init__(self, session: aiohttp.ClientSession, steps: Steps, *hanging: HttpDouble, seed: int = 1) -> None:
        self.fleet = Fleet()
        self.rounds = list[str]()
        self.restarts = list[Restart]()
        self.events = list[Event]()
        self.fault: Exception | None = None
        self.tasks = Tasks(self.restarts.append, clock=steps.clock, sleep=steps.sleep)
        self.scraper = Scraper(
            self.fleet,
            Patient(session, *hanging, clock=steps.clock),
            self.tasks,
            rng=random.Random(seed),
            on_event=self.events.append,
            on_round=self._round,
            clock=steps.clock,
            sleep=steps.sleep,
        )

    def _round(self, backend: Backend) -> None:
        self.rounds.append(backend.name)
        if self.fault is not None:
            fault, self.fault = self.fault, None
            raise fault


def spec(name: str, engine: HttpDouble) -> BackendSpec:
    return BackendSpec(name=name, url=engine.url)


async def test_each_backend_has_a_task_of_its_own_from_when_it_is_listed_until_it_is_not(
    session: aiohttp.ClientSession, llamacpp: FakeLlamaCpp, steps: Steps
) -> None:
    rig = Rig(session, steps)
    async with FakeLlamaCpp(model="b", clock=steps.clock) as other, rig.tasks:
        changes = rig.scraper.set_backends([spec("one", llamacpp)])
        assert [backend.name for backend in changes.added] == ["one"]
        await steps.settle(1)
        rig.scraper.set_backends([spec("one", llamacpp), spec("two", other)])
        await steps.settle(2)
        assert rig.tasks.names == ["scrape one", "scrape two"]
        assert rig.fleet.models(steps.now) == ["smollm2:135m", "b"]
        rig.scraper.set_backends([spec("two", other)])
        await steps.run_until(1010.0)
        assert rig.tasks.names == ["scrape two"]
        assert llamacpp.seen[-1].at == 1000.0
        assert rig.fleet.models(steps.now) == ["b"]
        rig.scraper.set_backends([spec("one", llamacpp), spec("two", other)])
        await steps.run_until(1011.0, sleepers=2)
        assert rig.fleet.models(steps.now) == ["smollm2:135m", "b"]


async def test_a_backend_whose_label_drains_it_is_read_on_and_that_is_said_once(
    session: aiohttp.ClientSession, llamacpp: FakeLlamaCpp, steps: Steps
) -> None:
    rig = Rig(session, steps)
    async with rig.tasks:
        rig.scraper.set_backends([spec("one", llamacpp)])
        await steps.settle(1)
        for _ in range(2):
            drained = BackendSpec(name="one", url=llamacpp.url, drain=True)
            assert rig.scraper.set_backends([drained]).added == ()
        assert rig.tasks.names == ["scrape one"]
        assert rig.fleet.models(steps.now) == []
        assert [event.outcome for event in rig.events if event.stage == "drain"] == ["begun"]


async def test_two_backends_of_one_name_change_nothing(
    session: aiohttp.ClientSession, llamacpp: FakeLlamaCpp, steps: Steps
) -> None:
    rig = Rig(session, steps)
    async with rig.tasks:
        with pytest.raises(ValueError, match="same name"):
            rig.scraper.set_backends([spec("one", llamacpp)] * 2)
        assert rig.tasks.names == []


async def test_a_watch_that_dies_is_started_again_without_touching_the_others(
    session: aiohttp.ClientSession, llamacpp: FakeLlamaCpp, steps: Steps
) -> None:
    rig = Rig(session, steps)
    async with FakeLlamaCpp(clock=steps.clock) as other, rig.tasks:
        rig.scraper.set_backends([spec("one", llamacpp), spec("two", other)])
        await steps.settle(2)
        rig.fault = RuntimeError("a fault of ours")
        await steps.run_until(1010.0, sleepers=2)
        assert [str(restart.error) for restart in rig.restarts] == ["a fault of ours"]
        assert sum(rig.tasks.restarts.values()) == 1
        assert rig.rounds.count("one") >= 8
        assert rig.rounds.count("two") >= 8


async def test_one_dead_and_one_hanging_backend_delay_nobody(
    session: aiohttp.ClientSession, llamacpp: FakeLlamaCpp, steps: Steps
) -> None:
    dead, hanging = HttpDouble(clock=steps.clock), HttpDouble(clock=steps.clock)
    rig = Rig(session, steps, hanging)
    async with dead, hanging, rig.tasks:
        dead.kill()
        hanging.every = Hang()
        rig.scraper.set_backends([spec("dead", dead), spec("hangs", hanging), spec("lives", llamacpp)])
        await steps.settle(3)
        assert rig.fleet.is_ready
        states = {backend.name: backend.state for backend in rig.fleet.backends.values()}
        assert states == {"dead": State.DOWN, "hangs": State.DOWN, "lives": State.UP}
        assert rig.fleet.models(steps.now) == ["smollm2:135m"]


async def test_the_same_seed_gives_the_same_schedule_and_backends_drift_apart(
    session: aiohttp.ClientSession,
) -> None:
    schedules = []
    for _ in range(2):
        now = Steps()
        async with FakeLlamaCpp(clock=now.clock) as one, FakeLlamaCpp(clock=now.clock) as two:
            rig = Rig(session, now, seed=42)
            async with rig.tasks:
                rig.scraper.set_backends([spec("one", one), spec("two", two)])
                await now.run_until(1020.0, sleepers=2)
            schedules.append([[round(seen.at, 6) for seen in engine.seen] for engine in (one, two)])
    assert schedules[0] == schedules[1]
    assert schedules[0][0] != schedules[0][1]


async def test_a_backend_can_be_woken_by_name_and_a_removed_one_is_nobody(
    session: aiohttp.ClientSession, llamacpp: FakeLlamaCpp, steps: Steps
) -> None:
    rig = Rig(session, steps)
    async with rig.tasks:
        (backend,) = rig.scraper.set_backends([spec("one", llamacpp)]).added
        await steps.settle(1)
        steps.now += 0.3
        rig.fleet.eject(backend, "closed", steps.now - 0.1, connected_at=steps.now)
        rig.scraper.wake("one")
        await steps.settle(1)
        assert backend.state is State.UP
        rig.scraper.set_backends([])
        rig.scraper.wake("one")
