"""`pharos doctor`: parse, ask or look, print. Forbidden here: reading an engine, and importing the app."""

import click

from pharos.cli.asking import address, admin_option
from pharos.cli.failure import Failure
from pharos.cli.options import config_option, found_here, gather

EXAMPLES = """\b
Examples:
  pharos doctor                                    what the Pharos that runs here knows
  pharos doctor http://gpu-box:8080
  pharos doctor --config pharos.yaml --watch
  pharos doctor http://gpu-box:11434 --log-feed docker://ollama
  pharos doctor http://gpu-box:8080 --record my-engine
  pharos doctor http://pharos:8090                 a Pharos: is it ready, does a token come through it
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
@admin_option()
@click.option("--json", "as_json", is_flag=True, help="Print JSON, for programs.")
@click.option("--watch", is_flag=True, help="Look again every two seconds, until Ctrl-C.")
@click.option("--log-feed", metavar="WHERE", help="The engine's log: docker://NAME or file:///PATH. For a single URL.")
@click.option("--record", metavar="DIR", help="Save what the engine answers, for a report about it. Keys are masked.")
@click.option("--logs", is_flag=True, help="With --record: save its log, too. It may hold prompts.")
def command(
    urls: tuple[str, ...],
    file: str | None,
    admin: str | None,
    *,
    as_json: bool,
    watch: bool,
    log_feed: str | None,
    record: str | None,
    logs: bool,
) -> int:
    """Show what Pharos can read from the engines at the given URLs, or from those of a configuration file.

    For every signal: its value and where it comes from. Then the probes that gave nothing, with the reason, and what is
    unknown, what that costs and how to mend it. Without URL and file it asks the Pharos that runs on this machine what
    it knows; where none runs, ./pharos.yaml counts, and without that it looks for engines on this machine.

    It asks what Pharos itself asks while it serves, and a few routes without naming a model: nothing that wakes, loads
    or disturbs one. At the URL of a Pharos it looks whether that is ready, and has one model say one token through it
    (with the key in DOCTOR_API_KEY, if there is one).
    """
    if watch and record is not None:
        raise click.UsageError("--watch and --record do not go together: a recording is one look")
    if logs and record is None:
        raise click.UsageError("--logs is for --record: what the log tells is shown anyway, if there is a log feed")
    if record == "":
        raise click.UsageError("--record needs the name of a folder")
    if admin is not None and (urls or file is not None):
        raise click.UsageError("--admin asks a running Pharos: it does not go with URLs or --config")
    if not urls and file is None and log_feed is None and record is None:
        from pharos.cli import running

        status = running.doctor(address(admin), as_json=as_json, watch=watch)
        if status is not None:
            return status
        if admin is not None:
            raise Failure(f"no Pharos answers at {admin}: is it running on this machine?")
    from pharos.cli import session

    config = gather(urls, file)
    if config is None:
        config = found_here("pharos doctor http://gpu-box:8080")
    if not config.backends:
        raise Failure(
            "the configuration lists no backends: add one, or give a URL as in `pharos doctor http://gpu-box:8080`."
        )
    if len(urls) == 1 and log_feed is None and record is None and not watch:
        from pharos.cli import routed

        status = routed.doctor(config.backends[0].url, as_json=as_json)
        if status is not None:
            return status
    wanted = session.Wanted(as_json=as_json, record=record, logs=logs)
    specs = session.specs_of(config, log_feed)
    session.check_logs(specs, wanted)
    return session.watch(config, specs, wanted) if watch else session.once(config, specs, wanted)
