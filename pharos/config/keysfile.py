"""More keys from a file of their own, as a mounted Secret is: entries as under `keys`, added to those.

Forbidden here: repeating anything of an entry that may be a key.
"""

import contextlib
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import msgspec
import yaml
from msgspec import inspect

from pharos.config import forms, tree
from pharos.config.problems import ConfigError, Problem
from pharos.config.reader import Reader, Unusable
from pharos.config.schema import Config, Key
from pharos.config.texts import read_text

FIELD: Final = "keys_file"


class Found(msgspec.Struct, frozen=True):
    """What a file of keys holds."""

    keys: tuple[Key, ...] = ()
    problems: tuple[Problem, ...] = ()
    places: Mapping[str, str] = {}
    """Field, as in `keys_file[0].name`, to the file and its line."""


def read(path: str, place: str) -> Found:
    """The keys in a file. `place`: where it is named."""
    try:
        node = tree.compose(read_text(Path(path)), path)
    except ConfigError as fault:
        return Found(
            problems=tuple(
                Problem(FIELD, one.message, f"{path} {one.where}" if one.where else _where(place, path))
                for one in fault.problems
            )
        )
    if isinstance(node, yaml.MappingNode):
        node = _under_keys(node)
    if node is None or tree.is_null(node):
        return Found()
    if not isinstance(node, yaml.SequenceNode):
        message = "expected a list of keys, as under `keys`: `pharos keys new` prints an entry"
        return Found(problems=(Problem(FIELD, f"{message} (got {forms.what(node, secret=True)})", f"{path} line 1"),))
    reader = Reader()
    keys: tuple[Key, ...] = ()
    with contextlib.suppress(Unusable):  # what is wrong is in its problems
        keys = reader.read(node, inspect.type_info(tuple[Key, ...]), FIELD)
    return Found(
        keys,
        tuple(msgspec.structs.replace(one, where=f"{path} {one.where}".rstrip()) for one in reader.problems),
        {field: f"{path} {where}" for field, where in reader.places.items()},
    )


def join(config: Config, place: str) -> tuple[Config, Found]:
    """A configuration with the keys of its file behind its own, and what was found there."""
    if config.keys_file is None:
        return config, Found()
    found = read(config.keys_file, place)
    problems = found.problems
    if not problems and not config.keys and not found.keys:
        message = "holds no key, and there are none under `keys`: everybody would be let in. Is it half written?"
        problems = (Problem(FIELD, message, _where(place, config.keys_file)),)
    joined = msgspec.structs.replace(config, keys=(*config.keys, *found.keys))
    return joined, msgspec.structs.replace(found, problems=problems)


def entry(index: int, count: int, places: Mapping[str, str]) -> str:
    """Name of an entry by its place among all `count` keys: `keys[0]`, or `keys_file[0]` for one of the file."""
    in_file = sum(f"{FIELD}[{number}]" in places for number in range(count))
    listed = count - in_file
    return f"keys[{index}]" if index < listed else f"{FIELD}[{index - listed}]"


def _where(place: str, path: str) -> str:
    return f"{place}, {path}" if place and not place.startswith("PHAROS_") else path


def _under_keys(node: yaml.MappingNode) -> yaml.Node:
    """The list in a file that has it under `keys:`, as the configuration does; any other mapping as it is."""
    named = {key.value: value for key, value in node.value if isinstance(key, yaml.ScalarNode)}
    return named["keys"] if list(named) == ["keys"] else node
