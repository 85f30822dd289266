"""The decision log: each finished request as a line of JSON, for `pharos replay`, `pharos explain` and `pharos sim`.

# ops: add (per request: an append), flush (in a thread, once a second)
# plan: a bounded list; a thread makes the lines and writes them at once; by size a new file begins
# warning: nothing here may hold up a request, whatever the disk does: what does not fit is dropped and counted

Forbidden here: text of requests, and deciding.
"""

import asyncio
import os
from collections.abc import Callable
from contextlib import suppress
from io import FileIO
from pathlib import Path
from typing import Final

from pharos.clock import Clock
from pharos.core.fleet import Event
from pharos.obs.decision_record import FORM, Head, encode, row, salted
from pharos.proxy.done import Done

EVERY_S: Final = 1.0
"""Seconds between two writes."""
MOST: Final = 4000
"""Requests that wait to be written: those of some seconds. More are dropped, as each may hold 64 candidates."""
SALT_BYTES: Final = 32
MODE: Final = 0o600
"""It tells who asked for what, and when: nobody else's to read."""

Entry = tuple[Done, str]
"""A finished request, and the policy that chose."""


class DecisionLog:
    """One file that is appended to, and the full ones beside it: `PATH.1` is the newest of those."""

    def __init__(
        self,
        path: str,
        max_size_bytes: int,
        keep: int,
        *,
        version: str,
        wall: Clock,
        on_event: Callable[[Event], None],
        salt: Callable[[int], bytes] = os.urandom,
    ) -> None:
        self.dropped = 0
        """Requests that were not written, ever."""
        self._path = Path(path)
        self._max_size = max_size_bytes
        self._keep = keep
        self._version = version
        self._wall = wall
        self._on_event = on_event
        self._salt = salt
        self._waiting: list[Entry] = []
        self._lost = 0
        """Of those, the ones that have not been told of."""
        self._file: FileIO | None = None
        self._size = 0
        self._write_hash = salted(b"")
        self._fault = ""
        self._busy = asyncio.Lock()

    def __repr__(self) -> str:
        return f"<DecisionLog {self._path} {self._size} bytes, {len(self._waiting)} waiting>"

    def add(self, done: Done, policy: str) -> None:
        """Take a finished request; it is written within a second or two."""
        if len(self._waiting) >= MOST:
            self._lost += 1
            return
        self._waiting.append((done, policy))

    async def run(self) -> None:
        """Open the file, so that one that cannot be had is told of at once; then write what has come, again and again.

        Raises nothing.
        """
        await self.flush()
        while True:
            await asyncio.sleep(EVERY_S)
            if self._waiting or self._lost:
                await self.flush()

    async def flush(self) -> None:
        """Write what has come by now. Raises nothing: what cannot be written is counted."""
        async with self._busy:
            entries, self._waiting = self._waiting, []
            lost, self._lost = self._lost, 0
            fault = "more requests ended than could be written" if lost else ""
            unwritten, why = await asyncio.to_thread(self._write, entries)
            self._tell(lost + unwritten, why or fault)

    async def close(self) -> None:
        """Write what is left, and close the file."""
        await self.flush()
        await asyncio.to_thread(self._close)

    def _tell(self, lost: int, fault: str) -> None:
        """Count what was dropped, one by one; say why once, and once when it is over."""
        self.dropped += lost
        if fault and not self._fault:
            text = f"the decision log {self._path} cannot be written: {fault}; requests go on, unlogged"
            self._on_event(Event("decision_log", "", "", "warning", text))
        for _ in range(lost):
            self._on_event(Event("decision_log", "dropped", "", "warning", ""))
        if self._fault and not fault:
            self._on_event(Event("decision_log", "", "", "info", f"the decision log {self._path} is written again"))
        self._fault = fault

    # --- in a thread, one at a time

    def _write(self, entries: list[Entry]) -> tuple[int, str]:
        """Write lines; how many were not written, and why."""
        written = 0
        try:
            if self._file is None:
                self._open()
            for done, policy in entries:
                self._append(done, policy)
                written += 1
        except OSError as error:
            self._abandon()
            return len(entries) - written, error.strerror or str(error)
        return 0, ""

    def _append(self, done: Done, policy: str) -> None:
        file = self._file if self._file is not None else self._open()
        line = encode(row(done, policy, self._write_hash))
        if self._size + len(line) > self._max_size and self._size > 0:
            self._rotate()
            file = self._open()
            line = encode(row(done, policy, self._write_hash))  # another file, another salt
        _put(file, line)
        self._size += len(line)

    def _open(self) -> FileIO:
        self._file = file = FileIO(os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, MODE), "ab")
        self._size = file.seek(0, os.SEEK_END)
        self._write_hash = salted(self._salt(SALT_BYTES))
        head = encode(Head(FORM, self._version, self._wall()))
        _put(file, head)
        self._size += len(head)
        return file

    def _rotate(self) -> None:
        """Begin a new file: the full ones move one on, and the oldest goes."""
        self._close()
        if not self._keep:
            self._path.unlink(missing_ok=True)
            return
        for number in range(self._keep, 0, -1):
            older = self._numbered(number)
            newer = self._numbered(number - 1) if number > 1 else self._path
            if newer.exists():
                newer.replace(older)

    def _numbered(self, number: int) -> Path:
        return self._path.with_name(f"{self._path.name}.{number}")

    def _abandon(self) -> None:
        """A write failed: leave no torn line behind, and open the file anew the next time."""
        if self._file is not None:
            with suppress(OSError):
                os.ftruncate(self._file.fileno(), self._size)
            self._close()

    def _close(self) -> None:
        if self._file is not None:
            file, self._file = self._file, None
            with suppress(OSError):
                file.close()


def _put(file: FileIO, line: bytes) -> None:
    """Write all of it. Raises `OSError`."""
    rest = memoryview(line)
    while rest:
        rest = rest[file.write(rest) :]
