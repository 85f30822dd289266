"""The only reader of time. Everything else takes `now` as an argument.

Forbidden here: anything but reading a clock.
"""

import time
from collections.abc import Callable

Clock = Callable[[], float]
"""Returns seconds on a clock that never goes back; only differences mean something."""

monotonic: Clock = time.monotonic
cpu: Clock = time.process_time
"""Seconds of processor time that this process has had."""


def wall() -> float:
    """Seconds since 1970, for what people read (status page, logs, `created` fields)."""
    return time.time()
