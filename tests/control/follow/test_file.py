import asyncio
import os
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from pharos.control.follow.fault import Fault, FeedError
from pharos.control.follow.file import POLL_S, READ_BYTES, open_file
from pharos.core.engine.logline import MAX_LINE
from tests.fakes.nobody import as_nobody
from tests.fakes.steps import Steps

OPEN_FILES = Path("/proc/self/fd")


class Log:
    """A file that is treated as logs are."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __str__(self) -> str:
        return str(self.path)

    def write(self, data: bytes) -> None:
        self.path.write_bytes(data)

    def add(self, data: bytes) -> None:
        with self.path.open("ab") as file:
            file.write(data)

    def move(self, path: Path) -> None:
        self.path = self.path.rename(path)

    def add_deleted(self, data: bytes) -> None:
        """Delete it while its writer still writes."""
        with self.path.open("ab") as file:
            self.path.unlink()
            file.write(data)

    def link(self, path: Path) -> None:
        self.path.unlink(missing_ok=True)
        self.path.symlink_to(path)

    def forbid(self) -> None:
        self.path.touch(mode=0)

    def is_open(self) -> bool:
        return self.path in {one.readlink() for one in OPEN_FILES.iterdir() if one.is_symlink()}


@pytest.fixture
def log(tmp_path: Path) -> Log:
    return Log(tmp_path / "engine.log")


class Reader:
    """Reads a log in a task of its own, poll by poll."""

    def __init__(self, path: Path, steps: Steps) -> None:
        self.lines: list[bytes] = []
        self._path, self._steps = path, steps
        self.task = asyncio.create_task(self._run())

    async def _run(self) -> None:
        async with open_file(str(self._path), sleep=self._steps.sleep) as lines:
            async for line in lines:
                self.lines.append(line)

    async def poll(self) -> list[bytes]:
        """Let it look once more, and return all lines that came since."""
        if self._steps.slept:
            await self._steps.run_until(self._steps.now + POLL_S)
        else:
            await self._steps.settle()
        lines, self.lines = self.lines, []
        return lines

    async def end(self) -> Fault:
        """Let it poll until it gives up."""
        stepping = asyncio.create_task(self._steps.run_until(float("inf")))
        with pytest.raises(FeedError) as caught:
            await self.task
        stepping.cancel()
        return caught.value.fault

    async def stop(self) -> None:
        self.task.cancel()
        await asyncio.wait((self.task,))


async def test_a_log_is_read_from_its_start_and_then_once_a_second(log: Log, steps: Steps) -> None:
    log.write(b"server config NUM_PARALLEL:4\r\nlistening\n")
    reader = Reader(log.path, steps)
    assert await reader.poll() == [b"server config NUM_PARALLEL:4", b"listening"]
    log.add(b"one\ntwo\n")
    assert await reader.poll() == [b"one", b"two"]
    assert await reader.poll() == []
    assert set(steps.slept) == {1.0}
    await reader.stop()


async def test_a_line_that_is_being_written_waits_for_its_end(log: Log, steps: Steps) -> None:
    log.write(b"Parallel:1")
    reader = Reader(log.path, steps)
    assert await reader.poll() == []
    log.add(b"6\n")
    assert await reader.poll() == [b"Parallel:16"]
    await reader.stop()


async def test_a_log_longer_than_one_read_is_read_whole_and_its_endless_lines_are_left_out(
    log: Log, steps: Steps
) -> None:
    lines = [b"%07d" % number for number in range(READ_BYTES // 4)]
    log.write(b"\n".join([*lines, b"x" * (MAX_LINE + 1), b"x" * 3 * READ_BYTES, b"last", b""]))
    reader = Reader(log.path, steps)
    assert await reader.poll() == [*lines, b"last"]
    await reader.stop()


async def test_without_following_it_ends_where_the_file_ends(log: Log, steps: Steps) -> None:
    log.write(b"one\ntwo\nhalf")
    async with open_file(str(log), follow=False, sleep=steps.sleep) as lines:
        assert [line async for line in lines] == [b"one", b"two"]
    assert steps.slept == []


async def test_a_file_that_is_replaced_is_read_to_its_end_and_then_over(log: Log, steps: Steps, tmp_path: Path) -> None:
    log.write(b"one\n")
    reader = Reader(log.path, steps)
    await reader.poll()
    log.add(b"last words\n")
    name = log.path
    log.move(tmp_path / "engine.log.1")
    Log(name).write(b"a new process\n")
    assert await reader.end() is Fault.REPLACED
    assert reader.lines == [b"last words"]


async def test_a_file_that_is_cut_short_is_over(log: Log, steps: Steps) -> None:
    log.write(b"one\ntwo\n")
    reader = Reader(log.path, steps)
    await reader.poll()
    log.write(b"new\n")
    assert await reader.end() is Fault.REPLACED
    assert reader.lines == []


@pytest.mark.parametrize("more", [b"", b"and something after it\n"], ids=["just as long", "longer"])
async def test_a_file_that_was_begun_anew_and_has_grown_past_its_old_length_is_over(
    log: Log, steps: Steps, more: bytes
) -> None:
    log.write(b"12:00 started\n12:01 crashed\n")
    reader = Reader(log.path, steps)
    await reader.poll()
    log.write(b"12:02 started\n12:02 Parallel\n" + more)
    assert await reader.end() is Fault.REPLACED
    assert reader.lines == []


async def test_a_file_that_is_moved_away_or_deleted_is_read_on_until_another_has_its_name(
    log: Log, steps: Steps, tmp_path: Path
) -> None:
    log.write(b"one\n")
    reader, name = Reader(log.path, steps), log.path
    await reader.poll()
    log.move(tmp_path / "engine.log.1")
    log.add(b"two\n")
    assert await reader.poll() == [b"two"]
    log.add_deleted(b"three\n")
    assert await reader.poll() == [b"three"]
    Log(name).write(b"another\n")
    assert await reader.end() is Fault.REPLACED


async def test_a_file_that_comes_back_under_its_name_is_the_same_file(log: Log, steps: Steps, tmp_path: Path) -> None:
    log.write(b"one\n")
    reader, name = Reader(log.path, steps), log.path
    await reader.poll()
    log.move(tmp_path / "engine.log.1")
    assert await reader.poll() == []
    log.move(name)
    log.add(b"two\n")
    assert await reader.poll() == [b"two"]
    await reader.stop()


async def test_a_link_that_is_turned_to_another_file_ends_the_log(log: Log, steps: Steps, tmp_path: Path) -> None:
    first, second = Log(tmp_path / "a"), Log(tmp_path / "b")
    first.write(b"one\n")
    second.write(b"two\n")
    log.link(first.path)
    reader = Reader(log.path, steps)
    assert await reader.poll() == [b"one"]
    log.link(second.path)
    assert await reader.end() is Fault.REPLACED


async def opening(path: Path) -> FeedError:
    with pytest.raises(FeedError) as caught:
        await open_file(str(path)).__aenter__()
    return caught.value


async def test_a_file_that_is_not_there_is_said_so(log: Log) -> None:
    error = await opening(log.path)
    assert (error.fault, str(error)) == (Fault.NOT_FOUND, f"there is no file {log}")
    log.write(b"")
    assert (await opening(log.path / "below a file")).fault is Fault.NOT_FOUND


async def test_a_file_that_may_not_be_read_is_said_so(log: Log) -> None:
    log.forbid()
    with as_nobody():
        error = await opening(log.path)
    assert (error.fault, str(error)) == (Fault.NO_PERMISSION, f"no permission to read {log}")


async def test_a_folder_a_pipe_and_a_device_are_no_logs_and_nothing_waits_for_a_writer(log: Log) -> None:
    os.mkfifo(log.path)
    for path in (log.path, log.path.parent, Path("/dev/zero")):
        error = await opening(path)
        assert (error.fault, str(error)) == (Fault.UNREADABLE, f"{path} is not a plain file")


async def test_a_link_to_itself_cannot_be_read(log: Log) -> None:
    log.link(log.path)
    assert (await opening(log.path)).fault is Fault.UNREADABLE


class Held(ThreadPoolExecutor):
    """Worker threads that do nothing until they are let go."""

    def __init__(self) -> None:
        super().__init__(1)
        self.go = threading.Event()

    def submit(self, function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        def wait_and_run() -> Any:
            self.go.wait()
            return function(*args, **kwargs)

        return super().submit(wait_and_run)


@pytest.mark.skipif(not OPEN_FILES.exists(), reason="open files cannot be listed here")
async def test_cancelling_does_not_wait_for_a_file_that_hangs_and_leaves_no_file_open(log: Log, steps: Steps) -> None:
    log.write(b"one\n")
    held = Held()
    asyncio.get_running_loop().set_default_executor(held)
    reader = Reader(log.path, steps)
    await asyncio.sleep(0)  # it waits for the thread
    await reader.stop()
    assert reader.task.cancelled()
    held.go.set()
    await asyncio.get_running_loop().run_in_executor(None, lambda: None)  # the thread is through with it
    assert not log.is_open()


@pytest.mark.skipif(not OPEN_FILES.exists(), reason="open files cannot be listed here")
async def test_a_reader_that_is_stopped_between_two_polls_leaves_no_file_open(log: Log, steps: Steps) -> None:
    log.write(b"one\n")
    reader = Reader(log.path, steps)
    await reader.poll()
    assert log.is_open()
    await reader.stop()
    assert not log.is_open()
