"""SIGTERM to `pharos serve` as a process, before an engine double in this one."""

import asyncio
import contextlib
import json
import os
import signal
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator

from pharos.app import farewell
from pharos.config.schema import Drain
from tests.fakes.llamacpp import RECORDED_MODEL, FakeLlamaCpp
from tests.fakes.ports import free_port, is_refused

WAIT_S = 30.0
"""Longest wait for anything that a test waits for; reached only when the test fails."""


async def said(process: Process, words: str) -> str:
    """Wait until the log has a line with these words."""
    assert process.stderr is not None
    async with asyncio.timeout(WAIT_S):
        while words not in (line := (await process.stderr.readline()).decode()):
            assert line, f"it ended without saying {words!r}"
    return line.rstrip()


@contextlib.asynccontextmanager
async def serving(engine: FakeLlamaCpp, *, grace: str = "0") -> AsyncIterator[tuple[Process, int]]:
    """`pharos serve URL` that is ready, and its port."""
    port = free_port()
    command = [sys.executable, "-m", "pharos", "serve", "--listen", f"127.0.0.1:{port}", engine.url]
    environ = {**os.environ, "PHAROS_DRAIN__GRACE": grace}
    process = await asyncio.create_subprocess_exec(*command, stderr=PIPE, env=environ)
    try:
        assert f"ready on http://127.0.0.1:{port} (status page: /status)" in await said(process, "ready on")
        yield process, port
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.wait()
        process._transport.close()  # type: ignore[attr-defined]  # its pipe would be closed late, with a warning


@contextlib.asynccontextmanager
async def streaming(port: int, engine: FakeLlamaCpp) -> AsyncIterator[asyncio.StreamReader]:
    """A stream in flight: its engine has sent one event and waits for `release`."""
    engine.hold()
    body = json.dumps({"model": RECORDED_MODEL, "stream": True, "messages": [{"role": "user", "content": "hi"}]})
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(f"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\n\r\n{body}".encode())
    async with asyncio.timeout(WAIT_S):
        assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 200 ")
        await reader.readuntil(b"data: ")
    try:
        yield reader
    finally:
        writer.close()
        with contextlib.suppress(ConnectionError):
            await writer.wait_closed()


async def test_sigterm_lets_a_running_stream_finish_and_the_program_exits_with_0() -> None:
    async with FakeLlamaCpp() as engine, serving(engine) as (process, port), streaming(port, engine) as stream:
        process.send_signal(signal.SIGTERM)
        told = await said(process, "draining")
        assert told.endswith("draining: 1 request in work, up to 600 s for replies; a second signal ends at once")
        async with asyncio.timeout(WAIT_S):
            while not await is_refused(port):
                await asyncio.sleep(0.01)  # another process is waited for
            assert process.returncode is None, "a stream is still running"
            engine.release()
            rest = await stream.read()
            assert rest.endswith(b"data: [DONE]\n\n\r\n0\r\n\r\n")
            assert b'"error"' not in rest
            assert (await said(process, "stopped")).endswith("stopped")
            assert await process.wait() == 0


async def test_a_second_sigterm_ends_the_program_at_once() -> None:
    async with FakeLlamaCpp() as engine, serving(engine) as (process, port), streaming(port, engine) as stream:
        process.send_signal(signal.SIGTERM)
        await said(process, "draining")
        assert process.returncode is None
        async with asyncio.timeout(WAIT_S):
            while process.returncode is None:  # those of one moment count as one
                process.send_signal(signal.SIGTERM)
                await asyncio.sleep(0.01)  # another process is waited for
            assert await process.wait() == 128 + signal.SIGTERM
            with contextlib.suppress(ConnectionError):
                assert b"[DONE]" not in await stream.read()


async def test_signals_of_one_moment_are_one_as_make_passes_on_what_its_group_got_too() -> None:
    async with FakeLlamaCpp() as engine, serving(engine) as (process, port), streaming(port, engine) as stream:
        process.send_signal(signal.SIGTERM)
        process.send_signal(signal.SIGINT)
        await said(process, "draining")
        engine.release()
        async with asyncio.timeout(WAIT_S):
            assert (await stream.read()).endswith(b"data: [DONE]\n\n\r\n0\r\n\r\n")
            assert await process.wait() == 0


async def test_ctrl_c_waits_for_replies_but_not_for_a_load_balancer() -> None:
    async with (
        FakeLlamaCpp() as engine,
        serving(engine, grace="1h") as (process, port),
        streaming(port, engine) as stream,
    ):
        process.send_signal(signal.SIGINT)
        told = await said(process, "draining")
        assert told.endswith("draining: 1 request in work, up to 600 s for replies; a second signal ends at once")
        engine.release()
        async with asyncio.timeout(WAIT_S):
            assert (await stream.read()).endswith(b"data: [DONE]\n\n\r\n0\r\n\r\n")
            assert await process.wait() == 0


def test_what_is_left_to_do_is_told_in_words() -> None:
    assert farewell(0, Drain(grace_s=5, timeout_s=60)) == (
        "no request in work, still accepting for 5 s, then up to 60 s for replies"
    )
    assert farewell(3, Drain(grace_s=0, timeout_s=60)) == "3 requests in work, up to 60 s for replies"
