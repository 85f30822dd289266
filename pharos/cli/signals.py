"""SIGTERM and SIGINT from the first moment on, before anything large is imported.

As process 1 of a container Pharos would else ignore them while it starts. Forbidden here: imports of Pharos.
"""

import os
import signal
from types import FrameType

_SIGNALS = (signal.SIGTERM, signal.SIGINT)


def _read_soon_anyway(_number: int, _frame: FrameType | None) -> None:
    """SIGHUP asks to read the configuration again, and the first look at it is still to come."""


def early_signals(*, ignore_hangup: bool = False) -> list[int]:
    """Install handlers that only remember; whoever runs the event loop replaces them and looks at the list first.

    A second signal before that ends the process at once.
    """
    seen: list[int] = []

    def remember(number: int, _frame: FrameType | None) -> None:
        if seen:
            os._exit(128 + number)
        seen.append(number)

    for number in _SIGNALS:
        signal.signal(number, remember)
    if ignore_hangup:
        signal.signal(signal.SIGHUP, _read_soon_anyway)
    return seen
