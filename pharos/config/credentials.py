"""Who Pharos is to each engine, and whom it believes: keys, headers and certificates, read again when a file changes.

Forbidden here: letting a key into a message or a representation, and holding up a request. What cannot be read is said
once; the last good content stays in use, and without any the engine itself says what it lacks.
"""

import ssl
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from typing import Final, TypeVar

from pharos.clock import Clock, monotonic
from pharos.config.schema import Credential
from pharos.config.sources import Fixed, OnEvent, Source, UnusableError, Watched
from pharos.core.fleet.backend import BackendSpec
from pharos.core.fleet.events import Event

MAX_KEY_BYTES: Final = 16 * 1024
"""Longest key; a longer file is another one."""
MAX_MADE: Final = 1024
"""Backends whose headers are kept ready."""
AUTHORIZATION: Final = "authorization"

Pairs = tuple[tuple[str, str], ...]
"""Names and values of headers."""
T = TypeVar("T")

_WITHOUT_KEY: Final = "its backends are asked without a key"
_WITHOUT_TRUST: Final = "no certificate of its backends is trusted"


def _ignore(_: Event) -> None:
    pass


class Credentials:
    """Headers and trusted certificates by backend. Cheap enough to ask for every request."""

    def __init__(
        self,
        named: Mapping[str, Credential] | None = None,
        environ: Mapping[str, str] | None = None,
        *,
        clock: Clock = monotonic,
        on_event: OnEvent = _ignore,
    ) -> None:
        """`named`: as configured. `on_event` is told once of each trouble, of its end, and of each new content."""
        self._clock = clock
        self._on_event = on_event
        self._named = dict(named) if named is not None else {}
        self._environ = environ if environ is not None else {}
        self._keys = {name: self._key(name, it) for name, it in self._named.items()}
        self._trusted: dict[str, Watched[ssl.SSLContext]] = {}
        self._made: dict[str, tuple[BackendSpec, str | None, Pairs]] = {}

    def __repr__(self) -> str:
        return f"<Credentials {', '.join(self._named) if self._named else 'none'}>"

    def replace(self, named: Mapping[str, Credential]) -> None:
        """Take these from now on. One that is as before goes on with the key that it has, even if its file is bad."""
        before, self._named = self._named, dict(named)
        same = {name for name, it in named.items() if before.get(name) == it}
        self._keys = {name: self._keys[name] if name in same else self._key(name, it) for name, it in named.items()}
        self._made.clear()

    def headers_for(self, spec: BackendSpec) -> Pairs:
        """The headers that every request to a backend carries, its credential last.

        The very same tuple again and again until something changes. Without a good key there never was, its header is
        left out.
        """
        if spec.credential is None:
            return spec.headers
        source = self._keys.get(spec.credential)
        key = source.current() if source is not None else None
        made = self._made.get(spec.name)
        if made is not None and made[0] is spec and made[1] == key:
            return made[2]
        pairs = spec.headers if key is None else (*spec.headers, _header(self._named[spec.credential].header, key))
        if len(self._made) >= MAX_MADE:
            self._made.clear()
        self._made[spec.name] = spec, key, pairs
        return pairs

    def tls_for(self, spec: BackendSpec) -> ssl.SSLContext | None:
        """What a backend's certificate is checked against; `None`: the certificates that the system trusts.

        While a file was never good nothing is trusted: the system's would be more than the operator asked for.
        """
        if spec.ca_file is None:
            return None
        trusted = self._trust(spec.ca_file).current()
        return trusted if trusted is not None else _trusts_nothing()

    def fault_of(self, spec: BackendSpec) -> str | None:
        """Why a backend's credential or certificates cannot be used as configured, for people; `None`: they can."""
        told = []
        if spec.credential is not None:
            source = self._keys.get(spec.credential)
            told.append(source.trouble() if source is not None else f"there is no credential {spec.credential}")
        if spec.ca_file is not None:
            told.append(self._trust(spec.ca_file).trouble())
        return "; ".join(text for text in told if text is not None) or None

    def _trust(self, ca_file: str) -> Watched[ssl.SSLContext]:
        found = self._trusted.get(ca_file)
        if found is None:
            found = self._trusted[ca_file] = self._watched(f"ca_file {ca_file}", ca_file, _context, _WITHOUT_TRUST)
        return found

    def _key(self, name: str, it: Credential) -> Source[str]:
        title = f"credentials.{name}"
        if it.api_key_file is not None:
            title = f"{title}.api_key_file"
            return self._watched(title, it.api_key_file, lambda path: key_in(_start_of(path), it.header), _WITHOUT_KEY)

        def made() -> str:
            text = self._environ.get(it.api_key_env, "") if it.api_key_env is not None else ""
            if not text:
                raise UnusableError("names a variable that is not set, or empty")
            return key_in(text.encode("utf-8", "surrogateescape"), it.header)

        return Fixed(f"{title}.api_key_env", made, without=_WITHOUT_KEY, on_event=self._on_event)

    def _watched(self, title: str, path: str, make: Callable[[Path], T], without: str) -> Watched[T]:
        return Watched(title, Path(path), make, without=without, clock=self._clock, on_event=self._on_event)


def key_in(content: bytes, header: str) -> str:
    """The key in a file's or variable's content. Raises `UnusableError`, whose text has nothing of it."""
    if len(content) > MAX_KEY_BYTES:
        raise UnusableError("is too long for a key: is it the right file?")
    try:
        key = content.decode("utf-8-sig").strip(" \t\r\n")
    except UnicodeDecodeError:
        raise UnusableError("holds bytes that are no text") from None
    if not key:
        raise UnusableError("is empty")
    if "\n" in key or "\r" in key:
        raise UnusableError("has several lines: it must hold one key and nothing else")
    if not key.isascii() or not key.isprintable():
        raise UnusableError("holds characters that no header can carry")
    if header.lower() == AUTHORIZATION and " " in key:
        raise UnusableError("has a blank in it: it must hold the key alone, without `Bearer`")
    return key


def _header(name: str, key: str) -> tuple[str, str]:
    return name, f"Bearer {key}" if name.lower() == AUTHORIZATION else key


def _start_of(path: Path) -> bytes:
    with path.open("rb") as file:
        return file.read(MAX_KEY_BYTES + 1)


def _context(path: Path) -> ssl.SSLContext:
    """What trusts the certificates in a file, and no others. Raises `UnusableError` and `OSError`."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)  # checks names and certificates
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN  # an intermediate authority may be trusted alone
    try:
        context.load_verify_locations(cafile=path)
    except ssl.SSLError:
        raise UnusableError("holds no certificate in PEM form") from None
    return context


@cache
def _trusts_nothing() -> ssl.SSLContext:
    return ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
