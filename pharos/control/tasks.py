"""Background tasks that outlive their own faults: one that dies is started again, and no other task notices.

Forbidden here: `TaskGroup`, whose members are cancelled when one of them dies; client streams must not depend on that.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from types import TracebackType
from typing import Final, Self

import msgspec

from pharos.clock import Clock, monotonic

FIRST_DELAY_S: Final = 1.0
"""Pause before the first restart; it doubles with each death that follows."""
LONGEST_DELAY_S: Final = 30.0
"""The longest pause. A task that ran at least this long starts again at `FIRST_DELAY_S`."""

Factory = Callable[[], Awaitable[None]]
Sleep = Callable[[float], Awaitable[None]]

_log = logging.getLogger(__name__)


class Restart(msgspec.Struct, frozen=True):
    """One death of a background task, told before the pause that follows it."""

    name: str
    error: BaseException
    delay_s: float
    """Seconds until it is started again."""
    count: int
    """Deaths of this run of `supervise`, this one included."""


OnRestart = Callable[[Restart], None]


async def supervise(
    name: str,
    factory: Factory,
    on_restart: OnRestart,
    *,
    clock: Clock = monotonic,
    sleep: Sleep = asyncio.sleep,
) -> None:
    """Await `factory()` until it returns; each time it raises, tell `on_restart`, pause and call it again.

    Ends when the factory returns or when the task that runs this is cancelled. A stray `CancelledError` that nobody
    asked for is a death like any other.
    """
    delay, count = FIRST_DELAY_S, 0
    while True:
        began = clock()
        try:
            await factory()
            return
        except asyncio.CancelledError as error:
            if _is_being_cancelled():
                raise
            death: BaseException = error
        except Exception as error:  # noqa: BLE001 (whatever it is, the task must come back)
            death = error
        count += 1
        if clock() - began >= LONGEST_DELAY_S:
            delay = FIRST_DELAY_S
        _tell(on_restart, Restart(name, death, delay, count))
        await sleep(delay)
        delay = min(2 * delay, LONGEST_DELAY_S)


def _is_being_cancelled() -> bool:
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


def _tell(on_restart: OnRestart, restart: Restart) -> None:
    try:
        on_restart(restart)
    except Exception:  # noqa: BLE001 (a broken listener must not keep the task from coming back)
        _log.exception("the listener for restarts of %r failed", restart.name)


class Tasks:
    """The background tasks of one process: named, supervised, counted, ended together.

    `async with Tasks(on_restart) as tasks:` leaves no task behind. Exactly one owner starts and stops a name.
    """

    def __init__(self, on_restart: OnRestart, *, clock: Clock = monotonic, sleep: Sleep = asyncio.sleep) -> None:
        self.restarts: dict[str, int] = {}
        """Deaths by task name since the start of the process; names that never died are not in it."""
        self._on_restart = on_restart
        self._clock = clock
        self._sleep = sleep
        self._running: dict[str, asyncio.Task[None]] = {}
        self._all: set[asyncio.Task[None]] = set()

    def start(self, name: str, factory: Factory) -> None:
        """Run `factory()` under `supervise`. A task of the same name is stopped first."""
        self.stop(name)
        run = supervise(name, factory, self._restarted, clock=self._clock, sleep=self._sleep)
        task = asyncio.create_task(run, name=name)
        self._running[name] = task
        self._all.add(task)
        task.add_done_callback(self._ended)

    def stop(self, name: str) -> None:
        """Cancel a task; unknown names are ignored. Its last lines still run, on the loop's next turns."""
        task = self._running.pop(name, None)
        if task is not None:
            task.cancel()

    @property
    def names(self) -> list[str]:
        """Names of the tasks that run now, in the order they were started."""
        return list(self._running)

    async def aclose(self) -> None:
        """Cancel every task and wait until the last one has ended."""
        while self._all:
            for task in self._all:
                task.cancel()
            await asyncio.wait(self._all)
            await asyncio.sleep(0)  # the done callbacks empty the set

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()

    def _restarted(self, restart: Restart) -> None:
        self.restarts[restart.name] = self.restarts.get(restart.name, 0) + 1
        self._on_restart(restart)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._all.discard(task)
        if self._running.get(task.get_name()) is task:
            del self._running[task.get_name()]
        if not task.cancelled() and (error := task.exception()) is not None:
            _log.error("background task %r ended for good: %r", task.get_name(), error)
