"""SIGHUP to `pharos serve` as a process: the file is read again; without a file it ends."""

import asyncio
import contextlib
import os
import signal
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator
from pathlib import Path

from tests.cli.test_end import WAIT_S, said
from tests.fakes.llamacpp import FakeLlamaCpp


@contextlib.asynccontextmanager
async def serving(*arguments: str) -> AsyncIterator[Process]:
    command = [sys.executable, "-m", "pharos", "serve", "--listen", "127.0.0.1:0", *arguments]
    environ = {**os.environ, "PHAROS_DRAIN__GRACE": "0"}
    process = await asyncio.create_subprocess_exec(*command, stderr=PIPE, env=environ)
    try:
        await said(process, "ready on")
        yield process
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.wait()
        process._transport.close()  # type: ignore[attr-defined]  # its pipe would be closed late, with a warning


async def test_sighup_reads_the_file_again_and_what_the_command_line_set_needs_no_restart(tmp_path: Path) -> None:
    path = tmp_path / "pharos.yaml"
    await asyncio.to_thread(path.write_text, "retry: {attempts: 0}\n", encoding="utf-8")
    async with serving("--config", str(path)) as process:
        await asyncio.to_thread(path.write_text, "listen: :1\nretry: {attempts: 2}\npolicy: least-load\n")
        process.send_signal(signal.SIGHUP)
        told = await said(process, "was read again")
        assert told.endswith(f"{path} was read again; used only after a restart: policy")
        process.send_signal(signal.SIGTERM)
        assert await asyncio.wait_for(process.wait(), WAIT_S) == 0


async def test_without_a_file_sighup_ends_as_a_closed_terminal_should() -> None:
    async with FakeLlamaCpp() as engine, serving(engine.url) as process:
        process.send_signal(signal.SIGHUP)
        await said(process, "draining")
        assert await asyncio.wait_for(process.wait(), WAIT_S) == 0
