"""`pharos doctor`: parse, look, print. Forbidden here: reading an engine, and importing the app."""

import click

from pharos.cli.failure import Failure
from pharos.cli.options import config_option, found_here, gather

EXAMPLES = """\b
Examples:
  pharos doctor http://gpu-box:8080
  pharos doctor --config pharos.yaml
  pharos doctor http://gpu-box:8080 --json | jq .backends[0].unknown

\b
Exit status:
  0   everything is known that these kinds of engine can tell
  1   something is wrong, or unknown though it need not be
  2   a backend cannot be reached
  64  the command line cannot be understood
"""


@click.command("doctor", short_help="Show what Pharos can read from engines.", epilog=EXAMPLES)
@click.argument("urls", nargs=-1, metavar="[URL]...")
@config_option()
@click.option("--json", "as_json", is_flag=True, help="Print JSON, for programs.")
def command(urls: tuple[str, ...], file: str | None, *, as_json: bool) -> int:
    """Show what Pharos can read from the engines at the given URLs, or from those of a configuration file.

    For every signal: its value and where it comes from. Then the probes that gave nothing, with the reason, and what is
    unknown, what that costs and how to mend it. Without URL and file it looks for engines on this machine.

    It asks only what Pharos itself asks while it serves: nothing that wakes, loads or disturbs a model.
    """
    import asyncio
    import json

    config = gather(urls, file)
    if config is None:
        config = found_here("pharos doctor http://gpu-box:8080")
    if not config.backends:
        raise Failure(
            "the configuration lists no backends: add one, or give a URL as in `pharos doctor http://gpu-box:8080`."
        )
    from pharos.cli import checkup, report
    from pharos.config.load import backend_specs
    from pharos.obs import describe

    with asyncio.Runner(loop_factory=asyncio.new_event_loop) as runner:
        findings = runner.run(checkup.examine(backend_specs(config)))
    if as_json:
        told = {"schema": describe.SCHEMA, "backends": [one.row for one in findings]}
        click.echo(json.dumps(told, indent=2, ensure_ascii=False))
    else:
        click.echo(report.text(findings), nl=False)
    return max(one.exit_code for one in findings)
