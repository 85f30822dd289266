"""What can be wrong with how a backend is reached: credentials, headers and certificates.

Forbidden here: reading a key, and repeating a value that may be one.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from pharos.config.forms import FORMS
from pharos.config.meant import meant
from pharos.config.problems import Problem
from pharos.config.schema import Backend, Credential

OURS: Final = frozenset(
    {
        # of one connection, by RFC 9110 §7.6.1 and older practice
        "connection", "keep-alive", "proxy-connection", "proxy-authenticate", "proxy-authorization", "te", "trailer",
        "transfer-encoding", "upgrade",
        # what Pharos must say itself, since it knows what it sends and what it can read
        "host", "content-length", "content-type", "content-encoding", "accept-encoding", "expect", "x-request-id",
    }
)  # fmt: skip
"""Headers that no setting may change, in lower case."""
KEYS: Final = frozenset({"authorization", "x-api-key", "api-key", "x-goog-api-key", "cookie", "cookie2"})
"""Headers whose value is a key."""
KEY_ENDINGS: Final = ("-api-key", "-token", "-secret", "-password")


def check(backends: Sequence[Backend], credentials: Mapping[str, Credential]) -> Iterator[Problem]:
    """Everything wrong with the credentials and with how backends use them."""
    for name, credential in credentials.items():
        yield from _credential(f"credentials.{name}", credential)
    for index, backend in enumerate(backends):
        path = f"backends[{index}]"
        if backend.credential is not None and backend.credential not in credentials:
            yield Problem(f"{path}.credential", _undefined(backend.credential, credentials))
        if backend.ca_file is not None and backend.url.startswith("http://"):
            yield Problem(f"{path}.ca_file", "has no effect on http://: write https:// in `url`, or remove it")
        yield from _headers(f"{path}.headers", backend, credentials)


def _credential(path: str, it: Credential) -> Iterator[Problem]:
    if it.api_key_file is not None and it.api_key_env is not None:
        yield Problem(path, "has api_key_file and api_key_env: keep one")
    if it.api_key_file is None and it.api_key_env is None:
        yield Problem(path, "names no key: write api_key_file (a file that holds it) or api_key_env (a variable)")
    if it.header.lower() in OURS:
        yield Problem(f"{path}.header", f"{it.header} is a header that Pharos sets itself")


def _undefined(name: str, credentials: Mapping[str, Credential]) -> str:
    close = meant(name, credentials)
    if close is not None:
        return f"no such credential; did you mean {close}?"
    if credentials:
        return f"no such credential; there are {', '.join(credentials)}"
    return "no such credential: add it under `credentials`, with the file or the variable that holds its key"


def _headers(path: str, backend: Backend, credentials: Mapping[str, Credential]) -> Iterator[Problem]:
    credential = credentials.get(backend.credential) if backend.credential is not None else None
    taken = {credential.header.lower(): f"the credential {backend.credential}"} if credential is not None else {}
    for name, value in backend.headers.items():
        fault = _name_fault(name) or _value_fault(value)
        if fault is not None:
            yield Problem(f"{path}.{name}", fault)
        elif name.lower() in taken:
            yield Problem(f"{path}.{name}", f"{taken[name.lower()]} sets this header already")
        taken.setdefault(name.lower(), name)


def _name_fault(name: str) -> str | None:
    try:
        FORMS["header"].read(name)
    except ValueError as fault:
        return str(fault)
    low = name.lower()
    if low in OURS:
        return "is a header that Pharos sets itself: remove it"
    if low in KEYS or low.endswith(KEY_ENDINGS):
        return "holds a key, which never belongs here: name a `credential`, with this `header`"
    return None


def _value_fault(value: str) -> str | None:
    if not value.isascii() or (value and not value.isprintable()):
        return "has characters that no header can carry"
    return "begins or ends with a blank" if value != value.strip() else None
