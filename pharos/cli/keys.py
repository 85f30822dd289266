"""`pharos keys`: make keys. Forbidden here: keeping one."""

from pathlib import Path

import click

from pharos.cli.failure import Failure
from pharos.cli.options import DEFAULT_FILE


@click.group("keys", short_help="Make keys for people and programs.")
def command() -> None:
    """Make keys for people and programs that use Pharos."""


@command.command(
    "new",
    short_help="Make a key.",
    epilog="\b\nExample:\n  pharos keys new --name alice",
)
@click.option("--name", required=True, help="Whose key it is; shown in metrics and on the status page.")
@click.option(
    "--config", "file", metavar="FILE", help="Refuse a name that this file has.  [default: ./pharos.yaml if there]"
)
def new(name: str, file: str | None) -> int:
    """Make a key: it is printed once, with the YAML entry that lets Pharos know it by its SHA-256.

    Nothing is written to any file.
    """
    from pharos.config.keys import new_key

    try:
        made = new_key(name)
    except ValueError as fault:
        raise click.BadParameter(str(fault), param_hint="--name") from None
    _refuse_taken(name, file)
    click.echo(f"The key of {name}, shown this once. Give it to the client:\n\n  {made.key}\n")
    click.echo(f"Paste this under `keys:` in {file or DEFAULT_FILE}:\n\n{made.entry()}", nl=False)
    return 0


def _refuse_taken(name: str, file: str | None) -> None:
    """Fail when the configuration has a key of this name, or was asked for and cannot be read."""
    import os

    from pharos.config.load import load
    from pharos.config.problems import ConfigError

    path = Path(file if file is not None else DEFAULT_FILE)
    if file is None and not path.exists():
        return
    try:
        config = load(path, os.environ)
    except ConfigError as fault:
        if file is not None:
            raise Failure(str(fault)) from None
        return
    if any(key.name == name for key in config.keys):
        raise Failure(f"{path} has a key named {name} already: choose another name, or remove that entry first.")
