"""The `pharos` command: one file per subcommand, each of which parses and calls one function.

Forbidden here: importing at the top what a subcommand needs. `pharos version` must not pay for a web server.
"""

import difflib
import importlib
import sys
from typing import Any, Final

import click

from pharos.cli.failure import EXIT_USAGE, Failure

COMMANDS: Final = ("serve", "doctor", "demo", "config", "keys", "backend", "explain", "replay", "sim", "version")
"""Subcommands in the order of the help; each is `command` in the module of its name."""

EXAMPLES = """\b
Examples:
  pharos demo                                    two engines on this machine and Pharos in front
  pharos doctor http://gpu-box:8080              what Pharos can read from an engine
  pharos serve http://gpu-1:8080 http://gpu-2:8080
  pharos serve --config pharos.yaml
"""


class Commands(click.Group):
    """A group that imports a subcommand when it is asked for, and ends as every Pharos command does."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 -- click's signature
        """Names of the subcommands."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002 -- click's signature
        """One subcommand, imported now."""
        if cmd_name not in COMMANDS:
            return None
        found: click.Command = importlib.import_module(f"pharos.cli.{cmd_name}").command
        return found

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """The subcommand that is named; the error for an unknown one names what was probably meant."""
        try:
            return super().resolve_command(ctx, args)
        except click.UsageError as fault:
            close = difflib.get_close_matches(args[0], COMMANDS, n=1)
            if not close or "Did you mean" in fault.message:
                raise
            raise click.UsageError(f"{fault.message} Did you mean '{close[0]}'?", ctx) from None

    def main(self, *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401 -- click's signature
        """Run, and exit: 64 for a command line that cannot be understood, else what the subcommand returns."""
        kwargs["standalone_mode"] = False
        kwargs["prog_name"] = "pharos"  # also when run as `python -m pharos`
        try:
            sys.exit(super().main(*args, **kwargs))
        except click.UsageError as fault:
            fault.show()
            sys.exit(EXIT_USAGE)
        except click.ClickException as fault:
            fault.show()
            sys.exit(fault.exit_code)
        except click.Abort:
            sys.exit(130)  # what shells use for a program that Ctrl-C ended
        except Exception as fault:
            if sys.flags.dev_mode:
                raise
            Failure(
                f"a fault of Pharos itself ({type(fault).__name__}: {fault}). "
                "Please report it; `python -X dev -m pharos …` shows where it happened."
            ).show()
            sys.exit(1)


def _print_version(ctx: click.Context, _param: click.Parameter, wanted: bool) -> None:  # noqa: FBT001 -- click's signature
    if wanted and not ctx.resilient_parsing:
        from pharos.cli.version import text

        click.echo(text())
        ctx.exit()


@click.group(cls=Commands, epilog=EXAMPLES, context_settings={"help_option_names": ["-h", "--help"]})
@click.option(
    "--version", is_flag=True, is_eager=True, expose_value=False, callback=_print_version, help="Print the version."
)
def main() -> None:
    """Route requests for language models to the engine that will answer first."""
