"""Shapes of the status page as numbers: slots, curves, bars.

Forbidden here: markup, and taking an unknown value for 0.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any, Final

SLOTS_DRAWN: Final = 32
"""Slots that are drawn one by one; more are drawn as shares of this many."""
PARTS: Final = ("wait", "load", "prefill", "kv")
"""What the cost of a candidate consists of, in the order in which it passes."""
SHORTEST: Final = 18
"""Steps of a curve that are drawn at the least."""
WIDE, HIGH = 100.0, 24.0
"""The box in which curves are drawn."""
LEAST: Final = 0.001
"""Seconds at the foot of a curve of times: below a millisecond nobody waits."""


def slots(target: Mapping[str, Any]) -> list[str]:
    """The slot bar of a target: `ours`, `others` (of peers, or nobody knows whose), `free`; empty: capacity unknown."""
    capacity, running, ours = target["capacity"], target["running"], target["queue_inflight"]
    if not capacity:
        return []
    used = min(capacity, max(ours + target["queue_peers"], running if running is not None else 0))
    drawn = min(capacity, SLOTS_DRAWN)
    ours, used = (-(-count * drawn // capacity) for count in (min(ours, capacity), used))
    return ["ours"] * ours + ["others"] * (used - ours) + ["free"] * (drawn - used)


def since_the_first(values: Sequence[Any]) -> list[Any]:
    """Without what is empty at the beginning, so that a young curve is not squeezed to an edge."""
    first = next((place for place, value in enumerate(values) if value), len(values))
    return list(values[min(first, max(len(values) - SHORTEST, 0)) :])


def curve(values: Sequence[float | None]) -> dict[str, Any] | None:
    """A curve of times on a logarithmic scale: `lines`, each a path without gaps, and its last point `x`, `y`.

    `None`: there is nothing to draw. What is unknown is a gap.
    """
    known = [math.log(max(value, LEAST)) for value in values if value is not None]
    if not known:
        return None
    low, high = min(known), max(known)
    lines: list[list[str]] = [[]]
    x = y = 0.0
    for place, value in enumerate(values):
        if value is None:
            if lines[-1]:
                lines.append([])
            continue
        x = WIDE * (place + 0.5) / len(values)
        share = 0.5 if high - low < 1e-9 else (math.log(max(value, LEAST)) - low) / (high - low)  # noqa: PLR2004 - one value
        y = HIGH - 2.0 - share * (HIGH - 4.0)
        lines[-1].append(f"{x:.4g} {y:.4g}")
    drawn = [f"M{' L'.join(line)}{' h.01' if len(line) == 1 else ''}" for line in lines if line]
    return {"lines": drawn, "x": f"{x:.4g}", "y": f"{y:.4g}"}


def columns(values: Sequence[int]) -> list[tuple[str, str, str, str]]:
    """One column per value that is not 0, as x, y, width and height in the box of curves."""
    most, wide = max(values, default=0), WIDE / max(len(values), 1)
    drawn = []
    for place, value in enumerate(values):
        if value > 0:
            high = max(HIGH * value / most, 1.0)
            drawn.append((f"{place * wide:.4g}", f"{HIGH - high:.4g}", f"{wide * 0.76:.4g}", f"{high:.4g}"))
    return drawn


def share(part: float | None, whole: float | None) -> str:
    """A part of a whole, in hundredths; what is unknown has no length."""
    if part is None or not whole:
        return "0"
    return f"{min(max(100 * part / whole, 0.0), 100.0):.4g}"


def stacked(candidate: Mapping[str, Any], longest_s: float) -> list[tuple[str, str, str]]:
    """The cost of a candidate as bars one behind the other: part, x and width in hundredths of the longest."""
    bars, at = [], 0.0
    for part in PARTS:
        seconds = candidate[f"{part}_s"]
        if longest_s > 0 and math.isfinite(seconds) and seconds > 0:
            width = 100.0 * seconds / longest_s
            bars.append((part, f"{at:.4g}", f"{width:.4g}"))
            at += width
    return bars


def total_s(candidate: Mapping[str, Any]) -> float:
    """What a candidate would cost in all, seconds."""
    return float(sum(candidate[f"{part}_s"] for part in PARTS))


def longest_s(candidates: Sequence[Mapping[str, Any]]) -> float:
    """The highest finite cost of them."""
    totals = [total_s(one) for one in candidates]
    return max([one for one in totals if math.isfinite(one)], default=0.0)


def tokens(count: Mapping[str, Any]) -> int:
    """Tokens of a count: of prompts and of replies."""
    return int(count["prompt_tokens"] + count["completion_tokens"])
