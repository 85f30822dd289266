"""How a command ends when it cannot do what it was asked.

Forbidden here: importing anything of Pharos.
"""

from typing import IO, Any, Final

import click

EXIT_USAGE: Final = 64
"""Exit status for a command line that cannot be understood (`EX_USAGE` of sysexits.h), for every subcommand."""


class Failure(click.ClickException):
    """Something went wrong; the message says in a sentence or two what, and what to do next."""

    exit_code = 1

    def show(self, file: IO[Any] | None = None) -> None:
        """Print it to standard error."""
        click.echo(f"pharos: {self.format_message()}", file=file, err=True)
