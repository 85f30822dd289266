"""Results as text: tables for a terminal and for a page, CSV, JSON. Forbidden here: running and measuring."""

import csv
import io
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec

from pharos.sim.result import COLUMNS, Measures, Range, difference, summary
from pharos.sim.study import Found, group

OURS = "cost"
TURNS = "round-robin"
NAMES = 3
"""Columns of a table that are no numbers: fleet, load, policy."""
LOSSES = (("ttft_p50_s", "p50"), ("ttft_p95_s", "p95"))
"""What the policy of Pharos is held against the best other one by."""


def rows(found: Iterable[Found]) -> list[list[str]]:
    """A row of cells for each fleet, load and policy, behind a row of titles."""
    table = [["fleet", "load", "policy", *(title for _, title, _ in COLUMNS)]]
    for (fleet, load), policies in group(found).items():
        for policy, runs in policies.items():
            ranges = summary(runs)
            cells = [_cell(ranges[field], digits) for field, _, digits in COLUMNS]
            table.append([fleet, f"{load:g}", policy, *cells])
    return table


def text(found: Sequence[Found]) -> str:
    """For a terminal."""
    table = rows(found)
    widths = [max(len(row[i]) for row in table) for i in range(len(table[0]))]
    lines: list[str] = []
    before = table[1][:2] if len(table) > 1 else []
    for row in table:
        if len(lines) > 1 and before != row[:2]:
            lines.append("")
            before = row[:2]
        cells = [
            cell.ljust(width) if i < NAMES else cell.rjust(width)
            for i, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        lines.append("  ".join(cells).rstrip())
    said = verdicts(found)
    return "\n".join([*lines, "", *said] if said else lines)


def markdown(found: Sequence[Found]) -> str:
    """For a page."""
    head, *body = rows(found)
    lines = [f"| {' | '.join(head)} |", f"|{'---|' * len(head)}", *(f"| {' | '.join(row)} |" for row in body)]
    return "\n".join(lines)


def verdicts(found: Iterable[Found]) -> list[str]:
    """Sentences on where the cost policy is worse than the best other policy beyond chance, or no better than turns."""
    said, compared = [], False
    for (fleet, load), policies in group(found).items():
        if OURS not in policies or len(policies) == 1:
            continue
        compared = True
        where = f"{fleet}, load {load:g}: {OURS}"
        for field, title in LOSSES:
            others = {policy: summary(runs)[field] for policy, runs in policies.items() if policy != OURS}
            best = min(others, key=lambda policy: _mean(others[policy]))
            by = difference(policies[OURS], policies[best], field)
            if by.low > 0:
                so_much = f"{by.mean:.3g} s above {best} ({by.low:.3g} to {by.high:.3g})"
                said.append(f"{where} has {title} {so_much}{_asked(policies, best)}")
        if TURNS in policies:
            what = _no_better(policies[OURS], policies[TURNS])
            said += [f"{where} {one}{_asked(policies, TURNS)}" for one in what]
    if compared and not said:
        said.append(f"{OURS} is nowhere worse than the best other policy beyond chance, and better than {TURNS}")
    return said


def _asked(policies: Mapping[str, Sequence[Measures]], other: str) -> str:
    """How many more requests we answered: who waits for replies asks a slow router less, above all what is slow."""
    ours, theirs = (sum(run.requests for run in policies[name]) for name in (OURS, other))
    return f"; it answers {ours / theirs - 1:.0%} more requests in that time" if ours > theirs else ""


def _no_better(ours: Sequence[Measures], turns: Sequence[Measures]) -> list[str]:
    """In what we are not better than taking turns."""
    said = [
        f"is not better than {TURNS} in {title} beyond chance"
        for field, title in LOSSES
        if difference(ours, turns, field).high >= 0
    ]
    if any(run.loads for run in (*ours, *turns)) and difference(ours, turns, "loads").mean >= 0:
        said.append(f"makes no fewer loads than {TURNS}")
    return said


def as_csv(found: Iterable[Found]) -> str:
    """Each run as a line."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    fields = [field for field, _, _ in COLUMNS]
    writer.writerow(["fleet", "load", "policy", "seed", "refused", "fell_back", *fields])
    for one in found:
        its = one.measures
        values = ["" if (value := getattr(its, field)) is None else value for field in fields]
        writer.writerow([one.fleet, f"{one.load:g}", one.policy, one.seed, its.refused, its.fell_back, *values])
    return out.getvalue()


def as_json(found: Iterable[Found]) -> bytes:
    """Each run, for programs."""
    runs: list[Any] = [msgspec.to_builtins(one) for one in found]
    return msgspec.json.encode({"schema": 1, "runs": runs})


def _mean(one: Range | None) -> float:
    return one.mean if one is not None else float("inf")


def _cell(one: Range | None, digits: int) -> str:
    if one is None:
        return "–"
    spread = max(one.high - one.mean, one.mean - one.low)
    return f"{one.mean:.{digits}f} ±{spread:.{digits}f}" if spread > 0 else f"{one.mean:.{digits}f}"
