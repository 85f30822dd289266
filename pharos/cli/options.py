"""Options that several subcommands share, and where their configuration comes from.

Forbidden here: importing what only one subcommand needs.
"""

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from pharos.cli.failure import Failure

if TYPE_CHECKING:
    from pharos.config.schema import Config

DEFAULT_FILE: Final = "pharos.yaml"

_FILE_ENDINGS: Final = (".yaml", ".yml", ".json")

Decorator = Callable[[Callable[..., Any]], Callable[..., Any]]


def _as_address(_ctx: click.Context, _param: click.Parameter, value: str | None) -> str | None:
    from pharos.config.units import split_address

    if value is not None:
        try:
            split_address(value)
        except ValueError as fault:
            raise click.BadParameter(str(fault)) from None
    return value


def listen_option(default: str | None) -> Decorator:
    """`--listen`; without a default the configuration's counts."""
    return click.option(
        "--listen",
        metavar="ADDRESS",
        default=default,
        show_default=default is not None,
        callback=_as_address,
        help="Where clients reach Pharos, as in :8090 or 127.0.0.1:8090.",
    )


def config_option() -> Decorator:
    """`--config`."""
    return click.option(
        "--config", "file", metavar="FILE", help="Configuration to read.  [default: ./pharos.yaml if there]"
    )


def gather(urls: tuple[str, ...], file: str | None) -> "Config | None":
    """The configuration of URLs, of a file, or of ./pharos.yaml; `None` without any. Raises `Failure`."""
    from pharos.config.load import load
    from pharos.config.problems import ConfigError

    if urls and file is not None:
        raise click.UsageError("give URLs or --config, not both: a file lists its own backends")
    try:
        if urls:
            return _from_arguments(urls)
        if file is not None or Path(DEFAULT_FILE).exists():
            return load(file if file is not None else DEFAULT_FILE, os.environ)
    except ConfigError as fault:
        raise Failure(str(fault)) from None
    return None


def _from_arguments(arguments: Sequence[str]) -> "Config":
    """The configuration of URLs that a person typed: one that cannot be used is a usage error."""
    from pharos.config import units
    from pharos.config.load import from_urls
    from pharos.config.problems import ConfigError

    for one in arguments:
        # What is no possible name of a file is none, whatever the system says of it.
        if one.lower().endswith(_FILE_ENDINGS) or os.path.isfile(one):  # noqa: PTH113
            raise click.UsageError(f"{one} is a file, not a URL: write --config {one}")
    try:
        return from_urls([units.as_typed(one) for one in arguments], os.environ)
    except ConfigError as fault:
        if any(problem.is_of_variable for problem in fault.problems):
            raise
        raise click.UsageError("; ".join(problem.message for problem in fault.problems)) from None


def by_labels() -> "Config | None":
    """The configuration of the variables alone, when they have Docker or a list tell the engines; else `None`."""
    from pharos.config.load import parse
    from pharos.config.problems import ConfigError

    try:
        config = parse("", os.environ)
    except ConfigError as fault:
        raise Failure(str(fault)) from None
    return config if config.backends or config.discovery.docker.enabled is True else None


def found_here(instead: str) -> "Config":
    """The configuration of the engines that answer on this machine; without any, a `Failure` names `instead`."""
    import asyncio

    from pharos.config.load import from_urls
    from pharos.config.problems import ConfigError
    from pharos.control.discovery import loopback

    with asyncio.Runner(loop_factory=asyncio.new_event_loop) as runner:
        found = runner.run(loopback.find())
    if not found:
        ports = ", ".join(str(port) for port in loopback.PORTS)
        raise Failure(
            f"there is no pharos.yaml here, and no engine answers on this machine (ports {ports}). "
            f"Give the engines' URLs, as in `{instead}`, or try `pharos demo`."
        )
    for engine in found:
        kind = engine.kind if engine.kind is not None else "an engine of unknown kind"
        click.echo(f"found {kind} at {engine.url} ({engine.evidence})", err=True)
    try:
        return from_urls([engine.url for engine in found], os.environ)
    except ConfigError as fault:
        raise Failure(str(fault)) from None


def note_ignored() -> None:
    """Tell which variables of the environment only look like settings, if there are any."""
    from pharos.config import env

    notice = env.ignored(os.environ)
    if notice is not None:
        click.echo(f"note: {notice}", err=True)
