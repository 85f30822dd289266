"""When a changed field takes effect: every field has its row, and what waits for a restart stays as it was."""

import pytest

from pharos.config.effects import EFFECTS, adopted, when
from pharos.config.explain import json_schema
from pharos.config.load import parse
from pharos.config.schema import Config

A, B = "a" * 64, "b" * 64


def every_field() -> list[str]:
    """Every field of the published schema that holds a value and not only a group."""
    schema = json_schema()
    found: list[str] = []

    def walk(group: dict[str, object], path: str) -> None:
        for name, field in group["properties"].items():  # type: ignore[attr-defined]
            inner = f"{path}.{name}" if path else name
            parts = [field, *field.get("allOf", ()), *field.get("anyOf", ())]
            group_of = next((part["$ref"] for part in parts if "$ref" in part), None)
            if group_of is None:
                found.append(inner)
            else:
                walk(schema["definitions"][group_of.rpartition("/")[2]], inner)

    walk(schema, "")
    return found


def test_every_field_says_when_a_change_of_it_takes_effect() -> None:
    fields = every_field()
    assert "limits.body" in fields
    assert [field for field in fields if when(field) not in {"at once", "at a restart"}] == []


def test_every_row_is_about_a_field_or_a_group_that_there_is_and_no_row_is_inside_another() -> None:
    fields = every_field()
    assert [row for row in EFFECTS if not any(f == row or f.startswith(f"{row}.") for f in fields)] == []
    assert [row for row in EFFECTS if any(row.startswith(f"{other}.") for other in EFFECTS)] == []


def test_a_field_without_a_row_is_an_error() -> None:
    with pytest.raises(KeyError):
        when("no_such_field")


def test_fields_within_lists_go_by_their_list() -> None:
    assert when("backends[].url") == "at once"
    assert when("keys[].weight") == "at once"


def test_what_works_at_once_is_taken_and_what_does_not_is_named_and_stays() -> None:
    running = parse(f"listen: :1\nkeys: [{{name: a, sha256: {A}}}]\nlimits: {{body: 1MiB, header: 8KiB}}", {})
    wanted = parse(f"listen: :2\nkeys: [{{name: b, sha256: {B}}}]\nlimits: {{body: 2MiB, header: 16KiB}}", {})
    config, waiting = adopted(running, wanted)
    assert (config.listen, config.keys[0].name) == (":1", "b")
    assert (config.limits.body_bytes, config.limits.header_bytes) == (2 * 1024**2, 8 * 1024)
    assert waiting == ("listen", "limits.header")


def test_a_group_that_comes_or_goes_is_named_as_a_whole_and_one_that_changes_by_its_fields() -> None:
    none, one, other = (
        parse(text, {})
        for text in ("{}", "decision_log: {path: /a, keep: 1}", "decision_log: {path: /b, keep: 1, max_size: 1MiB}")
    )
    assert adopted(none, one) == (none, ("decision_log",))
    assert adopted(one, none) == (one, ("decision_log",))
    assert adopted(one, other) == (one, ("decision_log.path", "decision_log.max_size"))


def test_what_goes_back_to_what_is_served_waits_for_nothing() -> None:
    assert adopted(Config(), Config()) == (Config(), ())
