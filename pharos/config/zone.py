"""Time zones: whether one exists, which one this machine has, and when its days begin. Reads zone data, no clock."""

import os
import zoneinfo
from collections.abc import Mapping
from datetime import UTC, date, datetime, tzinfo
from pathlib import Path
from typing import Final

import msgspec

from pharos.config.meant import meant
from pharos.core.usage import Day

LOCALTIME: Final = Path("/etc/localtime")
_FOLDER: Final = "zoneinfo/"


class Zone(msgspec.Struct, frozen=True):
    """A zone whose midnights part the days of usage."""

    name: str
    """As in `Europe/Berlin`; instances whose names differ count days apart."""
    rules: tzinfo

    def day_of(self, at: float) -> Day:
        """The day of a moment, in seconds since 1970."""
        number = datetime.fromtimestamp(at, self.rules).toordinal()
        while at >= self._starts(number + 1):
            number += 1
        while at < self._starts(number):  # a clock that goes back over midnight shows the day before once more
            number -= 1
        return Day(number, self._starts(number), self._starts(number + 1))

    def start(self, number: int) -> str:
        """The start of a day in RFC 3339, with the offset that holds then; `number` as in `Day`."""
        return datetime.fromtimestamp(self._starts(number), self.rules).isoformat(timespec="seconds")

    def _starts(self, number: int) -> float:
        # Of a midnight that comes twice the first is meant, and one that is left out is the moment of the change.
        day = date.fromordinal(number)
        return datetime(day.year, day.month, day.day, tzinfo=self.rules).timestamp()


def named(name: str) -> Zone:
    """A zone by its name. Raises `ValueError` with a sentence for people."""
    try:
        return Zone(name, zoneinfo.ZoneInfo(name))
    except (OSError, ValueError, zoneinfo.ZoneInfoNotFoundError):
        raise ValueError(_unknown(name)) from None


def _unknown(name: str) -> str:
    known = zoneinfo.available_timezones()
    if not known:
        return "this machine knows no time zones: install its package tzdata, or leave this out for the machine's own"
    close = meant(name.lower().replace(" ", "_"), {one.lower() for one in known})
    if close is not None:
        return f"no such time zone; did you mean {next(one for one in known if one.lower() == close)}?"
    return "no such time zone: write it like Europe/Berlin, Asia/Tokyo or UTC"


def of_machine(environ: Mapping[str, str], localtime: Path = LOCALTIME) -> Zone:
    """The zone of this machine: its variable `TZ`, else what `/etc/localtime` is, else UTC."""
    asked = environ.get("TZ", "").removeprefix(":")
    if asked:
        try:
            return named(asked)
        except ValueError:
            pass  # a rule written out, as `CET-1CEST`, or a path: libc may know it, we do not
    try:
        real = os.path.realpath(localtime)
        if _FOLDER in real:
            return named(real.rpartition(_FOLDER)[2])
        with localtime.open("rb") as file:
            return Zone("localtime", zoneinfo.ZoneInfo.from_file(file))
    except (OSError, ValueError):
        return Zone("UTC", UTC)


def of_config(timezone: str | None, environ: Mapping[str, str]) -> Zone:
    """The zone of `usage.timezone`. Raises `ValueError` as `named`."""
    return of_machine(environ) if timezone is None else named(timezone)
