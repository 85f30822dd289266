"""Runs the simulator over its fleets and renews its part of docs/routing.md: tables, plots, and where we lose.

`make sim` (SEEDS=5, FLEETS=mixed,cold,single, WORKERS: processes, as many as there are processors unless given). Takes
some minutes on two cores.
"""

import os
import sys
import time
from pathlib import Path

from pharos.sim.fleets import FLEETS
from pharos.sim.plots import write
from pharos.sim.report import as_csv, markdown, verdicts
from pharos.sim.run import POLICY_NAMES
from pharos.sim.study import Found, Study, carry_out

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "routing.md"
PLOTS = ROOT / "docs" / "routing"
BEGIN, END = "<!-- simulator: made by `make sim` -->", "<!-- /simulator -->"
INTRODUCTION = """\
## Simulator

The scheduler, policies and prefix index of Pharos itself, on virtual time, before modelled engines. All policies meet
the same people, agents, classifiers and bursts. `cost` and `least-load` are Pharos; `round-robin`, `least-conn` (as
nginx has them), `prefix` (the rule of SMG 1.13.0's `cache_aware`, with its default thresholds) and `two-choices` send
each request to an engine at once, which queues it. Figures are means over {seeds} seeds of {minutes:g} minutes each,
± the farther end of a 95 % interval (bootstrap). Loads are users. `hits`: share of prompt tokens that came from a
cache. `loads`: models brought into memory. `Jain` and `min/max share`: of the share of their time in which keys were
served and did not wait. Clients ask again only after their reply, so a slow policy is asked less: `requests` counts,
too. `error of estimate`: median of |log(predicted/actual)| of load and prefill. `wrong predictions`: of those that a
prompt is cached, how many were wrong by more than half. How it works: [sim.md](sim.md); what the numbers stand for:
[assumptions.md](assumptions.md); what parts of Pharos are worth by themselves: [ADR 12 to 17](adr/).
"""
SHARED = ("cost", "least-load", "round-robin", "least-conn", "prefix")
"""Policies that are shown with three instances."""
WHY = """\
What lies behind losses of the median where a fleet is full: clients ask again after their reply, so whoever serves the
requests that cost most (agents', with long prompts and short pauses) sooner is asked for more of them, and all wait
behind those. Round-robin's median is of the few that it serves: it queues on the slow engine while fast ones are idle.
Prefix affinity keeps a conversation where it is, whatever waits there; Pharos takes a free engine, which lowers the
slowest twentieth and costs cached prompts. How evenly affinity spreads conversations is chance: see its intervals.
"""
TITLE = "# How well Pharos chooses\n\n"


def main() -> int:
    """Run, write, say how long it took."""
    names = os.environ.get("FLEETS", ",".join(FLEETS)).split(",")
    seeds = tuple(range(1, int(os.environ.get("SEEDS", "5")) + 1))
    study = Study(tuple(FLEETS[name] for name in names), POLICY_NAMES, seeds)
    began = time.monotonic()
    workers = int(os.environ["WORKERS"]) if "WORKERS" in os.environ else None
    found = carry_out(study, progress, workers)
    shared = Study((FLEETS["mixed"],), SHARED, seeds, instances=3)
    apart = carry_out(shared, progress, workers)
    # Read only now: another command may have renewed its part of the page meanwhile.
    text = PAGE.read_text(encoding="utf-8") if PAGE.exists() else f"{TITLE}{BEGIN}\n{END}\n"
    if BEGIN not in text:
        text = f"{text.rstrip()}\n\n{BEGIN}\n{END}\n"
    head, rest = text.split(BEGIN, 1)
    tail = rest.split(END, 1)[1]
    write(found, PLOTS)
    PAGE.write_text(f"{head}{BEGIN}\n{section(study, found, apart)}\n{END}{tail}", encoding="utf-8")
    (PLOTS / "simulator.csv").write_text(as_csv(found), encoding="utf-8")
    took = time.monotonic() - began
    print(f"\n{len(found)} runs of {study.duration_s:g} s in {took:.0f} s; {PAGE.relative_to(ROOT)} is renewed")
    return 0


def section(study: Study, found: list[Found], apart: list[Found]) -> str:
    """The simulator's part of the page. `apart`: the runs of three instances."""
    parts = [INTRODUCTION.format(seeds=len(study.seeds), minutes=study.duration_s / 60)]
    for fleet in study.fleets:
        mine = [one for one in found if one.fleet == fleet.name]
        parts += [f"### Fleet {fleet.name}: {fleet.what}", ""]
        parts += [f"![{path.stem}](routing/{path.name})" for path in sorted(PLOTS.glob(f"{fleet.name}-*.svg"))]
        parts += ["", markdown(mine), ""]
    parts += ["### Fleet mixed, three instances of each router side by side", "", markdown(apart), ""]
    said = [*verdicts(found), *[f"three instances: {one}" for one in verdicts(apart)]]
    losses = [f"- {one}" for one in said]
    why = ["", WHY] if any(" p50 " in one for one in said) else [""]
    return "\n".join([*parts, "### Where `cost` is worse than the best other policy", "", *losses, *why])


def progress(done: int, whole: int) -> None:
    """A line on the terminal that is written over."""
    if sys.stderr.isatty():
        print(f"\r{done}/{whole}", end="", file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
