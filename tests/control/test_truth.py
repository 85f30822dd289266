"""Whatever happens to an engine and to our reads of it: what is known is what was true when it was read, or nothing."""

import asyncio
import random
from typing import Any

import aiohttp
import pytest

from pharos.core.signals import Residency, Signal
from tests.fakes.http import Hang, Reply
from tests.fakes.llama_swap import FakeLlamaSwap
from tests.fakes.llamacpp import FakeLlamaCpp
from tests.fakes.ollama import FakeOllama
from tests.fakes.steps import Steps
from tests.fakes.vllm import FakeVllm
from tests.fakes.watched import T0, Watched, watched

SECONDS = 60
Engine = FakeVllm | FakeLlamaCpp
RUNNING = {FakeVllm: "vllm:num_requests_running", FakeLlamaCpp: "llamacpp:requests_processing"}
BROKEN = [
    *(Reply(status, b"") for status in (404, 500, 503)),
    *(Reply(200, body) for body in (b"", b"<html>", b"another_series 1\n")),
]
"""Answers that are no page of counters."""


class Churn:
    """Requests that come, end and hang up; the engine's true numbers at each second."""

    def __init__(self, session: aiohttp.ClientSession, engine: Engine, rng: random.Random) -> None:
        self._session = session
        self._engine = engine
        self._rng = rng
        self._clients: list[asyncio.Task[None]] = []
        self.truth: dict[float, tuple[int, int]] = {}

    @property
    def numbers(self) -> tuple[int, int]:
        engine = self._engine
        return engine.running, engine.waiting if isinstance(engine, FakeVllm) else engine.deferred

    async def step(self) -> None:
        """Let some requests come, some end and some hang up, and wait until all of that has happened."""
        for _ in range(self._rng.randrange(4)):
            self._clients.append(asyncio.create_task(self._one()))
        await self._settle()
        for _ in range(self._rng.randrange(3)):
            if self._clients and self._rng.random() < 0.3:
                client = self._clients.pop(self._rng.randrange(len(self._clients)))
                client.cancel()
                await asyncio.wait([client])
            elif self._engine.held:
                self._engine.release(1)
                await asyncio.wait(self._clients, return_when=asyncio.FIRST_COMPLETED)
            self._clients = [one for one in self._clients if not one.done()]
            await self._settle()

    async def restart(self) -> None:
        self._engine.kill()
        await asyncio.gather(*self._clients, return_exceptions=True)
        self._clients.clear()
        await self._engine.restart()
        self._engine.hold()

    async def end(self) -> None:
        self._engine.release()
        await asyncio.gather(*self._clients)

    async def _settle(self) -> None:
        slots = self._engine.max_num_seqs if isinstance(self._engine, FakeVllm) else self._engine.slots
        count = len(self._clients)
        busy = min(count, slots)
        await self._engine.until(lambda: self.numbers == (busy, count - busy) and self._engine.held == busy)

    async def _one(self) -> None:
        body = {"model": "tiny", "messages": [{"role": "user", "content": "hi"}], "stream": True}
        async with self._session.post(self._engine.url + "/v1/chat/completions", json=body) as response:
            await response.read()


def disturb(engine: Engine, rng: random.Random) -> None:
    """Make one second's reads fail in some way, or not."""
    engine.answers.pop("/metrics", None)
    engine.every = None
    trouble = rng.choice(["", "", "", "", "hang", "page", "all"])
    if trouble == "hang":
        engine.answers["/metrics"] = Hang()
    elif trouble == "page":
        engine.answers["/metrics"] = rng.choice(
            [
                Reply(503, b""),
                Reply(404, b""),
                Reply(200, b""),
                Reply(200, b"<html>"),
                Reply(200, b"a 1\n"),
                Reply(500, b""),
            ]
        )
    if isinstance(engine, FakeVllm) and rng.random() < 0.1:
        name = RUNNING[FakeVllm]
        engine.renamed = {} if engine.renamed else {name: f"{name}_now"}


def check(rig: Watched, churn: Churn, model: str) -> int:
    """What is known of running and waiting was true when it was read; how many of the two are known."""
    known = 0
    for number, signal in enumerate((Signal.RUNNING, Signal.WAITING)):
        for of in ("", model):
            reading = rig.backend.readings.get((signal, of))
            if reading is not None and reading.is_fresh(rig.steps.now):
                assert reading.value == churn.truth[reading.at][number], (signal, reading, rig.steps.now)
                known += 1
    return known


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("kind", [FakeVllm, FakeLlamaCpp])
async def test_no_number_is_ever_wrong(
    session: aiohttp.ClientSession, steps: Steps, kind: type[FakeVllm] | type[FakeLlamaCpp], seed: int
) -> None:
    rng = random.Random(seed)
    async with kind(clock=steps.clock) as engine:
        engine.hold()
        churn = Churn(session, engine, rng)
        churn.truth[T0] = (0, 0)
        known = 0
        async with watched(session, engine, steps=steps) as rig:
            for second in range(1, SECONDS):
                await churn.step()
                if rng.random() < 0.04:
                    await churn.restart()
                disturb(engine, rng)
                churn.truth[T0 + second] = churn.numbers
                await rig.until(second)
                known += check(rig, churn, "tiny")
        engine.answers.clear()
        await churn.end()
    assert known > SECONDS / 4, "else this shows nothing"


async def test_what_a_llama_swap_runs_is_known_after_each_of_its_events(
    session: aiohttp.ClientSession, steps: Steps
) -> None:
    rng = random.Random(5)
    clients: dict[str, list[asyncio.Task[Any]]] = {"tiny": [], "other": []}

    async def one(model: str) -> None:
        body = {"model": model, "messages": [{"role": "user", "content": "hi"}], "stream": True}
        async with session.post(engine.url + "/v1/chat/completions", json=body) as response:
            await response.read()

    async with FakeLlamaSwap(clock=steps.clock) as engine, watched(session, engine, steps=steps) as rig:
        engine.hold()
        for second in range(1, 40):
            model = rng.choice(["tiny", "tiny", "other"])
            if rng.random() < 0.6 and len(clients[model]) < 8:
                clients[model].append(asyncio.create_task(one(model)))
            elif clients[model]:
                client = clients[model].pop(0)
                client.cancel()
                await asyncio.wait([client])
            counts = {name: len(tasks) for name, tasks in clients.items()}
            await engine.until(lambda counts=counts: {name: engine.inside(name) for name in counts} == counts)
            await rig.told(lambda counts=counts: {name: rig.value(Signal.RUNNING, name) for name in counts} == counts)
            await rig.until(second)
            assert {name: rig.value(Signal.RUNNING, name) for name in counts} == counts
            ready = {name for name, state in engine.states.items() if state == "ready"}
            await rig.told(
                lambda ready=ready: (
                    {name for name in engine.models if rig.value(Signal.RESIDENCY, name) is Residency.LOADED} == ready
                )
            )
        engine.release()
        await asyncio.gather(*clients["tiny"], *clients["other"])


async def test_an_ollamas_residency_is_what_its_memory_holds(session: aiohttp.ClientSession, steps: Steps) -> None:
    rng = random.Random(6)
    names = ["a", "b", "c"]
    async with (
        FakeOllama(models=dict.fromkeys(names, 4), memory=8, keep_alive_s=20, clock=steps.clock) as engine,
        watched(session, engine, steps=steps) as rig,
    ):
        for turn in range(1, 30):
            if rng.random() < 0.7:
                body = {"model": rng.choice(names), "messages": [{"role": "user", "content": "hi"}], "stream": False}
                async with session.post(engine.url + "/api/chat", json=body) as response:
                    await response.read()
            await rig.until(5 * turn)
            loaded = {name for name in names if rig.target(name).view(steps.now).residency is Residency.LOADED}
            assert loaded == set(engine.loaded)
            assert rig.value(Signal.RUNNING, "a") is None
        assert len(engine.unloads) > 3
