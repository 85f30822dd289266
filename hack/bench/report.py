"""The result of a run: rows against the budgets, the table of costs, and docs/performance.md."""

import dataclasses
import datetime as dt
import os
import platform
import re
import statistics
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import cost
import own
import proxies

VERDICTS: Final = {True: "met", False: "**missed**", None: "–"}


@dataclass
class Result:
    """All of one run."""

    versions: dict[str, str]
    how: str
    costs: cost.Costs = field(default_factory=cost.Costs)
    rows: list[own.Row] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    busy_before: float = 0.0

    def as_json(self) -> dict[str, object]:
        """The whole result for --json."""
        return dataclasses.asdict(self) | {
            "machine": machine(),
            "budgets": [dataclasses.asdict(row) for row in budget_rows(self)],
        }


def machine() -> dict[str, str]:
    """Facts of the machine that the figures depend on."""
    cpu = memory = "?"
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            cpu = line.partition(":")[2].strip()
            break
    if found := re.search(r"MemTotal:\s+(\d+)", Path("/proc/meminfo").read_text()):
        memory = f"{int(found[1]) / 1e6:.0f} GB"
    cores = str(len(os.sched_getaffinity(0)))
    return {"cores": cores, "cpu": cpu, "memory": memory, "python": python()}


def python() -> str:
    """The Python that measures and is measured. The system's own is the image's, too (hack/bench/python)."""
    is_own = sys.base_prefix == "/usr"
    return f"{platform.python_version()}, {'the own one of the system' if is_own else 'not the one of the image'}"


def budget_rows(result: Result) -> list[own.Row]:
    """The ratios of the budgets as rows, then what was measured of Pharos alone."""
    rows = []
    for budget in cost.BUDGETS:
        if budget.column not in result.costs.columns:
            continue
        for other in budget.against:
            what, limit = f"{budget.what}, against {other}", f"≤ {budget.limit:g} ×"
            ratios = result.costs.ratios(budget.column, budget.who, other)
            if not ratios:
                rows.append(own.Row(what, limit, "not measured", None))
                continue
            ratio = statistics.median(ratios)
            note = f"{ratios[0]:.2f} to {ratios[-1]:.2f}" if len(ratios) > 1 else "one repetition"
            rows.append(own.Row(what, limit, f"{ratio:.2f} ×", ratio <= budget.limit, note))
    return rows + result.rows


def budget_table(result: Result) -> str:
    """The budgets and their verdicts as a table."""
    lines = ["| what | budget | measured | verdict | |", "|---|---|---|---|---|"]
    lines += [
        f"| {row.what} | {row.budget} | {row.measured} | {VERDICTS[row.ok]} | {row.note} |"
        for row in budget_rows(result)
    ]
    return "\n".join(lines)


def cost_table(result: Result) -> str:
    """CPU µs of every proxy by column, with the median ratio to HAProxy."""
    costs = result.costs
    columns = costs.columns
    lines = ["| proxy | " + " | ".join(columns) + " |", "|---|" + "---|" * len(columns)]
    for name in result.versions:
        cells = []
        for column in columns:
            value = costs.median(column, name)
            ratios = costs.ratios(column, name, proxies.BASELINE)
            digits = 2 if column == cost.SLOPE else 1 if column == cost.PER_PACED else 0
            text = "–" if value is None else f"{value:.{digits}f}"
            if ratios and name != proxies.BASELINE:
                text += f" ({statistics.median(ratios):.2f} ×)"
            cells.append(text)
        lines.append(f"| {name} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def noise(result: Result) -> str:
    """How far the ratios to HAProxy moved between repetitions: the widest span relative to its median."""
    spans = []
    for column in result.costs.columns:
        for name in result.versions:
            ratios = result.costs.ratios(column, name, proxies.BASELINE)
            if name != proxies.BASELINE and len(ratios) > 1:
                spans.append((max(ratios) - min(ratios)) / statistics.median(ratios) / 2)
    if not spans:
        return "one repetition: no statement about noise"
    return f"ratios moved by ±{statistics.median(spans):.0%} between repetitions (median; ±{max(spans):.0%} the widest)"


TEMPLATE: Final = """\
<!-- Written by `make bench`; change hack/bench/report.py, not this file. -->
# Performance

What a request costs Pharos, beside HAProxy (in C) and two routers in Rust, all in front of the same fake engine, in
one run on one machine. CPU times are compared as ratios, because absolute figures move between machines and runs.

## Budgets

{budgets}

## CPU time of every proxy

µs of the proxy's processes, for each request or, where the column says so, for each event; medians of {repetitions}
repetitions. In brackets the ratio to HAProxy, taken in each repetition.

{costs}

- `×64` and `×512` are events of a streamed reply, which the engine writes one by one without a pause; the slope is
  what one more event costs.
- `paced` is 100 streams of an event every 20 ms: every event is a read and a write of its own. The window holds six
  whole replies of each, so that a 64th of a request belongs to each event.
- 2,000 streams and the mixed load (200 streams of 50 events a second, 60 chats of 32 KiB and two bodies of 2 MB a
  second, lists, metrics and status pages) have Pharos on one core and all else on the others. What the same process
  saw of streams straight to the engine, or of an idle process that answers, stands beside as the machine's own part.
- Pharos runs as it is used: a key is checked, the body parsed, a target picked, usage read from the stream, metrics
  counted. HAProxy and nginx only pass bytes on. The Rust routers run with their cache-aware policy, without a key.
- It runs on the Python named below: Debian's own where there is one, as in the image that `hack/image` makes. That is
  built with profiles of real programs, as official images of Python are; on one that is not (pyenv's default) a token
  costs some 7 % more.

## Where

- {cores} cores of {cpu}, {memory} of memory, shared by engine, load and proxies; Python {python}
- {versions}
- {date}; {how}; {noise}
- load of the machine before the run: {busy:.2f} (0 is a quiet one)

## Again

```sh
hack/setup-haproxy   # once: installs HAProxy and nginx from the system's packages
make bench           # installs the Rust routers into .cache/peers, measures, renews this page
make bench FLAGS="--only slope,paced --quick --no-peers"   # a quick look, which leaves this page as it is
```
"""


def document(result: Result) -> str:
    """Text of docs/performance.md."""
    return TEMPLATE.format(
        budgets=budget_table(result),
        costs=cost_table(result),
        repetitions=len(result.costs.repetitions),
        versions=", ".join(f"{name} {version}".strip() for name, version in result.versions.items()),
        date=dt.datetime.now(dt.UTC).date().isoformat(),
        how=result.how,
        noise=noise(result),
        busy=result.busy_before,
        **machine(),
    )
