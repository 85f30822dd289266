"""`pharos keys`: make keys, and tell whose one is. Forbidden here: keeping or showing one that was given."""

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from pharos.cli.failure import Failure
from pharos.cli.options import DEFAULT_FILE, config_option

if TYPE_CHECKING:
    from pharos.config.load import Loaded
    from pharos.config.schema import Key

LONGEST = 64 * 1024
"""Bytes of standard input that are read for a key."""


@click.group("keys", short_help="Make keys for people and programs.")
def command() -> None:
    """Make keys for people and programs that use Pharos, and tell whose one is."""


@command.command(
    "new",
    short_help="Make a key.",
    epilog="\b\nExamples:\n  pharos keys new --name alice\n"
    "  pharos keys new --name batch --rpm 60 --tokens-per-day 2000000 --model 'qwen*' --priority -1",
)
@click.option("--name", required=True, help="Whose key it is; shown in metrics and on the status page.")
@click.option("--model", "models", multiple=True, help="A model it may use, or a pattern; may be repeated.  [all]")
@click.option("--rpm", type=click.IntRange(min=1), help="Requests in any 60 s.  [no limit]")
@click.option("--tokens-per-day", type=click.IntRange(min=1), help="Prompt and reply tokens in a day.  [no limit]")
@click.option("--weight", type=click.IntRange(1, 1000), help="Share of the queue while requests wait.  [1]")
@click.option("--priority", type=click.IntRange(-1000, 1000), help="Higher goes first while requests wait.  [0]")
@click.option("--admin", is_flag=True, help="It may read of everybody's requests: /status, /usage.")
@click.option(
    "--config", "file", metavar="FILE", help="Refuse a name that this file has.  [default: ./pharos.yaml if there]"
)
def new(name: str, file: str | None, **rights: object) -> int:
    """Make a key: it is printed once, with the YAML entry that lets Pharos know it by its SHA-256.

    Nothing is written to any file.
    """
    from pharos.config.keys import new_key

    given = {field: list(value) if isinstance(value, tuple) else value for field, value in rights.items() if value}
    try:
        made = new_key(name, given)
    except ValueError as fault:
        raise click.BadParameter(str(fault), param_hint="--name") from None
    _refuse_taken(name, file)
    click.echo(f"The key of {name}, shown this once. Give it to the client:\n\n  {made.key}\n")
    click.echo(
        f"Paste this under `keys:` in {file or DEFAULT_FILE}, or into its keys_file:\n\n{made.entry()}", nl=False
    )
    return 0


@command.command(
    "check",
    short_help="Tell whose a key is.",
    epilog="\b\nExamples:\n  pharos keys check                      asks for the key, and does not show it\n"
    "  pharos keys check --json < key.txt",
)
@config_option()
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def check(file: str | None, as_json: bool) -> int:  # noqa: FBT001 -- click's signature
    """Tell which entry of the configuration a key belongs to, and what it may do.

    The key is read from standard input, so that neither the shell's history nor the list of processes has it.
    It is never printed. Exit status 1: no entry is of this key.
    """
    from pharos.config import keysfile
    from pharos.config.keys import index_of

    path = file if file is not None else DEFAULT_FILE
    loaded = _configuration(path)
    keys = loaded.config.keys
    if not keys:
        raise Failure(f"{path} has no keys: everybody who reaches Pharos may use it, with any key or none.")
    key = _asked()
    index = index_of(key, keys)
    if index is None:
        raise Failure(_unknown(key, path, [entry.sha256 for entry in keys]))
    entry = keysfile.entry(index, len(keys), loaded.places)
    show = _as_json if as_json else _as_text
    click.echo(show(keys[index], path, entry, loaded.places.get(entry, "")))
    return 0


def _configuration(path: str) -> "Loaded":
    import os

    from pharos.config import load
    from pharos.config.problems import ConfigError

    try:
        return load.read(path, os.environ)
    except ConfigError as fault:
        raise Failure(str(fault)) from None


def _asked() -> str:
    """The key, typed without being shown or read from a pipe."""
    if sys.stdin.isatty():
        text = str(click.prompt("Key", hide_input=True, err=True))
    else:
        text = sys.stdin.buffer.read(LONGEST).decode("utf-8", "surrogateescape")
    lines = text.split()
    if not lines:
        raise Failure("no key was given: write it to standard input.")
    if len(lines) > 1:
        raise Failure("more than one word was given: write the key alone to standard input.")
    return lines[0]


def _unknown(key: str, path: str, hashes: list[str]) -> str:
    if key.lower() in hashes:
        return "this is the SHA-256 of a key, which lets nobody in: give the key itself."
    return f"no entry in {path} is of this key: a request with it gets 401. Was it cut off, or its entry removed?"


def _as_json(key: "Key", path: str, entry: str, place: str) -> str:
    import msgspec

    told = {"name": key.name, "file": path, "entry": entry, "place": place}
    fields = {name: value for name, value in msgspec.to_builtins(key).items() if name not in ("sha256", "cache_salt")}
    return json.dumps(told | fields, indent=2, ensure_ascii=False)


def _as_text(key: "Key", path: str, entry: str, place: str) -> str:
    rows = [
        ("entry", f"{entry} of {path}, {place}" if place else f"{entry} of {path}"),
        ("models", ", ".join(key.models) if key.models else "all"),
        ("requests in 60 s", "no limit" if key.rpm is None else f"{key.rpm}"),
        ("tokens per day", "no limit" if key.tokens_per_day is None else f"{key.tokens_per_day}"),
        ("weight", f"{key.weight}"),
        ("priority", f"{key.priority}"),
        ("admin", "yes" if key.admin else "no"),
    ]
    return "\n".join([f"This is the key of {key.name}.", *(f"  {what:17} {value}" for what, value in rows)])


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
