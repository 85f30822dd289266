import itertools
import random
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import aiohttp
import msgspec
import pytest

from pharos.control.tasks import Tasks
from pharos.control.watch import BURST, Watch, Wiring, describe
from pharos.core.fleet.backend import Backend, BackendSpec, State
from pharos.core.fleet.events import Event
from pharos.core.fleet.registry import Fleet
from pharos.core.signals import Signal
from tests.fakes.http import Answer, Hang, HttpDouble, Raw, Reply
from tests.fakes.llamacpp import FakeLlamaCpp, Phase
from tests.fakes.patience import Patient
from tests.fakes.steps import NoJitter, Steps

HTML = Reply(200, b"<html>Welcome</html>", {"Content-Type": "text/html"})
MODEL_LIST = Reply(200, b'{"object":"list","data":[{"id":"other","object":"model"}]}')
T0 = 1000.0


class Rig(msgspec.Struct, dict=True):
    """One watched backend in virtual time."""

    fleet: Fleet
    backend: Backend
    engine: HttpDouble
    steps: Steps
    watch: Watch
    events: list[Event] = []
    rounds: list[float] = []

    def asked(self, since: float = 0.0) -> list[tuple[float, str]]:
        """Seconds since the start and path of every GET seen, those of one moment in alphabetical order."""
        return sorted((round(seen.at - T0, 3), seen.path) for seen in self.engine.seen if seen.at - T0 >= since)

    def counts(self, stage: str) -> Counter[str]:
        return Counter(event.outcome for event in self.events if event.stage == stage and event.outcome)

    @property
    def lines(self) -> list[str]:
        """What was worth a log line about how the backend does."""
        return [event.text for event in self.events if event.text and event.stage == "scrape"]

    def state(self) -> State:
        return self.backend.state

    async def until(self, seconds: float) -> None:
        await self.steps.run_until(T0 + seconds)

    @property
    def view_of_model(self) -> int | None:
        target = next(iter(self.backend.targets.values()))
        return target.view(self.steps.now).running


@asynccontextmanager
async def watching(
    session: aiohttp.ClientSession,
    engine: HttpDouble,
    steps: Steps,
    *,
    rng: random.Random | None = None,
) -> AsyncIterator[Rig]:
    fleet = Fleet()
    (backend,) = fleet.set_backends([BackendSpec(name="gpu", url=engine.url)], steps.now).added
    events, rounds = list[Event](), list[float]()
    wiring = Wiring(
        fleet=fleet,
        fetcher=Patient(session, engine, clock=steps.clock),
        on_event=events.append,
        on_round=lambda _: rounds.append(steps.now),
        clock=steps.clock,
        sleep=steps.sleep,
    )
    watch = Watch(backend, wiring, rng if rng is not None else NoJitter())
    async with Tasks(lambda restart: pytest.fail(repr(restart.error))) as tasks:
        tasks.start("scrape gpu", watch.run)
        await steps.settle()
        yield Rig(fleet, backend, engine, steps, watch, events, rounds)


async def test_the_first_round_comes_at_once_and_the_schedule_is_exact(
    session: aiohttp.ClientSession, llamacpp: FakeLlamaCpp, steps: Steps
) -> None:
    async with watching(session, llamacpp, steps) as rig:
        plan = ["/metrics", "/props", "/slots", "/v1/models"]
        assert rig.asked() == [(0.0, path) for path in plan]
        assert rig.fleet.is_ready
        await rig.until(11)
    full = [path for path in plan if path != "/slots"]  # it would keep an engine awake that none of our requests use
    expected = [(0.0, path) for path in plan]
    for second in range(1, 12):
        expected += [(float(second), path) for path in (full if second % 5 == 0 else ["/metrics"])]
    assert rig.asked() == expected
    assert rig.rounds == [T0 + second for second in range(12)]
    assert rig.counts("scrape") == {"ok": 11}
    assert rig.counts("resolve") == {"new_plan": 1}


async def test_slots_are_read_every_five_seconds_where_they_tell_something(
    session: aiohttp.ClientSession, steps: Steps
) -> None:
    async with FakeLlamaCpp(slots=1, clock=steps.clock) as engine:
        engine.answers["/metrics"] = Reply(501, b'{"error":{"code":501}}')  # started without --metrics
        async with watching(session, engine, steps) as rig:
            rig.fleet.dispatched(next(iter(rig.backend.targets.values())))  # else a read might keep the model awake
            await rig.until(16)
    assert [at for at, path in rig.asked() if path == "/slots"] == [0.0, 5.0, 10.0, 15.0]


async def test_with_jitter_every_path_keeps_its_pace_and_no_load_round_is_missed(
    session: aiohttp.ClientSession, llamacpp: FakeLlamaCpp, steps: Steps
) -> None:
    async with watching(session, llamacpp, steps, rng=random.Random(7)) as rig:
        await rig.until(300)
    for path, pace in (("/metrics", 1.0), ("/props", 5.0), ("/v1/models", 5.0)):
        times = [at for at, asked in rig.asked() if asked == path]
        gaps = [later - sooner for sooner, later in itertools.pairwise(times)]
        assert min(gaps) >= pace * 0.85
        assert max(gaps) <= pace * 1.15
    assert len({round(at % 1, 2) for at, _ in rig.asked()}) > 20


@pytest.mark.parametrize("answer", [Hang(), HTML, Reply(404, b""), Reply(503, b""), Reply(401, b""), Raw(b"")])
async def test_no_trouble_makes_more_than_two_requests_a_second(
    session: aiohttp.ClientSession, llamacpp: FakeLlamaCpp, steps: Steps, answer: Answer
) -> None:
    async with watching(session, llamacpp, steps) as rig:
        await rig.until(3)
        for path in ("/metrics", "/props"):  # a part fails, then all of it
            llamacpp.answers[path] = answer
        await rig.until(13)
        llamacpp.every = answer
        await rig.until(23)
    times = [at for at, _ in rig.asked()]
    for first, at in enumerate(times):
        for last, later in enumerate(times[first:], first):
            assert last - first + 1 <= BURST + 2 * (later - at) + 1


async def test_a_plan_is_made_anew_after_ten_minutes(
    session: aiohttp.ClientSession, llamacpp: FakeLlamaCpp, steps: Steps
) -> None:
    async with watching(session, llamacpp, steps) as rig:
        await rig.until(601)
    assert rig.counts("resolve") == {"new_plan": 1, "same_plan": 1}


async def test_a_refused_connection_is_said_once_and_once_when_it_is_over(
    session: aiohttp.ClientSession, llamacpp: FakeLlamaCpp, steps: Steps
) -> None:
    async with watching(session, llamacpp, steps) as rig:
        await rig.until(2)
        llamacpp.kill()
        await rig.until(8)
        assert rig.state() is State.DOWN
        assert rig.fleet.models(steps.now) == []
        await llamacpp.restart()
        await rig.until(9)
        assert rig.state() is State.UP
    assert [line.partition(":")[0] for line in rig.lines] == ["gpu is up", "gpu is down", "gpu answers again"]
    assert rig.counts("scrape") == {"ok": 2, "unreachable": 6}
    assert rig.counts("resolve")["same_plan"] == 1


async def test_a_backend_that_was_never_there_ends_the_first_round_and_is_tried_every_second(
    session: aiohttp.ClientSession, llamacpp: FakeLlamaCpp, steps: Steps
) -> None:
    llamacpp.kill()
    async with watching(session, llamacpp, steps) as rig:
        assert rig.fleet.is_ready
        await rig.until(3)
        await llamacpp.restart()
        await rig.until(4)
        assert rig.state() is State.UP
    assert rig.rounds == [T0 + second for second in range(5)]


async def test_an_engine_that_loads_is_starting_and_not_gone_for_good(
    session: aiohttp.ClientSession, llamacpp: FakeLlamaCpp, steps: Steps
) -> None:
    llamacpp.phase = Phase.LOADING
    async with watching(session, llamacpp, steps) as rig:
        assert rig.fleet.is_ready
        await rig.until(30)
        assert rig.state() is State.STARTING
        llamacpp.phase = Phase.READY
        await rig.until(31)
        assert rig.state() is State.UP
    assert rig.counts("scrape")["starting"] == 31
    assert len([line for line in rig.lines if "starting" in line]) == 1


async def test_an_engine_that_restarts_and_loads_comes_back_with_a_new_plan(
    session: aiohttp.ClientSession, llamacpp: FakeLlamaCpp, steps: Steps
) -> None:
    async with watching(session, llamacpp, steps) as rig:
        llamacpp.kill()
        await rig.until(2)
        await llamacpp.restart(Phase.LOADING)
        await rig.until(4)
        assert rig.state() is State.STARTING
        llamacpp.phase = Phase.READY
        await rig.until(5)
        assert rig.state() is State.UP


async def test_an_engine_that_hangs_ages_and_is_not_down(
    session: aiohttp.ClientSession, llamacpp: FakeLlamaCpp, steps: Steps
) -> None:
    async with watching(session, llamacpp, steps) as rig:
        llamacpp.report(2, 5)
        await rig.until(1)
        assert rig.view_of_model == 2
        llamacpp.every = Hang()
        await rig.until(4)
        assert rig.view_of_model == 2
        await rig.until(5)
        assert rig.view_of_model is None
        await rig.until(20)
        assert rig.state() is State.BUSY
        assert rig.backend.is_up(steps.now)
        llamacpp.every = None
        await rig.until(22)
        assert rig.state() is State.UP
        assert rig.view_of_model == 2
    assert "unreachable" not in rig.counts("scrape")


async def test_a_time_out_in_every_third_round_is_no_news(
    session: aiohttp.ClientSession, llamacpp: FakeLlamaCpp, steps: Steps
) -> None:
    async with watching(session, llamacpp, steps) as rig:
        for second in range(1, 31):
            llamacpp.every = Hang() if second % 3 == 0 else None
            await rig.until(second)
            assert rig.backend.is_up(steps.now)
    assert rig.lines == ["gpu is up: llamacpp, smollm2:135m, 2 slots"]
    assert rig.counts("scrape") == {"ok": 20, "timeout": 10}


async def test_a_page_that_hangs_alone_leaves_the_rest_known(
    session: aiohttp.ClientSession, llamacpp: FakeLlamaCpp, steps: Steps
) -> None:
    async with watching(session, llamacpp, steps) as rig:
        llamacpp.answers["/metrics"] = Hang()
        await rig.until(21)
        target = rig.backend.targets["smollm2:135m"]
        assert rig.state() is State.UP
        assert (target.view(steps.now).running, target.view(steps.now).capacity) == (None, 2)
    assert rig.lines == ["gpu is up: llamacpp, smollm2:135m, 2 slots"]


async def test_a_new_version_makes_a_new_plan(session: aiohttp.ClientSession, steps: Steps) -> None:
    async with (
        FakeLlamaCpp(build="b9000-abcdef", clock=steps.clock) as engine,
        watching(session, engine, steps) as rig,
    ):
        await rig.until(2)
        engine.build = "b9001-abcdef"
        await rig.until(7)
        assert rig.backend.version == "b9001-abcdef"
        assert rig.backend.plan is not None
        assert rig.backend.plan.version == "b9001-abcdef"
    assert rig.counts("scrape")["new_version"] == 1
    assert rig.counts("resolve") == {"new_plan": 1, "same_plan": 1}
    assert rig.counts("generation") == {"new_version": 1}


async def test_a_failing_probe_makes_a_new_plan_with_what_still_works(
    session: aiohttp.ClientSession, llamacpp: FakeLlamaCpp, steps: Steps
) -> None:
    async with watching(session, llamacpp, steps) as rig:
        await rig.until(10)
        rig.fleet.dispatched(next(iter(rig.backend.targets.values())))
        llamacpp.report(1)
        llamacpp.answers["/metrics"] = Reply(501, b'{"error":{"code":501}}')
        await rig.until(12)
        assert rig.backend.plan is not None
        probes = {probe.signal: probe.name for probe in rig.backend.plan.active}
        assert probes[Signal.RUNNING] == "llamacpp-slots-running"
        assert Signal.WAITING not in probes
        assert rig.view_of_model == 1
    assert rig.counts("scrape")["probe_failed"] == 1
    assert rig.counts("resolve") == {"new_plan": 2, "probe_lost": 1}  # nothing else tells what waits


async def test_another_engine_behind_the_same_address_is_found_out(
    session: aiohttp.ClientSession, llamacpp: FakeLlamaCpp, steps: Steps
) -> None:
    async with watching(session, llamacpp, steps) as rig:
        await rig.until(10)
        llamacpp.kill()
        async with HttpDouble(port=llamacpp.port, clock=steps.clock) as other:
            other.answers["/v1/models"] = MODEL_LIST
            await rig.until(20)
            assert rig.backend.plan is not None
            assert rig.backend.plan.kind == "openai"
            assert rig.fleet.models(steps.now) == ["other"]


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        pytest.param(HTML, "model list", id="HTML"),
        pytest.param(Reply(401, b""), "401", id="401"),
        pytest.param(Reply(302, b"", {"Location": "/"}), "302", id="redirect"),
        pytest.param(Reply(200, b"\xff\xfe\x00"), "model list", id="not UTF-8"),
        pytest.param(Raw(b"HTTP/1.1 200 OK\r\n\r\n", endless=b"x" * 65536), "too large", id="endless body"),
        pytest.param(Raw(b"220 ready\r\n"), "not an HTTP answer", id="another protocol"),
    ],
)
async def test_what_is_no_engine_is_unrecognised_with_a_reason_said_once(
    session: aiohttp.ClientSession, llamacpp: FakeLlamaCpp, steps: Steps, answer: Answer, why: str
) -> None:
    async with watching(session, llamacpp, steps) as rig:
        await rig.until(10)
        llamacpp.every = answer
        await rig.until(20)
        assert rig.state() is State.UNRECOGNISED
        assert not rig.backend.is_up(steps.now)
        assert rig.backend.error is not None
        assert why in rig.backend.error
        assert len([line for line in rig.lines if "not like an engine" in line]) == 1
        llamacpp.every = None
        await rig.until(40)
        assert rig.state() is State.UP


async def test_without_a_plan_nothing_is_asked_until_a_whole_visit_is_within_the_rate(
    session: aiohttp.ClientSession, llamacpp: FakeLlamaCpp, steps: Steps
) -> None:
    llamacpp.every = Reply(404, b"")  # it takes a dozen GETs to see that nothing fits
    async with watching(session, llamacpp, steps) as rig:
        before = len(llamacpp.seen)
        rig.watch._bucket.take(BURST - before, T0)
        await rig.until(before // 2 - 1)
        assert len(llamacpp.seen) == before
        await rig.until(before // 2 + 1)
        assert len(llamacpp.seen) > before


async def test_a_sleeping_engine_is_watched_without_waking_it(session: aiohttp.ClientSession, steps: Steps) -> None:
    async with (
        FakeLlamaCpp(slots=1, version="b11549-sleep", model="tiny", clock=steps.clock) as engine,
        watching(session, engine, steps) as rig,
    ):
        await rig.until(10)
        assert "/slots" in engine.paths
        engine.phase = Phase.SLEEPING
        await rig.until(700)
        assert (engine.woken, engine.phase) == (0, Phase.SLEEPING)
        assert rig.state() is State.UP


async def test_a_watch_shows_its_backend_and_plan(
    session: aiohttp.ClientSession, llamacpp: FakeLlamaCpp, steps: Steps
) -> None:
    async with watching(session, llamacpp, steps) as rig:
        assert repr(rig.watch).startswith("<Watch gpu <Plan llamacpp")
        assert rig.backend.plan is not None
        text = describe("gpu", rig.backend.plan)
    assert text.startswith("gpu is llamacpp of unknown version: reading models by llamacpp-models")
    assert "without llamacpp-version (no value)" in text
    assert "redundant" not in text


async def test_a_start_is_one_short_line_and_the_plan_is_for_debugging(
    session: aiohttp.ClientSession, llamacpp: FakeLlamaCpp, steps: Steps
) -> None:
    async with watching(session, llamacpp, steps) as rig:
        await rig.until(2)
    told = [(event.level, event.text) for event in rig.events if event.text]
    assert [level for level, _ in told] == ["debug", "info"]
    assert told[1][1] == "gpu is up: llamacpp, smollm2:135m, 2 slots"


async def test_a_plan_that_changes_while_the_engine_is_up_is_told(
    session: aiohttp.ClientSession, llamacpp: FakeLlamaCpp, steps: Steps
) -> None:
    async with watching(session, llamacpp, steps) as rig:
        llamacpp.answers["/metrics"] = Reply(501, b"")
        await rig.until(60)
    assert rig.counts("resolve")["new_plan"] == 2
    told = [event.text for event in rig.events if event.text and event.stage == "resolve" and event.level == "info"]
    assert told == ["gpu is llamacpp of unknown version: read in a new way"]


async def test_an_engine_that_was_never_up_does_not_answer_again(
    session: aiohttp.ClientSession, llamacpp: FakeLlamaCpp, steps: Steps
) -> None:
    llamacpp.every = Reply(503, b"")
    async with watching(session, llamacpp, steps) as rig:
        await rig.until(8)
        llamacpp.every = None
        await rig.until(20)
    assert [line.partition(":")[0] for line in rig.lines] == ["gpu is starting", "gpu is up"]


async def test_an_ejected_backend_is_read_when_woken_and_each_second_though_no_path_is_due(
    session: aiohttp.ClientSession, steps: Steps
) -> None:
    async with HttpDouble(clock=steps.clock) as engine:
        engine.answers["/v1/models"] = MODEL_LIST
        async with watching(session, engine, steps) as rig:
            await rig.until(12.3)
            before = len(engine.seen)
            engine.answers["/v1/models"] = Reply(503, b"")
            rig.fleet.eject(rig.backend, "closed", steps.now, connected_at=steps.now)
            steps.now += 0.1
            rig.watch.wake()
            await steps.settle()
            assert rig.asked()[before:] == [(12.4, "/v1/models")]
            assert rig.state() is State.STARTING
            rig.backend.state = State.EJECTED
            engine.answers["/v1/models"] = MODEL_LIST
            await rig.until(13.4)
            assert rig.state() is State.UP


async def test_a_wake_during_a_round_starts_another_one_at_once_and_the_rate_still_holds(
    session: aiohttp.ClientSession, steps: Steps
) -> None:
    async with HttpDouble(clock=steps.clock) as engine:
        engine.answers["/v1/models"] = MODEL_LIST
        async with watching(session, engine, steps) as rig:
            await rig.until(20.3)
            before = len(engine.seen)
            for _ in range(40):
                rig.fleet.eject(rig.backend, "closed", steps.now, connected_at=steps.now)
                steps.now += 0.01
                rig.watch.wake()
                rig.watch.wake()
                await steps.settle()
            assert 1 < len(engine.seen) - before <= BURST + 1
