"""Recorded bodies of Ollama, llama-swap and llama.cpp's router, damaged: what is still read is true."""

import json
from collections.abc import Iterator, Mapping

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pharos.core.engine.follow import Follow
from pharos.core.engine.probe import SCRAPED, FeedKind, Probe, ProbeError
from pharos.core.engine.recipes import by_kind
from pharos.core.signals import Residency
from tests.core.engine.pages import NOW, ok
from tests.core.engine.replay.streams import events
from tests.fakes import captures

STATES = {
    "ollama": ("0.33.0-rc2", "two_models"),
    "llamacpp-router": ("synthetic-options", "mixed"),
    "llama-swap": ("synthetic-gpu", "idle"),
}
MORE = {
    ("ollama", "POST /api/show"): ("0.33.0-rc2", "streams/api_show.response"),
    ("ollama", "POST /api/show embed"): ("0.33.0-rc2", "streams/api_show_embed.response"),
    ("llamacpp-router", "/metrics"): ("b11434", "tiny_loaded/metrics_model_tiny_autoload_false"),
    ("llamacpp-router", "/slots"): ("b11434", "tiny_loaded/slots_model_tiny_autoload_false"),
    ("llamacpp-router", "/props?"): ("b11434", "tiny_loaded/props_model_tiny_autoload_false"),
    ("llama-swap", "/upstream metrics"): ("v250-5-g0bdb37", "busy/upstream_tiny_metrics"),
    ("llama-swap", "/upstream props"): ("v250-5-g0bdb37", "busy/upstream_tiny_props"),
}
"""Pages of one model, under names of their own."""
LOST = (float("nan"), -1, -1.5, 10**30, "7", [], {}, None, True)
"""What may stand in the place of a number and is none of its kind."""


def bodies() -> Iterator[tuple[str, str, bytes]]:
    """Kind, a name of the page, and its body."""
    for kind, row in STATES.items():
        for path, page in captures.pages(kind, *row).items():
            if page.status == 200:
                yield kind, path, page.body
    for (kind, name), (version, file) in MORE.items():
        yield kind, name, (captures.TESTDATA / kind / version / file).read_bytes()


BODIES = {(kind, name): body for kind, name, body in bodies()}


def probes_of(kind: str, name: str) -> list[Probe]:
    """The probes that read a page."""
    words = name.removesuffix(" embed").replace("/upstream ", "/upstream/{model}/").replace("/props?", "/props?model")
    per_model = name not in captures.pages(kind, *STATES[kind])
    found = [
        probe
        for probe in by_kind(kind).probes
        if probe.feed.kind in SCRAPED
        and probe.feed.per_model is per_model
        and (probe.feed.path == words or (per_model and f"POST {probe.feed.path}" == words))
    ]
    if per_model and not found:
        found = [p for p in by_kind(kind).probes if p.feed.per_model and p.feed.path.startswith(words)]
    return found


def read(probe: Probe, body: bytes) -> Mapping[str, object]:
    try:
        return probe.parse(ok(body))
    except ProbeError:
        return {}


PAGES = [key for key in BODIES if probes_of(*key)]
TRUE = {(key, probe.name): read(probe, BODIES[key]) for key in PAGES for probe in probes_of(*key)}


def check(key: tuple[str, str], body: bytes) -> None:
    """No damage changes a number, or where a model is; a list is whole or not there at all."""
    for probe in probes_of(*key):
        true = TRUE[key, probe.name]
        for model, value in read(probe, body).items():
            if isinstance(value, int | float | Residency):
                assert true.get(model) == value, (key, probe.name, model)


def test_each_damaged_page_is_one_that_something_is_read_from() -> None:
    assert {key for key in BODIES if key not in PAGES} == {
        ("ollama", path) for path in ("/", "/api/status", "/v1/models/tiny")
    }
    assert all(any(TRUE[key, probe.name] for probe in probes_of(*key)) for key in PAGES)


@pytest.mark.parametrize("key", PAGES, ids=str)
def test_a_body_cut_at_any_byte_never_gives_another_value(key: tuple[str, str]) -> None:
    body = BODIES[key]
    step = 1 if len(body) < 2000 else 7
    for end in (*range(0, len(body), step), len(body) - 1):
        check(key, body[:end])


def places(document: object, at: tuple = ()) -> list[tuple]:
    children = (
        document.items() if isinstance(document, dict) else enumerate(document) if isinstance(document, list) else ()
    )
    skipped = {"params", "tensors", "details.families"}
    return [at, *(place for key, child in children if key not in skipped for place in places(child, (*at, key)))]


def get(document: object, place: tuple) -> object:
    for key in place:
        document = document[key]  # type: ignore[index]
    return document


def put(document: object, place: tuple, value: object) -> object:
    if not place:
        return value
    key, *rest = place
    copy = dict(document) if isinstance(document, dict) else list(document)  # type: ignore[call-overload]
    copy[key] = put(copy[key], tuple(rest), value)
    return copy


def without(document: object, place: tuple) -> object:
    *parent, key = place
    holder = dict(get(document, tuple(parent)))  # type: ignore[call-overload]
    del holder[key]
    return put(document, tuple(parent), holder)


JSON = [key for key in PAGES if BODIES[key].lstrip()[:1] in {b"{", b"["}]


def numbers_in(document: object) -> list[tuple]:
    return [place for place in places(document) if type(get(document, place)) in {int, float, bool}]


@pytest.mark.parametrize("key", [key for key in JSON if numbers_in(json.loads(BODIES[key]))], ids=str)
@settings(deadline=None)
@given(data=st.data())
def test_a_number_that_became_something_else_never_gives_another_value(
    key: tuple[str, str], data: st.DataObject
) -> None:
    document = json.loads(BODIES[key])
    place = data.draw(st.sampled_from(numbers_in(document)))
    kind = type(get(document, place))
    value = data.draw(st.sampled_from([one for one in LOST if type(one) is not kind or one in (-1, 10**30)]))
    check(key, json.dumps(put(document, place, value)).encode())


@pytest.mark.parametrize("key", JSON, ids=str)
@settings(deadline=None)
@given(data=st.data())
def test_a_field_that_is_missing_or_null_never_gives_another_number(key: tuple[str, str], data: st.DataObject) -> None:
    document = json.loads(BODIES[key])
    fields = [p for p in places(document) if p and isinstance(get(document, p[:-1]), dict)]
    place = data.draw(st.sampled_from(fields))
    check(key, json.dumps(without(document, place)).encode())
    check(key, json.dumps(put(document, place, None)).encode())


@pytest.mark.parametrize("key", JSON, ids=str)
@settings(deadline=None)
@given(data=st.data())
def test_a_field_that_comes_twice_never_gives_another_value(key: tuple[str, str], data: st.DataObject) -> None:
    document = json.loads(BODIES[key])
    names = {p[-1] for p in places(document) if p and isinstance(p[-1], str)}
    field = b'"' + data.draw(st.sampled_from(sorted(names))).encode() + b'":'
    value = data.draw(st.sampled_from([b"7,", b"false,", b'"x",', b"null,"]))
    check(key, BODIES[key].replace(field, field + value + field, 1))


METRICS = [key for key in PAGES if key not in JSON]


@pytest.mark.parametrize("key", METRICS, ids=str)
@settings(deadline=None)
@given(data=st.data())
def test_damaged_series_never_give_another_value(key: tuple[str, str], data: st.DataObject) -> None:
    read_from = {probe.wants.encode() for probe in probes_of(*key)}
    lines = BODIES[key].splitlines(keepends=True)
    index = data.draw(st.sampled_from([i for i, line in enumerate(lines) if any(name in line for name in read_from)]))
    line = lines[index].rstrip(b"\n")
    name, _, _ = line.rpartition(b" ")
    bare = name.partition(b"{")[0]
    is_work = b"n_decode_total" in line  # which may be any amount
    damages = [
        lines[index] * 2,
        line,
        *(name + value + b"\n" for value in (b" NaN", b" +Inf", b" -1", b' "7"')),
        *(name + value + b"\n" for value in (b" 1e30", b" 7.5") if not is_work),
        line + b" 1700000000\n",
        bare + b'{slot="0"} 7\n',
        bare + b'{slot="0"} 7\n' + bare + b'{slot="1"} 8\n',
        b"" if b"{" not in line else name + b" NaN\n",  # one GPU less is another machine, which nothing can tell
    ]
    lines[index] = data.draw(st.sampled_from(damages))
    check(key, b"".join(lines))


@pytest.mark.parametrize("key", PAGES, ids=str)
@settings(deadline=None)
@given(body=st.binary(max_size=60))
def test_any_bytes_at_all_never_give_a_value(key: tuple[str, str], body: bytes) -> None:
    check(key, body)


STREAMS = {
    "llamacpp-router": ("b11434", "models_sse.txt"),
    "llama-swap": ("v250-5-g0bdb37", "streams/api_events.response"),
}


@pytest.mark.parametrize("kind", STREAMS)
@settings(deadline=None)
@given(data=st.data())
def test_a_damaged_event_ends_the_reading_or_changes_nothing(kind: str, data: st.DataObject) -> None:
    probes = [probe for probe in by_kind(kind).probes if probe.feed.kind is FeedKind.SSE]
    recorded = [one for one in events(kind, *STREAMS[kind]) if b"logData" not in one][:40]
    index = data.draw(st.integers(0, len(recorded) - 1))
    body = recorded[index]
    damages = [
        body[: data.draw(st.integers(0, len(body) - 1))],
        b"",
        b"null",
        b"[]",
        b"{}",
        b"\xff" + body,
        body + b"}",
    ]
    damaged = data.draw(st.sampled_from(damages))
    whole, hurt = (Follow(probes, probes[0].feed, ()) for _ in range(2))
    for one in recorded[:index]:
        whole.event("", one, NOW)
        hurt.event("", one, NOW)
    wanted = whole.event("", body, NOW).readings
    told = hurt.event("", damaged, NOW)
    assert all(wanted[key].value == reading.value for key, reading in told.readings.items())
    assert told.failed or not told.readings
