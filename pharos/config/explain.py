"""The schema for people and editors: JSON Schema (draft 7) with the sentences that document the fields.

Forbidden here: facts of its own. Everything is taken from the types and docstrings of the records.
"""

import ast
import inspect as python_inspect
from functools import cache
from typing import Any

import msgspec
from msgspec import inspect

from pharos.config import schema, units
from pharos.config.forms import FORMS, form_of

DRAFT = "http://json-schema.org/draft-07/schema#"


def json_schema() -> dict[str, Any]:
    """The published schema of `pharos.yaml`."""
    definitions: dict[str, Any] = {}
    root = _group(inspect.type_info(schema.Config), "", definitions)
    return {
        "$schema": DRAFT,
        "title": "pharos.yaml",
        **root,
        "patternProperties": {"^x-": {}},
        "definitions": dict(sorted(definitions.items())),
    }


@cache
def sentences() -> dict[str, dict[str, str]]:
    """Record name to field name to the sentences that document it; the record's own are under the empty name."""
    found: dict[str, dict[str, str]] = {}
    for item in ast.parse(python_inspect.getsource(schema)).body:
        if isinstance(item, ast.ClassDef):
            found[item.name] = {"": " ".join((ast.get_docstring(item) or "").split())}
            for field, text in zip(item.body, item.body[1:], strict=False):
                match field, text:
                    case ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(value=ast.Constant(value=str(said))):
                        found[item.name][name] = " ".join(said.split())
                    case _:
                        pass
    return found


def _group(kind: inspect.Type, path: str, definitions: dict[str, Any]) -> dict[str, Any]:
    if not isinstance(kind, inspect.StructType):
        raise TypeError(f"{kind} is no group of fields")
    said = sentences()[kind.cls.__name__]
    properties = {}
    for field in kind.fields:
        inner = f"{path}.{field.encode_name}" if path else field.encode_name
        shape = _shape(field.type, inner, definitions)
        described: dict[str, Any] = {"description": said[field.name]}
        default = _default(field)
        if default is not None:
            described["default"] = default
        properties[field.encode_name] = described | (shape if "$ref" not in shape else {"allOf": [shape]})
    group = {"type": "object", "description": said[""], "properties": properties, "additionalProperties": False}
    required = [field.encode_name for field in kind.fields if field.required]
    return group | ({"required": required} if required else {})


def _shape(kind: inspect.Type, path: str, definitions: dict[str, Any]) -> dict[str, Any]:
    """The schema of one type."""
    match kind:
        case inspect.Metadata(type=inner, extra=extra):
            form = (extra or {}).get("form")
            return _shape(inner, path, definitions) if form is None else _formed(form, inner)
        case inspect.UnionType(types=types):
            shapes = [_shape(each, path, definitions) for each in types if not isinstance(each, inspect.NoneType)]
            return shapes[0] if len(shapes) == 1 else {"anyOf": shapes}
        case inspect.StructType(cls=cls):
            definitions.setdefault(cls.__name__, _group(kind, path, definitions))
            return {"$ref": f"#/definitions/{cls.__name__}"}
        case inspect.VarTupleType(item_type=item):
            return {"type": "array", "items": _shape(item, f"{path}[]", definitions)}
        case inspect.DictType(value_type=value):
            return {"type": "object", "additionalProperties": _shape(value, f"{path}.*", definitions)}
        case _:
            return _plain(kind)


def _formed(form: str, kind: inspect.Type) -> dict[str, Any]:
    spec = FORMS[form]
    text: dict[str, Any] = {"type": "string", "examples": [spec.example]}
    if spec.pattern is not None:
        text["pattern"] = spec.pattern
    if form == "duration":
        return {"anyOf": [text, {"enum": [0, "0"]}]}
    if form == "size" and isinstance(kind, inspect.IntType):
        return {"anyOf": [text, {"type": "integer", "minimum": kind.ge if kind.ge is not None else 0}]}
    return text


def _plain(kind: inspect.Type) -> dict[str, Any]:
    match kind:
        case inspect.StrType(min_length=shortest):
            return {"type": "string"} | ({"minLength": shortest} if shortest else {})
        case inspect.BoolType():
            return {"type": "boolean"}
        case inspect.LiteralType(values=values):
            return {"enum": list(values)}
        case inspect.IntType() | inspect.FloatType():
            limits = {"minimum": kind.ge, "exclusiveMinimum": kind.gt, "maximum": kind.le}
            name = "integer" if isinstance(kind, inspect.IntType) else "number"
            return {"type": name} | {word: limit for word, limit in limits.items() if limit is not None}
        case _:
            raise TypeError(f"the schema has no word for {kind}")


def _default(field: inspect.Field) -> object:
    """A default as it would be written in the file; `None` when there is none worth writing."""
    if field.default is msgspec.NODEFAULT:
        return None
    form = form_of(field.type)
    if form == "duration" and field.default is None:
        return 0
    if form == "duration" and isinstance(field.default, float):
        return units.show_seconds(field.default)
    if form == "size" and isinstance(field.default, int):
        return units.show_bytes(field.default)
    if isinstance(field.default, tuple):
        return list(field.default)
    return None if isinstance(field.default, msgspec.Struct) else field.default
