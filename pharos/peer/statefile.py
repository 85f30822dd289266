"""The state file: a snapshot that outlives the process, written beside everything else and never half.

# ops: load, save · goal: no wait for the disk on the event loop; at any moment the file is a whole snapshot
# plan: blocks go to a temporary file in a thread, then fsync, rename, fsync of the folder
# warning: what is there and cannot be understood is somebody's: it is set aside under another name, never written over

Forbidden here: merging (the sections do it).
"""

import asyncio
import contextlib
import errno
import os
import stat
from collections.abc import AsyncIterator, Callable
from io import BufferedReader, BufferedWriter
from pathlib import Path
from typing import Final, Literal

import msgspec

from pharos.core.fleet.events import Event
from pharos.peer import wire

WRITE_SIZE: Final = 256 * 1024
"""Bytes that are gathered before a thread is asked to write them."""
MOST_ASIDE: Final = 20
"""Files that were set aside beside one state file; no more are made."""
MODE: Final = 0o600

Take = Callable[[wire.Head, wire.Frame], None]


class Loaded(msgspec.Struct, frozen=True):
    """How reading went."""

    what: Literal["none", "whole", "damaged", "newer", "foreign", "unreadable"]
    frames: int = 0
    at: float | None = None
    """When it was written, seconds since 1970."""


class StateFile:
    """One file. Only one call runs at a time."""

    def __init__(self, path: str, *, on_event: Callable[[Event], None]) -> None:
        self.path = Path(path)
        self._temporary = self.path.with_name(self.path.name + ".new")
        self._on_event = on_event
        self._lock = asyncio.Lock()
        self._is_ours = True
        """Whether the file may be written over."""
        self._trouble = ""

    def __repr__(self) -> str:
        return f"<StateFile {self.path}>"

    @property
    def trouble(self) -> str:
        """Why the last save failed, for people; empty: it did not."""
        return self._trouble

    async def load(self, take: Take) -> Loaded:
        """Read it, and hand over its frames. Never raises: what cannot be read is set aside and said."""
        async with self._lock:
            try:
                file = await asyncio.to_thread(self._open)
            except FileNotFoundError:
                if not await asyncio.to_thread(self.path.parent.is_dir):  # a slip in its path: not only after 30 s
                    self._fail(os.strerror(errno.ENOENT))
                return Loaded("none")
            except OSError as fault:
                self._is_ours = False
                self._say(f"cannot be read ({fault.strerror}): starting without it, and leaving it alone")
                return Loaded("unreadable")
            try:
                return await self._read(file, take)
            finally:
                await asyncio.to_thread(file.close)

    def _open(self) -> BufferedReader:
        mode = self.path.stat().st_mode
        if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):  # opening a pipe would wait for its other end, for ever
            raise OSError(errno.EINVAL, "it is no regular file")
        return self.path.open("rb")

    async def _read(self, file: BufferedReader, take: Take) -> Loaded:
        blocks = wire.Blocks()
        try:
            while data := await asyncio.to_thread(file.read, WRITE_SIZE):
                for frame in blocks.feed(data):
                    if blocks.head is not None:
                        take(blocks.head, frame)
                    await asyncio.sleep(0)
            if not blocks.is_whole:
                if not blocks.frames and blocks.head is None:
                    raise wire.ForeignError("is empty or holds only the beginning of a state")  # noqa: TRY301 - as the reader's
                raise wire.WireError("ends in the middle")  # noqa: TRY301 - the same
        except wire.ProtocolError as fault:
            await self._set_aside("newer" if fault.theirs > wire.PROTO else "older", f"{fault}")
            return Loaded("newer")
        except wire.ForeignError as fault:
            await self._set_aside("foreign", str(fault))
            return Loaded("foreign")
        except wire.WireError as fault:
            await self._set_aside("damaged", f"{fault}; the {blocks.frames} parts before that were used")
            return Loaded("damaged", blocks.frames, _at(blocks))
        except OSError as fault:
            self._is_ours = False
            self._say(f"cannot be read ({fault.strerror}): leaving it alone")
            return Loaded("unreadable", blocks.frames)
        return Loaded("whole", blocks.frames, _at(blocks))

    async def _set_aside(self, why: str, text: str) -> None:
        try:
            name = await asyncio.to_thread(self._move_aside, why)
        except OSError as fault:
            self._is_ours = False
            self._say(f"{text}; it cannot be set aside ({fault.strerror}), so nothing is saved: move it away")
            return
        if name is None:
            self._is_ours = False
            self._say(
                f"{text}; there are {MOST_ASIDE} files that were set aside already: remove some, nothing is saved"
            )
        else:
            self._say(f"{text}: it was set aside as {name}, and a new one begins")

    def _move_aside(self, why: str) -> str | None:
        for number in range(1, MOST_ASIDE + 1):
            target = self.path.with_name(f"{self.path.name}.{why}-{number}")
            if not target.exists():
                self.path.rename(target)
                return target.name
        return None

    async def save(self, blocks: AsyncIterator[bytes]) -> bool:
        """Write a snapshot. Never raises; whether it is on the disk. What fails is said once, and tried again later."""
        async with self._lock:
            if not self._is_ours:
                return False
            try:
                await self._write(blocks)
            except OSError as fault:
                self._fail(fault.strerror if fault.strerror is not None else type(fault).__name__)
                return False
            if self._trouble:
                self._trouble = ""
                self._on_event(Event("", "", "", "info", f"state_file {self.path} can be written again"))
            return True

    async def _write(self, blocks: AsyncIterator[bytes]) -> None:
        file = await asyncio.to_thread(self._create)
        try:
            parts: list[bytes] = []
            size = 0
            async for data in blocks:
                parts.append(data)
                size += len(data)
                if size >= WRITE_SIZE:
                    await asyncio.to_thread(file.write, b"".join(parts))
                    parts, size = [], 0
            await asyncio.to_thread(self._finish, file, b"".join(parts))
        except BaseException:
            await asyncio.to_thread(self._drop, file)
            raise

    def _create(self) -> BufferedWriter:
        # Never what is there already: it may be a link to another file, or open to others.
        self._temporary.unlink(missing_ok=True)
        descriptor = os.open(self._temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, MODE)
        return os.fdopen(descriptor, "wb")

    def _finish(self, file: BufferedWriter, rest: bytes) -> None:
        file.write(rest)
        file.flush()
        os.fsync(file.fileno())
        file.close()
        self._temporary.replace(self.path)
        folder = os.open(self.path.parent, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(folder)  # otherwise a loss of power may bring the old name back
        finally:
            os.close(folder)

    def _drop(self, file: BufferedWriter) -> None:
        with contextlib.suppress(OSError):  # what it still held does not fit either
            file.close()
        self._temporary.unlink(missing_ok=True)

    def _fail(self, why: str) -> None:
        if why != self._trouble:
            self._trouble = why
            self._say(f"cannot be written ({why}): what is learned lasts as long as this process, trying again")

    def _say(self, text: str) -> None:
        self._on_event(Event("", "", "", "warning", f"state_file {self.path} {text}"))


def _at(blocks: wire.Blocks) -> float | None:
    return blocks.head.at if blocks.head is not None else None
