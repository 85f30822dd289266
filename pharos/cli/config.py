"""`pharos config`: look at the configuration. Forbidden here: rules of what it may hold."""

import os

import click

from pharos.cli.failure import Failure
from pharos.cli.options import DEFAULT_FILE, note_ignored


@click.group("config", short_help="Check pharos.yaml, show what is in effect, or print its schema.")
def command() -> None:
    """Check `pharos.yaml`, show what is in effect, or print what it may hold."""


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

    path = _one_of(file, option)
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
    "show",
    short_help="Print the configuration in effect, and where each value comes from.",
    epilog="\b\nExamples:\n  pharos config show\n  PHAROS_DRAIN__TIMEOUT=30s pharos config show --json other.yaml",
)
@click.argument("file", required=False)
@click.option("--config", "option", metavar="FILE", help="The same as FILE.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object: the file, and a list of all fields.")
def show(file: str | None, option: str | None, *, as_json: bool) -> int:
    """Print every field of FILE (./pharos.yaml) as it is in effect, with the PHAROS_… variables of the environment.

    Each value has its origin: the line of the file, a variable, or the default. Secrets are masked.
    """
    import msgspec

    from pharos.config import show as shown
    from pharos.config.load import parse_placed, read
    from pharos.config.problems import ConfigError

    path = _one_of(file, option)
    try:
        is_there = file is not None or option is not None or os.path.exists(path)  # noqa: PTH110 (nothing else here wants a path)
        loaded = read(path, os.environ) if is_there else parse_placed("", os.environ, path)
    except ConfigError as fault:
        raise Failure(str(fault)) from None
    note_ignored()
    found = shown.rows(loaded.config, loaded.places, path)
    if as_json:
        click.echo(msgspec.json.format(msgspec.json.encode({"file": path if is_there else None, "fields": found})))
    else:
        click.echo(shown.text(found, path if is_there else f"{path} (there is none)"))
    return 0


def _one_of(file: str | None, option: str | None) -> str:
    if file is not None and option is not None:
        raise click.UsageError("give one file, not FILE and --config")
    return file if file is not None else option if option is not None else DEFAULT_FILE


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
