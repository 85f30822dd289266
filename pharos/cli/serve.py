"""`pharos serve`: find the configuration, then hand over to the app. Forbidden here: serving."""

import errno
import os
import socket
from typing import TYPE_CHECKING, Literal, NamedTuple

import click

from pharos.cli.failure import Failure
from pharos.cli.options import DEFAULT_FILE, by_labels, config_option, found_here, gather, listen_option, note_ignored
from pharos.cli.signals import early_signals

if TYPE_CHECKING:
    from pharos.config.reload import Source
    from pharos.config.schema import Config

Format = Literal["text", "json"]

EXAMPLES = """\b
Examples:
  pharos serve                                    ./pharos.yaml, else engines found on this machine
  pharos serve http://gpu-1:8080 http://gpu-2:8080
  pharos serve --config /etc/pharos.yaml --listen 127.0.0.1:9000
  PHAROS_DRAIN__TIMEOUT=30s pharos serve          any field of the file, from the environment
"""


@click.command("serve", short_help="Route requests to engines.", epilog=EXAMPLES)
@click.argument("urls", nargs=-1, metavar="[URL]...")
@config_option()
@listen_option(default=None)
@click.option("--log-level", type=click.Choice(["debug", "info", "warning", "error"]), help="[default: info]")
@click.option("--log-format", type=click.Choice(["text", "json"]), help="[default: text]")
def command(
    urls: tuple[str, ...], file: str | None, listen: str | None, log_level: str | None, log_format: Format | None
) -> int:
    """Serve the engines at the given URLs, or those of a configuration file.

    With neither, and without a ./pharos.yaml, Pharos looks for engines on this machine, on the ports they usually have;
    with PHAROS_DISCOVERY__DOCKER__ENABLED=true it serves the containers that have the label pharos.enable instead.
    The file is read again when it changes, and at SIGHUP; one that is wrong changes nothing.
    SIGTERM and Ctrl-C drain: running requests finish first; a second signal ends at once. Only SIGTERM waits for
    drain.grace before.
    """
    early = early_signals(ignore_hangup=not urls)
    config = gather(urls, file)
    if urls and os.path.exists(DEFAULT_FILE):  # noqa: PTH110 (nothing else here wants a path)
        click.echo(
            f"note: ./{DEFAULT_FILE} is not used, nor are its keys, because URLs are given "
            f"(use it with --config {DEFAULT_FILE}, and list the engines there)",
            err=True,
        )
    if config is None:
        config = by_labels() or found_here("pharos serve http://gpu-box:8080")
    given = _Given(listen, log_level, log_format)
    note_ignored()
    return _run(given.over(config), _source(urls, file, given), early)


class _Given(NamedTuple):
    """What the command line has over the file, then and whenever the file is read again."""

    listen: str | None
    log_level: str | None
    log_format: Format | None

    def over(self, config: "Config") -> "Config":
        """The configuration with these in place of its own."""
        from msgspec.structs import replace

        log = {"level": self.log_level, "format": self.log_format}
        config = replace(config, log=replace(config.log, **{k: v for k, v in log.items() if v is not None}))
        return config if self.listen is None else replace(config, listen=self.listen)


def _source(urls: tuple[str, ...], file: str | None, given: _Given) -> "Source | None":
    """Where the configuration is read again from; `None` when no file was read, or one that can be read only once."""
    if urls or (file is None and not os.path.exists(DEFAULT_FILE)):  # noqa: PTH110 (as above)
        return None
    from pathlib import Path

    from pharos.config.reload import Source

    path = Path(file if file is not None else DEFAULT_FILE)
    if not path.is_file():
        click.echo(f"note: {path} is no regular file: changes need a restart", err=True)
        return None
    return Source(path, os.environ, given.over)


def _run(config: "Config", source: "Source | None", early: list[int]) -> int:
    from pharos import app

    try:
        return app.run(
            config, log_level=config.log.level, log_format=config.log.format, early_signals=early, source=source
        )
    except OSError as fault:
        said = address_fault(fault, config.listen)
        if said is None:
            raise
        raise Failure(said) from None


def address_fault(fault: OSError, listen: str) -> str | None:
    """What to say when the address cannot be had; `None` when that is not what went wrong.

    A fault that names a field with its address is about that one, and not about `listen`.
    """
    if fault.filename is not None and fault.errno in (errno.EADDRINUSE, errno.EACCES, errno.EADDRNOTAVAIL):
        return f"{fault.filename} cannot be had ({os.strerror(fault.errno)}): choose another address in pharos.yaml."
    if fault.errno == errno.EADDRINUSE:
        return f"{listen} is taken by another program: choose another address with --listen, as in --listen :9090."
    if fault.errno == errno.EACCES:
        return f"{listen} may not be opened by this user: choose a port above 1023 with --listen."
    if fault.errno == errno.EADDRNOTAVAIL or isinstance(fault, socket.gaierror):
        return f"{listen} is no address of this machine: choose one with --listen, as in --listen :8090."
    return None
