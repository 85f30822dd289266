"""Who Pharos is to each engine, in the form in which the data plane needs it: made once, until something changes.

Forbidden here: keys in any representation, and more than one look-up for a backend without an identity of its own.
"""

import ssl
from collections.abc import Callable
from typing import Final, Protocol

import msgspec

from pharos.core.fleet import BackendSpec
from pharos.proxy.dial import Endpoint, endpoint
from pharos.proxy.head import PLAIN, Own, own

MAX_READY: Final = 1024
"""Backends whose ways are kept ready."""

Pairs = tuple[tuple[str, str], ...]


class Identity(Protocol):
    """What the composition root knows of backends' credentials. Both answers are asked for with every request."""

    def headers_for(self, spec: BackendSpec) -> Pairs:
        """Names and values; the very same tuple until they change."""

    def tls_for(self, spec: BackendSpec) -> ssl.SSLContext | None:
        """What its certificate is checked against; the very same object until that changes. `None`: the system's."""


class Nobody:
    """Has no credentials: for a data plane without configuration."""

    def headers_for(self, spec: BackendSpec) -> Pairs:
        """Only what the backend's own description says."""
        return spec.headers

    def tls_for(self, _: BackendSpec) -> ssl.SSLContext | None:
        """The system's."""
        return None


class Way(msgspec.Struct, frozen=True, eq=False):
    """How requests go to one backend."""

    spec: BackendSpec
    where: Endpoint
    key: str
    """Names the kept connections that these requests may share."""
    own: Own
    """What the head says to this engine only."""
    pairs: Pairs
    """What that was made from."""
    tls: ssl.SSLContext | None

    def __repr__(self) -> str:
        """Without the headers, in which a key may be."""
        return f"<Way {self.key}>"


class Ways:
    """The way to each backend."""

    def __init__(self, identity: Identity, drop: Callable[[str], None]) -> None:
        """`drop` closes the kept connections with a key: what their engine showed then may not be trusted any more."""
        self._identity = identity
        self._drop = drop
        self._ready: dict[str, Way] = {}

    def __repr__(self) -> str:
        return f"<Ways {len(self._ready)} ready>"

    def to(self, spec: BackendSpec) -> Way:
        """The way to a backend, with its key and its certificates as they are now."""
        ready = self._ready.get(spec.name)
        if ready is None or ready.spec is not spec:
            return self._made(spec, None)
        return ready if ready.key is spec.url else self._made(spec, ready)

    def _made(self, spec: BackendSpec, before: Way | None) -> Way:
        pairs, tls = self._identity.headers_for(spec), self._identity.tls_for(spec)
        if before is not None and before.pairs is pairs and before.tls is tls:
            return before
        if before is not None and before.tls is not tls:
            self._drop(before.key)
        if len(self._ready) >= MAX_READY:
            self._ready.clear()
        key = _key(spec)
        way = Way(spec, endpoint(spec.url), key, own(pairs) if pairs else PLAIN, pairs, tls)
        self._ready[spec.name] = way
        return way


def _key(spec: BackendSpec) -> str:
    """The URL itself for backends to which Pharos is nobody in particular; the others share with no one."""
    if spec.ca_file is None and spec.credential is None and not spec.headers:
        return spec.url
    return f"{spec.url} for {spec.name} with {spec.ca_file}"
