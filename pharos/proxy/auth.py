"""Who is asking: finds the configured key that a request presents.

Forbidden here: keeping, showing or logging a presented key; I/O.
"""

import hashlib
import hmac
from collections.abc import Iterable, Mapping
from fnmatch import fnmatchcase
from typing import Final

import msgspec
from multidict import CIMultiDictProxy, istr

from pharos.core.fleet.names import spellings
from pharos.core.usage import Quota
from pharos.proxy.errors import invalid_key, missing_key


class Key(msgspec.Struct, frozen=True):
    """One client, by name. The secret and its hash are not part of it, so that it may be shown."""

    name: str
    weight: int = 1
    """Share of the queue."""
    admin: bool = False
    """May see the pages of the operator."""
    models: tuple[str, ...] = ()
    """Names or patterns (`*`, `?`, `[...]`, in the given case) it may use; empty: all."""
    queue_events: bool = False
    """Its streams are told their place in the queue while they wait."""
    quota: Quota | None = None
    """What it may use; `None`: as much as there is, so that nobody asks."""
    priority: int = 0
    """While requests wait, those of keys with a higher one go first, whatever the weights."""
    salt: bytes = b""
    """What parts its prompts from those of other keys in the prefix index; equal for keys that share."""

    def __repr__(self) -> str:
        return f"<Key {self.name}>"

    def allows(self, model: str) -> bool:
        """Whether the key may use a model, by the clients' name of it in its one spelling; patterns may have any."""
        if not self.models:
            return True
        return any(_fits(name, self.models) for name in spellings(model))


def _fits(name: str, patterns: tuple[str, ...]) -> bool:
    return any(fnmatchcase(name, pattern) for pattern in patterns)


ANONYMOUS: Final = Key("anonymous", admin=True)
"""Every client, when no keys are configured."""
AUTHORIZATION: Final = istr("Authorization")
KEY_HEADERS: Final = (istr("x-api-key"), istr("api-key"))
"""Names of headers that may hold a key; as `istr`, a look-up need not fold their case each time."""
SHOWN_HEADERS: Final = (*KEY_HEADERS, istr("x-goog-api-key"), istr("x_api_key"), istr("api_key"))
"""Names under which clients present a key, whether it is read there or not."""
SHORTEST: Final = 8
"""Characters of a key that is looked for within other texts: people set `none` or `json` where no key is asked for."""
_NOBODY: Final[tuple[str, Key | None]] = ("", None)


class Keyring:
    """All configured keys by the SHA-256 of their secret."""

    __slots__ = ("_keys",)

    def __init__(self, keys: Iterable[tuple[str, Key]] = ()) -> None:
        """`keys`: hexadecimal SHA-256 of the secret, and whose it is."""
        self.replace(keys)

    def replace(self, keys: Iterable[tuple[str, Key]]) -> None:
        """Let these in from the next request on, and nobody else."""
        self._keys = {sha256.lower(): (sha256.lower(), key) for sha256, key in keys}

    def __repr__(self) -> str:
        return f"<Keyring {len(self._keys)} keys>"

    @property
    def is_open(self) -> bool:
        """Whether no keys are configured: everyone is let in as one anonymous client."""
        return not self._keys

    def find(self, headers: Mapping[str, str]) -> Key | None:
        """Find whose key the headers present; `None` when they present none, or an unknown one.

        The dictionary sees only hashes, so its timing tells nothing of a secret; hashes are compared in constant time.
        """
        if not self._keys:
            return ANONYMOUS
        secret = presented(headers)
        if secret is None:
            return None
        digest = hashlib.sha256(_as_sent(secret)).hexdigest()
        sha256, key = self._keys.get(digest, _NOBODY)
        return key if hmac.compare_digest(sha256, digest) else None

    def require(self, headers: Mapping[str, str]) -> Key:
        """Find whose key the headers present. Raises `ClientFault` (401) that tells a missing key from a wrong one."""
        key = self.find(headers)
        if key is None:
            raise missing_key() if presented(headers) is None else invalid_key()
        return key


def _as_sent(text: str) -> bytes:
    """Return the bytes of a header value; the HTTP parser keeps what is no UTF-8 as surrogates."""
    try:
        return text.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        return text.encode("utf-8", "surrogatepass")


def presented(headers: Mapping[str, str]) -> str | None:
    """Return the secret in the first of the three places that holds one. `headers` must ignore the case of names."""
    authorization = headers.get(AUTHORIZATION)
    if authorization is not None:
        scheme, _, secret = authorization.strip().partition(" ")
        secret = secret.strip()
        if secret and scheme.lower() == "bearer":
            return secret
    for name in KEY_HEADERS:
        secret = headers.get(name, "").strip()
        if secret:
            return secret
    return None


def holds(text: str, secret: str) -> bool:
    """Whether a text shows a key: has it anywhere in it, or is it when it is too short to be told from common words."""
    return secret in text if len(secret) >= SHORTEST else secret == text


def all_presented(headers: CIMultiDictProxy[str]) -> list[str]:
    """All that these headers present as a key, valid or not, whoever reads it there."""
    found = []
    for value in headers.getall(AUTHORIZATION, ()):
        whole = value.strip()
        found.append(whole.partition(" ")[2].strip() or whole)
    for name in SHOWN_HEADERS:
        found += [value.strip() for value in headers.getall(name, ())]
    return [secret for secret in found if secret]


def is_presented(text: str, headers: CIMultiDictProxy[str]) -> bool:
    """Whether a text holds what one of these headers presents as a key, valid or not: it must not be shown then."""
    return any(holds(text, secret) for secret in all_presented(headers))
