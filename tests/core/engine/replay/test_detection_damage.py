"""A deciding page that is damaged: the right kind or none; the generic one only where the damage is a real no."""

import json
from collections.abc import Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pharos.core.engine.probe import FetchFault, Page
from tests.core.engine.pages import fault, ok, status
from tests.core.engine.replay.worlds import Visit, World, all_states


def _worlds() -> Iterator[tuple[str, World]]:
    """One state of each kind in which it can be told."""
    seen = set()
    for row in all_states():
        world = World(*row)
        if world.kind not in seen and Visit(world.get).found.kind == world.kind != "openai":
            seen.add(world.kind)
            yield world.kind, world


WORLDS = dict(_worlds())
DECIDING = [
    (kind, path)
    for kind, world in WORLDS.items()
    for path, page in Visit(world.get).pages.items()
    if page.status == 200
]
deciding = st.sampled_from(DECIDING)


def found(kind: str, path: str, page: Page) -> str | None:
    world = WORLDS[kind]
    return Visit(lambda asked: page if asked == path else world.get(asked)).found.kind


def with_body(page: Page, body: bytes) -> Page:
    return Page(page.status, body, page.headers, sent_at=page.sent_at)


def test_every_kind_with_a_fingerprint_is_damaged_here() -> None:
    assert len(WORLDS) >= 13
    assert {kind for kind, _ in DECIDING} == set(WORLDS)


@pytest.mark.parametrize(("kind", "path"), DECIDING)
@pytest.mark.parametrize(
    "page",
    [status(code) for code in (401, 403, 408, 429, 500, 502, 503, 504, 520)]
    + [fault(one) for one in (FetchFault.TIMEOUT, FetchFault.RESET, FetchFault.TOO_LARGE)],
    ids=str,
)
def test_no_real_answer_gives_the_right_kind_or_none(kind: str, path: str, page: Page) -> None:
    assert found(kind, path, page) in {kind, None}


@pytest.mark.parametrize(("kind", "path"), DECIDING)
def test_a_body_cut_at_any_byte_gives_the_right_kind_or_none(kind: str, path: str) -> None:
    page = WORLDS[kind].get(path)
    step = max(1, len(page.body) // 400)
    for end in range(0, len(page.body), step):
        cut = page.body[:end]
        # Nothing tells whole lines of metrics from a page that has no more of them.
        is_whole = path.endswith("/metrics") and cut.strip() == cut[:-1]
        allowed = {kind, None, "openai"} if is_whole else {kind, None}
        assert found(kind, path, with_body(page, cut)) in allowed, end


@given(one=deciding, body=st.binary(max_size=40))
def test_any_bytes_at_all_give_no_other_kind(one: tuple[str, str], body: bytes) -> None:
    assert found(*one, ok(body)) in {one[0], "openai", None}


def places(document: object, at: tuple = ()) -> list[tuple]:
    children = (
        document.items() if isinstance(document, dict) else enumerate(document) if isinstance(document, list) else ()
    )
    return [at, *(place for key, child in children for place in places(child, (*at, key)))]


def changed(document: object, place: tuple, value: object, *, lost: bool) -> object:
    if not place:
        return value
    key, *rest = place
    copy = dict(document) if isinstance(document, dict) else list(document)  # type: ignore[call-overload]
    if lost and not rest:
        del copy[key]
    else:
        copy[key] = changed(copy[key], tuple(rest), value, lost=lost)
    return copy


JSON = [(kind, path) for kind, path in DECIDING if WORLDS[kind].get(path).body[:1] in {b"{", b"["}]
VALUES = (
    None,
    -1,
    0,
    7.5,
    10**30,
    float("nan"),
    "",
    "x",
    "vllm",
    "library",
    "KoboldCpp",
    True,
    [],
    {},
    [None],
    {"a": 1},
)


@settings(deadline=None)  # a visit parses many pages
@given(data=st.data())
def test_a_value_that_became_something_else_gives_no_other_kind(data: st.DataObject) -> None:
    kind, path = data.draw(st.sampled_from(JSON))
    document = json.loads(WORLDS[kind].get(path).body)
    place = data.draw(st.sampled_from(places(document)))
    value, lost = data.draw(st.sampled_from(VALUES)), data.draw(st.booleans())
    body = json.dumps(changed(document, place, value, lost=lost)).encode()
    assert found(kind, path, ok(body)) in {kind, "openai", None}


@settings(deadline=None)
@given(data=st.data())
def test_a_field_that_comes_twice_gives_the_right_kind_or_none(data: st.DataObject) -> None:
    kind, path = data.draw(st.sampled_from([one for one in JSON if WORLDS[one[0]].get(one[1]).body[:1] == b"{"]))
    body = WORLDS[kind].get(path).body
    first = body[: body.index(b":")].strip(b'{ \n"')
    twice = (
        b'{"' + first + b'":' + data.draw(st.sampled_from([b"1", b"null", b'"x"', b"[]"])) + b"," + body.lstrip()[1:]
    )
    assert found(kind, path, ok(twice)) in {kind, None}
