"""What Pharos does in front of real llama.cpp engines: signals that are true, endings that are honest."""

import asyncio
import contextlib
import json
from typing import Any

import aiohttp
import pytest

from pharos.core.signals import Residency, Signal
from tests.live.real import RealEngine, pharos

pytestmark = [pytest.mark.live, pytest.mark.slow]

Pair = tuple[RealEngine, RealEngine]
LONG = 3000
"""Tokens that take seconds, so that a stream is still running while a test looks."""


async def first_data(response: aiohttp.ClientResponse) -> bytes:
    """The first event that carries text."""
    async for line in response.content:
        if b'"content":"' in line:
            return line
    raise AssertionError("the stream ended without a token")


async def test_every_signal_of_an_idle_engine_is_read_with_its_probe(pair: Pair) -> None:
    async with pharos(pair[0].url) as running:
        backend = running.app.fleet.backends[f"127.0.0.1:{pair[0].port}"]
        assert backend.plan is not None
        assert backend.plan.kind == "llamacpp"
        view = running.view(pair[0])
        assert (view.running, view.waiting, view.capacity) == (0, 0, 2)
        assert view.residency is Residency.LOADED
        assert view.context_length == 4096
        assert view.size_bytes is not None
        assert view.kv_usage is None  # two slots: whether they share one context is told nowhere
        probes = {probe.signal for probe in backend.plan.active}
        assert {Signal.RUNNING, Signal.WAITING, Signal.CAPACITY, Signal.MODELS, Signal.RESIDENCY} <= probes


async def test_slow_streams_through_pharos_show_as_running(pair: Pair) -> None:
    async with pharos(pair[0].url) as running, running.post(LONG) as one, running.post(LONG) as two:
        await first_data(one)
        await first_data(two)
        await running.until(lambda: running.view(pair[0]).running == 2)
        assert running.view(pair[0]).waiting == 0
        assert running.leased() == 2
        one.close()
        two.close()
        await running.until(lambda: running.leased() == 0)
        await running.until(lambda: running.view(pair[0]).running == 0)


async def test_requests_around_pharos_that_saturate_an_engine_show_as_waiting(pair: Pair) -> None:
    async with pharos(pair[0].url) as running:
        direct = [asyncio.create_task(_hold(running, pair[0].url)) for _ in range(5)]
        await running.until(lambda: running.view(pair[0]).waiting == 3)
        assert running.view(pair[0]).running == 2
        for task in direct:
            task.cancel()
        await asyncio.gather(*direct, return_exceptions=True)
        await running.until(lambda: running.view(pair[0]).running == 0)


async def _hold(running: Any, url: str) -> None:
    """One client that asks again and again: a fast engine ends a long reply before the next look at it."""
    while True:
        with contextlib.suppress(aiohttp.ClientError):  # a kept connection that the engine closed meanwhile
            async with running.post(LONG, url=url) as response:
                await response.read()


async def test_an_engine_killed_mid_stream_cuts_its_client_and_the_next_request_goes_elsewhere(pair: Pair) -> None:
    async with pharos(pair[0].url, pair[1].url) as running:
        async with running.post(LONG) as response:
            await first_data(response)
            (lease,) = running.app.ledger._leases.values()
            victim = next(e for e in pair if lease.backend.endswith(str(e.port)))
            victim.kill()
            seen: list[bytes] = []
            with pytest.raises(aiohttp.ClientPayloadError):
                await _collect(response, seen)
            assert b"[DONE]" not in b"".join(seen)
            assert b'"error"' in b"".join(seen).splitlines()[-2]
        await running.until(lambda: running.leased() == 0)
        assert not running.app.fleet.backends[f"127.0.0.1:{victim.port}"].is_up(asyncio.get_running_loop().time())
        async with running.post(4, stream=False) as response:
            assert response.status == 200
        victim.start()
        await running.until(
            lambda: running.app.fleet.backends[f"127.0.0.1:{victim.port}"].is_up(asyncio.get_running_loop().time())
        )


async def _collect(response: aiohttp.ClientResponse, into: list[bytes]) -> None:
    async for piece in response.content.iter_any():
        into.append(piece)  # noqa: PERF401 (what came before the cut is what the test looks at)


async def test_twenty_streams_outlive_the_kill_of_one_engine_or_end_honestly(pair: Pair) -> None:
    async with pharos(pair[0].url, pair[1].url) as running:
        streams = [asyncio.create_task(_read_all(running)) for _ in range(20)]
        await running.until(lambda: running.leased() == 4 and running.app.ledger.waiting == 16)
        pair[0].kill()
        ends = await asyncio.gather(*streams)
        assert set(ends) <= {"done", "cut"}
        assert ends.count("cut") <= 2  # the two that ran on it; every other one was served
        await running.until(lambda: running.leased() == 0)
        assert running.app.ledger.waiting == 0


async def _read_all(running: Any) -> str:
    """done: the protocol's end was seen; cut: an exception or an error event. A short success raises."""
    try:
        async with running.post(300) as response:
            assert response.status == 200
            body = await response.read()
    except aiohttp.ClientPayloadError:
        return "cut"
    assert body.endswith(b"data: [DONE]\n\n")
    return "done"


async def test_a_client_that_hangs_up_stops_the_engine_and_returns_its_lease(pair: Pair) -> None:
    async with pharos(pair[0].url) as running:
        async with running.post(LONG) as response:
            await first_data(response)
            response.close()
        async with asyncio.timeout(1):
            while running.leased() or await _is_processing(running, pair[0].url):
                await asyncio.sleep(0.01)
        assert [done.status for done in running.app.reporting.recent] == [499]


async def _is_processing(running: Any, url: str) -> bool:
    async with running.http.get(url + "/slots") as response:
        return any(slot["is_processing"] for slot in await response.json())


async def test_an_engine_that_refuses_while_it_starts_is_not_gone_for_good(pair: Pair) -> None:
    late = pair[1]
    late.kill()
    async with pharos(late.url) as running:  # ready: its first round ended, in a refusal
        async with running.http.get(running.url + "/healthz") as response:
            assert response.status == 200
        late.start()
        await running.until(lambda: running.app.fleet.models(asyncio.get_running_loop().time()) == ["tiny"])
        async with running.post(4, stream=False) as response:
            assert response.status == 200


async def test_a_stream_through_pharos_is_the_engines_own_but_for_ids_and_times(pair: Pair) -> None:
    async with pharos(pair[0].url) as running:
        through = await _events(running, running.url)
        direct = await _events(running, pair[0].url)
        assert [shape(event) for event in through] == [shape(event) for event in direct]
        assert through[-1] == "[DONE]"
        (done, *_) = running.app.reporting.recent
        assert done.usage is not None
        assert done.usage.completion_tokens == 12
        assert done.ttft_s is not None


async def _events(running: Any, url: str) -> list[str]:
    async with running.post(12, url=url, text="the same prompt") as response:
        body = (await response.read()).decode()
    return [event.removeprefix("data: ") for event in body.split("\n\n") if event]


def shape(event: str) -> object:
    """An event without what differs between two runs: the text is sampled, ids and times are fresh."""
    if event == "[DONE]":
        return event
    record = json.loads(event)
    return sorted(record), record["choices"][0]["finish_reason"], sorted(record["choices"][0]["delta"])
