"""Every command of docs/operations.md, in its order, by a shell in an empty folder; and what the page shows."""

import asyncio
import contextlib
import os
import re
import shutil
import signal
import sys
from asyncio.subprocess import DEVNULL
from collections.abc import AsyncIterator
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.fakes.llamacpp import FakeLlamaCpp
from tests.fakes.ports import free_port

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "operations.md"
FENCE = re.compile(r"^```(\w+)(?: (\S+))?\n(.*?)^```$", re.MULTILINE | re.DOTALL)
WAIT_S = 240
"""Longest wait for all commands together; reached only when something is wrong."""
MARK = "@@ end of block"
PORTS = ("8090", "8091", "8190", "8191", "8081", "8181")
"""Those of the page that Pharos listens on; each run has its own."""


class Block(NamedTuple):
    """Commands that stand together, and what they print as far as the page shows it."""

    commands: str
    shown: str | None


def blocks(page: str) -> list[Block]:
    found: list[Block] = []
    for kind, _, text in FENCE.findall(page):
        if kind == "sh":
            found.append(Block(text, None))
        elif kind == "text":
            found[-1] = Block(found[-1].commands, text)
    return found


def files(page: str) -> dict[str, str]:
    return {name: text for kind, name, text in FENCE.findall(page) if kind == "yaml"}


def is_as_shown(shown: str, printed: str) -> bool:
    pattern = ".*?".join(re.escape(part) for part in shown.strip().split("…"))
    return re.fullmatch(pattern, printed.strip(), re.DOTALL) is not None


def script(commands: list[Block]) -> str:
    """A shell that ends at the first command that fails, and tells which; it leaves no process behind."""
    head = (
        "set -euo pipefail; trap 'echo \"failed: $BASH_COMMAND\" >&2' ERR; trap 'kill $(jobs -p) 2>/dev/null || :' EXIT"
    )
    return "\n".join([head, *(f"{block.commands}\necho '{MARK}'" for block in commands)])


@contextlib.asynccontextmanager
async def stage(folder: Path) -> AsyncIterator[str]:
    """The page with this run's ports, in a folder with the files that it wants, and engines that answer."""
    async with FakeLlamaCpp(slots=4) as first, FakeLlamaCpp(slots=4) as second:
        ports = {name: str(free_port()) for name in PORTS}
        ports |= {"18080": first.url.rpartition(":")[2], "18081": second.url.rpartition(":")[2]}
        page = re.sub(rf"\b({'|'.join(ports)})\b", lambda found: ports[found[1]], PAGE.read_text(encoding="utf-8"))
        for name, text in files(page).items():
            (folder / name).write_text(text, encoding="utf-8")
        (folder / "manifests").symlink_to(ROOT / "manifests")
        yield page


def left_behind(folder: Path) -> list[Path]:
    return [path for path in folder.iterdir() if path.is_file()]


async def run(program: str, folder: Path) -> tuple[int, str, str]:
    """Exit status, output and errors of a shell, whose processes all end with it."""
    environ = {name: value for name, value in os.environ.items() if not name.startswith("PHAROS_")}
    environ["PHAROS_DRAIN__GRACE"] = "0"  # no load balancer is there to notice
    environ["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{environ['PATH']}"
    # Files and no pipes: a process that it starts would hold those open.
    with (folder / "printed").open("wb") as printed, (folder / "errors").open("wb") as errors:
        shell = await asyncio.create_subprocess_exec(
            "bash", "-c", program, cwd=folder, env=environ, stdin=DEVNULL, stdout=printed, stderr=errors,
            start_new_session=True,
        )  # fmt: skip
        try:
            async with asyncio.timeout(WAIT_S):
                status = await shell.wait()
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(shell.pid, signal.SIGKILL)
    return status, (folder / "printed").read_text(encoding="utf-8"), (folder / "errors").read_text(encoding="utf-8")


@pytest.mark.timeout(WAIT_S + 20)
async def test_every_command_of_the_page_runs_and_prints_what_the_page_shows(tmp_path: Path) -> None:
    async with stage(tmp_path) as page:
        chosen = blocks(page)
        if shutil.which("promtool") is None:  # `make prometheus` brings it
            chosen = [block for block in chosen if "promtool" not in block.commands]
        status, printed, errors = await run(script(chosen), tmp_path)
    left = {path.name: path.read_text(errors="replace") for path in left_behind(tmp_path)}
    assert status == 0, printed + errors + left["a.log"] + left["b.log"]
    assert "Traceback" not in errors + left["a.log"] + left["b.log"]
    outputs = printed.split(MARK)
    assert [
        (block.commands, output)
        for block, output in zip(chosen, outputs, strict=False)
        if block.shown is not None and not is_as_shown(block.shown, output)
    ] == []
    assert "alice,1," in left["restored.csv"], "usage did not come back from the copy"
    assert {name for name, text in left.items() if "phk-" in text} == {"ops.key", "alice.key", "alice-2.key"}


def test_the_page_shows_commands_in_blocks_that_are_run_only() -> None:
    page = PAGE.read_text(encoding="utf-8")
    assert {kind for kind, _, _ in FENCE.findall(page)} == {"sh", "text", "yaml"}
    assert page.count("```") == 2 * len(FENCE.findall(page))
    assert not re.findall(r"^ {4}\S", page, re.MULTILINE), "an indented block would not be run"
    assert list(files(page)) == ["pharos.yaml"]


@pytest.mark.parametrize(
    ("shown", "printed", "same"),
    [("a…c", "abc\n", True), ("a…c", "abcd", False), ("…b…", "a\nb\nc", True), ("a.c", "abc", False)],
)
def test_what_is_shown_is_compared_to_its_end(shown: str, printed: str, *, same: bool) -> None:
    assert is_as_shown(shown, printed) is same
