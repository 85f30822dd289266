"""`pharos sim`: parse, run a study, print. Forbidden here: simulating."""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import click

from pharos.cli.failure import Failure

if TYPE_CHECKING:
    from pharos.sim.spec import FleetSpec
    from pharos.sim.trace import Trace

EXAMPLES = """\b
Examples:
  pharos sim
  pharos sim --fleet cold --policies cost,prefix,round-robin --loads 8,16
  pharos sim --fleet my-fleet.yaml --seeds 10 --csv runs.csv --plots plots
  pharos sim --trace mooncake_conversation.jsonl.gz --loads 0.05,0.1 --scale 0.2 --limit 2000

\b
Exit status:
  0   the runs are done, whatever they show
  1   a file cannot be read or written
  64  the command line cannot be understood
"""
BAR = 30
"""Characters of the progress bar."""


@click.command("sim", short_help="Compare policies on modelled engines, on virtual time.", epilog=EXAMPLES)
@click.option(
    "--fleet",
    "fleets",
    multiple=True,
    metavar="NAME|FILE",
    help="mixed, cold, single, or a YAML file; may be repeated.  [default: mixed]",
)
@click.option("--trace", metavar="FILE", help="Requests of a file: Mooncake's, Azure's, or a decision log; .gz too.")
@click.option("--skip-bad", is_flag=True, help="Leave broken lines of the trace out, and count them.")
@click.option("--limit", type=click.IntRange(1), metavar="N", help="Only the first N requests of the trace.")
@click.option(
    "--scale",
    type=click.FloatRange(0, min_open=True),
    default=1.0,
    show_default=True,
    help="Of all lengths in the trace.",
)
@click.option(
    "--policies", metavar="A,B", help="cost, least-load, round-robin, least-conn, prefix, two-choices.  [default: all]"
)
@click.option(
    "--loads", metavar="A,B", help="Users; with a trace, times its own speed.  [default: the fleet's own, or 1]"
)
@click.option("--seeds", type=click.IntRange(1, 1000), default=3, show_default=True, help="Runs of each.")
@click.option(
    "--minutes", type=click.FloatRange(0, min_open=True), default=15.0, show_default=True, help="Of virtual time."
)
@click.option("--instances", type=click.IntRange(1, 16), default=1, show_default=True, help="Routers side by side.")
@click.option(
    "--sync",
    "sync_s",
    type=click.FloatRange(0, min_open=True),
    default=0.2,
    show_default=True,
    help="Seconds between what instances tell each other.",
)
@click.option(
    "--set",
    "settings",
    multiple=True,
    metavar="FIELD=VALUE",
    help="Of all engines, as in host_cache_tokens=0; may be repeated.",
)
@click.option(
    "--without",
    metavar="A,B",
    help="Leave parts of Pharos out, to see what they are worth: slots, copies, gauges, lengths.",
)
@click.option("--csv", "csv_file", metavar="FILE", help="Write each run as a line.")
@click.option("--plots", metavar="DIR", help="Write plots as SVG.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON, for programs.")
def command(  # noqa: PLR0913 - one for each option
    *,
    fleets: tuple[str, ...],
    trace: str | None,
    skip_bad: bool,
    limit: int | None,
    scale: float,
    policies: str | None,
    loads: str | None,
    seeds: int,
    minutes: float,
    instances: int,
    sync_s: float,
    settings: tuple[str, ...],
    without: str | None,
    csv_file: str | None,
    plots: str | None,
    as_json: bool,
) -> int:
    """Run the scheduler of Pharos, and other routers' ways to choose, over modelled engines on virtual time.

    Every policy meets the same clients: people who chat, agents, classifiers and bursts, or the requests of a trace.
    The table shows means over seeds, and how far they would differ by chance.
    """
    from pharos.sim import report
    from pharos.sim.study import Study, carry_out

    study = Study(
        _fleets(fleets or ("mixed",), settings),
        _policies(policies),
        tuple(range(1, seeds + 1)),
        _loads(loads),
        minutes * 60,
        instances,
        sync_s,
        _trace(trace, skip_bad=skip_bad, limit=limit),
        scale,
        _without(without),
    )
    found = carry_out(study, _progress(sys.stderr.isatty()))
    try:
        if csv_file is not None:
            Path(csv_file).write_text(report.as_csv(found), encoding="utf-8")
        if plots is not None:
            from pharos.sim.plots import write

            write(found, Path(plots))
    except OSError as fault:
        raise Failure(str(fault)) from None
    click.echo(report.as_json(found) if as_json else report.text(found))
    return 0


def _fleets(names: tuple[str, ...], settings: tuple[str, ...]) -> "tuple[FleetSpec, ...]":
    from pharos.sim.fleets import FleetError, changed, find

    fields = {one.split("=", 1)[0].strip(): one.split("=", 1)[-1] for one in settings}
    if any("=" not in one for one in settings):
        raise click.UsageError("--set takes FIELD=VALUE, as in slots=8")
    try:
        return tuple(changed(find(name), fields) for name in dict.fromkeys(names))
    except FleetError as fault:
        raise click.UsageError(str(fault)) from None


def _policies(given: str | None) -> tuple[str, ...]:
    from pharos.sim.run import POLICY_NAMES

    if given is None:
        return POLICY_NAMES
    names = tuple(dict.fromkeys(name.strip() for name in given.split(",")))
    for name in names:
        if name not in POLICY_NAMES:
            raise click.UsageError(f"there is no policy {name}; known are {', '.join(POLICY_NAMES)}")
    return names


def _without(given: str | None) -> frozenset[str]:
    from pharos.sim.routers import PARTS

    names = frozenset() if given is None else frozenset(name.strip() for name in given.split(","))
    for name in sorted(names - PARTS.keys()):
        raise click.UsageError(f"there is no part {name} to leave out; known are {', '.join(PARTS)}")
    return names


def _loads(given: str | None) -> tuple[float, ...]:
    if given is None:
        return ()
    try:
        loads = tuple(dict.fromkeys(float(one) for one in given.split(",")))
    except ValueError:
        raise click.UsageError(f"--loads takes numbers, as in 8,16: not {given}") from None
    if not all(0 < load < float("inf") for load in loads):
        raise click.UsageError("--loads takes numbers above 0")
    return loads


def _trace(name: str | None, *, skip_bad: bool, limit: int | None) -> "Trace | None":
    from pharos.sim.trace import TraceError, read

    if name is None:
        return None
    try:
        found = read(Path(name), skip_bad=skip_bad, limit=limit)
    except TraceError as fault:
        raise Failure(str(fault)) from None
    if found.skipped:
        click.echo(f"note: {found.skipped} broken lines of {name} are left out", err=True)
    return found


def _progress(is_terminal: bool) -> Callable[[int, int], None]:  # noqa: FBT001 - the only argument
    def show(done: int, whole: int) -> None:
        if is_terminal:
            filled = BAR * done // max(whole, 1)
            end = "\n" if done == whole else ""
            click.echo(f"\r[{'#' * filled}{'.' * (BAR - filled)}] {done}/{whole}{end}", err=True, nl=False)

    return show
