"""Numbers and times for people. Forbidden here: templates, and taking an unknown value for 0."""

import time
from collections.abc import Sequence


def seconds(value: float | None) -> str:
    """A duration for people, or a dash when it is unknown."""
    if value is None:
        return "–"
    if value == 0:
        return "0 s"
    if value < 0.0995:  # noqa: PLR2004 (below it, milliseconds read better)
        return f"{value * 1000:.2g} ms" if value < 0.00995 else f"{value * 1000:.0f} ms"  # noqa: PLR2004
    if value < 99.5:  # noqa: PLR2004
        return f"{value:.1f} s"
    minutes, rest = divmod(round(value), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes:02} min" if hours else f"{minutes} min {rest:02} s"


def amount(value: float | None) -> str:
    """A count for people: 950, 1.2k, 3.4M; a dash when it is unknown."""
    if value is None:
        return "–"
    for limit, unit in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if value >= limit:
            return f"{value / limit:.3g}{unit}"
    return f"{value:.3g}"


def size(value: float | None) -> str:
    """Bytes for people."""
    if value is None:
        return "–"
    for power, unit in ((30, "GiB"), (20, "MiB"), (10, "KiB")):
        if value >= 1 << power:
            return f"{value / (1 << power):.3g} {unit}"
    return f"{value:g} B"


def plural(count: int, noun: str) -> str:
    """A count with its noun: no requests, 1 request, 2 requests."""
    return f"{count or 'no'} {noun}{'' if count == 1 else 's'}"


def clock_time(wall_s: float) -> str:
    """The time of day on this machine's clock."""
    return time.strftime("%H:%M:%S", time.localtime(wall_s))


def listed(items: Sequence[str], most: int) -> str:
    """The first of some names, and how many more there are."""
    more = f" and {len(items) - most} more" if len(items) > most else ""
    return ", ".join(items[:most]) + more
