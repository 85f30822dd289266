"""Plays one client's part: its script step by step, or its commands one by one. Ends only what it started."""

import asyncio
import contextlib
import json
import os
import re
import signal
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from clients.catalogue import Client, Command, Place, in_words

SCRIPTS = Path(__file__).resolve().parent / "scripts"
STEP_S = 180.0
"""Longest wait for a client to say something; reached only when it hangs."""
TOLD = 600
"""Characters of a fault that are shown."""


class Outcome:
    """What became of one client."""

    def __init__(self) -> None:
        self.version = ""
        self.step = "start"
        """What it is doing."""
        self.steps: list[str] = []
        self.faults: list[tuple[str, str]] = []
        self.skipped: str | None = None
        self.seconds = 0.0

    @property
    def is_whole(self) -> bool:
        """Whether it ran, and did all that it was asked."""
        return bool(self.steps) and not self.faults and self.skipped is None

    def begin(self, step: str) -> None:
        """Go on to the next step."""
        self.step = step
        self.steps.append(step)

    def fault(self, text: str) -> None:
        """Note that the present step failed."""
        self.faults.append((self.step, text.strip()[:TOLD]))

    def line(self, title: str) -> str:
        """It for people."""
        if self.skipped is not None:
            return f"{title:<26} skipped: {self.skipped}"
        state = "ok" if not self.faults else f"{len(self.faults)} FAILED"
        return f"{title:<26} {self.version:<10} {len(self.steps):>3} steps {self.seconds:>5.0f} s  {state}"


async def play(client: Client, place: Place, outcome: Outcome) -> None:
    """Run a client to its end."""
    began = time.monotonic()
    program = _program(client, place)
    if not os.access(program[0], os.X_OK):
        outcome.skipped = "not installed (hack/setup-clients)"
        return
    try:
        if client.script is not None:
            await _script(program, _environ(place), place, outcome)
        else:
            await _commands(client, program, place, outcome)
    except TimeoutError:
        outcome.fault(f"nothing was heard for {STEP_S:.0f} s")
    outcome.seconds = time.monotonic() - began


def _program(client: Client, place: Place) -> list[str]:
    """Return how a script is started, or how a program tells its version."""
    if client.runs_on == "python":
        return [str(place.tools / "python" / "bin" / "python"), str(SCRIPTS / str(client.script))]
    if client.runs_on == "node":
        return [str(place.tools / "bin" / "node"), str(SCRIPTS / str(client.script))]
    if client.is_open:
        return [str(place.ollama), *client.version]
    return [str(place.tools / client.version[0]), *client.version[1:]]


def _environ(place: Place, more: Mapping[str, str] | None = None) -> dict[str, str]:
    """All of a client's environment: nothing of this machine's."""
    return {
        "PATH": os.pathsep.join([str(place.tools / "bin"), os.environ.get("PATH", os.defpath)]),
        "HOME": str(place.home),
        "NO_PROXY": "127.0.0.1,localhost",
        "PYTHONDONTWRITEBYTECODE": "1",
        "LITELLM_LOCAL_MODEL_COST_MAP": "True",
        "PHAROS_BASE": place.base,
        "PHAROS_KEY": place.key,
        "PHAROS_WRONG_KEY": place.wrong_key,
        "PHAROS_ENGINES": json.dumps(list(place.engines)),
        "PHAROS_NODE_PACKAGES": str(place.tools / "node" / "node_modules"),
        **(more or {}),
    }


async def _started(argv: Sequence[str], environ: Mapping[str, str], place: Place) -> asyncio.subprocess.Process:
    return await asyncio.create_subprocess_exec(
        *argv,
        cwd=place.home,
        env=dict(environ),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        limit=2**24,
        start_new_session=True,
    )


async def _ended(process: asyncio.subprocess.Process) -> None:
    """End it and what it started."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    await process.wait()


async def _script(argv: Sequence[str], environ: Mapping[str, str], place: Place, outcome: Outcome) -> None:
    process = await _started(argv, environ, place)
    assert process.stdin is not None
    assert process.stdout is not None
    assert process.stderr is not None
    said = asyncio.ensure_future(process.stderr.read())
    try:
        while line := await asyncio.wait_for(process.stdout.readline(), STEP_S):
            if not line.startswith(b"@@ "):
                continue  # what a package prints of its own accord
            told = json.loads(line[3:])
            outcome.version = told.get("version", outcome.version)
            if "begin" in told:
                outcome.begin(told["begin"])
                process.stdin.write(b"go\n")
            elif "fault" in told:
                outcome.fault(told["fault"])
        if await asyncio.wait_for(process.wait(), STEP_S):
            outcome.fault(f"it ended with {process.returncode}: {(await said).decode(errors='replace')[-TOLD:]}")
    finally:
        await _ended(process)
        await said


async def _commands(client: Client, version: Sequence[str], place: Place, outcome: Outcome) -> None:
    assert client.commands is not None
    _, said = await _run(Command("version", version, ""), place)
    outcome.version = in_words(said)
    for command in client.commands(place):
        outcome.begin(command.step)
        deadline = time.monotonic() + command.within_s
        code, said = await _run(command, place)
        while not _is_right(command, code, said) and time.monotonic() < deadline:
            await asyncio.sleep(0.2)  # the engine is another process: there is no event to wait on
            code, said = await _run(command, place)
        if not _is_right(command, code, said):
            outcome.fault(f"exit code {code}, looked for {command.says!r} in: {said}")


def _is_right(command: Command, code: int, said: str) -> bool:
    ends_well = code != 0 if command.code is None else code == command.code
    return ends_well and re.search(command.says, said) is not None


async def _run(command: Command, place: Place) -> tuple[int, str]:
    """Exit code and all that was printed."""
    process = await _started(command.argv, _environ(place, command.environ), place)
    try:
        out, error = await asyncio.wait_for(process.communicate(b""), STEP_S)
    finally:
        await _ended(process)
    return process.returncode or 0, (out + b"\n" + error).decode(errors="replace")
