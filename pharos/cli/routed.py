"""`pharos doctor URL` where a Pharos answers and no engine: is it ready, what does it list, does a token come through.

Forbidden here: importing what serves or reads engines: `helm test` runs this in a small pod.
"""

import json
import os
import ssl
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from typing import Any, Final
from urllib.parse import urlsplit

import click
import msgspec

from pharos.cli.finding import EXIT_COMPLETE, EXIT_WRONG
from pharos.obs.logs import escaped
from pharos.obs.words import plural

VARIABLE: Final = "DOCTOR_API_KEY"
"""The key that is shown, if there is one in the environment. (What begins with `PHAROS_` is a setting.)"""
TIMEOUT_S: Final = 60.0
"""For the token: a model may have to be loaded first."""
LOOK_S: Final = 5.0
TRIED: Final = 3
"""Models that are asked for a token until one answers: some only embed."""
LISTED: Final = 6
"""Models that are named."""
MOST: Final = 1024 * 1024
"""Bytes of an answer that are read."""
_OK, _UNAUTHORISED, _FORBIDDEN = 200, 401, 403
_SCHEMA: Final = 1


class Told(msgspec.Struct, frozen=True, kw_only=True):
    """What a Pharos told of itself."""

    url: str
    ready: bool = True
    models: list[str] = []
    routed: str | None = None
    """The model that a token came from."""
    notice: str | None = None
    """Why no token was asked for; then nothing is wrong."""
    error: str | None = None
    """What is wrong."""


def doctor(url: str, *, as_json: bool) -> int | None:
    """Print what the Pharos at a URL tells; returns the exit status, or `None` when no Pharos answers there."""
    if not _is_pharos(url):
        return None
    told = _ask(url)
    click.echo(_json(told) if as_json else "\n".join(_lines(told)))
    return EXIT_COMPLETE if told.error is None else EXIT_WRONG


def _is_pharos(url: str) -> bool:
    """Whether a Pharos answers: no engine has this path with this answer and a request's id."""
    try:
        status, headers, body = _get(url, "/livez")
    except (OSError, HTTPException, ValueError):
        return False
    return status == _OK and body == b"ok\n" and "x-request-id" in headers


def _ask(url: str) -> Told:
    try:
        ready, _, state = _get(url, "/healthz")
        status, _, body = _get(url, "/v1/models")
        if ready != _OK:
            why = f"it is not ready: {state.decode(errors='replace').strip()}"
            return Told(url=url, ready=False, error=why)
        if status in (_UNAUTHORISED, _FORBIDDEN):
            hint = f"its keys are asked for, and {VARIABLE} has none that it takes: no token was asked for"
            return Told(url=url, notice=hint)
        models = [str(one["id"]) for one in json.loads(body)["data"]]
    except (OSError, HTTPException, ValueError, KeyError, TypeError, RecursionError) as fault:
        return Told(url=url, ready=False, error=f"it cannot be read: {type(fault).__name__} {fault}")
    if not models:
        return Told(url=url, notice="no engine lists a model yet: no token was asked for")
    faults: list[str] = []
    for model in models[:TRIED]:
        why_not = _token(url, model)
        if why_not is None:
            return Told(url=url, models=models, routed=model)
        faults.append(f"{model}: {why_not}")
    return Told(url=url, models=models, error=f"no token came through ({'; '.join(faults)})")


def _token(url: str, model: str) -> str | None:
    """Ask a model for one token; returns what was wrong."""
    body = {"model": model, "max_tokens": 1, "messages": [{"role": "user", "content": "Say a word."}]}
    try:
        status, _, answer = _request(url, "POST", "/v1/chat/completions", json.dumps(body).encode(), TIMEOUT_S)
        told = json.loads(answer)
        if status == _OK and told["choices"]:
            return None
        return f"{status} {told['error']['message']}"
    except (OSError, HTTPException) as fault:
        return f"{type(fault).__name__} {fault}"
    except (ValueError, KeyError, TypeError, RecursionError):
        return "its answer is none that clients can read"


def _get(url: str, path: str) -> tuple[int, set[str], bytes]:
    return _request(url, "GET", path, None, LOOK_S)


def _request(url: str, method: str, path: str, body: bytes | None, timeout_s: float) -> tuple[int, set[str], bytes]:
    """Status, names of headers, and the start of the body. Raises `OSError`, `HTTPException`, `ValueError`."""
    parts = urlsplit(url)
    host, port = parts.hostname or "", parts.port
    connection = (
        HTTPSConnection(host, port, timeout=timeout_s, context=ssl.create_default_context())
        if parts.scheme == "https"
        else HTTPConnection(host, port, timeout=timeout_s)
    )
    headers = {"Accept": "application/json"} | ({"Content-Type": "application/json"} if body is not None else {})
    if key := os.environ.get(VARIABLE):
        headers["Authorization"] = f"Bearer {key}"
    try:
        connection.request(method, parts.path.rstrip("/") + path, body, headers)
        reply = connection.getresponse()
        return reply.status, {name.lower() for name, _ in reply.getheaders()}, reply.read(MOST)
    finally:
        connection.close()


def _json(told: Told) -> str:
    rows: dict[str, Any] = {"schema": _SCHEMA, "pharos": msgspec.to_builtins(told), "backends": []}
    return json.dumps(rows, indent=2)


def _lines(told: Told) -> list[str]:
    lines = [f"== {escaped(told.url)}  is a Pharos, {'ready' if told.ready else 'not ready'}"]
    if told.models:
        lines.append(f"   It lists {plural(len(told.models), 'model')}: {escaped(', '.join(told.models[:LISTED]))}")
    if told.routed is not None:
        lines.append(f"   A token of {escaped(told.routed)} came through it.")
    if told.notice is not None:
        lines.append(f"   Notice: {told.notice}.")
    if told.error is not None:
        lines.append(f"   Wrong: {escaped(told.error)}")
    return [
        *lines,
        "",
        "For its engines run `pharos doctor` beside it, as in `kubectl exec deploy/pharos -- pharos doctor`.",
    ]
