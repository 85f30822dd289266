"""New keys: made from chance, shown once, kept only as their SHA-256.

Forbidden here: writing anything to a file or a log.
"""

import hashlib
import secrets
from typing import Final

import msgspec
import yaml

from pharos.config import forms

RANDOM_BYTES: Final = 32


class NewKey(msgspec.Struct, frozen=True):
    """A key and what the configuration needs of it."""

    name: str
    key: str
    sha256: str

    def __repr__(self) -> str:
        """Without the key, so that no log or traceback can show it."""
        return f"<NewKey {self.name}>"

    def entry(self) -> str:
        """The lines to paste under `keys:`."""
        text = yaml.safe_dump(
            [{"name": self.name, "sha256": self.sha256}], sort_keys=False, allow_unicode=True, width=1000
        )
        return "".join(f"  {line}\n" for line in text.splitlines())


def new_key(name: str) -> NewKey:
    """A fresh key for `name`. Raises `ValueError` when the name cannot be used."""
    forms.key_name(name)
    key = forms.KEY_PREFIX + secrets.token_urlsafe(RANDOM_BYTES)
    return NewKey(name, key, digest(key))


def digest(key: str) -> str:
    """What the configuration holds of a key: its SHA-256 in hexadecimal."""
    return hashlib.sha256(key.encode()).hexdigest()
