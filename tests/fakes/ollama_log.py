"""The log of an Ollama double: the recorded lines that tell slots, with the double's numbers put in."""

import functools
import re
from pathlib import Path

from tests.fakes.captures import TESTDATA
from tests.fakes.ollama_models import Runner

_ORDERS = {
    "settings": rb'msg="server config"',
    "starting": rb'msg="starting llama-server"|msg="starting runner" cmd="[^"]*--model',
    "loading": rb"msg=load request=",
    "started": rb'msg="llama-server started in',
    "count": rb'msg="loaded runners"',
}


@functools.cache
def lines_of(version: str) -> dict[str, bytes]:
    """The first recorded line of each sort; a version has not all of them."""
    lines = (TESTDATA / "ollama" / version / "logs" / "serve.log").read_bytes().splitlines()
    found = {name: [line for line in lines if re.search(pattern, line)] for name, pattern in _ORDERS.items()}
    return {name: these[0] for name, these in found.items() if these}


class LogFile:
    """Appends to one file."""

    def __init__(self, path: Path, version: str) -> None:
        self.path = path
        self._lines = lines_of(version)

    def settings(self, parallel: int) -> None:
        """What a server says when it starts."""
        self._write(re.sub(rb"OLLAMA_NUM_PARALLEL:\d+", b"OLLAMA_NUM_PARALLEL:%d" % parallel, self._lines["settings"]))

    def starting(self, runner: Runner) -> None:
        """What it says when it starts a model's server: the context is that of all slots together."""
        whole = runner.context * runner.slots.count
        line = re.sub(rb"sha256-[0-9a-f]{64}", runner.model.file.encode(), self._lines["starting"])
        line = re.sub(rb" -c \d+ -np \d+ ", b" -c %d -np %d " % (whole, runner.slots.count), line)
        self._write(line)
        if "loading" in self._lines:
            line = re.sub(rb"Parallel:\d+", b"Parallel:%d" % runner.slots.count, self._lines["loading"])
            self._write(re.sub(rb"KvSize:\d+", b"KvSize:%d" % whole, line))

    def started(self, seconds: float, count: int) -> None:
        """What it says when a model is loaded; the first of it comes twice."""
        counted = re.sub(rb"count=\d+", b"count=%d" % count, self._lines["count"])
        if "started" not in self._lines:
            self._write(counted)
            return
        line = re.sub(rb"started in [0-9.]+", b"started in %.2f" % seconds, self._lines["started"])
        for one in (line, counted, line):
            self._write(one)

    def _write(self, line: bytes) -> None:
        with self.path.open("ab") as file:
            file.write(line + b"\n")
