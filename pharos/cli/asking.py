"""Asking a Pharos that runs on this machine, over its admin listener.

Forbidden here: whatever takes long to import; in a cluster this runs beside the program, inside its limit of memory.
"""

import json
import os
import re
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

import click

from pharos.cli.failure import Failure
from pharos.cli.options import DEFAULT_FILE, Decorator

DEFAULT: Final = "127.0.0.1:8091"
VARIABLE: Final = "PHAROS_ADMIN_LISTEN"
TIMEOUT_S: Final = 5.0
_OK: Final = 200
_MARK: Final = "X-Pharos-Admin"
"""The header by which every answer of the listener is known."""
_LINE: Final = re.compile(r"^admin_listen:\s*[\"']?([^\s\"'#]+)", re.MULTILINE)
_ADDRESS: Final = re.compile(r"(localhost|127(?:\.\d+){3}|\[::1\]):(\d{1,5})", re.IGNORECASE)


class NobodyError(Exception):
    """No Pharos listens there; the message says what happened."""


def admin_option() -> Decorator:
    """`--admin`."""
    return click.option(
        "--admin",
        metavar="ADDRESS",
        help="Admin listener of the Pharos to ask.  "
        f"[default: {VARIABLE}, else admin_listen of ./pharos.yaml, else {DEFAULT}]",
    )


def address(given: str | None) -> str:
    """Where the running Pharos is asked: the option, else what the program itself would go by here."""
    if given is not None:
        if not _ADDRESS.fullmatch(given):
            raise click.UsageError(f"--admin takes an address of this machine as in {DEFAULT}")
        return given
    return os.environ.get(VARIABLE) or _of_file() or DEFAULT


def _of_file() -> str | None:
    """What ./pharos.yaml says, found without loading what reads all of it."""
    try:
        found = _LINE.search(Path(DEFAULT_FILE).read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError):
        return None
    return found[1] if found is not None else None


def ask(where: str, path: str, method: str = "GET") -> tuple[int, dict[str, Any]]:
    """Status and content of a reply. Raises `NobodyError` when no Pharos listens there."""
    from http.client import HTTPConnection, HTTPException

    found = _ADDRESS.fullmatch(where)
    if found is None or int(found[2]) == 0:
        raise NobodyError(f"{where} is no address that can be asked")
    connection = HTTPConnection(found[1].strip("[]"), int(found[2]), timeout=TIMEOUT_S)
    try:
        connection.request(method, path, headers={"Accept": "application/json", "Host": where})
        reply = connection.getresponse()
        body = reply.read() if reply.getheader(_MARK) is not None else b""
    except (OSError, HTTPException) as fault:
        why = getattr(fault, "strerror", None) or fault
        raise NobodyError(f"no Pharos answers at {where} ({why})") from None
    finally:
        connection.close()
    try:
        told = json.loads(body)
    except (ValueError, RecursionError):
        told = None
    if not isinstance(told, dict):
        raise NobodyError(f"what answers at {where} is no Pharos")
    return reply.status, told


def need(where: str, path: str, method: str = "GET") -> dict[str, Any]:
    """What it answers. Raises `Failure` with its own sentence when it refuses, or when nobody is there."""
    try:
        status, told = ask(where, path, method)
    except NobodyError as fault:
        raise Failure(f"{fault}: is Pharos running on this machine? Another address: --admin") from None
    if status != _OK:
        raise Failure(message_of(told))
    return told


def message_of(told: dict[str, Any]) -> str:
    """The sentence of a refusal."""
    error = told.get("error")
    return str(error.get("message", error)) if isinstance(error, dict) else str(error)


def quoted(name: str) -> str:
    """A name as one segment of a path."""
    return quote(name, safe="")
