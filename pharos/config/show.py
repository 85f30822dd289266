"""The configuration in effect, field by field with where each value comes from; what is secret is masked.

Forbidden here: reading files, and defaults of its own.
"""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import msgspec
from msgspec import inspect

from pharos.config import effects, units
from pharos.config.forms import form_of
from pharos.config.schema import Config

MASK: Final = "********"
SHOWN_OF_HASH: Final = 8
SECRETS: Final = frozenset({"keys[].cache_salt", "backends[].headers.*"})
"""Fields of which nothing is shown; `*` is any name. A header should hold no key, but might."""
HASHES: Final = frozenset({"keys[].sha256"})
"""Fields of which enough is shown to tell one from another."""
DEFAULT: Final = "default"
COMMAND_LINE: Final = "command line"
LINE: Final = "line "
WIDEST: Final = 60
"""Characters of a line before its origin; longer ones push it to the right."""


class Row(msgspec.Struct, frozen=True):
    """One field."""

    field: str
    """As in `backends[0].url`."""
    value: Any
    """As it would be written in the file; `None`: not set."""
    origin: str
    """`default`, `pharos.yaml:4`, the name of a variable, or `command line`."""
    takes_effect: effects.When
    """When a change of it does."""


def rows(config: Config, places: Mapping[str, str], source: str | None) -> list[Row]:
    """Every field. `places`: where those that were given were written; `source`: the file; `None`: there was none."""
    return list(_group(config, "", _Origins(places, source)))


def text(found: Sequence[Row], source: str) -> str:
    """For people: one line for each field, as it would be written, and its origin."""
    lines = [(f"{row.field}: {_written(row.value)}", row.origin) for row in found]
    width = min(max((len(line) for line, _ in lines), default=0), WIDEST)
    head = f"# {source}, as it is in effect. Each line says where its value comes from."
    return "\n".join([head, *(f"{line:{width}}  # {origin}" for line, origin in lines)])


class _Origins(msgspec.Struct, frozen=True):
    places: Mapping[str, str]
    source: str | None

    def of(self, path: str, *, is_default: bool) -> str:
        """Where a field comes from."""
        place = self.places.get(path, "") or self._of_keys_file(path)
        if place.startswith(LINE):
            return f"{self.source}:{place.removeprefix(LINE)}"
        if place:
            return place
        return DEFAULT if is_default or self.source is not None else COMMAND_LINE

    def _of_keys_file(self, path: str) -> str:
        """Where a field of a key was written that is not listed in the configuration itself."""
        match = re.match(r"keys\[(\d+)\]", path)
        if match is None:
            return ""
        listed = sum(re.fullmatch(r"keys\[\d+\]", place) is not None for place in self.places)
        inner = f"keys_file[{int(match[1]) - listed}]{path[match.end() :]}"
        return self.places.get(inner, "").replace(f" {LINE}", ":")


def _group(value: Any, path: str, origins: _Origins) -> Iterator[Row]:  # noqa: ANN401 - any group
    kind = inspect.type_info(type(value))
    if not isinstance(kind, inspect.StructType):
        raise TypeError(f"{kind} is no group of fields")
    for field in kind.fields:
        inner = f"{path}.{field.encode_name}" if path else field.encode_name
        yield from _field(getattr(value, field.name), field, inner, origins)


def _field(value: Any, field: inspect.Field, path: str, origins: _Origins) -> Iterator[Row]:  # noqa: ANN401 - any field's
    if isinstance(value, msgspec.Struct):
        yield from _group(value, path, origins)
    elif isinstance(value, tuple) and value and isinstance(value[0], msgspec.Struct):
        for index, one in enumerate(value):
            yield from _group(one, f"{path}[{index}]", origins)
    elif isinstance(value, dict) and value:
        for name, one in value.items():
            yield from _field(one, field, f"{path}.{name}", origins)
    else:
        shown = _shown(value, field.type, path)
        origin = origins.of(path, is_default=value == field.default or not value)
        yield Row(path, shown, origin, effects.when(_place(path)))


def _place(path: str) -> str:
    return re.sub(r"\[\d+\]", "[]", path)


def _shown(value: Any, kind: inspect.Type, path: str) -> Any:  # noqa: ANN401 - any field's
    """A value as it would be written in the file."""
    place = _place(path)
    if value is not None and (place in SECRETS or f"{place.rpartition('.')[0]}.*" in SECRETS):
        return MASK if value else value
    if place in HASHES and isinstance(value, str):
        return f"{value[:SHOWN_OF_HASH]}…"
    form = form_of(kind)
    if form == "duration":
        return 0 if value is None else units.show_seconds(value)
    if form == "size":
        return units.show_bytes(value)
    return list(value) if isinstance(value, tuple) else value


def _written(value: Any) -> str:  # noqa: ANN401 - any field's
    """As YAML, on one line; a text that cannot be taken for anything else goes without quotes."""
    if isinstance(value, str) and re.fullmatch(r"[A-Za-z0-9/.:_*…][\w/.:*…+@-]*", value) and not value.endswith(":"):
        return value
    return json.dumps(value, ensure_ascii=False)
