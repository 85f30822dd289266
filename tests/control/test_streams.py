import asyncio
from collections import defaultdict
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from pharos.control.follow.fault import Fault, FeedError
from pharos.control.follow.sse import SseEvent
from pharos.control.streams import Openers, Streams
from pharos.control.tasks import Tasks
from pharos.core.engine import recipes
from pharos.core.engine.logline import log_line
from pharos.core.engine.plan import Plan, Round
from pharos.core.engine.probe import DropReason, Feed, FeedKind, Page, Probe, ProbeError
from pharos.core.fleet import Backend, BackendSpec, Event, Fleet
from pharos.core.signals import BACKEND, Found, Reading, Signal
from tests.fakes.steps import Steps

EVENTS = Feed(FeedKind.SSE, "/events")
SLOTS = log_line("slots", Signal.CAPACITY, r"slots (?P<value>[0-9]+)")
OPENAI = recipes.by_kind("openai").probes


class Counting:
    """Counts the events named after a listed model."""

    def __init__(self, models: tuple[str, ...]) -> None:
        self.counts = dict.fromkeys(models, 0)

    def feed(self, event: str, data: bytes) -> Found:
        if data != b"+":
            raise ProbeError(DropReason.PARSE_ERROR)
        self.counts[event] += 1
        return dict(self.counts)


def never(_: Page) -> Found:
    raise AssertionError


COUNT = Probe(name="count", signal=Signal.RUNNING, feed=EVENTS, parse=never, follow=Counting)


class Rig:
    """A fleet of one backend whose streams are queues."""

    def __init__(self, steps: Steps, tasks: Tasks) -> None:
        self.steps = steps
        self.fleet = Fleet()
        spec = BackendSpec("gpu", "http://gpu:1", logs="file:///log")
        (self.backend,) = self.fleet.set_backends([spec], steps.now).added
        self.open: dict[str, asyncio.Queue[bytes | SseEvent | FeedError]] = {}
        self.opened: defaultdict[str, int] = defaultdict(int)
        self.events: list[Event] = []
        self.changes: list[Backend] = []
        self.streams = Streams(
            self.fleet,
            tasks,
            Openers(log=self.connect, events=lambda spec, path: self.connect(f"{spec.name}{path}")),
            on_event=self.events.append,
            on_change=self.changes.append,
            clock=steps.clock,
            sleep=steps.sleep,
        )

    @asynccontextmanager
    async def connect(self, where: str) -> AsyncIterator[AsyncIterator[bytes | SseEvent]]:
        queue = self.open[where] = asyncio.Queue()
        self.opened[where] += 1

        async def items() -> AsyncIterator[bytes | SseEvent]:
            while True:
                item = await queue.get()
                queue.task_done()
                if isinstance(item, FeedError):
                    raise item
                yield item

        yield items()

    def plan(self, *probes: Probe, models: tuple[str, ...] = ("a", "b")) -> None:
        plan = Plan("openai", "config", None, (*OPENAI, *probes), ())
        found = {(Signal.MODELS, BACKEND): Reading(models, self.steps.now, OPENAI[0].name, 5.0)}
        answered = frozenset({(OPENAI[0].name, BACKEND)})
        round_ = Round(found, (), frozenset({Signal.MODELS}), answered)
        self.fleet.publish(self.backend, plan, round_, self.steps.now, full=True, started_at=self.steps.now)
        self.streams.follow(self.backend)

    async def tell(self, where: str, item: bytes | SseEvent | FeedError) -> None:
        while where not in self.open:
            await asyncio.sleep(0)
        self.open[where].put_nowait(item)
        await self.open[where].join()
        await asyncio.sleep(0)

    def known(self, signal: Signal) -> dict[str, object]:
        return {model: one.value for (of, model), one in self.backend.readings.items() if of is signal}


@pytest.fixture
async def rig(steps: Steps) -> AsyncIterator[Rig]:
    async with Tasks(lambda restart: pytest.fail(repr(restart.error))) as tasks:
        yield Rig(steps, tasks)


LOG = "file:///log"


async def test_a_line_sets_a_value_that_is_unknown_once_the_log_breaks_off(rig: Rig) -> None:
    rig.plan(SLOTS)
    await rig.tell(LOG, b"of no interest")
    assert rig.changes == []
    await rig.tell(LOG, b"slots 4")
    assert rig.known(Signal.CAPACITY) == {BACKEND: 4}
    assert rig.changes == [rig.backend]
    await rig.tell(LOG, FeedError(Fault.CUT))
    await rig.steps.settle()
    assert rig.known(Signal.CAPACITY) == {}
    assert rig.changes == [rig.backend] * 2


async def test_a_new_connection_is_read_from_its_start_by_readers_that_know_nothing(rig: Rig) -> None:
    rig.plan(COUNT)
    await rig.tell("gpu/events", SseEvent("a", b"+"))
    await rig.tell("gpu/events", SseEvent("a", b"+"))
    assert rig.known(Signal.RUNNING) == {"a": 2, "b": 0}
    await rig.tell("gpu/events", FeedError(Fault.CUT))
    await rig.steps.settle()
    assert rig.known(Signal.RUNNING) == {}
    del rig.open["gpu/events"]
    rig.steps.wake()
    await rig.tell("gpu/events", SseEvent("b", b"+"))
    assert rig.opened["gpu/events"] == 2
    assert rig.known(Signal.RUNNING) == {"a": 0, "b": 1}


async def test_an_event_that_cannot_be_read_makes_a_new_connection(rig: Rig) -> None:
    rig.plan(COUNT)
    await rig.tell("gpu/events", SseEvent("a", b"+"))
    await rig.tell("gpu/events", SseEvent("a", b"?"))
    await rig.steps.settle()
    assert rig.known(Signal.RUNNING) == {}
    assert [event.level for event in rig.events if event.text] == ["warning"]


async def test_the_same_plan_keeps_its_streams_and_another_list_of_models_renews_those_that_count(rig: Rig) -> None:
    rig.plan(SLOTS, COUNT)
    await rig.tell(LOG, b"slots 4")
    await rig.tell("gpu/events", SseEvent("a", b"+"))
    assert repr(rig.streams) == "<Streams 2 of 1 backends>"
    rig.plan(SLOTS, COUNT)
    assert rig.opened == {LOG: 1, "gpu/events": 1}
    rig.open.pop("gpu/events")
    rig.plan(SLOTS, COUNT, models=("a", "b", "c"))
    assert rig.known(Signal.RUNNING) == {}
    await rig.tell("gpu/events", SseEvent("c", b"+"))
    assert rig.opened == {LOG: 1, "gpu/events": 2}
    assert rig.known(Signal.RUNNING) == {"a": 0, "b": 0, "c": 1}
    assert rig.known(Signal.CAPACITY) == {BACKEND: 4}


async def test_a_plan_without_them_and_a_removed_backend_end_their_streams(rig: Rig) -> None:
    rig.plan(SLOTS)
    await rig.tell(LOG, b"slots 4")
    rig.plan()
    assert rig.known(Signal.CAPACITY) == {}
    assert repr(rig.streams) == "<Streams 0 of 0 backends>"
    rig.plan(SLOTS)
    rig.fleet.set_backends([], rig.steps.now)
    rig.streams.follow(rig.backend)
    assert repr(rig.streams) == "<Streams 0 of 0 backends>"


async def test_a_backend_that_was_never_read_has_nothing_to_follow(rig: Rig) -> None:
    rig.streams.follow(rig.backend)
    assert repr(rig.streams) == "<Streams 0 of 0 backends>"
