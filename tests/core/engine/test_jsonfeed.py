import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pharos.core.engine.jsonfeed import _object, document_of, json_number, json_probe, member, model_names
from pharos.core.engine.probe import Feed, FeedKind, ProbeError
from pharos.core.signals import Signal
from tests.core.engine.pages import ok, read, refusal

FEED = Feed(kind=FeedKind.GET, path="/x")
SLOTS = json_number("slots", Signal.CAPACITY, FEED, "a.slots")
NAMES = json_probe("names", Signal.MODELS, FEED, model_names)


def test_a_number_is_read_at_its_path() -> None:
    assert read(SLOTS, ok({"a": {"slots": 2, "else": None}})) == {"": 2}


@pytest.mark.parametrize("body", ["{}", '{"a":{}}', '{"a":null}', '{"a":{"slots":null}}', '{"a":{"slots":0}}'])
def test_a_missing_number_is_unknown(body: str) -> None:
    assert refusal(SLOTS, ok(body)) == "NO_VALUE"


@pytest.mark.parametrize(
    "body",
    [
        "",
        "[]",
        "null",
        '{"a":1}',
        '{"a":{"slots":"2"}}',
        '{"a":{"slots":true}}',
        '{"a":{"slots":-2}}',
        '{"a":{"slots":NaN}}',
        '{"a":{"slots":2,"slots":4}}',
        '{"a":{"slots":2}',
        '{"a":{"slots":1e999}}',
        '{"a":{"slots":' + "9" * 5000 + "}}",
        "[" * 100_000,
        "<html>",
        '{"a":{"slots":2},"b":"\\ud800"}',
        '{"a":{"slots":2},"\\uDFFF":1}',
    ],
)
def test_what_is_not_plainly_a_right_number_cannot_be_read(body: str) -> None:
    assert refusal(SLOTS, ok(body)) == "PARSE_ERROR"


def test_bytes_that_are_no_text_cannot_be_read_however_often_they_are_asked() -> None:
    page = ok(b'{"a":{"slots":2}}\xff')
    assert [refusal(SLOTS, page), refusal(SLOTS, page)] == ["PARSE_ERROR", "PARSE_ERROR"]


def test_a_body_is_decoded_once() -> None:
    page = ok({"a": 1})
    assert document_of(page) is document_of(page)


def test_only_numbers_are_declared_as_numbers() -> None:
    with pytest.raises(ValueError, match="no number"):
        json_number("p", Signal.VERSION, FEED, "version")


def test_model_names_come_in_the_engines_order_and_once() -> None:
    assert read(NAMES, ok({"data": [{"id": "b"}, {"id": "a", "aliases": ["c"]}, {"id": "b"}]})) == {"": ("b", "a")}


def test_an_empty_list_is_a_known_value() -> None:
    assert read(NAMES, ok({"data": []})) == {"": ()}


@pytest.mark.parametrize("data", [{}, "x", [1], [{"id": 1}], [{"id": ""}], [{"id": "a"}, {}]])
def test_a_list_with_an_unusable_entry_cannot_be_read(data: object) -> None:
    assert refusal(NAMES, ok({"data": data})) == "PARSE_ERROR"


@given(
    st.recursive(
        st.none() | st.booleans() | st.floats() | st.text(),
        lambda deeper: st.lists(deeper) | st.dictionaries(st.text(), deeper),
    )
)
def test_any_document_is_read_or_refused_and_nothing_else_happens(document: object) -> None:
    page = ok(json.dumps(document))
    for probe in (SLOTS, NAMES):
        refusal(probe, page)


def test_a_step_through_what_is_no_object_says_which_path() -> None:
    with pytest.raises(ProbeError, match=r"a\.b is not an object"):
        member({"a": 1}, "a.b")


def test_a_character_outside_the_first_plane_may_be_escaped() -> None:
    assert document_of(ok('{"a":"\\ud83d\\ude00"}')) == {"a": "\U0001f600"}


class Counted(str):
    """A name that counts how often it is compared."""

    __slots__ = ()
    compared = 0

    def __eq__(self, other: object) -> bool:
        Counted.compared += 1
        return str(self) == str(other)

    __hash__ = str.__hash__


@pytest.mark.parametrize("fields", [10, 1000])
def test_a_field_that_comes_twice_is_found_in_work_that_grows_with_the_body_alone(fields: int) -> None:
    Counted.compared = 0
    pairs = [(Counted(f"k{number}"), 1) for number in range(fields)]
    with pytest.raises(ProbeError, match=f"'k{fields - 1}' comes twice"):
        _object([*pairs, (Counted(f"k{fields - 1}"), 2)])
    assert Counted.compared <= 10 * fields
