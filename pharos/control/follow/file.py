"""The log of an engine in a file: from its start, then what is added.

Another file under the same name, or a file that was begun anew, ends the stream: whoever replaced it was most likely
a new engine process, of which nothing is known yet. A file that is moved away or deleted goes on being read for as long
as no other has its name, since its writer goes on writing to it.

Forbidden here: file operations on the event loop, and files that are not plain ones (who reads a pipe takes its bytes
away from others).
"""

import asyncio
import os
import stat
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator
from contextlib import aclosing, asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any, Final, TypeVar

from pharos.control.follow.fault import Fault, FeedError
from pharos.control.follow.lines import LineSplitter
from pharos.control.tasks import Sleep

POLL_S: Final = 1.0
"""Seconds between two looks at a file that gave nothing."""
READ_BYTES: Final = 64 * 1024
"""Bytes of one read, and so about the most that is held."""
MARK_BYTES: Final = 64
"""Bytes before the place of reading that must stay as they were: if they did not, the file was written anew."""

_FLAGS: Final = os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
"""A pipe without a writer must not hold up the thread that looks what it is."""

T = TypeVar("T")


@asynccontextmanager
async def open_file(
    path: str, *, follow: bool = True, sleep: Sleep = asyncio.sleep
) -> AsyncIterator[AsyncIterator[bytes]]:
    """Open a log file; what is entered gives its lines, from the first one on.

    Without `follow` they end where the file ends now. Raises `FeedError`, on entering and while lines are read.
    """
    tail, work = _Tail(path), _Work()
    try:
        await work.call(tail.open)
        async with aclosing(_lines(tail, work, sleep, follow=follow)) as lines:
            yield lines
    finally:
        work.then(tail.close)


async def _lines(tail: "_Tail", work: "_Work", sleep: Sleep, *, follow: bool) -> AsyncGenerator[bytes, None]:
    splitter = LineSplitter()
    while True:
        data = await work.call(tail.read)
        for line in splitter.feed(data):
            yield line
        if not data and not follow:
            return
        if not data:
            await sleep(POLL_S)


class _Work:
    """Calls that may block, in a worker thread, one at a time."""

    def __init__(self) -> None:
        self._running: asyncio.Future[Any] | None = None

    async def call(self, function: Callable[[], T]) -> T:
        """Run it in a thread. It runs to its end, though the task that waits here be cancelled."""
        running = asyncio.get_running_loop().run_in_executor(None, function)
        self._running = running
        return await asyncio.shield(running)

    def then(self, function: Callable[[], None]) -> None:
        """Run something as soon as no call runs."""
        if self._running is None or self._running.done():
            function()
        else:
            self._running.add_done_callback(lambda _: function())


class _Tail:
    """One file that is read on and on. All but `close` may block: the worker thread's."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._fd = -1
        self._at = 0
        self._mark = (0, hash(b""))
        """How many bytes before `_at` are remembered, and their hash."""

    def __repr__(self) -> str:
        return f"<_Tail {self._path!r} at {self._at}>"

    def open(self) -> None:
        with _errors_of(self._path):
            self._fd = os.open(self._path, _FLAGS)
            if not stat.S_ISREG(os.fstat(self._fd).st_mode):
                raise FeedError(Fault.UNREADABLE, f"{self._path} is not a plain file")

    def read(self) -> bytes:
        """Return the next bytes; none when nothing was added. Raises `FeedError` when this is the log no more."""
        with _errors_of(self._path):
            if self._is_written_anew():
                raise FeedError(Fault.REPLACED, f"{self._path} was begun anew")
            data = self._next()
            if not data and self._is_other_file():
                data = self._next()  # what the old one got between the two looks
                if not data:
                    raise FeedError(Fault.REPLACED, f"{self._path} is another file now")
            return data

    def close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def _next(self) -> bytes:
        data = os.pread(self._fd, READ_BYTES, self._at)
        if data:
            self._at += len(data)
            self._mark = self._mark_before()
        return data

    def _is_written_anew(self) -> bool:
        """Whether it is shorter than it was, or was, and has grown to the place of reading and beyond since."""
        return os.fstat(self._fd).st_size < self._at or self._mark_before() != self._mark

    def _mark_before(self) -> tuple[int, int]:
        size = min(MARK_BYTES, self._at)
        return size, hash(os.pread(self._fd, size, self._at - size))

    def _is_other_file(self) -> bool:
        try:
            named = Path(self._path).stat()
        except FileNotFoundError:
            return False
        return not os.path.samestat(named, os.fstat(self._fd))


@contextmanager
def _errors_of(path: str) -> Iterator[None]:
    """Turn the system's errors into ours."""
    try:
        yield
    except (FileNotFoundError, NotADirectoryError):
        raise FeedError(Fault.NOT_FOUND, f"there is no file {path}") from None
    except PermissionError:
        raise FeedError(Fault.NO_PERMISSION, f"no permission to read {path}") from None
    except OSError as error:
        raise FeedError(Fault.UNREADABLE, f"{path} cannot be read: {error.strerror}") from None
