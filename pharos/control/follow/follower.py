"""Following one log or event stream for as long as its task runs: connect, hand over, lose, try again.

Each line or event goes to one callback and is gone. What is said is said once: the first trouble of its kind, and that
it is over.

Forbidden here: looking into lines and events, and any error text that could hold one.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager
from typing import Final, Generic, Literal, TypeVar

from pharos.clock import Clock, monotonic
from pharos.control.follow.fault import Fault, FeedError
from pharos.control.tasks import FIRST_DELAY_S, LONGEST_DELAY_S, Sleep
from pharos.core.engine.probe import ProbeError
from pharos.core.fleet.events import Event

BATCH: Final = 64
"""Lines or events that are handed over before others get the loop."""
REST: Final = 3.0
"""After a batch it rests this many times as long as the callback took: a long log takes a quarter of a core at most."""
STEADY_S: Final = 30.0
"""A stream that lasts so long is a steady one: only after such a one the pauses begin anew, and only then trouble that
came soon after a good start is over."""

_ENDS: Final = frozenset({Fault.ENDED, Fault.REPLACED, Fault.CUT})
"""What happens to every stream one day: trouble only when it cannot be had again."""
_KNOWN: Final = frozenset({Fault.NO_CONNECTION, Fault.STARTING})
"""What reads of the engine's state find as well, and say."""
_CONTENT: Final = frozenset({Fault.SILENT, Fault.TOO_LARGE, Fault.UNREADABLE, Fault.PHAROS})
"""What can come right after a good start, again and again."""

T = TypeVar("T")


class Following(Generic[T]):
    """Follows one stream of one backend. Its state outlives a restart of the task that runs it."""

    def __init__(
        self,
        connect: Callable[[], AbstractAsyncContextManager[AsyncIterator[T]]],
        on_item: Callable[[T], None],
        on_lost: Callable[[FeedError], None],
        *,
        backend: str,
        what: str,
        on_event: Callable[[Event], None],
        clock: Clock = monotonic,
        sleep: Sleep = asyncio.sleep,
    ) -> None:
        """`connect` makes a stream, each time anew; `what` names it for people ("its log docker://ollama").

        `on_item` gets each line or event; `ProbeError` from it means that the stream cannot be read, and it begins
        anew. `on_lost` is told each time that nothing is followed any more and why: what the stream told is unknown
        from then on.
        """
        self._connect = connect
        self._on_item = on_item
        self._on_lost = on_lost
        self._on_event = on_event
        self._backend = backend
        self._what = what
        self._clock = clock
        self._sleep = sleep
        self.error: FeedError | None = None
        """The last trouble; `None` once it is over, and before the first."""
        self._is_doubted = False
        """Whether the last trouble came after a good start: then another good start is no proof that it is over."""
        self._delay = FIRST_DELAY_S
        self._is_shaky = False
        """Whether a stream that was told to be well again broke off soon: then the next good start proves nothing."""
        self._has_recovered = False
        """Whether that was told since the last steady stream."""
        self._told: set[Fault] = set()
        """Faults that were told and are not over."""
        self._began = 0.0
        self._is_fresh = True
        """Whether nothing came yet since the stream was opened."""
        self._is_open = False
        """Whether it could be opened the last time."""

    def __repr__(self) -> str:
        return f"<Following {self._what} of {self._backend}: {self.error if self.error is not None else 'well'}>"

    async def run(self) -> None:
        """Follow until cancelled, of which `on_lost` is not told.

        Raises `RuntimeError` for a fault in `on_item`, without that fault's own words.
        """
        while True:
            error = await self._follow()
            is_steady = self._clock() - self._began >= STEADY_S
            if is_steady:
                self._delay, self._is_shaky, self._has_recovered = FIRST_DELAY_S, False, False
            elif self._has_recovered:
                self._is_shaky = True
            self._lose(error)
            delay, self._delay = self._delay, min(2 * self._delay, LONGEST_DELAY_S)
            await self._sleep(delay)

    async def _follow(self) -> FeedError:
        """Follow one stream to its end; return why it ended."""
        self._began, self._is_fresh, self._is_open = self._clock(), True, False
        count, spent = 0, 0.0
        try:
            async with self._connect() as items:
                self._is_open = True
                self._count("connected")
                async for item in items:
                    spent += self._take(item)
                    count += 1
                    if count % BATCH == 0:
                        await self._sleep(REST * spent)
                        spent = 0.0
        except FeedError as error:
            return error
        except Exception:
            self._lose(FeedError(Fault.PHAROS))
            raise
        return FeedError(Fault.ENDED)

    def _take(self, item: T) -> float:
        """Hand one item over; return the seconds that took."""
        now = self._clock()
        try:
            self._on_item(item)
        except ProbeError as error:
            raise FeedError(Fault.UNREADABLE, error.reason.value) from None
        except Exception as error:  # noqa: BLE001 (raised again, without its words, which may quote a line)
            raise RuntimeError(f"reading {self._what} failed: {type(error).__name__}").with_traceback(
                error.__traceback__
            ) from None
        self._is_fresh = False
        if self.error is not None and (not self._is_doubted or now - self._began >= STEADY_S):
            self._recover()
        return self._clock() - now

    def _recover(self) -> None:
        self.error = None
        if self._told:
            self._has_recovered = True
            level: Literal["debug", "info"] = "debug" if self._told <= _KNOWN else "info"
            self._told.clear()
            self._say(level, f"{self._backend}: {self._what} is followed again")

    def _lose(self, error: FeedError) -> None:
        self._count("ended" if self._is_open else "open_failed")
        self.error = error
        self._is_doubted = self._is_shaky or (error.fault in _CONTENT and not self._is_fresh)
        self._on_lost(error)
        if error.fault in self._told or (error.fault in _ENDS and not self._is_fresh):
            return
        self._told.add(error.fault)
        level: Literal["debug", "warning"] = "debug" if error.fault in _KNOWN else "warning"
        self._say(level, f"{self._backend}: {self._what} cannot be followed: {error}; what only it tells is unknown")

    def _say(self, level: Literal["debug", "info", "warning"], text: str) -> None:
        self._on_event(Event("scrape", "", self._backend, level, text))

    def _count(self, outcome: str) -> None:
        self._on_event(Event("log_feed", outcome, self._backend, "debug", ""))
