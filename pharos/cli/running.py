"""`pharos doctor` without arguments: what the Pharos that runs here knows of its engines. Asks no engine.

Forbidden here: importing what serves or reads engines: it must be cheap inside a pod.
"""

import json
import time
from collections.abc import Iterable
from typing import Any, Final

import click

from pharos.cli import clustered, report
from pharos.cli.asking import NobodyError, ask
from pharos.cli.finding import EXIT_COMPLETE, EXIT_WRONG, Finding
from pharos.obs.attention import DRAINERS
from pharos.obs.logs import escaped
from pharos.obs.words import plural, seconds, size

PAUSE_S: Final = 2.0
"""Between two looks of `--watch`."""
_OK: Final = 200


def doctor(where: str, *, as_json: bool, watch: bool) -> int | None:
    """Print what the process at an address knows; returns the exit status, or `None` when none is there."""
    try:
        told = _ask(where)
    except NobodyError:
        return None
    try:
        while watch:
            if not as_json:
                click.clear()
            _show(told, where, as_json=as_json, is_line=True)
            time.sleep(PAUSE_S)  # noqa: TID251 -- no event loop here
            told = _ask(where)
    except (KeyboardInterrupt, NobodyError) as end:
        if isinstance(end, NobodyError):
            click.echo(f"pharos: {end}", err=True)
            return EXIT_WRONG
        return _exit_code(told)
    _show(told, where, as_json=as_json, is_line=False)
    return _exit_code(told)


def _ask(where: str) -> dict[str, Any]:
    status, told = ask(where, "/doctor")
    if status != _OK or not isinstance(told.get("backends"), list):
        raise NobodyError(f"what answers at {where} has no report of a doctor")
    return told


def _exit_code(told: dict[str, Any]) -> int:
    cluster = told.get("kubernetes")
    of_cluster = clustered.exit_code(cluster) if cluster is not None else EXIT_COMPLETE
    return max((int(row["exit_code"]) for row in told["backends"]), default=EXIT_WRONG) or of_cluster


def _show(told: dict[str, Any], where: str, *, as_json: bool, is_line: bool) -> None:
    if as_json:
        click.echo(json.dumps(told, indent=None if is_line else 2))
        return
    click.echo("\n".join(_lines(told, where)))


def _lines(told: dict[str, Any], where: str) -> Iterable[str]:
    """The report of a running instance."""
    yield (
        f"Pharos {escaped(str(told['version']))} at {where}: process {told['pid']}, {told['phase']} for "
        f"{seconds(told['running_for_s'])}, policy {told['policy']}"
    )
    yield ""
    if not told["backends"]:
        yield (
            "It has no backends: every request is answered 503. Add one to the configuration, or the label or "
            "annotation pharos.enable to an engine."
        )
    for row in told["backends"]:
        yield report.text([Finding(row, row["exit_code"])]).rstrip("\n")
        if row["drained_by"] is not None:
            left = f"{plural(row['inflight'], 'request')} of ours in flight there"
            yield f"   Drained by {DRAINERS.get(row['drained_by'], 'somebody')}: no new requests, {left}."
        yield ""
    yield from _findings(told)
    if told.get("kubernetes") is not None:
        yield from clustered.lines(told["kubernetes"])


def _findings(told: dict[str, Any]) -> Iterable[str]:
    if told["fallen"]:
        names = ", ".join(map(escaped, told["fallen"]))
        yield f"Estimates mislead, so least-load chooses for: {names}"
    for one in told["cache_busters"]:
        yield (
            f"No cache ever holds what {escaped(one['key'])} asks {escaped(one['model'])}: its requests are alike but "
            f"for some {size(one['size'])} at byte {one['position']}, which change each time. A date or an id early in "
            "the prompt is the usual cause; moved to its end, the rest is found again."
        )
