"""A tree of YAML nodes to the records of the schema, with every problem found on the way.

Forbidden here: stopping at the first problem, and knowing a single field: all is told by the types. What no type can
say (unique names, one limit below another) is in `checks`.
"""

import math
import re
from typing import Any

import yaml
from msgspec import inspect

from pharos.config import forms, tree
from pharos.config.meant import meant
from pharos.config.problems import Problem

MAX_NODES = 200_000
"""Nodes that are read, counting a shared one each time: anchors can make a small file mean a huge one."""
MAX_MERGES = 10
"""How deep merges may nest: an anchor can hold itself."""
_FEW = 12
"""Names that fit on one line of a message."""
_Pairs = dict[str, tuple[yaml.ScalarNode, yaml.Node]]
"""Name to the node of the name and that of the value: they may be on different lines."""


class Unusable(Exception):  # noqa: N818 -- only a way out of nested reading; what is wrong is already noted
    """A value that cannot be used."""


class Reader:
    """Reads one tree. `problems` and `places` (field to where it was written) are filled on the way."""

    def __init__(self) -> None:
        self.problems: list[Problem] = []
        self.places: dict[str, str] = {}
        self._left = MAX_NODES
        self._merging = 0

    def read(self, node: yaml.Node, kind: inspect.Type, path: str) -> Any:  # noqa: ANN401 -- of the type asked for
        """The value of a node as a type wants it.

        Raises `Unusable` after noting why, so that one level up can go on with the next field.
        """
        self._count(node, path)
        match kind:
            case inspect.Metadata(type=inner, extra=extra):
                form = (extra or {}).get("form")
                return self.read(node, inner, path) if form is None else self._formed(node, inner, form, path)
            case inspect.UnionType(types=types):
                return self._union(node, types, path)
            case inspect.StructType():
                return self._struct(node, kind, path)
            case inspect.VarTupleType(item_type=item):
                return self._list(node, item, path)
            case inspect.DictType(value_type=item):
                return self._dict(node, item, path)
            case _:
                return self._plain(node, kind, path)

    def _count(self, node: yaml.Node, path: str) -> None:
        self._left -= 1
        if self._left < 0:
            raise self._bad(path, "anchors make this too large to read: repeat fewer of them", node)
        if node.tag not in tree.KNOWN_TAGS:
            raise self._bad(path, f"the tag {forms.short(node.tag)} means nothing here: remove it", node)

    def note(self, path: str, message: str, node: yaml.Node) -> None:
        """Keep a problem."""
        self.problems.append(Problem(path, message, tree.place(node)))

    def _bad(self, path: str, message: str, node: yaml.Node) -> Unusable:
        self.note(path, message, node)
        return Unusable()

    def _struct(self, node: yaml.Node, kind: inspect.StructType, path: str) -> Any:  # noqa: ANN401 -- of the type asked for
        fields = {field.encode_name: field for field in kind.fields}
        if not isinstance(node, yaml.MappingNode):
            raise self._bad(path, _wants_fields(kind, node), node)
        values: dict[str, Any] = {}
        is_whole = True
        given = self._pairs(node, path)
        for name, (key, value) in given.items():
            inner = f"{path}.{name}" if path else name
            field = fields.get(name)
            if field is None:
                if path or not name.startswith("x-"):
                    self.note(inner, no_such_field(name, fields), key)
                    is_whole = False
                continue
            self.places[inner] = tree.place(value)
            if tree.is_null(value):
                continue
            try:
                values[field.name] = self.read(value, field.type, inner)
            except Unusable:
                if self._left < 0:
                    raise
                is_whole = False
        for name, field in fields.items():
            if field.required and (name not in given or tree.is_null(given[name][1])):
                self.note(f"{path}.{name}" if path else name, "is missing", node)
                is_whole = False
        if not is_whole:
            raise Unusable
        return kind.cls(**values)

    def _pairs(self, node: yaml.MappingNode, path: str) -> _Pairs:
        """Names to values, merges (`<<`) included; a name written beside a merge wins over it."""
        own: _Pairs = {}
        merged: _Pairs = {}
        self._left -= len(node.value)
        for key, value in node.value:
            if key.tag == tree.MERGE:
                for name, taken in self._merged(value, path).items():
                    merged.setdefault(name, taken)
            elif not isinstance(key, yaml.ScalarNode):
                self.note(path, "a name must be plain text", key)
            elif key.value in own:
                inner = f"{path}.{key.value}" if path else key.value
                self.note(inner, f"is given twice, first on {tree.place(own[key.value][0])}", key)
            else:
                own[key.value] = key, value
        return merged | own

    def _merged(self, node: yaml.Node, path: str) -> _Pairs:
        self._count(node, path)
        if self._merging >= MAX_MERGES:
            raise self._bad(path, "<< inside << goes too deep: write the fields out", node)
        self._merging += 1
        try:
            return self._merged_fields(node, path)
        finally:
            self._merging -= 1

    def _merged_fields(self, node: yaml.Node, path: str) -> _Pairs:
        if isinstance(node, yaml.MappingNode):
            return self._pairs(node, path)
        if not isinstance(node, yaml.SequenceNode):
            raise self._bad(path, "<< takes an anchor of named fields, as in <<: *name", node)
        found: _Pairs = {}
        for item in node.value:
            for name, value in self._merged(item, path).items():
                found.setdefault(name, value)
        return found

    def _list(self, node: yaml.Node, item: inspect.Type, path: str) -> tuple[Any, ...]:
        if not isinstance(node, yaml.SequenceNode):
            shown = f": write {forms.alone(node.value)}" if isinstance(node, yaml.ScalarNode) else ""
            raise self._bad(path, f"expected a list, got {forms.what(node)}{shown}", node)
        found = []
        for index, value in enumerate(node.value):
            inner = f"{path}[{index}]"
            self.places[inner] = tree.place(value)
            try:
                found.append(self.read(value, item, inner))
            except Unusable:
                if self._left < 0:
                    raise
        if len(found) != len(node.value):
            raise Unusable
        return tuple(found)

    def _dict(self, node: yaml.Node, item: inspect.Type, path: str) -> dict[str, Any]:
        if not isinstance(node, yaml.MappingNode):
            raise self._bad(path, f"expected names with values, got {forms.what(node, secret=True)}", node)
        found = {}
        given = self._pairs(node, path)
        for name, (_, value) in given.items():
            inner = f"{path}.{name}"
            self.places[inner] = tree.place(value)
            try:
                found[name] = self.read(value, item, inner)
            except Unusable:
                if self._left < 0:
                    raise
        if len(found) != len(given):
            raise Unusable
        return found

    def _union(self, node: yaml.Node, types: tuple[inspect.Type, ...], path: str) -> Any:  # noqa: ANN401 -- of the type asked for
        kinds = [kind for kind in types if not isinstance(kind, inspect.NoneType)]
        if len(kinds) == 1:
            value = self.read(node, kinds[0], path)
            is_off = (
                value == 0
                and isinstance(kinds[0], inspect.Metadata)
                and (kinds[0].extra or {}).get("form") == "duration"
            )
            return None if is_off else value
        for kind in kinds:  # a choice of plain values: words and true or false
            try:
                return forms.plain(node, kind)
            except ValueError:
                continue
        raise self._bad(path, f"expected {forms.expected_any(kinds)}, got {forms.what(node)}", node)

    def _formed(self, node: yaml.Node, kind: inspect.Type, form: str, path: str) -> str | float:
        if not isinstance(node, yaml.ScalarNode):
            raise self._bad(path, f"expected {forms.FORMS[form].expects}, got {forms.what(node)}", node)
        try:
            value = forms.FORMS[form].read(node.value)
        except ValueError as fault:
            raise self._bad(path, str(fault), node) from None
        self._check_range(node, kind, value, path)
        return value

    def _plain(self, node: yaml.Node, kind: inspect.Type, path: str) -> Any:  # noqa: ANN401 -- of the type asked for
        try:
            value = forms.plain(node, kind)
        except ValueError as fault:
            raise self._bad(path, str(fault), node) from None
        self._check_range(node, kind, value, path)
        return value

    def _check_range(self, node: yaml.Node, kind: inspect.Type, value: object, path: str) -> None:
        if isinstance(kind, inspect.IntType | inspect.FloatType) and isinstance(value, int | float):
            is_low = (kind.ge is not None and value < kind.ge) or (kind.gt is not None and value <= kind.gt)
            if is_low or not math.isfinite(value) or (kind.le is not None and value > kind.le):
                raise self._bad(path, f"must be {forms.bounds(kind)}, got {forms.what(node)}", node)
        elif isinstance(kind, inspect.StrType) and kind.min_length and not value:
            raise self._bad(path, "is empty: write a value, or remove it", node)


def no_such_field(name: str, fields: dict[str, inspect.Field]) -> str:
    """The sentence for an unknown name, with the one that was probably meant."""
    folded = re.sub(r"(?<=[a-z])(?=[A-Z])|-", "_", name).lower()
    close = meant(folded, fields)
    if close is not None:
        return f"no such field; did you mean {close}?"
    if len(fields) <= _FEW:
        return f"no such field; there are {', '.join(fields)}"
    return "no such field; `pharos config schema` lists all"


def _wants_fields(kind: inspect.StructType, node: yaml.Node) -> str:
    required = [field.encode_name for field in kind.fields if field.required]
    if isinstance(node, yaml.ScalarNode) and len(required) == 1:
        return f"expected named fields, got {forms.what(node)}: write {{{required[0]}: {forms.short(node.value)}}}"
    names = ", ".join(field.encode_name for field in kind.fields[:4])
    secret = getattr(kind.cls, "NEVER_SHOWN", False)
    return f"expected named fields ({names} …), got {forms.what(node, secret=secret)}"
