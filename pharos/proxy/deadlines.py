"""Ends a reply that does not begin, or does not go on, in time. Off by default: then none of this runs.

Nothing is counted per byte: a running reply tells about once a second that it runs, which is also how exact this is.
"""

import asyncio
from typing import Protocol

from pharos.clock import Clock
from pharos.core.sched import Lease
from pharos.proxy.settings import ProxySettings
from pharos.proxy.steady import HEARD_EVERY_S


class Reply(Protocol):
    """The reply that is waited for."""

    begun_at: float
    first_byte_at: float | None

    def time_out(self) -> None:
        """Nothing, or nothing more, came in time."""


class Client(Protocol):
    """Who gets it."""

    @property
    def writing_paused(self) -> bool:
        """Whether its engine is not read because the client is slow."""


class Watch:
    """The deadlines of one attempt, with one timer."""

    __slots__ = ("_client", "_clock", "_first_byte_s", "_idle_s", "_last_at", "_reply", "_timer")

    def __init__(
        self, reply: Reply, client: Client, first_byte_s: float | None, idle_s: float | None, clock: Clock
    ) -> None:
        """Seconds from `reply.begun_at` to its first byte, and between two reads of it; `None`: no limit."""
        self._reply = reply
        self._client = client
        self._first_byte_s = first_byte_s
        self._idle_s = idle_s
        self._clock = clock
        self._last_at = reply.begun_at
        self._timer: asyncio.TimerHandle | None = None
        self._look_in(first_byte_s if first_byte_s is not None else idle_s)

    def __repr__(self) -> str:
        return f"<Watch first_byte={self._first_byte_s} idle={self._idle_s}>"

    def heard(self, now: float) -> None:
        """Something came, or the client takes more again."""
        self._last_at = now

    def stop(self) -> None:
        """The reply has ended."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _look_in(self, seconds: float | None) -> None:
        self._timer = None if seconds is None else asyncio.get_running_loop().call_later(max(0.0, seconds), self._look)

    def _look(self) -> None:
        now, reply = self._clock(), self._reply
        if reply.first_byte_at is None:
            if self._first_byte_s is None:
                self._look_in(self._idle_s)
            elif now - reply.begun_at >= self._first_byte_s:
                reply.time_out()
            else:
                self._look_in(reply.begun_at + self._first_byte_s - now)
            return
        if self._idle_s is None:
            return
        if self._client.writing_paused:
            self._last_at = now
        left = max(self._last_at, reply.first_byte_at) + self._idle_s + HEARD_EVERY_S - now
        if left <= 0:
            reply.time_out()
            if self._timer is not None:  # it goes on: what is held back has a time of its own
                self._look_in(self._idle_s)
        else:
            self._look_in(left)


def watched(reply: Reply, client: Client, lease: Lease, settings: ProxySettings, clock: Clock) -> Watch | None:
    """Watch a reply as the decision wants it: a model that may not be in memory has the time of a cold one."""
    is_warm = not lease.cold and lease.is_speed_sample
    first_byte_s = settings.first_byte_warm_s if is_warm else settings.first_byte_cold_s
    if first_byte_s is None and settings.reply_idle_s is None:
        return None
    return Watch(reply, client, first_byte_s, settings.reply_idle_s, clock)
