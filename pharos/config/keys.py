"""New keys: made from chance, shown once, kept only as their SHA-256.

Forbidden here: writing anything to a file or a log.
"""

import hashlib
import secrets
from collections.abc import Mapping, Sequence
from typing import Final

import msgspec
import yaml

from pharos.config import forms
from pharos.config.schema import Key

RANDOM_BYTES: Final = 32


class NewKey(msgspec.Struct, frozen=True):
    """A key and what the configuration needs of it."""

    name: str
    key: str
    sha256: str
    rights: Mapping[str, object] = {}
    """Other fields of its entry, by their names there."""

    def __repr__(self) -> str:
        """Without the key, so that no log or traceback can show it."""
        return f"<NewKey {self.name}>"

    def entry(self) -> str:
        """The lines to paste under `keys:`."""
        text = yaml.safe_dump(
            [{"name": self.name, "sha256": self.sha256, **self.rights}],
            sort_keys=False, allow_unicode=True, width=1000,
        )  # fmt: skip
        return "".join(f"  {line}\n" for line in text.splitlines())


def new_key(name: str, rights: Mapping[str, object] | None = None) -> NewKey:
    """A fresh key for `name`. Raises `ValueError` when the name cannot be used."""
    forms.key_name(name)
    key = forms.KEY_PREFIX + secrets.token_urlsafe(RANDOM_BYTES)
    return NewKey(name, key, digest(key), rights if rights is not None else {})


def digest(key: str) -> str:
    """What the configuration holds of a key: its SHA-256 in hexadecimal."""
    return hashlib.sha256(key.encode("utf-8", "surrogateescape")).hexdigest()


def index_of(key: str, entries: Sequence[Key]) -> int | None:
    """Which of the entries is this key's; `None`: none."""
    sha256 = digest(key)
    return next((index for index, entry in enumerate(entries) if entry.sha256 == sha256), None)
