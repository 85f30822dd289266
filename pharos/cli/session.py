"""What `pharos doctor` does once its arguments are known: look once or again and again, print, and save recordings.

Forbidden here: parsing arguments, and reading an engine (the check-up does).
"""

import asyncio
import json
import os
import re
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import click
import msgspec

from pharos import clock
from pharos.cli import report
from pharos.cli.checkup import Checkup
from pharos.cli.failure import Failure
from pharos.cli.finding import EXIT_COMPLETE, Finding
from pharos.config.credentials import Credentials
from pharos.config.load import backend_specs
from pharos.config.schema import Config
from pharos.control import recorder
from pharos.control.fetch import new_session
from pharos.control.follow.fault import FeedError
from pharos.control.follow.source import open_logs, parse_where
from pharos.control.inspect import Inspection
from pharos.core.fleet import BackendSpec, Event
from pharos.obs import describe
from pharos.obs.logs import escaped

PAUSE_S: Final = 2.0
"""Between two looks of `--watch`."""
PROGRESS_EACH: Final = 25
"""Requests of a recording after which it says how far it is."""
LONGEST: Final = 60
"""Letters of a folder's name that are taken from a backend's; of the widest ones a file system takes as many."""


class Wanted(msgspec.Struct, frozen=True):
    """What to do with what was found."""

    as_json: bool
    record: str | None
    """Folder for recordings."""
    logs: bool
    """Whether to record the log as well."""


def specs_of(config: Config, log_feed: str | None) -> tuple[BackendSpec, ...]:
    """The backends to look at. `log_feed`: the log of the only one. Raises `click.UsageError`."""
    specs = backend_specs(config)
    if log_feed is None:
        return specs
    if len(specs) != 1:
        raise click.UsageError("--log-feed is for a single URL; in a configuration each backend has its own `logs`")
    try:
        parse_where(log_feed)
    except ValueError as error:
        raise click.UsageError(f"--log-feed: {error}") from None
    return (msgspec.structs.replace(specs[0], logs=log_feed),)


def check_logs(specs: Sequence[BackendSpec], wanted: Wanted) -> None:
    """Raise `Failure` when a log is to be recorded of which nobody knows where it is."""
    for spec in specs if wanted.logs else ():
        if spec.logs is None:
            raise Failure(
                f"{spec.name} has no log feed: give --log-feed, or `logs` of the backend in the configuration."
            )


def once(config: Config, specs: Sequence[BackendSpec], wanted: Wanted) -> int:
    """Look, print, and record if wanted; returns the exit status."""

    async def run() -> list[Finding]:
        async with new_session() as session:
            doctor = Checkup(session, _credentials(config))
            findings = await doctor.examine(specs)
            _print(_told(findings, as_json=wanted.as_json))
            if wanted.record is not None:
                await _record(doctor, specs, findings, wanted, Path(wanted.record))
            return findings

    with asyncio.Runner(loop_factory=asyncio.new_event_loop) as runner:
        findings = runner.run(run())
    return _status(findings)


def watch(config: Config, specs: Sequence[BackendSpec], wanted: Wanted) -> int:
    """Look and print again and again until Ctrl-C; returns the exit status of the last look.

    On a terminal each report takes the place of the one before; as JSON, each is one line.
    """
    status = EXIT_COMPLETE

    async def run() -> None:
        nonlocal status
        async with new_session() as session:
            doctor = Checkup(session, _credentials(config))
            while True:
                findings = await doctor.examine(specs)
                status = _status(findings)
                if not wanted.as_json:
                    click.clear()
                _print(_told(findings, as_json=wanted.as_json, is_line=True))
                await asyncio.sleep(PAUSE_S)

    try:
        with asyncio.Runner(loop_factory=asyncio.new_event_loop) as runner:
            runner.run(run())
    except KeyboardInterrupt:
        return status
    return status


def _credentials(config: Config) -> Credentials:
    def note(event: Event) -> None:
        click.echo(f"note: {event.text}", err=True)

    return Credentials(config.credentials, os.environ, on_event=note)


def _print(text: str) -> None:
    """Print a text whatever letters the terminal has: engines name their models in all scripts."""
    encoding = sys.stdout.encoding
    click.echo(text.encode(encoding, "backslashreplace").decode(encoding), nl=False)


def _status(findings: Sequence[Finding]) -> int:
    return max(one.exit_code for one in findings)


def _told(findings: Sequence[Finding], *, as_json: bool, is_line: bool = False) -> str:
    if not as_json:
        return report.text(findings)
    told = {"schema": describe.SCHEMA, "backends": [one.row for one in findings]}
    # In ASCII: names that engines give may have halves of characters, and what turns a terminal's text around.
    return json.dumps(told, indent=None if is_line else 2) + "\n"


async def _record(
    doctor: Checkup, specs: Sequence[BackendSpec], findings: Sequence[Finding], wanted: Wanted, folder: Path
) -> None:
    """Save a recording of each backend whose kind is known, and say what may not be shown to others."""
    names = folder_names([spec.name for spec in specs])
    failed: list[str] = []
    for spec, finding, name in zip(specs, findings, names, strict=True):
        if finding.found is None or finding.found.plan is None:
            _note(f"note: {spec.name} is not recorded: {finding.row['error']}")
            continue
        where = folder / name if len(specs) > 1 else folder
        try:
            saved = await _record_one(doctor, spec, finding.found, wanted, where)
        except FileExistsError:
            what = "holds a recording already" if (where / "paths.tsv").exists() else "is not empty"
            failed.append(f"{where} {what}; give another folder.")
        except NotADirectoryError:
            failed.append(f"{where} cannot be a folder for recordings: there is a file in its place.")
        except (OSError, FeedError, ValueError) as error:
            why = error.strerror if isinstance(error, OSError) and error.strerror else error
            failed.append(f"the recording of {spec.name} in {where} failed: {why}")
        else:
            _tell(spec, saved)
    if failed:
        raise Failure("\n".join(map(escaped, failed)))


async def _record_one(
    doctor: Checkup, spec: BackendSpec, found: Inspection, wanted: Wanted, where: Path
) -> recorder.Recording:
    def progress(done: int, of: int) -> None:
        if done and done % PROGRESS_EACH == 0:
            _note(f"recording {spec.name}: {done} of {of} answers")

    now = datetime.fromtimestamp(clock.wall(), UTC)
    logs = spec.logs if wanted.logs else None
    log = None if logs is None else lambda: open_logs(logs, follow=False)
    return await recorder.record(doctor.fetcher, spec, found, where, now=now, log=log, on_progress=progress)


def _tell(spec: BackendSpec, saved: recorder.Recording) -> None:
    lines = f" and {saved.log_lines} lines of its log" if saved.log_lines is not None else ""
    _note(f"recorded {saved.paths} answers of {spec.name}{lines} in {saved.folder}")
    if saved.log_lines is not None:
        _note("note: an engine's log may hold prompts: read engine.log before you show it to anyone")


def _note(text: str) -> None:
    click.echo(escaped(text), err=True)


def folder_names(names: Sequence[str]) -> list[str]:
    """A folder's name for each backend, made of its name, that leads nowhere else and no other one has."""
    taken: set[str] = set()
    made = []
    for name in names:
        plain = re.sub(r"[^\w.:@+-]", "_", name)[:LONGEST].strip(".")
        plain = plain or "_"
        free, count = plain, 1
        while free.lower() in taken:
            count += 1
            free = f"{plain}-{count}"
        taken.add(free.lower())
        made.append(free)
    return made
