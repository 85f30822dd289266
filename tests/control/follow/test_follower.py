import asyncio
import logging
import traceback
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path

import pytest

from pharos.control.follow.fault import Fault, FeedError
from pharos.control.follow.file import open_file
from pharos.control.follow.follower import BATCH, Following
from pharos.control.tasks import Tasks
from pharos.core.engine.probe import DropReason, ProbeError
from pharos.core.fleet.events import Event
from tests.fakes.steps import Steps

SECRET = "prompt: my secret"
"""What a line may hold."""
Item = bytes | float | FeedError
"""In a script of a stream: a line, seconds without one, or how it ends."""


class Script:
    """Streams that go as a test says, one after the other; the last is silent for ever."""

    def __init__(self, steps: Steps, *streams: list[Item]) -> None:
        self.opened: list[float] = []
        self.open_now = 0
        self._steps, self._streams = steps, list(streams)

    @asynccontextmanager
    async def __call__(self) -> AsyncIterator[AsyncIterator[bytes]]:
        self.opened.append(self._steps.now)
        forever: list[Item] = [float("inf")]
        items = self._streams.pop(0) if self._streams else forever
        if items and isinstance(items[0], FeedError):
            raise items[0]
        self.open_now += 1
        try:
            yield self._lines(items)
        finally:
            self.open_now -= 1

    async def _lines(self, items: list[Item]) -> AsyncIterator[bytes]:
        for item in items:
            match item:
                case bytes():
                    yield item
                case float():
                    await self._steps.sleep(item)
                case FeedError():
                    raise item


class Told:
    """All that a follower told, in order."""

    def __init__(self) -> None:
        self.lines: list[bytes] = []
        self.lost: list[Fault] = []
        self.said: list[Event] = []
        self.counted: list[str] = []

    def on_lost(self, error: FeedError) -> None:
        self.lost.append(error.fault)

    def on_event(self, event: Event) -> None:
        if event.outcome:
            assert (event.stage, event.level, event.text) == ("log_feed", "debug", "")
            self.counted.append(event.outcome)
        else:
            self.said.append(event)

    @property
    def texts(self) -> list[tuple[str, str]]:
        return [(event.level, event.text) for event in self.said]


Connect = Callable[[], AbstractAsyncContextManager[AsyncIterator[bytes]]]


def following(
    connect: Connect, told: Told, steps: Steps, on_item: Callable[[bytes], None] | None = None
) -> Following[bytes]:
    return Following(
        connect,
        told.lines.append if on_item is None else on_item,
        told.on_lost,
        backend="gpu-1",
        what="its log docker://ollama",
        on_event=told.on_event,
        clock=steps.clock,
        sleep=steps.sleep,
    )


async def run(follower: Following[bytes], steps: Steps, until: float) -> None:
    """Let it run for some seconds of virtual time, then end it."""
    task = asyncio.create_task(follower.run())
    await steps.run_until(steps.now + until)
    task.cancel()
    await asyncio.wait((task,))
    assert task.cancelled()


async def test_lines_are_handed_over_and_a_loss_is_told_before_it_connects_again(steps: Steps) -> None:
    script, told = Script(steps, [b"one", b"two"], [b"three"]), Told()
    await run(following(script, told, steps), steps, 10)
    assert told.lines == [b"one", b"two", b"three"]
    assert told.lost == [Fault.ENDED, Fault.ENDED]
    assert script.opened == [1000.0, 1001.0, 1003.0]
    assert script.open_now == 0
    assert told.said == []  # a stream that ends and can be had again is no news


async def test_each_connection_its_end_and_each_vain_try_are_counted(steps: Steps) -> None:
    script, told = Script(steps, [b"one"], [FeedError(Fault.NOT_FOUND)], [FeedError(Fault.SILENT)], [b"two"]), Told()
    await run(following(script, told, steps), steps, 60)
    assert told.counted == [
        "connected", "ended", "open_failed", "open_failed", "connected", "ended", "connected",
    ]  # fmt: skip


async def test_pauses_double_to_thirty_seconds_and_only_a_steady_stream_makes_them_short_again(steps: Steps) -> None:
    nothing: list[Item] = [FeedError(Fault.NOT_FOUND)]
    script = Script(steps, *[nothing] * 7, [b"one"], [b"one", 30.0], nothing, nothing)
    await run(following(script, Told(), steps), steps, 250)
    pauses = [later - sooner for sooner, later in zip(script.opened, script.opened[1:], strict=False)]
    assert pauses == [1, 2, 4, 8, 16, 30, 30, 30, 30 + 1, 2, 4]


async def test_a_stream_that_is_good_and_empty_in_turns_is_trouble_that_is_said_once(steps: Steps) -> None:
    turns: list[list[Item]] = [[b"one"], []] * 20
    script, told = Script(steps, *turns, [b"one", 30.0, b"two"]), Told()
    await run(following(script, told, steps), steps, 1500)
    assert [event.level for event in told.said] == ["warning", "info", "warning", "info"]
    assert len(told.lost) == 41


async def test_a_stream_that_ends_without_a_line_does_not_make_pauses_short(steps: Steps) -> None:
    script = Script(steps, [], [], [])
    await run(following(script, Told(), steps), steps, 20)
    assert script.opened == [1000.0, 1001.0, 1003.0, 1007.0]


async def test_trouble_is_said_once_and_so_is_its_end(steps: Steps) -> None:
    why = "Docker knows no container 'ollama'"
    missing: list[Item] = [FeedError(Fault.NOT_FOUND, why)]
    script, told = Script(steps, missing, missing, missing, [b"one", b"two"], [b"three"]), Told()
    follower = following(script, told, steps)
    await run(follower, steps, 60)
    assert told.texts == [
        ("warning", f"gpu-1: its log docker://ollama cannot be followed: {why}; what only it tells is unknown"),
        ("info", "gpu-1: its log docker://ollama is followed again"),
    ]
    assert {(event.stage, event.outcome, event.backend) for event in told.said} == {("scrape", "", "gpu-1")}
    assert told.lost == [Fault.NOT_FOUND] * 3 + [Fault.ENDED] * 2


async def test_a_second_kind_of_trouble_is_said_too_and_neither_again(steps: Steps) -> None:
    no_docker: list[Item] = [FeedError(Fault.NO_CONNECTION)]
    missing: list[Item] = [FeedError(Fault.NOT_FOUND)]
    script, told = Script(steps, no_docker, missing, no_docker, missing, [b"one"]), Told()
    await run(following(script, told, steps), steps, 60)
    assert [(event.level, event.text.split(": ")[2:]) for event in told.said] == [
        ("debug", ["no connection; what only it tells is unknown"]),
        ("warning", ["not found; what only it tells is unknown"]),
        ("info", []),
    ]


async def test_what_scrapes_find_as_well_is_only_said_to_those_who_look_closely(steps: Steps) -> None:
    script, told = Script(steps, [FeedError(Fault.STARTING)], [FeedError(Fault.NO_CONNECTION)], [b"one"]), Told()
    await run(following(script, told, steps), steps, 60)
    assert [event.level for event in told.said] == ["debug", "debug", "debug"]


async def test_a_stream_that_ends_and_cannot_be_had_again_is_trouble(steps: Steps) -> None:
    script, told = Script(steps, [b"one"], [FeedError(Fault.NOT_RUNNING)], [b"two"]), Told()
    await run(following(script, told, steps), steps, 60)
    assert [event.level for event in told.said] == ["warning", "info"]


async def test_a_stream_whose_content_is_the_trouble_is_not_well_for_beginning_well(steps: Steps) -> None:
    bad: list[Item] = [b"fine", FeedError(Fault.TOO_LARGE)]
    script, told = Script(steps, bad, bad, bad, [b"fine", 31.0, b"still fine", 1.0, b"and on"]), Told()
    follower = following(script, told, steps)
    await run(follower, steps, 20)
    assert script.opened == [1000.0, 1001.0, 1003.0, 1007.0]
    assert [event.level for event in told.said] == ["warning"]
    assert str(follower.error) == "event too large"


async def test_it_is_well_once_it_brings_something_after_thirty_seconds(steps: Steps) -> None:
    bad: list[Item] = [b"fine", FeedError(Fault.SILENT)]
    script, told = Script(steps, bad, [b"fine", 30.0, b"still fine"]), Told()
    follower = following(script, told, steps)
    await run(follower, steps, 32.5)
    assert [event.level for event in told.said] == ["warning", "info"]
    assert script.opened == [1000.0, 1001.0, 1032.0]


async def test_what_cannot_be_read_begins_anew_and_is_not_quoted(steps: Steps) -> None:
    def read(line: bytes) -> None:
        raise ProbeError(DropReason.PARSE_ERROR, line.decode())

    script, told = Script(steps, [SECRET.encode()], [SECRET.encode()]), Told()
    follower = following(script, told, steps, read)
    await run(follower, steps, 10)
    assert told.lost[:2] == [Fault.UNREADABLE] * 2
    assert script.open_now == 0
    assert told.said[0].level == "warning"
    assert SECRET not in repr(told.texts) + repr(follower)


async def test_a_fault_of_the_reader_is_a_loss_and_a_death_without_its_words(steps: Steps) -> None:
    def read(line: bytes) -> None:
        int(line)

    script, told = Script(steps, [SECRET.encode()]), Told()
    with pytest.raises(RuntimeError, match="reading its log docker://ollama failed: ValueError") as caught:
        await following(script, told, steps, read).run()
    assert (told.lost, script.open_now) == ([Fault.PHAROS], 0)
    text = "".join(traceback.format_exception(caught.value))
    assert "int(line)" in text
    assert SECRET not in text + repr(told.texts)


async def test_the_state_outlives_the_death_of_its_task(steps: Steps, caplog: pytest.LogCaptureFixture) -> None:
    def read(line: bytes) -> None:
        if line == b"bad":
            raise ValueError

    script, told = Script(steps, [b"good", b"bad"], [b"good", b"bad"], [b"good", 40.0, b"good"]), Told()
    follower = following(script, told, steps, read)
    with caplog.at_level(logging.ERROR):
        async with Tasks(lambda _: None, clock=steps.clock, sleep=steps.sleep) as tasks:
            tasks.start("follow", follower.run)
            await steps.run_until(steps.now + 60)
    assert [event.level for event in told.said] == ["warning", "info"]


async def test_cancelling_tells_nothing_and_closes_the_stream(steps: Steps) -> None:
    script, told = Script(steps, [b"one", 1000.0]), Told()
    task = asyncio.create_task(following(script, told, steps).run())
    await steps.settle()
    task.cancel()
    await asyncio.wait((task,))
    assert task.cancelled()
    assert (told.lost, told.said, script.open_now) == ([], [], 0)


async def test_others_get_the_loop_during_a_long_log_and_most_of_the_time(steps: Steps) -> None:
    told = Told()

    def read(line: bytes) -> None:
        told.lines.append(line)
        steps.now += 0.001

    script = Script(steps, [b"x" for _ in range(3 * BATCH)])
    task = asyncio.create_task(following(script, told, steps, read).run())
    await steps.settle()
    assert len(told.lines) == BATCH
    assert steps.slept == [pytest.approx(3 * BATCH * 0.001)]
    task.cancel()
    await asyncio.wait((task,))


class Log:
    """A file in the hands of an engine."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def write(self, data: bytes) -> None:
        self.path.write_bytes(data)

    def add(self, data: bytes) -> None:
        with self.path.open("ab") as file:
            file.write(data)

    def rotate(self) -> None:
        self.path.rename(self.path.with_suffix(".1"))


async def test_a_file_that_is_missing_at_first_then_rotated_then_begun_anew_is_followed_throughout(
    steps: Steps, tmp_path: Path
) -> None:
    log, told = Log(tmp_path / "engine.log"), Told()

    def connect() -> AbstractAsyncContextManager[AsyncIterator[bytes]]:
        return open_file(str(log.path), sleep=steps.sleep)

    async def take() -> list[bytes]:
        await steps.run_until(steps.now + 40)
        lines = list(told.lines)
        told.lines.clear()
        return lines

    task = asyncio.create_task(following(connect, told, steps).run())
    assert await take() == []
    log.write(b"first\n")
    assert await take() == [b"first"]
    log.rotate()
    log.write(b"second\n")
    assert await take() == [b"second"]
    log.write(b"third")
    assert await take() == []
    log.add(b" and more\n")
    assert await take() == [b"third and more"]
    assert told.lost == [Fault.NOT_FOUND] * 6 + [Fault.REPLACED] * 2
    assert [event.level for event in told.said] == ["warning", "info"]
    task.cancel()
    await asyncio.wait((task,))
