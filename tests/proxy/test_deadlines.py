import asyncio

import pytest

from pharos.core.fleet import Fleet, State
from pharos.core.sched import Lease, Ledger
from pharos.core.signals import Residency, Signal
from pharos.proxy import deadlines, relay, steady
from pharos.proxy.deadlines import Watch, watched
from pharos.proxy.relay import End
from pharos.proxy.settings import ProxySettings
from tests.core.fleet.given import OLLAMA_LIKE, OPENAI, fleet_of, publish, spec, warm
from tests.core.sched.given import ask, lease
from tests.proxy.engine_script import WAIT_S, Turn
from tests.proxy.harness import DONE, chat, event, front
from tests.proxy.test_forward import OK_BODY, first_to, ok

SOON = 0.05


async def hangs(turn: Turn) -> None:
    await turn.until_closed()


async def stalls(turn: Turn) -> None:
    await turn.sse_head()
    await turn.chunk(event())
    await turn.until_closed()


@pytest.fixture
def exact(monkeypatch: pytest.MonkeyPatch) -> None:
    """Silence counts from the first byte that was heard of."""
    monkeypatch.setattr(deadlines, "HEARD_EVERY_S", 0.0)


# --- the first byte


async def test_an_engine_that_does_not_begin_in_time_is_left_for_another_one_and_not_ejected() -> None:
    async with front(hangs, ok, settings=ProxySettings(first_byte_warm_s=SOON)) as (pharos, a, b):
        first_to(pharos, "a")
        reply = await pharos.ask(chat(stream=False))
        assert reply.body == OK_BODY
        assert (len(a.turns), len(b.turns)) == (1, 1)
        done = await pharos.finished()
        assert ("upstream", "first_byte_late") in done.stages
        assert pharos.fleet.backends["a"].state is State.UP
        assert pharos.fleet.backends["a"].inflight == 0


async def test_alone_it_is_a_504_that_names_it() -> None:
    async with front(hangs, settings=ProxySettings(first_byte_warm_s=SOON)) as (pharos, a):
        reply = await pharos.ask()
        assert reply.status == 504
        assert reply.json()["error"]["code"] == "gateway_timeout"
        assert "The backend a failed: no byte of a reply came in time." in reply.json()["error"]["message"]
        assert len(a.turns) == 1
        assert pharos.inflight == 0


async def test_one_that_is_late_again_and_again_is_passed_over() -> None:
    async with front(hangs, ok, settings=ProxySettings(first_byte_warm_s=SOON)) as (pharos, a, b):
        for _ in range(6):
            first_to(pharos, "a")
            assert (await pharos.ask(chat(stream=False))).status == 200
        assert len(a.turns) == 3
        assert len(b.turns) == 6


async def test_without_deadlines_nothing_is_watched() -> None:
    async with front(stalls) as (pharos, engine):
        client = await pharos.client()
        client.post(chat())
        await client.until(b'"hi"')
        (connection,) = pharos.proxy.connections
        assert connection.relay is not None
        assert connection.relay.watch is None
        assert len(engine.turns) == 1


@pytest.mark.parametrize(
    ("told", "plan", "limit"),
    [
        (warm(2), OLLAMA_LIKE, 1.0),
        ({**warm(2), Signal.RESIDENCY: Residency.COLD}, OLLAMA_LIKE, 2.0),
        ({**warm(2), Signal.RESIDENCY: Residency.LOADING}, OLLAMA_LIKE, 2.0),
        ({Signal.CAPACITY: 2}, OLLAMA_LIKE, 2.0),
        ({Signal.CAPACITY: 2}, OPENAI, 1.0),
    ],
    ids=["warm", "cold", "loading", "unknown", "an engine that never tells"],
)
async def test_the_limit_goes_by_what_the_decision_knew_of_the_model(told: object, plan: object, limit: float) -> None:
    fleet = fleet_of(spec())
    publish(fleet, "gpu-1", 0.0, told, plan=plan)  # type: ignore[arg-type]
    settings = ProxySettings(first_byte_warm_s=1.0, first_byte_cold_s=2.0)
    watch = watched(Reply(), Client(), granted(fleet), settings, Hand())
    assert watch is not None
    assert repr(watch) == f"<Watch first_byte={limit} idle=None>"
    watch.stop()


async def test_a_limit_for_cold_models_alone_leaves_warm_ones_be() -> None:
    fleet = fleet_of(spec())
    publish(fleet, "gpu-1", 0.0, warm(2), plan=OLLAMA_LIKE)
    assert watched(Reply(), Client(), granted(fleet), ProxySettings(first_byte_cold_s=2.0), Hand()) is None


# --- between two bytes


@pytest.mark.usefixtures("exact")
async def test_a_stream_that_stalls_ends_with_an_error_and_without_a_done() -> None:
    async with front(stalls, settings=ProxySettings(reply_idle_s=SOON)) as (pharos, engine):
        reply = await pharos.ask()
        assert reply.status == 200
        assert reply.body.startswith(event())
        assert b"engine_stalled" in reply.body
        assert DONE not in reply.body
        async with asyncio.timeout(WAIT_S):
            while not engine.turns[0].is_over:  # its connection was closed
                await asyncio.sleep(0)
        done = await pharos.finished()
        assert ("upstream", "stalled") in done.stages
        assert pharos.fleet.backends["a"].state is State.UP
        assert pharos.inflight == 0


@pytest.mark.usefixtures("exact")
async def test_a_reply_with_a_length_that_stalls_is_cut_short_of_it() -> None:
    async def play(turn: Turn) -> None:
        await turn.write(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 100\r\n\r\n{")
        await turn.until_closed()

    async with front(play, settings=ProxySettings(reply_idle_s=SOON)) as (pharos, _):
        reply = await pharos.ask(chat(stream=False))
        assert not reply.is_whole
        assert reply.body == b"{"
        assert ("upstream", "stalled") in (await pharos.finished()).stages


async def test_a_stream_that_goes_on_is_never_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (deadlines, relay, steady):
        monkeypatch.setattr(module, "HEARD_EVERY_S", 0.01)

    async def play(turn: Turn) -> None:
        await turn.sse_head()
        for _ in range(20):
            await turn.chunk(event())
            await asyncio.sleep(0.05)
        await turn.chunk(DONE)
        await turn.write(b"0\r\n\r\n")

    settings = ProxySettings(first_byte_warm_s=0.5, reply_idle_s=0.5)
    async with front(play, settings=settings) as (pharos, _):
        reply = await pharos.ask()
        assert reply.body == event() * 20 + DONE
        assert reply.is_whole
        assert ("upstream", "ok") in (await pharos.finished()).stages


async def test_what_the_engine_sends_and_what_the_client_takes_put_the_stall_off() -> None:
    async def play(turn: Turn) -> None:
        await turn.sse_head()
        await turn.chunk(event())
        await go_on.wait()
        await turn.chunk(event("on"))
        await turn.until_closed()

    go_on, clock = asyncio.Event(), Hand()
    async with front(play, settings=ProxySettings(reply_idle_s=60.0), clock=clock) as (pharos, _):
        client = await pharos.client()
        client.post(chat())
        await client.until(b'"hi"')
        (connection,) = pharos.proxy.connections
        reply = connection.relay
        assert reply is not None
        watch = reply.watch
        assert watch is not None
        clock.now = 150.0
        go_on.set()
        await client.until(b'"on"')
        at(clock, 210.9, watch)
        assert reply.end is End.OPEN
        reply.resume()
        at(clock, 271.8, watch)
        assert reply.end is End.OPEN
        at(clock, 272.0, watch)
        assert reply.end is End.STALLED


# --- by hand


class Reply:
    begun_at = 100.0
    first_byte_at: float | None = None
    ended = ""

    def time_out(self) -> None:
        self.ended = "late" if self.first_byte_at is None else "stalled"


class Client:
    writing_paused = False


class Hand:
    now = 100.0

    def __call__(self) -> float:
        return self.now


def granted(fleet: Fleet) -> Lease:
    return lease(Ledger(fleet).submit(ask(), 0.0, 0))


def looked(watch: Watch, clock: Hand, now: float, reply: Reply) -> str:
    """What has become of the reply when the deadlines are looked at then."""
    at(clock, now, watch)
    return reply.ended


def at(clock: Hand, now: float, watch: Watch) -> None:
    clock.now = now
    watch.stop()
    watch._look()


async def test_the_time_for_a_first_byte_ends_with_it() -> None:
    reply, clock = Reply(), Hand()
    watch = Watch(reply, Client(), 10.0, None, clock)
    assert looked(watch, clock, 109.9, reply) == ""
    reply.first_byte_at = 109.95
    assert looked(watch, clock, 200.0, reply) == ""
    assert watch._timer is None
    reply.first_byte_at = None
    assert looked(watch, clock, 110.0, reply) == "late"


async def test_silence_before_the_first_byte_is_no_stall() -> None:
    reply, clock = Reply(), Hand()
    watch = Watch(reply, Client(), None, 5.0, clock)
    assert looked(watch, clock, 200.0, reply) == ""
    reply.first_byte_at = 200.0
    assert looked(watch, clock, 205.9, reply) == ""
    assert looked(watch, clock, 206.0, reply) == "stalled"
    watch.stop()


async def test_what_is_heard_puts_the_stall_off() -> None:
    reply, clock = Reply(), Hand()
    reply.first_byte_at = 100.0
    watch = Watch(reply, Client(), None, 5.0, clock)
    watch.heard(104.0)
    assert looked(watch, clock, 109.0, reply) == ""
    assert looked(watch, clock, 110.0, reply) == "stalled"
    watch.stop()


async def test_an_engine_that_is_not_read_because_its_client_is_slow_does_not_stall() -> None:
    reply, clock, client = Reply(), Hand(), Client()
    reply.first_byte_at = 100.0
    client.writing_paused = True
    watch = Watch(reply, client, None, 5.0, clock)
    assert looked(watch, clock, 500.0, reply) == ""
    client.writing_paused = False
    assert looked(watch, clock, 505.0, reply) == ""
    assert looked(watch, clock, 506.0, reply) == "stalled"
    watch.stop()
