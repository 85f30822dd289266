"""Keeps keys within their quotas, and tells their clients what is left, in the words of the protocol they speak.

# ops: look, admit · goal: nothing at all for keys without a quota; microseconds for the others
# plan: the book knows what was used; headers are made here, and go out with whatever is answered
# warning: the book is asked only after all requests that have ended are in it (`settle`)

Forbidden here: counting tokens, which are known when a reply has ended.
"""

import math
from collections.abc import Callable
from datetime import UTC, datetime
from functools import lru_cache
from typing import Final

from pharos.clock import Clock
from pharos.core.usage import Denial, Quota, Standing, UsageBook
from pharos.proxy.answer import Answer
from pharos.proxy.errors import PharosFault, Shape, quota_used_up, too_many_requests

NOT_AGAIN: Final = b"x-should-retry: false\r\n"
"""Read by the SDKs of OpenAI and Anthropic, which would else try twice more within seconds; the wait is hours."""


class Quotas:
    """Stands before the queue, for keys that have a quota."""

    def __init__(self, book: UsageBook, wall: Clock, settle: Callable[[], None]) -> None:
        """`wall`: seconds since 1970. `settle` counts requests that have ended and are not yet in the book."""
        self._book = book
        self._wall = wall
        self._settle = settle

    def __repr__(self) -> str:
        return f"<Quotas {self._book!r}>"

    def look(self, name: str, quota: Quota, answer: Answer, shape: Shape) -> None:
        """Turn away what would be turned away later, before its body is waited for. Raises PharosFault (429)."""
        self._settle()
        now = self._wall()
        denial = self._book.look(name, quota, now)
        if denial is not None:
            raise self._fault(denial, name, quota, answer, shape, now)

    def admit(self, name: str, quota: Quota, answer: Answer, shape: Shape) -> None:
        """Let a request of a key in and count it, or turn it away. Raises PharosFault (429).

        Either way the head of its reply will tell what is left.
        """
        self._settle()
        now = self._wall()
        denial = self._book.admit(name, quota, now)
        if denial is not None:
            raise self._fault(denial, name, quota, answer, shape, now)
        answer.tell(told(self._book.standing(name, quota, now), shape, now))

    def _fault(self, denial: Denial, name: str, quota: Quota, answer: Answer, shape: Shape, now: float) -> PharosFault:
        answer.tell(told(self._book.standing(name, quota, now), shape, now))
        if denial.outcome == "rate_limited":
            return too_many_requests(denial.limit, denial.retry_after_s)
        answer.tell(NOT_AGAIN)
        return quota_used_up(denial.limit, denial.retry_after_s)


def told(standing: Standing, shape: Shape, now: float) -> bytes:
    """Header lines that say what is left; none for Ollama's protocol, which has no words for it."""
    if shape == "ollama":
        return b""
    lines = b""
    for what, limit, left, reset_s in (
        ("requests", standing.requests_limit, standing.requests_left, standing.requests_reset_s),
        ("tokens", standing.tokens_limit, standing.tokens_left, standing.tokens_reset_s),
    ):
        if limit is not None and left is not None and reset_s is not None:
            if shape == "anthropic":
                lines += _ANTHROPIC[what] % (limit, left, _moment(math.ceil(now + reset_s)))
            else:
                lines += _OPENAI[what] % (limit, left, _duration(math.ceil(reset_s)))
    return lines


_OPENAI: Final = {
    what: (
        f"x-ratelimit-limit-{what}: %d\r\nx-ratelimit-remaining-{what}: %d\r\nx-ratelimit-reset-{what}: %b\r\n"
    ).encode()
    for what in ("requests", "tokens")
}
_ANTHROPIC: Final = {
    what: (
        f"anthropic-ratelimit-{what}-limit: %d\r\nanthropic-ratelimit-{what}-remaining: %d\r\n"
        f"anthropic-ratelimit-{what}-reset: %b\r\n"
    ).encode()
    for what in ("requests", "tokens")
}


def _duration(seconds: int) -> bytes:
    """Seconds as OpenAI writes them: `1h2m3s`, `12s`, `0s`."""
    hours, minutes = seconds // 3600, seconds // 60 % 60
    if hours:
        return b"%dh%dm%ds" % (hours, minutes, seconds % 60)
    return b"%dm%ds" % (minutes, seconds % 60) if minutes else b"%ds" % seconds


@lru_cache(maxsize=64)
def _moment(at: int) -> bytes:
    """A moment as Anthropic writes it: RFC 3339."""
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%dT%H:%M:%SZ").encode()
