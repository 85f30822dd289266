"""What was used, in days, and what quotas leave of it.

# ops: count, admit, standing · goal: two look-ups for a key with quotas; none for a key without
# plan: cells by day, minutes by second; the day of `now` is kept until it ends
# warning: tokens are known when a reply ends, so that requests begun before may use more than was left

Forbidden here: reading a clock: `now` is seconds since 1970, as people's clocks show it.
"""

import math
from typing import Final, Literal

import msgspec

from pharos.core.usage.cells import By, Cells, Count
from pharos.core.usage.days import Day, DayOf
from pharos.core.usage.minutes import Minutes
from pharos.core.usage.quota import Quota

MONTH_DAYS: Final = 30
"""What people mean by a month of usage here: today and the 29 days before it."""


BELIEVED_S: Final = 3600.0
"""Seconds for which a clock must show a day before anything is forgotten: one that was wrong costs no history."""
DAYS_AHEAD: Final = 2
"""Days after today that are taken from others: their clocks may be ahead, and not by more."""


class Denial(msgspec.Struct, frozen=True):
    """Why a request is not let in."""

    outcome: Literal["rate_limited", "quota_exceeded"]
    """A row of the decision table."""
    retry_after_s: int
    """Whole seconds after which it may be, at least 1."""
    limit: int
    """The one that is reached."""


class Standing(msgspec.Struct, frozen=True):
    """What a key's quotas leave. `None`: it has no such limit."""

    requests_limit: int | None
    requests_left: int | None
    requests_reset_s: float | None
    """Seconds until all of it is free again."""
    tokens_limit: int | None
    tokens_left: int | None
    tokens_reset_s: float | None
    """Seconds until the day ends."""


class UsageBook:
    """Usage of one instance and of all whose counts reached it."""

    def __init__(self, origin: str, day_of: DayOf, *, retention_days: int, now: float) -> None:
        """`origin`: names this run of this instance, and no other one ever; `retention_days`: today included."""
        self.cells = Cells(origin)
        self.minutes = Minutes(origin)
        self.retention_days = retention_days
        self._day_of = day_of
        self._day = day_of(now)
        self._tidy_at = now + BELIEVED_S

    def __repr__(self) -> str:
        return f"<UsageBook {self.cells!r}>"

    def day(self, now: float) -> Day:
        """The day of a moment. Forgets what is older than `retention_days` once a new day is an hour old."""
        day = self._day
        if not day.starts_at <= now < day.ends_at:
            day = self._day = self._day_of(now)
            self._tidy_at = now + BELIEVED_S
        elif now >= self._tidy_at:
            self._tidy_at = day.ends_at
            self.cells.keep(day.number - self.retention_days + 1, day.number + DAYS_AHEAD)
        return day

    def count(
        self,
        key: str,
        model: str,
        now: float,
        *,
        prompt_tokens: int | None = None,
        cached_tokens: int | None = None,
        completion_tokens: int | None = None,
    ) -> None:
        """Count one request that an engine served and that ends now. `None`: its reply did not tell."""
        self.cells.add(
            self.day(now).number,
            key,
            model,
            prompt_tokens=prompt_tokens,
            cached_tokens=cached_tokens,
            completion_tokens=completion_tokens,
        )

    # --- quotas

    def look(self, key: str, quota: Quota, now: float) -> Denial | None:
        """Why a request of this key would not be let in now; `None`: it would. Counts nothing."""
        if quota.tokens_per_day is not None:
            day = self.day(now)
            if self.cells.tokens(day.number, key) >= quota.tokens_per_day:
                return Denial("quota_exceeded", _whole(day.ends_at - now), quota.tokens_per_day)
        if quota.rpm is not None and self.minutes.count(key, now) >= quota.rpm:
            return Denial("rate_limited", _whole(self.minutes.wait_s(key, quota.rpm, now)), quota.rpm)
        return None

    def admit(self, key: str, quota: Quota, now: float) -> Denial | None:
        """Let a request in, and count it against the minute; or say why not, and count nothing."""
        denial = self.look(key, quota, now)
        if denial is None and quota.rpm is not None:
            self.minutes.add(key, now)
        return denial

    def standing(self, key: str, quota: Quota, now: float) -> Standing:
        """What is left of a key's quotas."""
        requests_left = tokens_left = None
        requests_reset_s = tokens_reset_s = None
        if quota.rpm is not None:
            requests_left = max(quota.rpm - self.minutes.count(key, now), 0)
            requests_reset_s = self.minutes.clear_s(key, now)
        if quota.tokens_per_day is not None:
            day = self.day(now)
            tokens_left = max(quota.tokens_per_day - self.cells.tokens(day.number, key), 0)
            tokens_reset_s = day.ends_at - now
        return Standing(quota.rpm, requests_left, requests_reset_s, quota.tokens_per_day, tokens_left, tokens_reset_s)

    # --- totals

    def today(self, now: float, by: By = "key") -> dict[str, Count]:
        """Totals of the day so far, by name of key or model."""
        return dict(self.cells.of_day(self.day(now).number, by))

    def month(self, now: float, by: By = "key") -> dict[str, Count]:
        """Totals of today and the 29 days before it, by name of key or model."""
        last = self.day(now).number
        return self.cells.total(last - MONTH_DAYS + 1, last, by)


def _whole(seconds: float) -> int:
    return max(math.ceil(seconds), 1)
