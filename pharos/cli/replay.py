"""`pharos replay`: parse, decide again, print. Forbidden here: deciding."""

from pathlib import Path
from typing import TYPE_CHECKING

import click

from pharos.cli.failure import Failure

if TYPE_CHECKING:
    from pharos.sim.replay import Replay

EXAMPLES = """\b
Examples:
  pharos replay decisions.jsonl
  pharos replay decisions.jsonl --policy least-load --json

\b
Exit status:
  0   the log was read, whatever it shows
  1   it cannot be read, or has broken lines
  64  the command line cannot be understood
"""


@click.command("replay", short_help="Make the decisions of a log again.", epilog=EXAMPLES)
@click.argument("log")
@click.option(
    "--policy",
    type=click.Choice(["cost", "least-load"]),
    default="cost",
    show_default=True,
    help="The policy that decides again.",
)
@click.option("--skip-bad", is_flag=True, help="Leave broken lines out, and count them.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON, for programs.")
def command(*, log: str, policy: str, skip_bad: bool, as_json: bool) -> int:
    """Make the decisions of a decision log (`decision_log` in the configuration) again, and rank policies by them.

    It says how many come out the same and why others do not. The rank is by the estimates in the log; what another
    choice would have changed for the requests after it, only `pharos sim --trace LOG` can tell.
    """
    import msgspec

    from pharos.sim.replay import read, replay
    from pharos.sim.trace import TraceError

    try:
        found, skipped = read(Path(log), skip_bad=skip_bad)
    except TraceError as fault:
        raise Failure(str(fault)) from None
    result = replay(found, policy, skipped)
    if as_json:
        click.echo(msgspec.json.encode({"schema": 1, **msgspec.to_builtins(result)}))
    else:
        click.echo(_text(result))
    return 0


def _text(result: "Replay") -> str:
    whole = max(result.decisions, 1)
    lines = [
        f"{result.same} of {result.decisions} decisions are the same by {result.policy} ({result.same / whole:.1%})"
    ]
    lines += [f"  {count} differ: {why}" for why, count in result.differs.items()]
    if result.without:
        lines.append(f"{result.without} requests were refused before there was a choice")
    if result.skipped:
        lines.append(f"{result.skipped} broken lines are left out")
    lines += ["", "estimated seconds to the first token, by the log's own estimates:"]
    lines.append(f"  {'policy':12} {'mean':>8} {'p50':>8} {'p95':>8}  as in the log")
    lines += [
        f"  {rank.policy:12} {rank.mean_s:8.3f} {rank.p50_s:8.3f} {rank.p95_s:8.3f}  {rank.same / whole:.1%}"
        for rank in result.ranks
    ]
    return "\n".join(lines)
