"""Finds the very keys that Pharos sends in what engines send back, in every form in which they may come.

Forbidden here: showing one in a representation, and going by names or looks (`masks` does).
"""

import base64
import html
import json
import re
from collections.abc import Iterable, Iterator
from typing import Final

from pharos.core.engine.masks import MASK, masked, masked_looks, masked_text

LONGER_THAN: Final = 5
"""Letters; what is as short stands in texts by chance."""

_SCHEMES: Final = frozenset({"bearer", "basic"})
"""What stands before keys, and is none."""


class KnownKeys:
    """Knows what must not be shown: the values of headers, and their parts between blanks."""

    def __init__(self, values: Iterable[str] = ()) -> None:
        parts = {part for value in values for part in (value, *value.split()) if part.lower() not in _SCHEMES}
        forms = {form for part in parts for form in _forms(part)}
        ordered = sorted(forms, key=len, reverse=True)
        self._pattern = re.compile("|".join(map(re.escape, ordered))) if ordered else None

    def text(self, text: str) -> str:
        """Mask the keys in a text; nothing else in it changes."""
        return self._pattern.sub(MASK, text) if self._pattern is not None else text

    def line(self, text: str) -> str:
        """Mask the keys in a line of a log, and what looks like one."""
        return masked_looks(text, self.text)

    def plain(self, text: str) -> str:
        """Mask the keys in a text that is no JSON, such as a header, and all else that `masks` would."""
        return masked_text(text, self.text)

    def body(self, body: bytes) -> bytes:
        """Mask the keys in a body, and all else that `masks` would."""
        clean = masked(body, self.text).decode("utf-8", "surrogateescape")
        return self.text(clean).encode("utf-8", "surrogateescape")

    def deep(self, value: object, kept: frozenset[str] = frozenset()) -> object:
        """Mask the keys in every text within a value; fields named in `kept` stay as they are."""
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, (list, tuple)):
            return [self.deep(item, kept) for item in value]
        if isinstance(value, dict):
            return {name: item if name in kept else self.deep(item, kept) for name, item in value.items()}
        return value

    def __repr__(self) -> str:
        return "<KnownKeys>"


def _forms(value: str) -> Iterator[str]:
    """How a value may be written: as it is, escaped, percent-encoded, in base64 alone or within something longer."""
    if len(value) <= LONGER_THAN:
        return
    yield value
    yield json.dumps(value)[1:-1]
    yield json.dumps(value)[1:-1].replace("/", "\\/")
    yield html.escape(value)
    for kept in ("", "/"):
        for blank in ("%20", "+"):
            encoded = "".join(blank if letter == " " else _percent(letter, kept) for letter in value)
            yield encoded
            yield re.sub("%[0-9A-F]{2}", lambda found: found[0].lower(), encoded)
    raw = value.encode("utf-8", "surrogatepass")
    for before in range(3):
        # Letters of base64 that bits before or after the value have a part in are left out.
        start, end = -(-before * 8 // 6), (before + len(raw)) * 8 // 6
        for encode in (base64.b64encode, base64.urlsafe_b64encode):
            yield encode(bytes(before) + raw).decode()[start:end]


def _percent(letter: str, kept: str) -> str:
    """Write one letter as a URL has it; those in `kept` stay as they are."""
    if letter in kept or (letter.isascii() and (letter.isalnum() or letter in "-._~")):
        return letter
    return "".join(f"%{byte:02X}" for byte in letter.encode("utf-8", "surrogatepass"))
