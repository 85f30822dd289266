import asyncio
import logging

import pytest

from pharos.control.tasks import Restart, Tasks, supervise
from tests.fakes.steps import Steps


class Dies:
    """A task that raises `deaths` times and then ends, each life lasting `life_s` seconds of virtual time."""

    def __init__(self, steps: Steps, deaths: int, life_s: float = 0.0) -> None:
        self.lives = 0
        self._steps, self._deaths, self._life_s = steps, deaths, life_s

    async def __call__(self) -> None:
        self.lives += 1
        self._steps.now += self._life_s
        if self.lives <= self._deaths:
            raise RuntimeError(f"life {self.lives}")


async def test_a_dying_task_comes_back_after_pauses_that_double_to_thirty_seconds() -> None:
    steps, told = Steps(), list[Restart]()

    async def no_pause(seconds: float) -> None:
        steps.slept.append(seconds)

    await supervise("t", Dies(steps, deaths=7), told.append, clock=steps.clock, sleep=no_pause)
    assert steps.slept == [1, 2, 4, 8, 16, 30, 30]
    assert [(one.name, one.count, one.delay_s, str(one.error)) for one in told[:2]] == [
        ("t", 1, 1.0, "life 1"),
        ("t", 2, 2.0, "life 2"),
    ]


async def test_after_a_long_life_the_pause_is_short_again() -> None:
    steps, told = Steps(), list[Restart]()

    async def no_pause(seconds: float) -> None:
        steps.slept.append(seconds)

    await supervise("t", Dies(steps, 3, life_s=30.0), told.append, clock=steps.clock, sleep=no_pause)
    assert steps.slept == [1, 1, 1]
    assert told[-1].count == 3


async def test_cancelling_ends_it_and_is_no_death() -> None:
    told = list[Restart]()
    task = asyncio.create_task(supervise("t", asyncio.Event().wait, told.append))  # type: ignore[arg-type]
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert told == []


async def test_a_stray_cancellation_from_inside_is_a_death_like_any_other() -> None:
    steps, told, lives = Steps(), list[Restart](), 0

    async def awaits_a_cancelled_future() -> None:
        nonlocal lives
        lives += 1
        if lives == 1:
            future = asyncio.get_running_loop().create_future()
            future.cancel()
            await future

    async def no_pause(_: float) -> None:
        pass

    await supervise("t", awaits_a_cancelled_future, told.append, clock=steps.clock, sleep=no_pause)
    assert lives == 2
    assert [type(one.error) for one in told] == [asyncio.CancelledError]


async def test_a_broken_listener_does_not_keep_a_task_from_coming_back(caplog: pytest.LogCaptureFixture) -> None:
    steps = Steps()

    def broken(_: Restart) -> None:
        raise ValueError("listener")

    async def no_pause(_: float) -> None:
        pass

    dies = Dies(steps, 1)
    with caplog.at_level(logging.ERROR):
        await supervise("t", dies, broken, clock=steps.clock, sleep=no_pause)
    assert dies.lives == 2
    assert "listener for restarts of 't'" in caplog.text


async def test_a_death_leaves_other_tasks_alone_and_is_counted_by_name() -> None:
    steps, told = Steps(), list[Restart]()
    async with Tasks(told.append, clock=steps.clock, sleep=steps.sleep) as tasks:
        stays = asyncio.Event()
        tasks.start("lives on", stays.wait)  # type: ignore[arg-type]
        tasks.start("dies", Dies(steps, deaths=100))
        await steps.run_until(1000.0 + 1 + 2 + 4)
        assert tasks.names == ["lives on", "dies"]
        assert tasks.restarts == {"dies": 4}
    assert tasks.names == []


async def test_stopping_a_name_ends_only_that_task_and_an_unknown_name_is_no_error() -> None:
    ended = list[str]()

    def waits(name: str) -> asyncio.Future[None]:
        async def run() -> None:
            try:
                await asyncio.get_running_loop().create_future()
            finally:
                ended.append(name)

        return asyncio.ensure_future(run())

    async with Tasks(lambda _: None) as tasks:
        tasks.start("a", lambda: waits("a"))
        tasks.start("b", lambda: waits("b"))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        tasks.stop("a")
        tasks.stop("nothing")
        assert tasks.names == ["b"]
        for _ in range(4):
            await asyncio.sleep(0)
        assert ended == ["a"]
    assert ended == ["a", "b"]


async def test_starting_a_name_again_replaces_the_task() -> None:
    lives = list[int]()

    async def run(number: int) -> None:
        lives.append(number)
        await asyncio.get_running_loop().create_future()

    async with Tasks(lambda _: None) as tasks:
        tasks.start("t", lambda: run(1))
        await asyncio.sleep(0)
        tasks.start("t", lambda: run(2))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert (lives, tasks.names) == ([1, 2], ["t"])


async def test_a_task_that_returns_is_over() -> None:
    async with Tasks(lambda _: None) as tasks:
        tasks.start("t", lambda: asyncio.sleep(0))
        for _ in range(4):
            await asyncio.sleep(0)
        assert tasks.names == []


async def test_what_no_supervision_may_catch_is_at_least_logged(caplog: pytest.LogCaptureFixture) -> None:
    class Fatal(BaseException):
        pass

    async def run() -> None:
        raise Fatal

    with caplog.at_level(logging.ERROR):
        async with Tasks(lambda _: None) as tasks:
            tasks.start("t", run)
            for _ in range(4):
                await asyncio.sleep(0)
    assert "ended for good: Fatal()" in caplog.text
