"""What a day is: from one midnight to the next, as whoever knows the zone tells. Forbidden here: zones and clocks."""

from collections.abc import Callable

import msgspec


class Day(msgspec.Struct, frozen=True, gc=False):
    """One day of `usage.timezone`, 23 to 25 hours long where clocks are changed."""

    number: int
    """Days since 0001-01-01, which is 1: what `date.toordinal` gives."""
    starts_at: float
    """Seconds since 1970."""
    ends_at: float
    """When the next one starts."""


DayOf = Callable[[float], Day]
"""Gives the day of a moment, in seconds since 1970."""
