"""`pharos demo`: parse, then hand over. Forbidden here: starting anything."""

import click

from pharos.cli.failure import Failure
from pharos.cli.options import listen_option
from pharos.cli.signals import early_signals

_MOST_ENGINES = 8


@click.command(
    "demo",
    short_help="Two real engines on this machine and Pharos in front of them.",
    epilog="\b\nExamples:\n  pharos demo\n  pharos demo --tiny --listen :9090",
)
@click.option("--tiny", is_flag=True, help="Use a generated model that speaks nonsense, instead of SmolLM2.")
@click.option(
    "--engines", type=click.IntRange(1, _MOST_ENGINES), default=2, show_default=True, help="How many engines to start."
)
@listen_option(default=":8090")
def command(listen: str, engines: int, *, tiny: bool) -> int:
    """Start real llama.cpp engines on this machine with Pharos in front, and say what to try.

    Each engine uses one processor core. Ctrl-C ends everything.
    """
    early = early_signals()
    try:
        from pharos.demo import run
    except ImportError as fault:
        raise Failure(
            f"the demo needs packages that are not installed ({fault.name}): `make run` in a clone installs them."
        ) from None
    return run.main(run.DemoOptions(tiny=tiny, listen=listen, engines=engines), early)
