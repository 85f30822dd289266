import json
import re
from collections.abc import Iterator
from typing import Any

from msgspec import inspect

from pharos.config.env import alternatives
from pharos.config.explain import json_schema, sentences
from pharos.config.schema import Config

DRAFT_7_WORDS = {
    "$schema", "$ref", "title", "description", "default", "examples", "type", "enum", "properties",
    "patternProperties", "additionalProperties", "required", "items", "pattern", "minLength", "minimum",
    "exclusiveMinimum", "maximum", "anyOf", "allOf", "definitions",
}  # fmt: skip
MAPS_OF_SCHEMAS = ("properties", "patternProperties", "definitions")


def schemas(schema: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield schema
    for word in MAPS_OF_SCHEMAS:
        for inner in schema.get(word, {}).values():
            yield from schemas(inner)
    for word in ("items", "additionalProperties"):
        if isinstance(schema.get(word), dict):
            yield from schemas(schema[word])
    for word in ("anyOf", "allOf"):
        for inner in schema.get(word, ()):
            yield from schemas(inner)


def groups(kind: inspect.Type) -> Iterator[inspect.StructType]:
    for inner in alternatives(kind):
        if isinstance(inner, inspect.StructType):
            yield inner
            for field in inner.fields:
                yield from groups(field.type)
        elif isinstance(inner, inspect.VarTupleType):
            yield from groups(inner.item_type)
        elif isinstance(inner, inspect.DictType):
            yield from groups(inner.value_type)


def test_the_schema_is_plain_json_of_draft_7() -> None:
    schema = json_schema()
    assert schema == json.loads(json.dumps(schema))
    assert schema["$schema"] == "http://json-schema.org/draft-07/schema#"
    for inner in schemas(schema):
        assert set(inner) <= DRAFT_7_WORDS
        assert inner.get("type", "object") in {"object", "array", "string", "integer", "number", "boolean"}
        assert "$ref" not in inner or set(inner) == {"$ref"}, "in draft 7 a reference hides what stands beside it"
        re.compile(inner.get("pattern", ""))


def test_every_reference_in_the_schema_leads_somewhere() -> None:
    schema = json_schema()
    for inner in schemas(schema):
        if "$ref" in inner:
            assert inner["$ref"].removeprefix("#/definitions/") in schema["definitions"]


def test_the_schema_names_and_describes_every_field() -> None:
    schema = json_schema()
    for group in groups(inspect.type_info(Config)):
        shown = schema if group.cls is Config else schema["definitions"][group.cls.__name__]
        assert list(shown["properties"]) == [field.encode_name for field in group.fields]
        assert all(len(field["description"]) > 10 for field in shown["properties"].values())
        assert shown["additionalProperties"] is False


def test_every_field_that_may_be_none_says_what_none_means() -> None:
    said = sentences()
    for group in groups(inspect.type_info(Config)):
        for field in group.fields:
            if isinstance(field.type, inspect.UnionType) and any(
                isinstance(kind, inspect.NoneType) for kind in field.type.types
            ):
                assert "`None`" in said[group.cls.__name__][field.name], f"{group.cls.__name__}.{field.name}"


def test_defaults_are_written_as_in_the_file() -> None:
    schema = json_schema()
    assert schema["properties"]["listen"]["default"] == ":8090"
    assert schema["definitions"]["Limits"]["properties"]["body"]["default"] == "32MiB"
    assert schema["definitions"]["Drain"]["properties"]["timeout"]["default"] == "10m"
    assert schema["definitions"]["Queue"]["properties"]["max_wait"]["default"] == 0
    assert schema["definitions"]["Docker"]["properties"]["enabled"]["default"] == "auto"


def test_names_for_anchors_are_allowed_at_the_top_only() -> None:
    schema = json_schema()
    assert schema["patternProperties"] == {"^x-": {}}
    assert all("patternProperties" not in group for group in schema["definitions"].values())
