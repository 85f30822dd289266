"""Bars with their intervals, as SVG of our own: no library is needed for a few rectangles.

Forbidden here: running and measuring.
"""

from collections.abc import Sequence
from html import escape
from pathlib import Path
from typing import Final

from pharos.sim.result import Range, summary
from pharos.sim.study import Found, group

WIDTH, HEIGHT, TOP, LEFT, BOTTOM = 720, 260, 44, 56, 34
COLOURS: Final = ("#1b5e9e", "#6aa5d8", "#9a9a9a", "#c2a14a", "#3f8f5f", "#b06a8f")
STEPS: Final = (1, 2, 5)
FONT: Final = 'font-family="sans-serif" font-size="11"'
LINES: Final = 5
"""Lines across a plot, about."""
SHOWN: Final = (("ttft_p50_s", "TTFT p50, s"), ("ttft_p95_s", "TTFT p95, s"), ("hits", "cached share of prompts"),
                ("loads", "model loads"))  # fmt: skip


def write(found: Sequence[Found], folder: Path) -> list[Path]:
    """One file per fleet and measure. Raises `OSError`."""
    folder.mkdir(parents=True, exist_ok=True)
    written = []
    for fleet in dict.fromkeys(one.fleet for one in found):
        mine = [one for one in found if one.fleet == fleet]
        for field, title in SHOWN:
            bars = {
                f"{load:g}": {policy: summary(runs)[field] for policy, runs in policies.items()}
                for (_, load), policies in group(mine).items()
            }
            if any(one is not None and one.mean > 0 for each in bars.values() for one in each.values()):
                path = folder / f"{fleet}-{field.removesuffix('_s').replace('_', '-')}.svg"
                path.write_text(chart(f"{fleet}: {title}", bars), encoding="utf-8")
                written.append(path)
    return written


def chart(title: str, bars: dict[str, dict[str, Range | None]]) -> str:
    """Groups of bars: load to policy to value."""
    policies = list(dict.fromkeys(policy for each in bars.values() for policy in each))
    most = max((one.high for each in bars.values() for one in each.values() if one is not None), default=1.0)
    step = _step(most)
    room = HEIGHT - TOP - BOTTOM
    per_unit = room / (most * 1.05 if most > 0 else 1.0)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" {FONT}>',
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="#fff"/>',
        f'<text x="{LEFT}" y="16" font-size="13">{escape(title)}</text>',
        *_legend(policies),
    ]
    for number in range(int(most / step) + 1):
        y = HEIGHT - BOTTOM - number * step * per_unit
        parts.append(f'<line x1="{LEFT}" x2="{WIDTH - 8}" y1="{y:.1f}" y2="{y:.1f}" stroke="#ddd"/>')
        parts.append(f'<text x="{LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{number * step:g}</text>')
    span = (WIDTH - LEFT - 8) / max(len(bars), 1)
    width = span * 0.8 / max(len(policies), 1)
    for place, (load, each) in enumerate(bars.items()):
        x = LEFT + place * span + span * 0.1
        parts.append(f'<text x="{x + span * 0.4:.1f}" y="{HEIGHT - 12}" text-anchor="middle">{escape(load)}</text>')
        for number, policy in enumerate(policies):
            one = each.get(policy)
            if one is not None:
                parts += _bar(one, x + number * width, width, per_unit, COLOURS[number % len(COLOURS)])
    return "\n".join([*parts, "</svg>", ""])


def _bar(one: Range, x: float, width: float, per_unit: float, colour: str) -> list[str]:
    y, low, high = (HEIGHT - BOTTOM - value * per_unit for value in (one.mean, one.low, one.high))
    middle = x + width * 0.45
    return [
        f'<rect x="{x:.1f}" y="{y:.1f}" width="{width * 0.9:.1f}" height="{HEIGHT - BOTTOM - y:.1f}" fill="{colour}"/>',
        f'<line x1="{middle:.1f}" x2="{middle:.1f}" y1="{low:.1f}" y2="{high:.1f}" stroke="#000"/>',
    ]


def _legend(policies: Sequence[str]) -> list[str]:
    parts, x = [], LEFT
    for number, policy in enumerate(policies):
        parts.append(f'<rect x="{x}" y="24" width="10" height="10" fill="{COLOURS[number % len(COLOURS)]}"/>')
        parts.append(f'<text x="{x + 14}" y="33">{escape(policy)}</text>')
        x += 26 + 7 * len(policy)
    return parts


def _step(most: float) -> float:
    """A round distance between lines."""
    unit = 1e-6
    while True:
        for times in STEPS:
            if most <= unit * times * LINES:
                return unit * times
        unit *= 10
