"""One real program in a process group of its own: started, watched and ended by its id, with all that it started."""

import contextlib
import ctypes
import os
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

START_S = 60.0
"""Longest wait for a program to be ready; reached only when it fails."""
_PR_SET_PDEATHSIG = 1
_STARTER = ThreadPoolExecutor(max_workers=1)
"""The one thread that starts programs: the kernel ends them with the thread that did, not with the process."""


class NotStartedError(Exception):
    """A program ended, or was not ready in time; the text has the end of its log."""


def _die_with_parent() -> None:
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)


class Program:
    """A program whose output goes to `log`, which keeps growing when it is started again."""

    def __init__(
        self, argv: Sequence[str], *, log: Path, folder: Path, environ: Mapping[str, str] | None = None
    ) -> None:
        """`folder`: where it runs. `environ`: all of its environment that is not needed to run programs at all."""
        self.log = log
        self._argv = list(argv)
        self._folder = folder
        self._environ = {"PATH": os.environ.get("PATH", os.defpath), "HOME": str(folder), **(environ or {})}
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def is_running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def start(self, is_ready: Callable[[], bool]) -> None:
        """Start it and wait until it is ready. Raises `NotStartedError`."""
        self._process = _STARTER.submit(self._started).result()
        deadline = time.monotonic() + START_S
        while not is_ready():
            if self._process.poll() is not None or time.monotonic() > deadline:
                self.kill()
                end = self.log.read_text(encoding="utf-8", errors="replace")[-2000:]
                raise NotStartedError(f"{self._argv[0]} is not ready; its log ends: {end}")
            time.sleep(0.02)

    def _started(self) -> subprocess.Popen[bytes]:
        with self.log.open("ab") as log:
            return subprocess.Popen(
                self._argv,
                cwd=self._folder,
                env=self._environ,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                preexec_fn=_die_with_parent,  # noqa: PLW1509 (one call to the kernel)
            )

    def kill(self) -> None:
        """End it and what it started, at once and without its leave."""
        process, self._process = self._process, None
        if process is None:
            return
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()

    def children(self) -> list[int]:
        """Ids of the processes in its group besides itself (Linux)."""
        found = []
        for entry in Path("/proc").iterdir():
            if entry.name.isdecimal() and int(entry.name) != self.pid:
                try:
                    fields = (entry / "stat").read_text().rpartition(")")[2].split()
                except OSError:  # it has just ended
                    continue
                if int(fields[2]) == self.pid and fields[0] != "Z":
                    found.append(int(entry.name))
        return found


def answers(url: str) -> bool:
    """Whether a GET is answered with a 2xx."""
    try:
        with urllib.request.urlopen(url, timeout=2) as reply:  # noqa: S310 (loopback)
            return 200 <= reply.status < 300
    except (urllib.error.URLError, OSError, ValueError):
        return False
