"""Results as text: the table, the plots, the bench part of docs/routing.md. Forbidden here: running and measuring."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from hack.bench.routing.fleets import FleetSpec
from hack.bench.routing.result import COLUMNS, Found, Measures, difference, group, summary
from hack.bench.routing.routers import PHAROS, TURNS, Router
from pharos.sim.plots import chart
from pharos.sim.result import Range

BEGIN, END = "<!-- bench: made by `make bench-routing` -->", "<!-- /bench -->"
TITLE: Final = "# How well Pharos chooses\n"
LOSSES: Final = (("ttft_p50_s", "TTFT p50", " s"), ("ttft_p95_s", "TTFT p95", " s"))
PLOTTED: Final = (
    ("ttft_p50_s", "TTFT p50, s"),
    ("ttft_p95_s", "TTFT p95, s"),
    ("hits", "cached share of prompts"),
    ("loads", "model loads"),
)

INTRODUCTION: Final = """\
## Against other routers

Routers as they are, one after another, in real time on one machine, each before the same engines and the same clients
with the same seeds. The clients are those of the simulator: people who chat, agents whose prompts grow, classifiers
that want one token, six requests at once now and then. A client asks again only after its reply, so a slow router is
asked less. Every run begins with empty caches. No router is told how long replies become, except of classifiers.
TTFT is from a client's request to its first token, wherever it waited; a request that was called off at the end of
a run counts with the time until then. `hits`: share of prompt tokens that the engines took from their caches, as they
count them. `loads`: models brought into memory. Figures are means over the seeds,
± the farther end of a 95 % interval (bootstrap). The doubles of engines take the time that
[assumptions.md](assumptions.md) has for a fast and a slow engine; they keep prompts in slots, and in memory what slots
gave up, as llama-server does.
"""
OF_REAL: Final = """\
Three servers that share two cores are the fleet on which choosing wins least: a free one is hardly faster than a busy
one, so that all there is to win are cached prompts, and a second of the machine serves two requests or so, which leaves
few of them for a mean. Speeds are not known to Pharos at the start; what it learns in half a minute is in the figures.
"""


def table(found: Sequence[Found]) -> list[list[str]]:
    """A row of cells for each fleet and router, behind a row of titles."""
    rows = [["fleet", "router", *(title for _, title, _ in COLUMNS)]]
    for fleet, routers in group(found).items():
        for router, runs in routers.items():
            ranges = summary(runs)
            rows.append([fleet, router, *(_cell(ranges[field], digits) for field, _, digits in COLUMNS)])
    return rows


def text(found: Sequence[Found]) -> str:
    """For a terminal."""
    rows = table(found)
    widths = [max(len(row[place]) for row in rows) for place in range(len(rows[0]))]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
    return "\n".join([*lines, "", *verdicts(found)])


def markdown(found: Sequence[Found]) -> str:
    """For a page."""
    head, *rows = table(found)
    lines = [f"| {' | '.join(head)} |", f"|{'---|' * len(head)}", *(f"| {' | '.join(row)} |" for row in rows)]
    return "\n".join(lines)


def verdicts(found: Sequence[Found]) -> list[str]:
    """Sentences on where Pharos is worse than the best other router beyond chance, or no better than turns."""
    said: list[str] = []
    for fleet, routers in group(found).items():
        ours = routers.get(PHAROS)
        others = {name: runs for name, runs in routers.items() if not name.startswith(PHAROS)}
        if ours is None or not others:
            continue
        for field, title, unit in LOSSES:
            said += _lost(f"{fleet}: {PHAROS}", ours, others, (field, title, unit))
        if TURNS in others:
            said += _no_better(f"{fleet}: {PHAROS}", ours, others[TURNS])
    return said


def _lost(
    where: str, ours: Sequence[Measures], others: Mapping[str, Sequence[Measures]], what: tuple[str, str, str]
) -> list[str]:
    field, title, unit = what
    means = {name: one.mean for name, runs in others.items() if (one := summary(runs)[field]) is not None}
    if not means:
        return []
    best = min(means, key=means.__getitem__)
    by = difference(ours, others[best], field)
    if by is None:
        return []
    if by.low > 0:
        return [f"{where} has {title} {by.mean:.3g}{unit} above {best} ({by.low:.3g} to {by.high:.3g})"]
    return [f"{where} has {title} {_sided(by, unit)} {best}, the best other one ({by.low:.3g} to {by.high:.3g})"]


def _sided(by: Range, unit: str) -> str:
    if by.high < 0:
        return f"{-by.mean:.3g}{unit} below"
    return f"within chance of ({by.mean:+.3g}{unit})"


def _no_better(where: str, ours: Sequence[Measures], turns: Sequence[Measures]) -> list[str]:
    said = [
        f"{where} is not better than {TURNS} in {title} beyond chance"
        for field, title, _ in LOSSES
        if (by := difference(ours, turns, field)) is not None and by.high >= 0
    ]
    loads = difference(ours, turns, "loads")
    if loads is not None and any(run.loads for run in (*ours, *turns)) and loads.mean >= 0:
        said.append(f"{where} makes no fewer loads than {TURNS}")
    return said


def plots(found: Sequence[Found], folder: Path) -> list[Path]:
    """One file for each measure, with a group of bars per fleet. Raises `OSError`."""
    folder.mkdir(parents=True, exist_ok=True)
    written = []
    for fleet, routers in group(found).items():
        for field, title in PLOTTED:
            bars = {name: summary(runs)[field] for name, runs in routers.items()}
            if any(one is not None and one.mean > 0 for one in bars.values()):
                path = folder / f"bench-{fleet}-{field.removesuffix('_s').replace('_', '-')}.svg"
                path.write_text(chart(f"{fleet}: {title}", {"": bars}), encoding="utf-8")
                written.append(path)
    return written


def section(
    found: Sequence[Found], fleets: Sequence[FleetSpec], routers: Sequence[Router], paths: Sequence[Path], how: str
) -> str:
    """The bench part of the page."""
    parts = [INTRODUCTION]
    for fleet in fleets:
        mine = [one for one in found if one.fleet == fleet.name]
        if mine:
            parts += [f"### Fleet {fleet.name}: {fleet.what}", ""]
            parts += [f"![{path.stem}](routing/{path.name})" for path in paths if f"-{fleet.name}-" in path.name]
            parts += ["", markdown(mine), ""]
    parts += ["### How Pharos compares", "", *(f"- {one}" for one in verdicts(found)), ""]
    if any(one.fleet == "real" for one in found):
        parts += [OF_REAL]
    parts += ["### What each router was told", ""]
    parts += [f"- **{f'{one.name} {one.version}'.strip()}**: {one.told}" for one in routers]
    return "\n".join([*parts, "", how, ""])


def renewed(page: str, part: str) -> str:
    """The page with its bench part in place of the old one; all else stays as it is."""
    if BEGIN not in page:
        page = f"{page.rstrip() or TITLE.rstrip()}\n\n{BEGIN}\n{END}\n"
    head, rest = page.split(BEGIN, 1)
    return f"{head}{BEGIN}\n{part}\n{END}{rest.split(END, 1)[1]}"


def _cell(one: Range | None, digits: int) -> str:
    if one is None:
        return "–"
    spread = max(one.high - one.mean, one.mean - one.low)
    return f"{one.mean:.{digits}f} ±{spread:.{digits}f}" if spread > 0 else f"{one.mean:.{digits}f}"
