"""What only Ollama does: slots in its log, models that leave on their own, contexts that change by request."""

import asyncio
import os
import signal
import time
from pathlib import Path

import aiohttp
import pytest

from pharos.core.signals import Residency, Signal
from tests.engines import registry
from tests.engines.ledger import Ledger
from tests.engines.looking import CLOSE, backend_of, doctored, post, target_of, told, visit, warm, watched
from tests.engines.ollama_stand import CONTEXT, Ollama
from tests.engines.recording import Recordings, cleaned, record
from tests.engines.stand import SLOTS
from tests.live.real import pharos

pytestmark = [pytest.mark.live, pytest.mark.slow]

OLLAMA = pytest.mark.parametrize("stand", registry.names(lambda kind: issubclass(kind, Ollama)), indirect=True)
SCRAPED_S = 15.0


def _now() -> float:
    return asyncio.get_running_loop().time()


@OLLAMA
async def test_the_slots_are_read_from_the_real_log_and_known_without_a_request(stand: Ollama, ledger: Ledger) -> None:
    await asyncio.to_thread(stand.restart)
    async with watched(stand) as running:
        if stand.is_newer:  # its log tells when a model is loaded
            await warm(running.http, stand)
        await running.until(lambda: target_of(running, stand).view(_now()).capacity is not None)
        await running.until(lambda: target_of(running, stand, stand.other).view(_now()).capacity is not None)
        assert target_of(running, stand).view(_now()).capacity == SLOTS
        assert target_of(running, stand, stand.other).view(_now()).capacity == 1
        reading = told(running, stand, Signal.CAPACITY, stand.model)
        ledger.judge(stand, Signal.CAPACITY.value, reading.probe if reading is not None else None)


@OLLAMA
async def test_a_model_leaves_memory_on_time_though_it_is_scraped(stand: Ollama) -> None:
    async with watched(stand) as running:
        target = target_of(running, stand)
        loaded = {"model": stand.model, "keep_alive": "7s"}  # what is in memory is read every five seconds
        status, answer, _ = await post(running.http, stand.url, ("/api/generate", loaded))
        assert status == 200, answer
        await running.until(lambda: target.view(_now()).residency is Residency.LOADED)
        before = target.generation
        await running.until(lambda: target.view(_now()).residency is Residency.COLD)
        assert target.generation == before + 1


@OLLAMA
async def test_nothing_that_pharos_does_of_its_own_accord_loads_a_model(
    stand: Ollama, recordings: Recordings, tmp_path: Path
) -> None:
    await asyncio.to_thread(stand.restart)
    until = time.monotonic() + SCRAPED_S
    async with watched(stand) as running:
        await record(stand, tmp_path / "made")
        await visit(stand)
        await doctored(stand)
        while time.monotonic() < until:
            assert await asyncio.to_thread(stand.loaded) == set()
            await asyncio.sleep(0.5)
        assert target_of(running, stand).view(_now()).residency is Residency.COLD
    folder = recordings.folder(stand)
    if folder is not None:
        (folder / "logs").mkdir(parents=True, exist_ok=True)
        lines = [line for line in stand.log.read_bytes().splitlines() if b"level=INFO" in line]
        (folder / "logs" / "live.log").write_bytes(cleaned(stand, b"\n".join([*dict.fromkeys(lines), b""])))


@OLLAMA
async def test_two_names_of_one_model_share_their_slots(stand: Ollama) -> None:
    async with watched(stand) as running:
        copy = ("/api/copy", {"source": stand.model, "destination": "twin:latest"})
        status, answer, _ = await post(running.http, stand.url, copy)
        assert status == 200, answer
        try:
            targets = backend_of(running, stand).targets
            await running.until(lambda: "twin" in targets)
            await running.until(lambda: targets["twin"].slots is target_of(running, stand).slots)
            assert target_of(running, stand, stand.other).slots is not target_of(running, stand).slots
        finally:
            async with running.http.delete(f"{stand.url}/api/delete", json={"model": "twin:latest"}) as response:
                assert response.status == 200
        await running.until(lambda: not targets["twin"].listed)


@OLLAMA
async def test_a_model_answers_to_each_of_its_names(stand: Ollama) -> None:
    aliases = {"fast": [f"ollama:{stand.model}"]}
    async with pharos(backends=[stand.settings()], queue={"absent_wait": "0.1s"}, aliases=aliases) as running:
        await running.until(lambda: "fast" in backend_of(running, stand).targets)
        own, alias = (running.app.fleet.backends[stand.backend].targets[name] for name in ("tiny", "fast"))
        assert own.slots is alias.slots
        told_names = {"tiny": "tiny", "tiny:latest": "tiny:latest", "fast": "tiny:latest"}
        for name, told_name in told_names.items():
            asked = {"model": name, "messages": [{"role": "user", "content": "hello"}], "stream": False}
            for path, limit in (
                ("/api/chat", {"options": {"num_predict": 2}}),
                ("/v1/chat/completions", {"max_tokens": 2}),
            ):
                status, answer, _ = await post(running.http, running.url, (path, asked | limit))
                assert status == 200, answer
                assert f'"model":"{told_name}"' in answer.decode()


@OLLAMA
async def test_another_context_in_a_request_is_read_and_loses_the_cache(stand: Ollama, ledger: Ledger) -> None:
    async with watched(stand) as running:
        target = target_of(running, stand)
        await warm(running.http, stand)
        await running.until(lambda: target.view(_now()).context_length == CONTEXT)
        await running.until(lambda: target.last_context == CONTEXT)
        before = target.generation
        smaller = {"model": stand.model, "prompt": "hello", "stream": False}
        options = {"num_ctx": CONTEXT // 2, "num_predict": 4}
        status, answer, _ = await post(running.http, stand.url, ("/api/generate", {**smaller, "options": options}))
        assert status == 200, answer
        await running.until(lambda: target.view(_now()).context_length == CONTEXT // 2)
        assert target.generation == before + 1
        reading = told(running, stand, Signal.CONTEXT_LENGTH, stand.model)
        ledger.judge(stand, "context_length_of_loaded", reading.probe if reading is not None else None)


@OLLAMA
async def test_a_stream_whose_model_server_is_killed_does_not_look_finished(stand: Ollama) -> None:
    async with watched(stand) as running:
        await warm(running.http, stand)
        path, body = stand.slow(1)
        async with running.http.post(running.url + path, json=body, headers=CLOSE) as response:
            async for line in response.content:
                if b'"content"' in line:
                    break
            for child in stand.process.children():  # of the group that this test started
                os.kill(child, signal.SIGKILL)
            seen = bytearray()
            is_cut = False
            try:
                async for piece in response.content.iter_any():
                    seen += piece
            except aiohttp.ClientPayloadError:
                is_cut = True
        assert b"[DONE]" not in seen
        await running.until(lambda: running.leased() == 0)
        assert is_cut or b'"error"' in seen
