"""SIGTERM to `pharos serve` as a process, before an engine double in this one."""

import asyncio
import contextlib
import json
import os
import signal
import socket
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator

from tests.fakes.llamacpp import RECORDED_MODEL, FakeLlamaCpp

WAIT_S = 30.0
"""Longest wait for anything that a test waits for; reached only when the test fails."""


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        return int(probe.getsockname()[1])


async def said(process: Process, words: str) -> None:
    """Wait until the log has a line with these words."""
    assert process.stderr is not None
    async with asyncio.timeout(WAIT_S):
        while words not in (line := (await process.stderr.readline()).decode()):
            assert line, f"it ended without saying {words!r}"


@contextlib.asynccontextmanager
async def serving(engine: FakeLlamaCpp) -> AsyncIterator[tuple[Process, int]]:
    """`pharos serve URL` that is ready, and its port."""
    port = free_port()
    command = [sys.executable, "-m", "pharos", "serve", "--listen", f"127.0.0.1:{port}", engine.url]
    environ = {**os.environ, "PHAROS_DRAIN__GRACE": "0"}
    process = await asyncio.create_subprocess_exec(*command, stderr=PIPE, env=environ)
    try:
        await said(process, "ready on")
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


async def is_refused(port: int) -> bool:
    try:
        _, writer = await asyncio.open_connection("127.0.0.1", port)
    except ConnectionRefusedError:
        return True
    writer.close()
    return False


async def test_sigterm_lets_a_running_stream_finish_and_the_program_exits_with_0() -> None:
    async with FakeLlamaCpp() as engine, serving(engine) as (process, port), streaming(port, engine) as stream:
        process.send_signal(signal.SIGTERM)
        await said(process, "draining")
        async with asyncio.timeout(WAIT_S):
            while not await is_refused(port):
                await asyncio.sleep(0.01)  # another process is waited for
            assert process.returncode is None, "a stream is still running"
            engine.release()
            rest = await stream.read()
            assert rest.endswith(b"data: [DONE]\n\n\r\n0\r\n\r\n")
            assert b'"error"' not in rest
            assert await process.wait() == 0


async def test_a_second_sigterm_ends_the_program_at_once() -> None:
    async with FakeLlamaCpp() as engine, serving(engine) as (process, port), streaming(port, engine) as stream:
        process.send_signal(signal.SIGTERM)
        await said(process, "draining")
        assert process.returncode is None
        process.send_signal(signal.SIGTERM)
        async with asyncio.timeout(WAIT_S):
            assert await process.wait() == 128 + signal.SIGTERM
            with contextlib.suppress(ConnectionError):
                assert b"[DONE]" not in await stream.read()
