"""A refusal that is kept back while another engine may be asked. Forbidden here: deciding whether to."""

import asyncio
from collections.abc import Callable

HELD_LIMIT = 64 * 1024
"""Largest refusal kept back."""
HELD_S = 5.0
"""Seconds an engine has to finish it."""


class Holding:
    """Its bytes so far."""

    __slots__ = ("_parts", "_size", "_timer")

    def __init__(self, too_slow: Callable[[], None]) -> None:
        """`too_slow` is called when its time is over."""
        self._parts: list[bytes] = []
        self._size = 0
        self._timer = asyncio.get_running_loop().call_later(HELD_S, too_slow)

    def __repr__(self) -> str:
        return f"<Holding {self._size} bytes>"

    def add(self, data: bytes) -> bool:
        """Take the next bytes. False when there are too many in all."""
        self._parts.append(data)
        self._size += len(data)
        return self._size <= HELD_LIMIT

    def take(self) -> bytes:
        """End it, and give all that came."""
        self._timer.cancel()
        return b"".join(self._parts)
