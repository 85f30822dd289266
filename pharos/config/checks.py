"""What no type can say about a configuration: unique names, known engine kinds, one limit beside another.

Forbidden here: changing a value.
"""

import difflib
from collections.abc import Iterator, Sequence

from pharos.config import access, aliases, probes, units
from pharos.config.problems import Problem
from pharos.config.schema import Backend, Config, Key
from pharos.core.engine import recipes


def check(config: Config) -> list[Problem]:
    """Everything wrong with a configuration whose fields are each right."""
    return [
        *_backends(config.backends),
        *access.check(config.backends, config.credentials),
        *probes.check(config.backends),
        *aliases.check(config),
        *_keys(config.keys),
        *_limits(config),
    ]


def backend_name(backend: Backend) -> str:
    """The name of a backend: its own, else host and port of its URL."""
    return backend.name if backend.name is not None else units.default_name(backend.url)


def _backends(backends: Sequence[Backend]) -> Iterator[Problem]:
    first: dict[str, int] = {}
    for index, backend in enumerate(backends):
        path = f"backends[{index}]"
        name = backend_name(backend)
        if name in first:
            field = "name" if backend.name is not None else "url"
            yield Problem(
                f"{path}.{field}", f"{name} is the name of backends[{first[name]}] too: give one of them another `name`"
            )
        first.setdefault(name, index)
        unknown = _unknown_kind(backend.kind)
        if unknown is not None:
            yield Problem(f"{path}.kind", unknown)


def _unknown_kind(kind: str) -> str | None:
    known = ["auto", *recipes.RECIPES]
    if kind in known:
        return None
    close = difflib.get_close_matches(kind.lower(), known, n=1)
    return f"no such kind; did you mean {close[0]}?" if close else f"no such kind; there are {', '.join(known)}"


def _keys(keys: Sequence[Key]) -> Iterator[Problem]:
    names: dict[str, int] = {}
    hashes: dict[str, int] = {}
    for index, key in enumerate(keys):
        if key.name in names:
            yield Problem(
                f"keys[{index}].name", f"{key.name} is the name of keys[{names[key.name]}] too: names are unique"
            )
        if key.sha256 in hashes:
            yield Problem(
                f"keys[{index}].sha256",
                f"is the same key as keys[{hashes[key.sha256]}]: make one for each with `pharos keys new`",
            )
        names.setdefault(key.name, index)
        hashes.setdefault(key.sha256, index)


def _limits(config: Config) -> Iterator[Problem]:
    limits = config.limits
    if limits.buffered_bytes < limits.body_bytes:
        body, buffered = units.show_bytes(limits.body_bytes), units.show_bytes(limits.buffered_bytes)
        yield Problem(
            "limits.buffered", f"{buffered} is below limits.body ({body}): the largest request could never be taken"
        )
