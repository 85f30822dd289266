"""`pharos config`: look at the configuration. Forbidden here: rules of what it may hold."""

import os

import click

from pharos.cli.failure import Failure
from pharos.cli.options import DEFAULT_FILE, note_ignored


@click.group("config", short_help="Check pharos.yaml, or print its schema.")
def command() -> None:
    """Check `pharos.yaml`, or print what it may hold."""


@command.command(
    "check",
    short_help="Check a configuration.",
    epilog="\b\nExamples:\n  pharos config check\n  PHAROS_DRAIN__TIMEOUT=30s pharos config check other.yaml",
)
@click.argument("file", required=False)
@click.option("--config", "option", metavar="FILE", help="The same as FILE.")
def check(file: str | None, option: str | None) -> int:
    """Check FILE (./pharos.yaml) together with the PHAROS_… variables of the environment.

    Exits with 0 when it can be served, and with 1 after telling everything that is wrong with it.
    """
    from pharos.config.load import load
    from pharos.config.problems import ConfigError

    if file is not None and option is not None:
        raise click.UsageError("give one file, not FILE and --config")
    path = file if file is not None else option if option is not None else DEFAULT_FILE
    try:
        config = load(path, os.environ)
    except ConfigError as fault:
        raise Failure(str(fault)) from None
    note_ignored()
    if not config.backends:
        click.echo(f"{path} is right, but lists no backends: every request would be answered 503.")
        return 0
    backends, keys = len(config.backends), len(config.keys)
    access = f"{keys} key{'' if keys == 1 else 's'}" if keys else "no keys, so everybody may use it"
    click.echo(f"{path} is right: {backends} backend{'' if backends == 1 else 's'}, {access}.")
    return 0


@command.command(
    "schema",
    short_help="Print the JSON Schema of pharos.yaml.",
    epilog="\b\nExample, for editors that check YAML:\n  pharos config schema > pharos.schema.json",
)
def schema() -> int:
    """Print the JSON Schema (draft 7) of `pharos.yaml`: every field with its unit, default and meaning."""
    import json

    from pharos.config.explain import json_schema

    click.echo(json.dumps(json_schema(), indent=2, ensure_ascii=False))
    return 0
