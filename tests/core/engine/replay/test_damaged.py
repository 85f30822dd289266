"""Bodies of engines with metrics or loads, damaged: every value that is still read is the true one."""

import json
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pharos.core.engine import detect, plan
from pharos.core.engine.plan import Plan
from pharos.core.engine.probe import Page
from pharos.core.engine.recipes import by_kind
from pharos.core.signals import Signal
from tests.core.engine.pages import NOW, ok, values
from tests.core.engine.replay.replaying import Answers, pages_of, resolved

STATES = {
    "vllm": ("vllm", "0.32.0-defaults", "saturated"),
    "vllm with engines": ("vllm", "synthetic-engines", "development"),
    "vllm with adapters": ("vllm", "synthetic-lora", "busy"),
    "sglang": ("sglang", "synthetic-0.5.23", "ranks"),
    "sglang on one accelerator": ("sglang", "synthetic-0.5.23", "single"),
    "sglang without loads": ("sglang", "synthetic-0.5.4", "metrics"),
    "trtllm": ("trtllm", "synthetic-1.2.0", "busy"),
    "lmdeploy": ("lmdeploy", "synthetic-0.18.0", "busy"),
    "tgi": ("tgi", "synthetic-3.3.4", "busy"),
}
PLACES = [
    (name, path)
    for name, row in STATES.items()
    for path in resolved(row[0], pages_of(row))[2]
    if pages_of(row).get(path).status == 200
]
"""Every body of every state that is read."""
TRUE = {name: values(resolved(row[0], pages_of(row))[1]) for name, row in STATES.items()}
PLANS: dict[str, Plan] = {name: resolved(row[0], pages_of(row))[0] for name, row in STATES.items()}
LOST = (float("nan"), -1, -1.5, 10**30, "7", [], {}, None, True)
"""What may stand in the place of a number and is none of its kind."""
NAMED = frozenset({Signal.VERSION, Signal.MODELS, Signal.PROCESS, Signal.CAPABILITIES, Signal.PHYSICAL_GROUP})
"""Signals that are text: a damaged text is another text, and nothing in it tells."""


def like(page: Page, body: bytes) -> Page:
    return msgspec.structs.replace(page, body=body, parsed={})


def check(name: str, path: str, body: bytes) -> None:
    """Plan, scrape and detect with one body damaged; true values may vanish and never change."""
    row = STATES[name]
    there = Answers(pages_of(row))
    there[path] = like(there[path], body)
    for read in (resolved(row[0], there)[1], plan.scrape(PLANS[name], {path: like(there[path], body)}, NOW)):
        assert all(TRUE[name].get(key) == value for key, value in values(read).items()), path
    seen = {one: there.get(one) for one in (*detected_by(row[0]), path)}
    assert detect.judge(seen).kind in {row[0], "openai", None}


def detected_by(kind: str) -> tuple[str, ...]:
    """All pages that detection may look at."""
    fingerprint = by_kind(kind).fingerprint
    assert fingerprint is not None
    return ("/v1/models", *fingerprint.paths, *fingerprint.guarded)


@pytest.mark.parametrize(("name", "path"), PLACES)
def test_a_body_cut_anywhere_never_gives_another_value(name: str, path: str) -> None:
    body = pages_of(STATES[name])[path].body
    ends = {*range(0, len(body), max(1, len(body) // 60)), len(body) - 1}
    ends |= {end for end, byte in enumerate(body) if byte == 10}  # before and behind each line
    for end in sorted(ends | {end + 1 for end in ends if end + 1 < len(body)}):
        page = like(pages_of(STATES[name])[path], body[:end])
        read = plan.scrape(PLANS[name], {path: page}, NOW)
        assert all(TRUE[name].get(key) == value for key, value in values(read).items()), (path, end)
    check(name, path, body[: len(body) // 2])


def places(document: object, at: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    yield at
    children = (
        document.items() if isinstance(document, dict) else enumerate(document) if isinstance(document, list) else ()
    )
    for key, child in children:
        yield from places(child, (*at, key))


def put(document: Any, place: tuple[Any, ...], value: object) -> Any:
    if not place:
        return value
    key, *rest = place
    copy = dict(document) if isinstance(document, dict) else list(document)
    copy[key] = put(copy[key], tuple(rest), value)
    return copy


def get(document: Any, place: tuple[Any, ...]) -> Any:
    for key in place:
        document = document[key]
    return document


JSON_PLACES = [(name, path) for name, path in PLACES if pages_of(STATES[name])[path].body[:1] == b"{"]
TEXT_PLACES = [place for place in PLACES if place not in JSON_PLACES]


@pytest.mark.parametrize(("name", "path"), JSON_PLACES)
@settings(deadline=None, max_examples=40)  # each example plans
@given(data=st.data())
def test_a_number_that_became_something_else_never_gives_another_value(
    name: str, path: str, data: st.DataObject
) -> None:
    document = json.loads(pages_of(STATES[name])[path].body)
    numbers = [place for place in places(document) if place and type(get(document, place)) in {int, float, bool}]
    if not numbers:
        return
    place = data.draw(st.sampled_from(numbers))
    was = type(get(document, place))
    value = data.draw(st.sampled_from([one for one in LOST if type(one) is not was or one in {-1, 10**30}]))
    check(name, path, json.dumps(put(document, place, value)).encode())


@pytest.mark.parametrize(("name", "path"), JSON_PLACES)
@settings(deadline=None, max_examples=40)
@given(data=st.data())
def test_a_field_that_is_gone_or_comes_twice_never_gives_another_value(
    name: str, path: str, data: st.DataObject
) -> None:
    document = json.loads(pages_of(STATES[name])[path].body)
    place = data.draw(st.sampled_from([place for place in places(document) if place and isinstance(place[-1], str)]))
    holder = dict(get(document, place[:-1]))
    left = {key: value for key, value in holder.items() if key != place[-1]}
    without = json.dumps(put(document, place[:-1], left)).encode()
    twice = json.dumps(holder)[:-1] + f', "{place[-1]}": 7}}'
    marked = json.dumps(put(document, place[:-1], "@@")).replace('"@@"', twice).encode()
    for body in (without, marked):
        there = pages_of(STATES[name])
        read = plan.scrape(PLANS[name], {path: like(there[path], body)}, NOW)
        found = {key: value for key, value in values(read).items() if Signal(key[0]) not in NAMED}
        assert all(TRUE[name].get(key) == value for key, value in found.items() if key[0] != "residency"), path


@pytest.mark.parametrize(("name", "path"), TEXT_PLACES)
@settings(deadline=None, max_examples=80)
@given(data=st.data())
def test_damaged_metrics_never_give_another_value(name: str, path: str, data: st.DataObject) -> None:
    lines = pages_of(STATES[name])[path].body.splitlines(keepends=True)
    wanted = {probe.wants.encode() for probe in PLANS[name].active if probe.wants and probe.feed.path == path}
    index = data.draw(st.sampled_from([i for i, line in enumerate(lines) if any(word in line for word in wanted)]))
    line = lines[index].rstrip(b"\n")
    series, _, value = line.rpartition(b" ")
    other = series.replace(b"}", b',gpu="1"}') if b"}" in series else series + b'{gpu="1"}'
    damages = [
        lines[index] * 2,
        line,
        *(series + b" " + lost + b"\n" for lost in (b"NaN", b"+Inf", b"-1", b"1e30", b'"7"', b"7.25e-9e", b"")),
        series + b" " + value + b" 1700000000\n",
        other + b" 7\n",
        lines[index] + other + b" 7\n",
        series + b" " + value + b"\n" + series + b" 7\n",
        line + b" counter histogram\n"
        if line.startswith(b"#")
        else b"# TYPE " + series.split(b"{")[0] + b" histogram\n",
        b"<html>\n",
    ]
    lines[index] = data.draw(st.sampled_from(damages))
    check(name, path, b"".join(lines))


@settings(deadline=None, max_examples=100)
@given(place=st.sampled_from(PLACES), body=st.binary(max_size=60))
def test_any_bytes_at_all_never_give_another_value(place: tuple[str, str], body: bytes) -> None:
    check(*place, body)


def test_a_page_of_another_kind_never_gives_a_value() -> None:
    for name, path in PLACES:
        for body in (b"{}", b"[]", b"null", b'"x"', b"7", b"<html></html>", b"a 1\n", b""):
            read = plan.scrape(PLANS[name], {path: ok(body)}, NOW)
            assert values(read) == {}, (name, path, body)
