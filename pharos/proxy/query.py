"""The query string of a request: bounded before anything is decoded, and without what is not for an engine.

Some readers part fields at `;` too, so both ways are looked at. Forbidden here: changing a byte of what goes on.
"""

import re
from collections.abc import Collection, Iterable
from typing import Final
from urllib.parse import parse_qsl, unquote, unquote_plus

from pharos.proxy.auth import holds
from pharos.proxy.errors import ClientFault

MOST_FIELDS: Final = 100
LONGEST: Final = 8 * 1024
"""Characters; no route takes a tenth. To decode one takes 1 ms, which holds up all streams."""
SECRET_FIELDS: Final = frozenset({"key", "api_key", "api-key", "apikey", "access_token"})
"""Fields in which clients present a key."""
_LONGEST_NAME: Final = 3 * max(map(len, SECRET_FIELDS)) + 8
"""Characters of an encoded name that can be one of those that matter."""
_SEPARATORS: Final = re.compile("([&;])")


def refuse_model(query: str, names: Collection[str]) -> None:
    """Refuse a query that names the model, which the body does, or that is too much. Raises ClientFault (400)."""
    for field in _parts(query)[::2]:
        if _name(field) in names:
            raise ClientFault(400, "duplicate_model", "name the model in the body only")


def to_engine(query: str, secrets: Iterable[str]) -> str:
    """The query without fields that hold a key of the client; all other bytes as they came. Raises ClientFault (400).

    `secrets`: what the client presents as its key.
    """
    given = tuple(secrets)
    parts = _parts(query)
    kept = ""
    for index in range(0, len(parts), 2):
        field = parts[index]
        if field and (_name(field) in SECRET_FIELDS or _tells(field, given)):
            continue
        kept += parts[index - 1] + field if index and (kept or not parts[0]) else field
    return "" if given and _holds_any(kept, given) else kept


def fields(query: str) -> dict[str, str]:
    """The fields for a page, decoded; of equal names the last one. Raises ClientFault (400) when it is too much."""
    if not query:
        return {}
    _parts(query)
    return dict(parse_qsl(query, keep_blank_values=True))


def _parts(query: str) -> list[str]:
    """Fields, and the separators between them."""
    if len(query) > LONGEST or query.count("&") + query.count(";") >= MOST_FIELDS:
        raise ClientFault(
            400, "invalid_query", f"The query has more than {MOST_FIELDS} fields or {LONGEST} characters: send less."
        )
    return _SEPARATORS.split(query)


def _name(field: str) -> str:
    """The name of a field in lower case; empty for one that is too long to matter."""
    name = field.partition("=")[0]
    return unquote_plus(name).strip().lower() if len(name) <= _LONGEST_NAME else ""


def _tells(field: str, secrets: tuple[str, ...]) -> bool:
    """Whether a field holds a key, in its name or its value, encoded or not."""
    return bool(secrets) and any(_holds_any(text, secrets) for text in (field, field.partition("=")[2]))


def _holds_any(text: str, secrets: tuple[str, ...]) -> bool:
    forms = {text, unquote(text), unquote_plus(text)} if "%" in text or "+" in text else {text}
    return any(holds(form, secret) for form in forms for secret in secrets)
