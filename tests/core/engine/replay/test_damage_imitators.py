"""Hand-made bodies of the kinds that imitate others, damaged: every value that is still read is the true one."""

import json
from collections.abc import Mapping

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from pharos.core.engine.probe import ProbeError
from pharos.core.engine.recipes import by_kind
from pharos.core.engine.recipes.model_runner import NO_RUNNERS
from pharos.core.signals import Signal
from tests.core.engine.pages import ok
from tests.fakes import captures

STATES = {
    "koboldcpp": ("synthetic-1.98.1", "saturated"),
    "lemonade": ("synthetic-11.7.0", "busy"),
    "lmstudio": ("synthetic-0.4.0", "loaded"),
    "localai": ("synthetic-4.9.0", "busy"),
    "model-runner": ("synthetic-1.2.6", "two_engines"),
}
NAMED = frozenset({Signal.VERSION, Signal.MODELS, Signal.PHYSICAL_GROUP})
"""Signals that are text: a damaged text is another text, and nothing in it tells."""
BODIES = {
    (kind, path): page.body
    for kind, row in STATES.items()
    for path, page in captures.pages(kind, *row).items()
    if any(probe.feed.path == path for probe in by_kind(kind).probes)
}
JSON = [key for key, body in BODIES.items() if body[:1] in {b"{", b"["}]
METRICS = [key for key in BODIES if key not in JSON]
LOST = (float("nan"), -1, -1.5, 10**30, "7", {}, [1], None, True)
"""What may stand in the place of a value and is none of its kind."""


def readings(key: tuple[str, str], body: bytes) -> Mapping[tuple[str, str], object]:
    """Probe and model -> value, for all probes of a page."""
    read = {}
    for probe in by_kind(key[0]).probes:
        if probe.feed.path == key[1] and probe.signal not in NAMED:
            try:
                read |= {(probe.name, model): value for model, value in probe.parse(ok(body)).items()}
            except ProbeError:
                continue
    return read


TRUE = {key: readings(key, body) for key, body in BODIES.items()}


def check(key: tuple[str, str], body: bytes) -> None:
    wrong = {one: value for one, value in readings(key, body).items() if TRUE[key].get(one) != value}
    assert wrong == {}


@pytest.mark.parametrize("key", BODIES, ids=" ".join)
def test_a_body_cut_at_any_byte_never_gives_another_value(key: tuple[str, str]) -> None:
    for end in range(1, len(BODIES[key])):
        check(key, BODIES[key][:end])


def places(document: object, at: tuple = ()) -> list[tuple]:
    children = (
        document.items() if isinstance(document, dict) else enumerate(document) if isinstance(document, list) else ()
    )
    return [at, *(place for name, child in children for place in places(child, (*at, name)))]


def put(document: object, place: tuple, value: object) -> object:
    if not place:
        return value
    name, *rest = place
    copy = dict(document) if isinstance(document, dict) else list(document)  # type: ignore[call-overload]
    copy[name] = put(copy[name], tuple(rest), value)
    return copy


def at(document: object, place: tuple) -> object:
    for name in place:
        document = document[name]  # type: ignore[index]
    return document


@settings(deadline=None)
@given(data=st.data())
def test_a_value_that_became_something_else_never_gives_another_value(data: st.DataObject) -> None:
    key = data.draw(st.sampled_from(JSON))
    document = json.loads(BODIES[key])
    # What a model is called is text, and so is what says that it is loaded: another text says something else.
    place = data.draw(st.sampled_from([one for one in places(document) if not isinstance(at(document, one), str)]))
    wrong = [value for value in LOST if type(value) is not type(at(document, place)) or value in (-1, 10**30, [1])]
    check(key, json.dumps(put(document, place, data.draw(st.sampled_from(wrong)))).encode())


@settings(deadline=None)
@given(data=st.data())
def test_a_field_that_comes_twice_never_gives_another_value(data: st.DataObject) -> None:
    key = data.draw(st.sampled_from(JSON))
    fields = sorted({str(place[-1]) for place in places(json.loads(BODIES[key])) if place and type(place[-1]) is str})
    if not fields:
        return
    field = json.dumps(data.draw(st.sampled_from(fields))).encode() + b":"
    value = data.draw(st.sampled_from([b"7,", b"false,", b'"x",', b"null,", b"[],"]))
    check(key, BODIES[key].replace(field, field + value + field, 1))


@settings(deadline=None)
@given(data=st.data())
def test_damaged_metrics_never_give_another_value(data: st.DataObject) -> None:
    key = data.draw(st.sampled_from(METRICS))
    lines = BODIES[key].splitlines(keepends=True)
    index = data.draw(st.integers(0, len(lines) - 1))
    line = lines[index].rstrip(b"\n")
    name, _, value = line.rpartition(b" ")
    damages = [
        b"",
        line,
        lines[index] * 2,
        *(name + b" " + other + b"\n" for other in (b"NaN", b"+Inf", b"-1", b"1e30", b'"7"', b"7.5", value + b" 17")),
        name.replace(b"{", b'{slot="0",') + b" 7\n",
        name.replace(b'model="', b'name="') + b" 7\n",
    ]
    lines[index] = data.draw(st.sampled_from(damages))
    check(key, b"".join(lines))


@settings(deadline=None)
@given(key=st.sampled_from(sorted(BODIES)), body=st.binary(max_size=60))
def test_any_bytes_at_all_never_give_another_value(key: tuple[str, str], body: bytes) -> None:
    assume(body.strip() != NO_RUNNERS)  # what an idle Model Runner says is no damage
    check(key, body)
