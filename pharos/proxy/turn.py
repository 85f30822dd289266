"""Coroutines that are run by callbacks, and become a task only where they must.

A task for each request would cost several turns of the loop and much code that the processor has forgotten since.
Nearly all requests wait for one thing only, the end of their reply, which is told by a callback. Whatever else is
awaited makes the coroutine a task from there on.
"""

import asyncio
import contextlib
import inspect
import types
from collections.abc import Callable, Coroutine, Generator
from typing import Any


class Mark:
    """Something that happens once. Only one coroutine may wait for it."""

    __slots__ = ("_then", "is_set")

    def __init__(self) -> None:
        self.is_set = False
        self._then: Callable[[], None] | None = None

    def __repr__(self) -> str:
        return f"<Mark {'set' if self.is_set else 'awaited' if self._then is not None else 'open'}>"

    def set(self) -> None:
        """It happened. Who waits goes on in the next turn of the loop."""
        self.is_set = True
        if self._then is not None:
            asyncio.get_running_loop().call_soon(self._then)
            self._then = None

    def call(self, then: Callable[[], None]) -> None:
        """Have this called when it happens."""
        self._then = then

    def __await__(self) -> Generator[object, None, None]:
        if not self.is_set:
            if asyncio.current_task() is None:
                yield self
            else:
                future = asyncio.get_running_loop().create_future()
                self._then = lambda: None if future.done() else future.set_result(None)
                yield from future


@types.coroutine
def as_task() -> Generator[object, None, None]:
    """From here on be a task: what follows asks for one before it first waits, as timeouts do."""
    if asyncio.current_task() is None:
        yield None


class Turn:
    """One such coroutine. `then` is called when it has ended, however that was; errors are its own to catch."""

    __slots__ = ("_coro", "_mark", "_task", "_then")

    def __init__(self, coro: Coroutine[Any, Any, None], then: Callable[[], None]) -> None:
        self._coro = coro
        self._then = then
        self._mark: Mark | None = None
        """What it waits for, while it is no task."""
        self._task: asyncio.Task[None] | None = None

    def __repr__(self) -> str:
        return f"<Turn {self._task or self._mark}>"

    def begin(self) -> None:
        """Run it until it waits."""
        self._step(None)

    def cancel(self) -> None:
        """End it as `Task.cancel` would, but within this call while it is no task."""
        if self._task is not None:
            self._task.cancel()
        elif self._mark is not None:
            self._step(asyncio.CancelledError())

    def _go_on(self) -> None:
        if self._mark is not None and self._mark.is_set:  # else it was cancelled since
            self._step(None)

    def _step(self, error: BaseException | None) -> None:
        self._mark = None
        try:
            asked = self._coro.send(None) if error is None else self._coro.throw(error)
        except (StopIteration, asyncio.CancelledError):
            self._then()
            return
        except BaseException:
            self._then()
            raise
        finally:
            error = None  # its traceback refers to this call: a cycle, and all that the request held in it
        if type(asked) is Mark:
            self._mark = asked
            asked.call(self._go_on)
            return
        self._task = asyncio.get_running_loop().create_task(_rest(self._coro, asked))
        self._task.add_done_callback(self._ended)

    def _ended(self, task: "asyncio.Task[None]") -> None:
        if task.cancelled():
            if inspect.getcoroutinestate(self._coro) != inspect.CORO_CLOSED:  # cancelled before its first step
                with contextlib.suppress(asyncio.CancelledError, StopIteration):
                    self._coro.throw(asyncio.CancelledError())
        else:
            task.result()
        self._then()


async def _rest(coro: Coroutine[Any, Any, None], asked: object) -> None:
    """Go on with a coroutine, first with what it asked for last. `await` would not take one that has begun."""
    await _passing_on(coro, asked)


@types.coroutine
def _passing_on(coro: Coroutine[Any, Any, None], asked: object) -> Generator[object, None, None]:
    is_answered = asked is None
    while True:
        error: BaseException | None = None
        if not is_answered:
            try:
                yield asked
            except BaseException as thrown:  # noqa: BLE001 - it is for the coroutine
                error = thrown
        is_answered = False
        try:
            asked = coro.send(None) if error is None else coro.throw(error)
        except StopIteration:
            return
        finally:
            error = None  # as above
