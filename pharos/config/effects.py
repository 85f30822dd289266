"""When a changed field takes effect: at once, or at the next start. And what of a new configuration is used until then.

Forbidden here: reading files, and applying anything.
"""

from typing import Any, Final, Literal, TypeVar

import msgspec
from msgspec import inspect

from pharos.config.schema import Config

When = Literal["at once", "at a restart"]
T = TypeVar("T", bound=msgspec.Struct)

EFFECTS: Final[dict[str, When]] = {
    "listen": "at a restart",
    "admin_listen": "at a restart",
    "metrics_listen": "at a restart",
    "policy": "at a restart",
    "log.level": "at once",
    "log.format": "at a restart",
    "limits.body": "at once",
    "limits.header": "at a restart",
    "limits.buffered": "at once",
    "limits.connections": "at once",
    "deadlines": "at once",
    "retry": "at once",
    "queue": "at once",
    "backends": "at once",
    "aliases": "at once",
    "rewrite_reply_model": "at once",
    "credentials": "at once",
    "keys": "at once",
    "keys_file": "at once",
    "discovery": "at a restart",
    "usage": "at a restart",
    "drain": "at once",
    "peers": "at a restart",
    "state_file": "at a restart",
    "decision_log": "at a restart",
    "cors": "at a restart",
    "response_headers": "at once",
    "metrics": "at a restart",
}
"""A field, or a group for all that is in it, to when a change of it takes effect."""


def when(path: str) -> When:
    """When a field takes effect, as in `limits.body` or `backends[].url`. Raises `KeyError` for one without a row."""
    segments = path.replace("[]", "").split(".")
    for length in range(len(segments), 0, -1):
        found = EFFECTS.get(".".join(segments[:length]))
        if found is not None:
            return found
    raise KeyError(path)


def adopted(running: Config, wanted: Config) -> tuple[Config, tuple[str, ...]]:
    """What is served by once `wanted` was read, and its changed fields that wait for a restart."""
    waiting: list[str] = []
    return _merged(running, wanted, "", waiting), tuple(waiting)


def changed(old: Config, new: Config) -> list[str]:
    """The fields that differ."""
    return _changed(old, new, "")


def _merged(running: T, wanted: T, path: str, waiting: list[str]) -> T:
    kind = inspect.type_info(type(wanted))
    if not isinstance(kind, inspect.StructType):
        raise TypeError(f"{kind} is no group of fields")
    values: dict[str, Any] = {}
    for field in kind.fields:
        inner = f"{path}.{field.encode_name}" if path else field.encode_name
        old, new = getattr(running, field.name), getattr(wanted, field.name)
        effect = EFFECTS.get(inner)
        if effect == "at once" or old == new:
            values[field.name] = new
        elif effect == "at a restart":
            values[field.name] = old
            waiting += _changed(old, new, inner)
        else:
            values[field.name] = _merged(old, new, inner, waiting)
    return type(wanted)(**values)


def _changed(old: Any, new: Any, path: str) -> list[str]:  # noqa: ANN401 - a value of any field
    """The fields that differ, as deep as both sides have the same groups."""
    if not (isinstance(old, msgspec.Struct) and type(old) is type(new)):
        return [path]
    names = zip(old.__struct_fields__, old.__struct_encode_fields__, strict=True)
    pairs = [(getattr(old, name), getattr(new, name), f"{path}.{shown}" if path else shown) for name, shown in names]
    return [found for one, other, inner in pairs if one != other for found in _changed(one, other, inner)]
