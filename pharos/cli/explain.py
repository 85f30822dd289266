"""`pharos explain`: find one request, print why it went where it did. Forbidden here: deciding."""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from pharos.cli.asking import NobodyError, address, admin_option, ask, message_of, quoted
from pharos.cli.failure import Failure

if TYPE_CHECKING:
    from urllib.parse import SplitResult

EXAMPLES = """\b
Examples:
  pharos explain 3f2a…                                     of a Pharos on this machine
  pharos explain 3f2a… --url http://pharos:8090 --key-file admin.key
  pharos explain 3f2a… --log decisions.jsonl

The id is in the header X-Request-Id of every reply.

\b
Exit status:
  0   the request was found
  1   it was not, or nothing could be asked
  64  the command line cannot be understood
"""
URL: Final = "http://localhost:8090"
TIMEOUT_S: Final = 5.0
OK: Final = 200
REFUSED: Final = (401, 403)


@click.command("explain", short_help="Show why a request went where it did.", epilog=EXAMPLES)
@click.argument("request_id")
@admin_option()
@click.option("--url", metavar="URL", help="Ask a Pharos where its clients reach it, as in http://pharos:8090.")
@click.option("--key-file", metavar="FILE", help="A file with a key that has `admin: true`, where keys are configured.")
@click.option("--log", metavar="FILE", help="Look into a decision log instead.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON, for programs.")
def command(
    *, request_id: str, admin: str | None, url: str | None, key_file: str | None, log: str | None, as_json: bool
) -> int:
    """Show why one request went where it did: what each candidate would have cost, what was foreseen, what came."""
    import json

    if log is not None and (url is not None or key_file is not None or admin is not None):
        raise click.UsageError("--log does not go with --admin, --url and --key-file: a log is a file")
    if admin is not None and (url is not None or key_file is not None):
        raise click.UsageError("--admin does not go with --url and --key-file: it needs no key")
    if log is not None:
        found = _in_log(Path(log), request_id)
    elif url is not None or key_file is not None:
        found = _in_status(url if url is not None else URL, key_file, request_id)
    else:
        found = _in_process(address(admin), request_id, is_only=admin is not None)
    click.echo(json.dumps(found, indent=2, ensure_ascii=False) if as_json else text(found))
    return 0


def text(found: Mapping[str, Any]) -> str:
    """For people."""
    where = found["target"] or "nowhere"
    lines = [f"{found['request_id']}: {found['model'] or 'no model'} for {found['key'] or 'nobody known'} → {where}"]
    if found["reason"]:
        lines.append(f"  {found['reason']}")
    lines.append(f"  status {found['status']}; {', '.join(found['stages'])}")
    times = [
        f"{name} {_seconds(found[field])}"
        for name, field in (
            ("foreseen", "predicted"),
            ("first token after", "actual"),
            ("in the queue", "queue_wait_s"),
            ("in all", "duration_s"),
        )
        if found.get(field) is not None
    ]
    lines.append(f"  {', '.join(times)}")
    if found["candidates"]:
        lines += ["", f"  {'candidate':20} {'wait':>9} {'load':>9} {'prefill':>9} {'kv':>9} {'total':>9}"]
    for one in found["candidates"]:
        parts = [one["wait_s"], one["load_s"], one["prefill_s"], one["kv_s"]]
        total = sum(part for part in parts if part is not None)
        row = " ".join(f"{_seconds(part):>9}" for part in [*parts, total])
        lines.append(f"  {one['target']:20} {row}  {one['why_not'] or ''}".rstrip())
    return "\n".join(lines)


def _seconds(value: float | None) -> str:
    from pharos.core.policy.reason import seconds

    return "unknown" if value is None else seconds(value)


def _in_log(path: Path, request_id: str) -> Mapping[str, Any]:
    """The last line about a request. Broken lines are none of this command's business."""
    import msgspec

    from pharos.sim.replay import rows
    from pharos.sim.trace import TraceError

    found = None
    try:
        for _, row in rows(path):
            if row is not None and not isinstance(row, str) and row.request_id == request_id:
                found = row
    except TraceError as fault:
        raise Failure(str(fault)) from None
    if found is None:
        raise Failure(f"{path} has no request {request_id}")
    shown: Mapping[str, Any] = msgspec.to_builtins(found)
    return shown


def _in_process(where: str, request_id: str, *, is_only: bool) -> Mapping[str, Any]:
    """One of the last requests of the Pharos that runs here. `is_only`: no other way is tried where none listens."""
    try:
        status, told = ask(where, f"/explain/{quoted(request_id)}")
    except NobodyError as fault:
        if is_only:
            raise Failure(f"{fault}: is Pharos running on this machine?") from None
        return _in_status(URL, None, request_id)
    if status != OK:
        raise Failure(message_of(told))
    return told


def _in_status(url: str, key_file: str | None, request_id: str) -> Mapping[str, Any]:
    """One of the last requests of a running Pharos."""
    import json

    body, status = _get(url, key_file)
    if status in REFUSED:
        raise Failure(f"{url} wants a key with `admin: true`: give a file that holds one with --key-file")
    try:
        requests = json.loads(body)["requests"] if status == OK else None
        if requests is None:
            raise Failure(f"{url} answers {status} to /status: is that a Pharos?")
        for one in requests:
            if one["request_id"] == request_id:
                found: Mapping[str, Any] = one
                return found
    except (ValueError, KeyError, TypeError):
        raise Failure(f"{url} answers /status with what Pharos would not say: is that a Pharos?") from None
    raise Failure(
        f"{url} does not know request {request_id}: it remembers the last {len(requests)} only. "
        "A decision log (decision_log in the configuration) keeps more, see --log."
    )


def _has_port(parts: "SplitResult") -> bool:
    """Whether its port is one, or it has none."""
    try:
        return parts.port is None or parts.port > 0
    except ValueError:
        return False


def _get(url: str, key_file: str | None) -> tuple[bytes, int]:
    import http.client
    from urllib.parse import urlsplit

    parts = urlsplit(url if "://" in url else f"http://{url}")
    if parts.scheme not in {"http", "https"} or not parts.hostname or not _has_port(parts):
        raise click.UsageError(f"--url takes an address as in {URL}")
    headers = {"Accept": "application/json"}
    if key_file is not None:
        try:
            headers["Authorization"] = f"Bearer {Path(key_file).read_text(encoding='utf-8').strip()}"
        except (OSError, UnicodeDecodeError) as fault:
            why = getattr(fault, "strerror", None) or fault
            raise Failure(f"--key-file: {key_file}: {why}") from None
    kind = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
    try:
        connection = kind(parts.hostname, parts.port, timeout=TIMEOUT_S)
        try:
            connection.request("GET", f"{parts.path.rstrip('/')}/status?format=json", headers=headers)
            reply = connection.getresponse()
            return reply.read(), reply.status
        finally:
            connection.close()
    except (OSError, http.client.HTTPException, ValueError) as fault:
        why = getattr(fault, "strerror", None) or fault
        raise Failure(
            f"{url} cannot be asked ({why}): is a Pharos running there? Another address: --url, or --admin"
        ) from None
