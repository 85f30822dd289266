"""`PHAROS_DRAIN__TIMEOUT=30s`: environment variables laid over the tree of the file.

Forbidden here: reading the process's environment (it is an argument) and judging values, which the reader does.
"""

import re
from collections.abc import Mapping
from typing import Final

import yaml
from msgspec import inspect

from pharos.config import reader, tree
from pharos.config.meant import meant
from pharos.config.problems import ConfigError, Problem
from pharos.config.schema import Config

PREFIX: Final = "PHAROS_"
_SERVICE_LINK = re.compile(
    r"PHAROS_([A-Z0-9_]+_)?(SERVICE_HOST|SERVICE_PORT(_[A-Z0-9_]+)?|PORT|PORT_[0-9]+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?)"
)
"""What Kubernetes sets in every container for a Service whose name begins with `pharos`."""


def ignored(environ: Mapping[str, str]) -> str | None:
    """One line about variables that look like settings and are none; `None` when there are none."""
    links = sorted(name for name in environ if _SERVICE_LINK.fullmatch(name))
    if not links:
        return None
    return f"{links[0]} and its like are links that Kubernetes sets for a Service, no settings: ignored"


def overlay(root: yaml.MappingNode, environ: Mapping[str, str]) -> tuple[yaml.MappingNode, list[Problem]]:
    """The tree with the variables laid over it, and what is wrong with their names."""
    problems: list[Problem] = []
    names = [
        name for name in environ if name.startswith(PREFIX) and environ[name] and not _SERVICE_LINK.fullmatch(name)
    ]
    # Groups before the fields in them: PHAROS_DRAIN is laid before PHAROS_DRAIN__TIMEOUT.
    for name in sorted(names, key=lambda name: (name.count("__"), name)):
        path = name.removeprefix(PREFIX).lower().split("__")
        kind = _kind_of(path)
        if isinstance(kind, str):
            problems.append(Problem("", kind, name))
            continue
        try:
            root = _put(root, path, node(environ[name], kind, name))
        except ConfigError as fault:
            problems.extend(Problem("", problem.message, name) for problem in fault.problems)
    return root, problems


def _kind_of(path: list[str]) -> inspect.Type | str:
    """The type of the field that a variable names, or a sentence about why it names none."""
    kind: inspect.Type = inspect.type_info(Config)
    for depth, segment in enumerate(path):
        group = next((inner for inner in alternatives(kind) if isinstance(inner, inspect.StructType)), None)
        if group is None:
            whole = _name(path[:depth])
            return f"lists and maps are set whole, as YAML: {whole}='…'"
        fields = {field.encode_name: field for field in group.fields}
        if segment not in fields:
            bare = path[-1].removesuffix("_file")
            if depth == len(path) - 1 and bare != path[-1] and bare in fields:
                return f"only keys and secrets are read from files: set {_name([*path[:-1], bare])} itself"
            close = meant("__".join(path), _all_names())
            if close is None:
                return reader.no_such_field(segment, fields)
            return f"no such setting; did you mean {_name(close.split('__'))}?"
        kind = fields[segment].type
    return kind


def alternatives(kind: inspect.Type) -> tuple[inspect.Type, ...]:
    """The types that a field may hold, `None` and bounds aside."""
    if isinstance(kind, inspect.Metadata):
        return alternatives(kind.type)
    if isinstance(kind, inspect.UnionType):
        return tuple(
            inner for each in kind.types for inner in alternatives(each) if not isinstance(inner, inspect.NoneType)
        )
    return (kind,)


def _all_names() -> list[str]:
    def walk(kind: inspect.Type, path: tuple[str, ...]) -> list[str]:
        found = ["__".join(path)] if path else []
        for inner in alternatives(kind):
            if isinstance(inner, inspect.StructType):
                found += [name for field in inner.fields for name in walk(field.type, (*path, field.encode_name))]
        return found

    return walk(inspect.type_info(Config), ())


def _name(path: list[str]) -> str:
    return PREFIX + "__".join(path).upper()


def node(text: str, kind: inspect.Type, name: str) -> yaml.Node:
    """A variable's value: text as it stands where text is wanted, YAML otherwise."""
    is_text = isinstance(kind, inspect.Metadata) or all(
        isinstance(inner, inspect.StrType | inspect.LiteralType) for inner in alternatives(kind)
    )
    if is_text or kind_is_formed(kind):
        mark = yaml.Mark(name, 0, 0, 0, None, 0)
        return yaml.ScalarNode(tree.STR, text, start_mark=mark, end_mark=mark)
    found = tree.compose(text, name)
    if found is None:
        raise ConfigError([Problem("", "is empty")], name)
    return found


def kind_is_formed(kind: inspect.Type) -> bool:
    """Whether a field's value is written in a form of its own (a duration, a size, an address)."""
    if isinstance(kind, inspect.UnionType):
        return any(kind_is_formed(inner) for inner in kind.types)
    return isinstance(kind, inspect.Metadata) and "form" in (kind.extra or {})


def _put(root: yaml.MappingNode, path: list[str], value: yaml.Node) -> yaml.MappingNode:
    """A copy of the tree with a value in place: nodes may be shared by anchors, so none is changed."""
    name, *rest = path
    kept = [(key, old) for key, old in root.value if key.value != name]
    if rest:
        olds = [old for key, old in root.value if key.value == name]
        if olds and not isinstance(olds[-1], yaml.MappingNode) and not tree.is_null(olds[-1]):
            return root  # the file is wrong here: the reader says so
        group = olds[-1] if olds and isinstance(olds[-1], yaml.MappingNode) else empty(value)
        value = _put(group, rest, value)
    key = yaml.ScalarNode(tree.STR, name, start_mark=value.start_mark, end_mark=value.end_mark)
    return yaml.MappingNode(root.tag, [*kept, (key, value)], root.start_mark, root.end_mark)


def empty(like: yaml.Node | None = None) -> yaml.MappingNode:
    """A group without fields."""
    mark = like.start_mark if like is not None else yaml.Mark("", 0, 0, 0, None, 0)
    return yaml.MappingNode(tree.MAPPING, [], start_mark=mark, end_mark=mark)
