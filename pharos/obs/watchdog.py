"""Sees when the event loop stands still, and says in which function: nothing else of this process can, while it does.

# ops: run · goal: 10 timers a second on the loop, and 5 to 10 looks a second beside it: a thousandth of a core
# plan: the loop notes the time at each timer; a thread sleeps until that note would be too old, and looks where it is
# warning: a thread cannot look while C code holds the interpreter's lock: it then sees the line that called that code
# warning: a machine without time for this process makes everything late: that is counted, and no function is blamed

Forbidden here: values of variables. A line has file, line number and name of a function, and nothing that was computed.
"""

import asyncio
import logging
import sys
import threading
from collections.abc import Callable
from pathlib import PurePath
from types import FrameType
from typing import Final

from pharos.clock import Clock
from pharos.obs.reports import STALL_S

TICK_S: Final = 0.1
"""Seconds between two timers: what stands still for two of them is always seen, for one by chance."""
QUIET_S: Final = 60.0
"""Seconds after a line before the next one: a loop that is late all the time must not fill the log."""
LATE_S: Final = 0.05
"""The thread itself is late by more than this when nothing of the process runs, or C code holds all of it."""
BUSY: Final = 0.5
"""Share of a stall that must have been computed for the latter."""
_WAITING: Final = frozenset({("runners.py", "run"), ("selectors.py", "select"), ("base_events.py", "_run_once")})
"""Where the loop's thread is when it has nothing to do."""

_log = logging.getLogger(__name__)


class Watchdog:
    """Measures how late the loop is. `on_lag` gets the seconds of each timer; `tell` the line about a stall."""

    def __init__(
        self,
        on_lag: Callable[[float], None],
        *,
        clock: Clock,
        cpu: Clock,
        tell: Callable[[str], None] = _log.warning,
    ) -> None:
        """`cpu`: seconds that the process has computed."""
        self._on_lag = on_lag
        self._clock = clock
        self._cpu = cpu
        self._tell = tell
        self._beat = 0.0
        """When the loop last came to a timer; written by the loop, read by the thread."""
        self._beat_cpu = 0.0
        """What the process had computed until then."""
        self._told_at: float | None = None
        self._untold = 0

    def __repr__(self) -> str:
        return f"<Watchdog {self._untold} untold>"

    async def run(self) -> None:
        """Watch the loop that this runs on until cancelled."""
        self._beat, self._beat_cpu = self._clock(), self._cpu()
        over = threading.Event()
        arguments = (threading.get_ident(), over)
        threading.Thread(target=self._watch, args=arguments, name="watchdog", daemon=True).start()
        self._loop = asyncio.get_running_loop()
        self._timer = self._loop.call_later(TICK_S, self._tick)
        try:
            await self._loop.create_future()
        finally:
            self._timer.cancel()
            over.set()

    def _tick(self) -> None:
        """A timer: no task, as it comes 10 times a second even when there is nothing to do."""
        now = self._clock()
        self._on_lag(max(0.0, now - self._beat - TICK_S))
        self._beat, self._beat_cpu = now, self._cpu()
        self._timer = self._loop.call_later(TICK_S, self._tick)

    def _watch(self, thread: int, over: threading.Event) -> None:
        """Sleep until the loop is late, and tell it once; in a thread of its own."""
        seen = excused = excused_cpu = -1.0
        while True:
            beat, beat_cpu = max((self._beat, self._beat_cpu), (excused, excused_cpu))
            left = beat + TICK_S + STALL_S - self._clock()
            if left <= 0 and self._beat != seen:
                if left < -LATE_S and self._cpu() - beat_cpu <= BUSY * -left:
                    excused, excused_cpu = self._clock(), self._cpu()  # nothing ran at all: look again
                    continue
                seen = self._beat
                frame = sys._current_frames().get(thread)  # noqa: SLF001 - the one way to see another thread's
                where = place(frame)
                del frame  # or what it refers to would live on
                if where:
                    self.stalled(where, self._clock())
            if over.wait(max(left, TICK_S)):
                return

    def stalled(self, where: str, now: float) -> None:
        """Tell that the loop stands still, unless that was told a moment ago."""
        if self._told_at is not None and now - self._told_at < QUIET_S:
            self._untold += 1
            return
        more = f" ({self._untold} more of these since the last line)" if self._untold else ""
        self._told_at, self._untold = now, 0
        self._tell(f"nothing moved for {STALL_S * 1000:.0f} ms: the event loop is held up in {where}{more}")


def place(frame: FrameType | None) -> str:
    """Where a thread is: the innermost function, and where Pharos called it when it is not one of its own.

    Empty when it waits for something to do.
    """
    if frame is None:
        return "a place that cannot be seen"
    if (PurePath(frame.f_code.co_filename).name, frame.f_code.co_name) in _WAITING:
        return ""
    said = _named(frame)
    ours: FrameType | None = frame
    while ours is not None and not _is_ours(ours):
        ours = ours.f_back
    return said if ours is frame or ours is None else f"{said}, called from {_named(ours)}"


def _is_ours(frame: FrameType) -> bool:
    return str(frame.f_globals.get("__name__", "")).partition(".")[0] == "pharos"


def _named(frame: FrameType) -> str:
    """`pharos/proxy/relay.py:12:feed`; of the path only what stands for the module."""
    code = frame.f_code
    depth = str(frame.f_globals.get("__name__", "")).count(".") + 1
    path = "/".join(PurePath(code.co_filename).parts[-depth:])
    return f"{path}:{frame.f_lineno}:{code.co_name}"
