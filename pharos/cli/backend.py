"""`pharos backend`: what of a running Pharos an operator may change: which backends get new requests.

Forbidden here: anything that ends a request, and importing at the top what `pharos --help` would pay for.
"""

import json
import time
from typing import Any, Final

import click

from pharos.cli.asking import address, admin_option, need, quoted

EVERY_S: Final = 1.0
"""Between two looks of `--wait`."""
_WHO: Final = {"operator": "drained by an operator", "discovery": "drained by discovery", None: ""}

EXAMPLES = """\b
Examples:
  pharos backend list
  pharos backend drain gpu-1 --wait && ssh gpu-1 sudo reboot
  pharos backend undrain gpu-1
"""


@click.group("backend", short_help="Keep new requests from a backend, or let them in again.", epilog=EXAMPLES)
def command() -> None:
    """Keep new requests from a backend of the Pharos that runs here, or let them in again.

    Streams that run there finish, and it is read as before. That outlasts a changed configuration, not a restart of
    Pharos; each instance is told by itself.
    """


@command.command("list", short_help="List the backends.")
@admin_option()
@click.option("--json", "as_json", is_flag=True, help="Print JSON, for programs.")
def list_(*, admin: str | None, as_json: bool) -> int:
    """List the backends with what runs there and who drained them."""
    from pharos.obs.logs import escaped

    told = need(address(admin), "/backends")
    if as_json:
        click.echo(json.dumps(told, indent=2))
        return 0
    rows = told["backends"]
    width = max((len(escaped(row["name"])) for row in rows), default=0)
    for row in rows:
        who = _WHO.get(row["drained_by"], "")
        click.echo(f"{escaped(row['name']):{width}}  {row['state']:12}  {row['inflight']:>4} in flight  {who}".rstrip())
    if not rows:
        click.echo("there are no backends")
    return 0


@command.command("drain", short_help="Give a backend no new requests.")
@click.argument("name")
@admin_option()
@click.option("--wait", is_flag=True, help="Return when nothing runs there any more.")
def drain(*, name: str, admin: str | None, wait: bool) -> int:
    """Give a backend no new requests; those that run there finish."""
    from pharos.obs.logs import escaped

    where = address(admin)
    told = need(where, f"/backend/{quoted(name)}/drain", "POST")
    click.echo(_said(told, "is drained" if told["changed"] else "was drained already"))
    while wait and told["inflight"]:
        time.sleep(EVERY_S)  # noqa: TID251 -- no event loop here
        told = next((row for row in need(where, "/backends")["backends"] if row["name"] == name), {"inflight": 0})
        if not told["inflight"]:
            click.echo(f"{escaped(name)}: nothing of ours runs there any more")
    return 0


@command.command("undrain", short_help="Let new requests in again.")
@click.argument("name")
@admin_option()
def undrain(*, name: str, admin: str | None) -> int:
    """Let new requests to a backend again."""
    from pharos.obs.logs import escaped

    told = need(address(admin), f"/backend/{quoted(name)}/undrain", "POST")
    if told["drained_by"] == "discovery":
        click.echo(f"{escaped(name)} stays drained: its label or annotation pharos.drain says so, or it is not ready")
        return 1
    click.echo(_said(told, "gets new requests again" if told["changed"] else "was not drained"))
    return 0


def _said(told: dict[str, Any], what: str) -> str:
    from pharos.obs.logs import escaped
    from pharos.obs.words import plural

    return f"{escaped(told['name'])} {what}; {plural(told['inflight'], 'request')} of ours in flight there"
