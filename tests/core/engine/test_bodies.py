"""Recorded bodies, damaged: every value that is still read is the true one, and the rest is refused."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pharos.core.engine import detect, plan
from pharos.core.engine.probe import Page
from pharos.core.engine.recipes import by_kind
from tests.core.engine.pages import NOW, fetched, ok, status, values
from tests.fakes import captures

RECIPE = by_kind("llamacpp")
STATE = captures.pages("llamacpp", "b11434", "saturated", sent_at=NOW - 0.5)
PATHS = ("/props", "/v1/models", "/metrics", "/slots")
LOST = (float("nan"), -1, -1.5, 10**30, "7", [], {}, None, True)
"""What may stand in the place of a number and is none of its kind."""


def plan_of(there: dict[str, Page]) -> tuple[plan.Plan, plan.Round]:
    got = fetched(lambda pages: plan.next_paths(RECIPE, (), pages), there)
    return plan.resolve(RECIPE, (), got, kind_source="config", logs=False, now=NOW)


WHOLE, FIRST = plan_of(STATE)
# With and without metrics, so that the fallbacks are damaged too.
BASES = {"with metrics": STATE, "without": {**STATE, "/metrics": status(501)}}
TRUE = {name: values(plan_of(base)[1]) for name, base in BASES.items()}


def check_scrape(path: str, body: bytes) -> None:
    scraped = values(plan.scrape(WHOLE, {path: ok(body)}, NOW))
    assert all(TRUE["with metrics"].get(key) == value for key, value in scraped.items()), path


def check(path: str, body: bytes) -> None:
    """Plan and scrape with one body damaged; `True` values may vanish and never change."""
    damaged = ok(body)
    for name, base in BASES.items():
        if base[path].status == 200:
            found = values(plan_of({**base, path: damaged})[1])
            assert all(TRUE[name].get(key) == value for key, value in found.items()), (path, name)
    check_scrape(path, body)
    kind = detect.judge({**{p: STATE[p] for p in ("/props", "/v1/models")}, path: damaged}).kind
    assert kind in {"llamacpp", None}


@pytest.mark.parametrize("path", PATHS)
def test_a_body_cut_at_any_byte_never_gives_another_value(path: str) -> None:
    body = STATE[path].body
    for end in range(len(body)):
        check_scrape(path, body[:end])
    for end in (*range(0, len(body), 41), len(body) - 1):
        check(path, body[:end])


def places(document: object, at: tuple = ()) -> list[tuple]:
    """The path of every value of a document that probes may read."""
    children = (
        document.items() if isinstance(document, dict) else enumerate(document) if isinstance(document, list) else ()
    )
    return [at, *(place for key, child in children if key != "params" for place in places(child, (*at, key)))]


def put(document: object, place: tuple, value: object) -> object:
    if not place:
        return value
    key, *rest = place
    copy = dict(document) if isinstance(document, dict) else list(document)  # type: ignore[call-overload]
    copy[key] = put(copy[key], tuple(rest), value)
    return copy


@pytest.mark.parametrize("path", ["/props", "/v1/models", "/slots"])
@settings(deadline=None)  # each example plans several times
@given(data=st.data())
def test_a_number_that_became_something_else_never_gives_another_value(path: str, data: st.DataObject) -> None:
    document = json.loads(STATE[path].body)
    numbers = [p for p in places(document) if p and type(get(document, p)) in {int, float, bool}]
    place = data.draw(st.sampled_from(numbers))
    value = data.draw(
        st.sampled_from([one for one in LOST if type(one) is not type(get(document, place)) or one in {-1, 10**30}])
    )
    check(path, json.dumps(put(document, place, value)).encode())


def get(document: object, place: tuple) -> object:
    for key in place:
        document = document[key]  # type: ignore[index]
    return document


@pytest.mark.parametrize("path", ["/props", "/v1/models", "/slots"])
@settings(deadline=None)  # each example plans several times
@given(data=st.data())
def test_a_field_that_comes_twice_never_gives_another_value(path: str, data: st.DataObject) -> None:
    body = STATE[path].body
    field = data.draw(
        st.sampled_from([b'"total_slots":', b'"n_ctx":', b'"is_processing":', b'"size":', b'"is_sleeping":', b'"id":'])
    )
    value = data.draw(st.sampled_from([b"7,", b"false,", b'"x",', b"null,"]))
    check(path, body.replace(field, field + value + field, 1))


@settings(deadline=None)  # each example plans several times
@given(data=st.data())
def test_damaged_metrics_never_give_another_value(data: st.DataObject) -> None:
    lines = STATE["/metrics"].body.splitlines(keepends=True)
    index = data.draw(
        st.sampled_from([i for i, line in enumerate(lines) if b"requests_" in line or b"cached_total" in line])
    )
    line = lines[index].rstrip(b"\n")
    name, _, value = line.rpartition(b" ")
    damages = [
        lines[index] * 2,
        line,
        name + b" NaN\n",
        name + b" +Inf\n",
        name + b" -1\n",
        name + b" 1e30\n",
        name + b' "7"\n',
        name + b" 7.5\n",
        name + b" " + value + b" 1700000000\n",
        name + b'{slot="0"} 7\n',
        name + b'{slot="0"} 7\n' + name + b'{slot="1"} 8\n',
        name + b" 7\n" + lines[index] if not line.startswith(b"#") else line + b" counter\n",
        b"",
    ]
    lines[index] = data.draw(st.sampled_from(damages))
    check("/metrics", b"".join(lines))


@settings(deadline=None)  # each example plans several times
@given(path=st.sampled_from(PATHS), body=st.binary(max_size=60))
def test_any_bytes_at_all_never_give_another_value(path: str, body: bytes) -> None:
    check(path, body)
