"""Compares routers on the same engines: `make bench-routing`, or `python -m hack.bench.routing --quick`.

One fleet of fakes and one of real llama.cpp servers, each router in turn before each, with several seeds; renews the
bench part of docs/routing.md, its plots, and docs/routing/bench.json. A whole run takes about a quarter of an hour.
"""

import argparse
import datetime as dt
import os
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

import msgspec

from hack.bench.routing import fleets, report
from hack.bench.routing.clients import Plan, Sample
from hack.bench.routing.fleets import FLEETS, FleetSpec
from hack.bench.routing.result import Found, Measures, measure
from hack.bench.routing.routers import ROOT, Router, routers

PAGE: Final = ROOT / "docs" / "routing.md"
PLOTS: Final = ROOT / "docs" / "routing"
WORK: Final = ROOT / ".cache" / "bench" / "routing"
SEEDS: Final = 4
REAL_SEEDS: Final = 3
"""Of a fleet whose runs cannot go side by side."""
QUICK_SEEDS: Final = 2
PLAYING: Final = set["subprocess.Popen[bytes]"]()
"""Clients that run now."""


class Made(msgspec.Struct, frozen=True):
    """What a file of --json holds."""

    schema: int
    how: str
    """When and how the runs were made, for the page."""
    runs: list[Found]


class Run(msgspec.Struct, frozen=True):
    """One router before one fleet, with one seed."""

    fleet: FleetSpec
    router: Router
    seed: int
    quick: bool

    @property
    def scale(self) -> fleets.Scale:
        """The clients' measure."""
        return self.fleet.quick if self.quick else self.fleet.scale

    @property
    def folder(self) -> Path:
        """Where its logs and files are, until the next such run."""
        return WORK / self.fleet.name / f"{self.router.name.replace(' × ', '-x').replace(' ', '-')}-{self.seed}"


def say(text: str) -> None:
    """Progress for the person who waits; results go to standard output."""
    print(text, file=sys.stderr, flush=True)


def parse() -> argparse.Namespace:
    """Options from the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="a look in some minutes; the page stays as it is")
    parser.add_argument("--fleet", action="append", choices=list(FLEETS), help="only this one; may be repeated")
    parser.add_argument("--router", action="append", help="only those whose name contains this; may be repeated")
    parser.add_argument("--seeds", type=int, help=f"of the fakes; as many as {REAL_SEEDS} of the real ones")
    parser.add_argument("--instances", type=int, default=3, help="of Pharos, side by side, in its second row")
    parser.add_argument(
        "--side-by-side", type=int, metavar="N", help="runs before fakes at a time [default: all seeds]"
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="write every run there")
    parser.add_argument("--page", type=Path, default=PAGE, metavar="FILE")
    parser.add_argument(
        "--from-json", type=Path, nargs="+", metavar="FILE", help="run nothing: tables and page from such files"
    )
    chosen = parser.parse_args()
    if chosen.seeds is None:
        chosen.seeds = QUICK_SEEDS if chosen.quick else SEEDS
    if chosen.seeds < 1 or chosen.instances < 2:
        parser.error("--seeds must be above 0, --instances above 1")
    return chosen


def entrants(chosen: argparse.Namespace) -> list[Router]:
    """The routers of this run. One that is not installed is left out, and that is said."""
    wanted = [
        one for one in routers(chosen.instances) if not chosen.router or any(part in one.name for part in chosen.router)
    ]
    if any(one.needs is not None for one in wanted):
        subprocess.run([ROOT / "hack" / "setup-peers"], check=False)
    for one in wanted:
        if one.needs is not None and not one.needs.exists():
            say(f"{one.name} is left out: it could not be installed")
    return [one for one in wanted if one.needs is None or one.needs.exists()]


def carry_out(run: Run) -> Found:
    """One run, from starting its engines to ending them. Raises `RuntimeError`, `OSError`, `ValueError`."""
    folder, scale = run.folder, run.scale
    folder.mkdir(parents=True, exist_ok=True)
    for old in folder.glob("decisions-*"):
        old.unlink()
    with fleets.started(run.fleet, folder) as fleet, run.router.start(fleet, folder) as urls:
        time.sleep(1)  # whoever reads the engines has read them
        plan = Plan(
            {model: urls[model] for model in run.fleet.models}, scale.users, run.seed, scale.duration_s, scale.drain_s,
            scale.pause, scale.length, scale.reply,
        )  # fmt: skip
        command = [sys.executable, "-m", "hack.bench.routing.clients", msgspec.json.encode(plan).decode()]
        told = output_of(command)
        (folder / "samples.jsonl").write_bytes(told)
        samples = msgspec.json.Decoder(Sample).decode_lines(told)
        counted = fleet.counted()
    return Found(run.fleet.name, run.router.name, run.seed, measure(samples, counted))


def output_of(command: list[str]) -> bytes:
    """What the clients print. Raises `RuntimeError` when they failed or were ended."""
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=ROOT) as process:
        PLAYING.add(process)
        try:
            told, why = process.communicate()
        finally:
            PLAYING.discard(process)
    if process.returncode:
        raise RuntimeError(f"the clients failed: {why[-500:].decode(errors='replace')}")
    return told


def stop(*_: object) -> None:
    """End the clients that run: their runs end then, and with them all that they had started."""
    for process in list(PLAYING):
        process.terminate()
    sys.exit(143)


def attempt(run: Run) -> Found | str:
    """One run, or why there is none."""
    began = time.monotonic()
    try:
        found = carry_out(run)
    except (RuntimeError, OSError, ValueError, subprocess.SubprocessError) as fault:
        return f"{run.fleet.name}, {run.router.name}, seed {run.seed}: {type(fault).__name__}: {fault}"
    its = found.measures
    say(
        f"  {run.fleet.name:6} {run.router.name:24} seed {run.seed}: {its.requests} requests, TTFT p50 "
        f"{its.ttft_p50_s:.2f} p95 {its.ttft_p95_s:.2f} s, {_hits(its)} hits, {its.loads} loads, {its.errors} errors, "
        f"{its.unfinished} unfinished ({time.monotonic() - began:.0f} s)"
    )
    if its.first_error:
        say(f"         first error: {its.first_error}")
    return found


def _hits(its: Measures) -> str:
    return "unknown" if its.hits is None else f"{its.hits:.3f}"


def study(chosen: argparse.Namespace, entering: list[Router]) -> tuple[list[Found], list[str]]:
    """All runs, and what went wrong."""
    found: list[Found] = []
    problems: list[str] = []
    for name in chosen.fleet or FLEETS:
        fleet = FLEETS[name]
        seeds = chosen.seeds if fleet.side_by_side else min(chosen.seeds, 1 if chosen.quick else REAL_SEEDS)
        at_a_time = (chosen.side_by_side or seeds) if fleet.side_by_side else 1
        say(f"fleet {name}: {len(entering)} routers, {seeds} seeds, {at_a_time} at a time")
        for router in entering:
            runs = [Run(fleet, router, seed, chosen.quick) for seed in range(1, seeds + 1)]
            with ThreadPoolExecutor(at_a_time) as pool:
                for one in pool.map(attempt, runs):
                    if isinstance(one, Found):
                        found.append(one)
                    else:
                        problems.append(one)
                        say(f"  problem: {one}")
    return found, problems


def main() -> int:
    """Exit code 1 when a run could not be made; that Pharos is worse somewhere is a finding, not a failure."""
    signal.signal(signal.SIGTERM, stop)
    chosen = parse()
    if chosen.from_json is not None:
        made = merged([msgspec.json.decode(path.read_bytes(), type=Made) for path in chosen.from_json])
        problems, entering = list[str](), routers(chosen.instances)
    else:
        busy = os.getloadavg()[0]
        if busy > 0.5:
            say(f"note: this machine is busy (load {busy:.2f}); figures of the real engines will suffer from it")
        entering = entrants(chosen)
        began = time.monotonic()
        found, problems = study(chosen, entering)
        say(f"took {time.monotonic() - began:.0f} s")
        made = Made(1, how(found, busy, quick=chosen.quick), found)
    if not made.runs:
        return 1
    print(report.text(made.runs))
    if chosen.json is not None:
        chosen.json.write_bytes(encoded(made))
    if chosen.quick or chosen.fleet or chosen.router:
        say(f"{chosen.page.name} stays as it is: this was not a whole run")
    elif not problems:
        write(chosen.page, made, entering)
    return 1 if problems else 0


def how(found: list[Found], busy: float, *, quick: bool) -> str:
    """When and how these runs were made, for the page."""
    parts = []
    for name in dict.fromkeys(one.fleet for one in found):
        seeds = len({one.seed for one in found if one.fleet == name})
        scale = FLEETS[name].quick if quick else FLEETS[name].scale
        parts.append(f"{name}: {seeds} seeds of {scale.duration_s:g} s, {scale.users} users")
    cores = len(os.sched_getaffinity(0))
    today = dt.datetime.now(dt.UTC).date().isoformat()
    return (
        f"{today}; {', '.join(parts)}; {cores} cores shared by engines, routers and clients; "
        f"load of the machine before: {busy:.2f}"
    )


def merged(parts: list[Made]) -> Made:
    """Runs of several files as one; of the same run the last file's counts."""
    runs = {(one.fleet, one.router, one.seed): one for part in parts for one in part.runs}
    return Made(1, "; ".join(dict.fromkeys(part.how for part in parts)), list(runs.values()))


def encoded(made: Made) -> bytes:
    """As it stands in a file."""
    return msgspec.json.format(msgspec.json.encode(made), indent=1) + b"\n"


def write(page: Path, made: Made, entering: list[Router]) -> None:
    """Renew the page, its plots and its figures."""
    paths = report.plots(made.runs, PLOTS)
    part = report.section(made.runs, list(FLEETS.values()), entering, paths, made.how)
    text = page.read_text(encoding="utf-8") if page.exists() else ""
    page.write_text(report.renewed(text, part), encoding="utf-8")
    (PLOTS / "bench.json").write_bytes(encoded(made))
    say(f"written: {page.name}, {len(paths)} plots, bench.json")


if __name__ == "__main__":
    sys.exit(main())
