"""What holds for every engine: each reading equals what the engine was started with or does now, or is unknown."""

import asyncio
import json
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from pharos.cli.checkup import EXIT_COMPLETE, EXIT_WRONG
from pharos.control.inspect import BUDGET_S, MAX_GETS, MAX_REQUESTS
from pharos.core.engine import detect
from pharos.core.engine.usage_fields import Usage
from pharos.core.fleet.backend import State
from pharos.core.signals import Residency, Signal
from tests.engines import registry
from tests.engines.ledger import Ledger
from tests.engines.llamacpp_stands import Embeds, Keyed, Sleeps
from tests.engines.looking import (
    CLOSE,
    PATIENCE,
    STEP_S,
    backend_of,
    doctored,
    holding,
    is_planned,
    observed,
    post,
    target_of,
    told,
    visit,
    warm,
    watched,
)
from tests.engines.recording import Recordings, record
from tests.engines.stand import PREFIX, Stand
from tests.fakes import records
from tests.live.real import Running

pytestmark = [pytest.mark.live, pytest.mark.slow]

ANY = pytest.mark.parametrize("stand", registry.names(lambda kind: kind is not Keyed), indirect=True)
CHATS = pytest.mark.parametrize(
    "stand", registry.names(lambda kind: kind not in (Embeds, Keyed, Sleeps)), indirect=True
)
SERVES = pytest.mark.parametrize("stand", registry.names(lambda kind: kind not in (Keyed, Sleeps)), indirect=True)
UNLOADS = pytest.mark.parametrize(
    "stand", registry.names(lambda kind: kind.unloads is not Stand.unloads), indirect=True
)

SETTLED_S = 8.0
"""Seconds after which a signal that is planned and still unknown counts as unknown."""
EXACT = (
    Signal.CAPACITY,
    Signal.CONTEXT_LENGTH,
    Signal.SIZE_BYTES,
    Signal.VRAM_BYTES,
    Signal.CAPABILITIES,
    Signal.PHYSICAL_GROUP,
)
WAITERS = 3
MOST_VISITS = 20_000
PROXIED = ("/v1/chat/completions", "/v1/completions")
"""Routes that Pharos serves."""


@ANY
async def test_few_quick_requests_tell_the_kind(stand: Stand, ledger: Ledger) -> None:
    seen = await visit(stand)
    assert seen.found.detection.kind == stand.kind, seen.found.detection
    asked: dict[str, Any] = {}
    while paths := [path for path in detect.next_paths(asked) if path not in asked]:
        asked |= {path: seen.found.pages[path] for path in paths}
    assert len(asked) <= MAX_GETS
    assert len(seen.made) <= MAX_REQUESTS
    assert {method for method, _ in seen.made} <= {"GET", "POST"}
    assert all(path == "/api/show" for method, path in seen.made if method == "POST")
    assert seen.took_s < BUDGET_S
    assert seen.found.plan is not None
    assert seen.found.plan.version == stand.truth.version
    told_by = [probe.name for probe in seen.found.plan.active if probe.signal is Signal.VERSION]
    ledger.judge(stand, Signal.VERSION.value, told_by[0] if stand.truth.version is not None else None)


@ANY
async def test_an_engine_that_is_starting_is_never_taken_for_another_kind(stand: Stand) -> None:
    stand.kill()
    starting = asyncio.create_task(asyncio.to_thread(stand.ensure))
    kinds: list[str | None] = [None]
    while not starting.done() or kinds[-1] is None:
        kinds.append((await visit(stand)).found.detection.kind)
        assert len(kinds) < MOST_VISITS
    await starting
    assert set(kinds) == {None, stand.kind}


@ANY
async def test_what_an_engine_was_started_with_is_read_exactly_or_not_at_all(stand: Stand, ledger: Ledger) -> None:
    wanted = {(signal, model): value for signal in EXACT for model, value in getattr(stand.truth, signal.value).items()}
    async with watched(stand) as running:
        await warm(running.http, stand)
        names = [target.served for target in backend_of(running, stand).targets.values() if target.listed]
        assert sorted(names) == sorted(stand.truth.models)
        known = await _settle(running, stand, wanted)
        unheard = {
            signal.value: model
            for signal in EXACT
            for model in stand.truth.models
            if (signal, model) not in wanted and told(running, stand, signal, model) is not None
        }
        assert not (stand.is_truth_whole and unheard), "read, though the engine was not told and does not tell"
        ledger.judge(stand, Signal.MODELS.value, _reader(running, stand, Signal.MODELS))
    for signal in EXACT:
        probes = {probe for (one, _), probe in known.items() if one is signal}
        ledger.judge(stand, signal.value, ", ".join(sorted(probes)) if probes else None)


async def _settle(running: Running, stand: Stand, wanted: dict[Any, Any]) -> dict[tuple[Signal, str], str]:
    """Wait until all that is wanted is read, or for as long as that may take; nothing may ever be read wrong.

    Returns who reads it once everything was read anew: what tells of loaded models only is the better reader.
    """
    since, backend = _now(), backend_of(running, stand)
    open_ = {key for key in wanted if is_planned(running, stand, key[0])}
    while True:
        found = {key: reading for key in open_ if (reading := told(running, stand, *key)) is not None}
        for key, reading in found.items():
            assert reading.value == wanted[key], (key, reading)
        is_read_anew = backend.last_full_at is not None and backend.last_full_at > since
        if (is_read_anew and len(found) == len(open_)) or not open_ or _now() > since + SETTLED_S:
            return {key: reading.probe for key, reading in found.items()}
        await asyncio.sleep(STEP_S)


def _reader(running: Running, stand: Stand, signal: Signal) -> str | None:
    reading = backend_of(running, stand).readings.get((signal, ""))
    return reading.probe if reading is not None else None


@CHATS
async def test_running_and_waiting_are_the_truth_or_unknown(
    stand: Stand, ledger: Ledger, recordings: Recordings, tmp_path: Path
) -> None:
    async with watched(stand) as running:
        http, front = running.http, running.url
        await warm(http, stand)
        direct = [(stand.url, stand.slow(number)) for number in range(stand.slots + WAITERS)]
        async with holding(http, direct[:1], begun=1) as held:
            values, _ = await observed(running, stand, Signal.RUNNING)
            await recordings.state(stand, "busy", tmp_path)
            assert not held.has_ended
            assert set(values) <= {1}, "one stream, around Pharos"
        # One goes through Pharos, and first, or it would wait there: what is asked only while requests of ours run is
        # asked, too.
        through = holding(http, [(front, direct[0][1])], begun=1)
        async with through as ours, holding(http, direct[1 : stand.slots], begun=stand.slots - 1) as held:
            values, probe = await observed(running, stand, Signal.RUNNING)
            assert not ours.has_ended
            assert not held.has_ended
            assert set(values) <= {stand.slots}, "as many streams as slots"
            ledger.judge(stand, Signal.RUNNING.value, probe)
        through = holding(http, [(front, direct[0][1])], begun=1)
        async with through as ours, holding(http, direct[1:], begun=stand.slots - 1) as held:
            await asyncio.sleep(1.0)  # what has no slot gives no sign that it has arrived
            waiting, probe = await observed(running, stand, Signal.WAITING)
            values, _ = await observed(running, stand, Signal.RUNNING)
            assert not ours.has_ended
            await recordings.state(stand, "saturated", tmp_path)
            assert not held.has_ended
            if stand.truth.capacity:
                assert set(waiting) <= {WAITERS}, "more streams than slots"
                assert set(values) <= {stand.slots}
            ledger.judge(stand, Signal.WAITING.value, probe)
        if is_planned(running, stand, Signal.RUNNING):
            await running.until(lambda: target_of(running, stand).view(_now()).running in (0, None))
        await recordings.state(stand, "after", tmp_path)


def _now() -> float:
    return asyncio.get_running_loop().time()


@UNLOADS
async def test_a_model_is_cold_until_asked_and_again_when_unloaded_and_its_generation_counts_up(
    stand: Stand, ledger: Ledger, recordings: Recordings, tmp_path: Path
) -> None:
    await asyncio.to_thread(stand.restart)
    async with watched(stand) as running:
        target = target_of(running, stand)
        await running.until(lambda: target.view(_now()).residency is Residency.COLD)
        await recordings.state(stand, "cold", tmp_path)
        await warm(running.http, stand)
        await running.until(lambda: target.view(_now()).residency is Residency.LOADED)
        ledger.judge(stand, Signal.RESIDENCY.value, _residency_probe(running, stand))
        before = target.generation
        unload = stand.unloads(stand.model)
        assert unload is not None
        status, body, _ = await post(running.http, stand.url, unload)
        assert status == 200, body
        await running.until(lambda: target.view(_now()).residency is Residency.COLD)
        assert target.generation == before + 1
        await recordings.state(stand, "unloaded", tmp_path)


def _residency_probe(running: Running, stand: Stand) -> str | None:
    reading = told(running, stand, Signal.RESIDENCY, stand.model)
    return reading.probe if reading is not None else None


@SERVES
async def test_a_model_that_answers_is_read_as_loaded_or_unknown(stand: Stand, ledger: Ledger) -> None:
    async with watched(stand) as running:
        await warm(running.http, stand)
        since = _now()

        def reading() -> Any:
            found = told(running, stand, Signal.RESIDENCY, stand.model)
            return found if found is not None and found.at > since else None

        if is_planned(running, stand, Signal.RESIDENCY):
            await running.until(lambda: reading() is not None)
            assert reading().value is Residency.LOADED
            ledger.judge(stand, Signal.RESIDENCY.value, reading().probe)
        else:
            assert not stand.reads_residency
            assert target_of(running, stand).view(_now()).residency is None
            ledger.judge(stand, Signal.RESIDENCY.value, None)


@CHATS
async def test_a_long_prefix_sent_twice_comes_from_the_cache(
    stand: Stand, ledger: Ledger, recordings: Recordings
) -> None:
    async with aiohttp.ClientSession() as http:
        request = stand.chat(4, PREFIX)
        first, again = [await _exchange(http, stand, request, recordings, name) for name in PREFIX_NAMES]
    assert first.prompt_tokens == again.prompt_tokens
    assert first.completion_tokens == again.completion_tokens == 4
    assert again.prompt_tokens is not None
    if again.cached_tokens is None:
        assert not stand.states_cached
        ledger.judge(stand, "reply_cached_tokens", None)
        return
    assert again.prompt_tokens / 2 < again.cached_tokens < again.prompt_tokens
    assert first.cached_tokens is not None
    assert first.cached_tokens < again.cached_tokens
    ledger.judge(stand, "reply_cached_tokens", "usage")


PREFIX_NAMES = ("prefix_first", "prefix_again")


async def _exchange(
    http: aiohttp.ClientSession,
    stand: Stand,
    request: tuple[str, dict[str, Any]],
    recordings: Recordings,
    name: str,
    status: int | None = 200,
) -> Usage:
    """Send a request around Pharos, record the exchange, and read the usage that the reply states."""
    path, body = request
    async with http.post(stand.url + path, json=body, headers=CLOSE, timeout=PATIENCE) as response:
        answer, kind = await response.read(), response.headers.get("Content-Type", "")
        recordings.reply(stand, name, request, (response.status, response.headers, answer))
        if status is not None:
            assert response.status == status, (name, answer)
        else:
            assert response.status >= 400, (name, answer)
    usage = records.usage_in(answer, kind, stand.dialect)
    return usage if usage is not None else Usage()


@SERVES
async def test_every_reply_that_a_client_may_ask_for_is_served_and_its_usage_read(
    stand: Stand, ledger: Ledger, recordings: Recordings, tmp_path: Path
) -> None:
    await recordings.state(stand, "idle", tmp_path)
    prompts: dict[str, set[int | None]] = {}
    async with aiohttp.ClientSession() as http:
        for reply in stand.replies():
            status = 200 if reply.completion is not None else None
            usage = await _exchange(http, stand, (reply.path, reply.body), recordings, reply.name, status)
            if reply.completion is None or not reply.is_told:
                assert usage == Usage(), reply.name
                continue
            assert usage.completion_tokens == reply.completion, (reply.name, usage)
            assert usage.prompt_tokens, (reply.name, usage)
            if "tools" not in reply.body:
                prompts.setdefault(reply.path, set()).add(usage.prompt_tokens)
    assert all(len(counts) == 1 for counts in prompts.values()), prompts
    ledger.judge(stand, "reply_prompt_tokens", "usage")


@CHATS
async def test_replies_through_pharos_are_whole_and_their_usage_is_known(stand: Stand) -> None:
    async with watched(stand) as running:
        recent = running.app.reporting.recent
        for reply in stand.replies():
            if reply.path not in PROXIED or reply.completion is None:
                continue
            before = len(recent)
            status, body, kind = await post(running.http, running.url, (reply.path, reply.body))
            assert status == 200, (reply.name, body)
            assert records.split(body, kind).is_whole, reply.name
            await running.until(lambda known=before: len(recent) > known)  # the client's end comes first
            (done, *_) = recent
            assert done.usage is not None, reply.name
            assert done.usage.completion_tokens == reply.completion, (reply.name, done.usage)
            assert done.usage.prompt_tokens, reply.name
            if reply.body.get("stream") and "stream_options" not in reply.body:
                events = [event for event in records.split(body, kind).records if isinstance(event, dict)]
                assert all(event["choices"] for event in events), "the usage that Pharos asked for is not the client's"


@CHATS
async def test_an_engine_killed_mid_stream_cuts_the_stream_honestly_and_comes_back(stand: Stand) -> None:
    async with watched(stand) as running:
        await warm(running.http, stand)
        backend, before = backend_of(running, stand), target_of(running, stand).generation
        if stand.reads_residency:
            await running.until(lambda: target_of(running, stand).view(_now()).residency is Residency.LOADED)
        path, body = stand.slow(1)
        async with running.http.post(running.url + path, json=body, headers=CLOSE) as response:
            await _first_token(response)
            assert running.leased() == 1
            stand.kill()
            seen: list[bytes] = []
            with pytest.raises(aiohttp.ClientPayloadError):
                await _collect(response, seen)
        answer = b"".join(seen)
        assert b"[DONE]" not in answer
        last = [line for line in answer.splitlines() if line.startswith(b"data: ")][-1]
        assert json.loads(last.removeprefix(b"data: "))["error"]
        await running.until(lambda: running.leased() == 0)
        assert not backend.is_up(_now())
        assert backend.state in (State.EJECTED, State.DOWN)
        status, refusal, _ = await post(running.http, running.url, stand.chat(4))
        assert status == 503, refusal
        await asyncio.to_thread(stand.ensure)
        await running.until(lambda: backend.is_up(_now()))
        status, reply, _ = await post(running.http, running.url, stand.chat(4))
        assert status == 200, reply
        if stand.shows_restart:
            await running.until(lambda: target_of(running, stand).generation > before)


async def _first_token(response: aiohttp.ClientResponse) -> None:
    assert response.status == 200, await response.text()
    async for line in response.content:
        if b'"content"' in line:
            return
    raise AssertionError("the stream ended without a token")


async def _collect(response: aiohttp.ClientResponse, into: list[bytes]) -> None:
    async for piece in response.content.iter_any():
        into.append(piece)  # noqa: PERF401 (what came before the cut is what the test looks at)


@ANY
async def test_a_recording_can_be_made(stand: Stand, tmp_path: Path) -> None:
    await record(stand, tmp_path / "made")
    listing = (tmp_path / "made" / "paths.tsv").read_text(encoding="utf-8").splitlines()
    assert len(listing) > 1
    assert any(row.split("\t")[1] == "200" for row in listing[1:])


@ANY
async def test_the_doctor_finds_no_fault_and_says_of_no_route_what_is_not_so(stand: Stand) -> None:
    finding = await doctored(stand)
    assert finding.row["error"] is None
    assert finding.exit_code in (EXIT_COMPLETE, EXIT_WRONG)  # wrong: something is unknown that need not be
    assert finding.row["feeds"] == {}
    served = {reply.path: reply.completion is not None for reply in stand.replies()}
    for route, is_there in finding.row["routes"].items():
        assert is_there in (None, served.get(route, is_there)), route
