import contextlib
import json
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pharos.core.engine.probe import Page, ProbeError
from pharos.core.engine.recipes import by_kind, llama_swap
from pharos.core.engine.recipes.llama_swap import Inflight, States
from pharos.core.signals import Residency
from tests.core.engine.pages import fault, ok, read, refusal, status

RECIPE = by_kind("llama-swap")
PROBES = {probe.name.removeprefix("llama-swap-"): probe for probe in RECIPE.probes}


def event(kind: str, content: object) -> bytes:
    return json.dumps({"type": kind, "data": json.dumps(content)}).encode()


def names(*models: dict[str, object]) -> bytes:
    return event("modelStatus", models)


def begin(request_id: str, model: str = "tiny", path: str = "/v1/chat/completions", method: str = "POST") -> bytes:
    request = {"id": request_id, "model": model, "req_path": path, "method": method, "req_headers": {"X": "secret"}}
    return event("inflight", {"operation": "upsert", "request": request})


def end(request_id: str) -> bytes:
    return event("inflight", {"operation": "remove", "id": request_id})


SNAPSHOT = event("inflight", {"operation": "snapshot"})
TINY = {"id": "tiny", "state": "ready", "aliases": ["small"], "peerID": ""}
OTHER = {"id": "other", "state": "stopped", "peerID": ""}


def counting(*events: bytes) -> tuple[Inflight, dict[str, object]]:
    """A reader that took events in, and what it told last of each model."""
    reader = Inflight()
    told: dict[str, object] = {}
    for data in (names(TINY, OTHER), SNAPSHOT, *events):
        told |= reader.feed("message", data)
    return reader, told


# -- lists


def card(name: str, kind: str | None = "model", **more: object) -> dict[str, object]:
    about = {"type": kind, **more} if kind is not None else {}
    return {"id": name, "meta": {"llamaswap": about}}


def test_older_versions_give_cards_no_type_and_have_models_only() -> None:
    page = ok({"data": [{"id": "a"}, {"id": "b", "meta": {}}, {"id": "c", "meta": {"llamaswap": {}}}]})
    assert read(PROBES["models"], page) == {"": ("a", "b", "c")}


@pytest.mark.parametrize(
    "one",
    [
        card("b", None),
        card("b", aliases="x"),
        card("b", aliases=[1]),
        {"id": "b", "meta": {"llamaswap": {"type": 1}}},
        {"id": "b", "meta": {"llamaswap": []}},
        {"id": "b", "meta": "x"},
    ],
)
def test_a_card_of_a_new_shape_makes_the_list_unreadable(one: dict[str, object]) -> None:
    page = ok({"data": [card("a"), one]})
    for name in ("models", "group"):
        assert refusal(PROBES[name], page) == "PARSE_ERROR"


@pytest.mark.parametrize(
    ("entries", "reason"),
    [
        ([{"model": "a", "state": "ready"}, {"model": "a", "state": "ready"}], "PARSE_ERROR"),
        ([{"model": "a", "state": "resting"}], "PARSE_ERROR"),
        ([{"model": "", "state": "ready"}], "PARSE_ERROR"),
        ([{"model": "a"}], "NO_VALUE"),
        (["a"], "PARSE_ERROR"),
    ],
)
def test_a_state_that_no_version_has_is_unknown(entries: object, reason: str) -> None:
    assert refusal(PROBES["residency"], ok({"running": entries})) == reason


@pytest.mark.parametrize(
    ("version", "reason"), [("0", "NO_VALUE"), ("unknown", "NO_VALUE"), (" ", "NO_VALUE"), (1, "PARSE_ERROR")]
)
def test_a_build_without_a_version_has_none(version: object, reason: str) -> None:
    assert refusal(PROBES["version"], ok({"version": version})) == reason


def test_more_slots_than_it_lets_in_are_no_capacity() -> None:
    assert read(PROBES["upstream-capacity"], ok({"total_slots": 10})) == {"": 10}
    assert refusal(PROBES["upstream-capacity"], ok({"total_slots": 11})) == "NO_EVIDENCE"


# -- events


def test_the_requests_of_a_model_count_for_all_its_names() -> None:
    told = counting(begin("1"), begin("2", "small"), begin("3", "other"))[1]
    assert told == {"tiny": 2, "small": 2, "other": 1}


def test_a_request_counts_until_it_ends_however_often_it_is_told() -> None:
    reader, told = counting(begin("1"), begin("1"), begin("2"))
    assert told["tiny"] == 2
    assert reader.feed("message", begin("2")) == {}
    assert reader.feed("message", end("1")) == {"tiny": 1, "small": 1}
    assert reader.feed("message", end("1")) == {}
    assert reader.feed("message", end("2")) == {"tiny": 0, "small": 0}


@pytest.mark.parametrize(
    ("path", "method"),
    [
        ("/props", "GET"),
        ("/metrics", "GET"),
        ("/upstream/tiny/slots", "POST"),
        ("/v1/messages/count_tokens", "POST"),
        ("/v1/responses/input_tokens", "POST"),
        ("/tokenize", "POST"),
        ("/v1/chat/completions", "OPTIONS"),
    ],
)
def test_reads_and_what_takes_no_slot_do_not_count(path: str, method: str) -> None:
    assert counting(begin("1", path=path, method=method))[1] == {"tiny": 0, "small": 0, "other": 0}


def test_nothing_is_told_before_the_snapshot_and_the_names_came() -> None:
    reader = Inflight()
    assert reader.feed("", begin("1")) == reader.feed("", end("1")) == reader.feed("", SNAPSHOT) == {}
    assert reader.feed("", begin("2")) == {}
    assert reader.feed("", names(TINY)) == {"tiny": 1, "small": 1}


def test_a_snapshot_replaces_all_that_was_counted() -> None:
    reader, _ = counting(begin("1"), begin("2"))
    open_ones = [json.loads(json.loads(begin("9", "other"))["data"])["request"]]
    snapshot = event("inflight", {"operation": "snapshot", "requests": open_ones})
    assert reader.feed("", snapshot) == {"tiny": 0, "small": 0, "other": 1}


def test_a_model_that_was_never_listed_counts_by_the_name_that_was_asked_for() -> None:
    reader, told = counting(begin("1", "new"))
    assert told["new"] == 1
    assert reader.feed("", end("1")) == {"new": 0}


def test_models_of_other_servers_are_not_its_own() -> None:
    peer = {"id": "far/tiny", "state": "stopped", "peerID": "far"}
    assert Inflight().feed("", names(peer)) == States().feed("", names(peer)) == {}


def test_events_that_hold_log_lines_are_not_even_parsed() -> None:
    reader, _ = counting()
    broken = b'{"type":"logData","data":"not JSON'
    assert reader.feed("", broken) == States().feed("", broken) == {}
    assert reader.feed("", b'{"data":"x","type":"logData"}') == {}


@pytest.mark.parametrize(
    "data",
    [
        event("inflight", {"operation": "snapshot", "held": 3}),
        event("inflight", {"operation": "snapshot", "requests": 3}),
        event("inflight", {"operation": "renamed"}),
        event("inflight", {}),
        event("inflight", []),
        event("inflight", {"operation": "upsert"}),
        event("inflight", {"operation": "upsert", "request": {"id": "1"}}),
        begin("1", model=""),
        event("inflight", {"operation": "remove"}),
        event("modelStatus", {}),
        names({"id": 1}),
        names({"id": "a", "aliases": [1]}),
        b'{"type":"inflight","data":7}',
        b'{"type":"inflight","data":"{\\"operation\\":\\"snapshot \\ud800\\"}"}',
        b'{"type":"inflight"}',
        b'{"type":7}',
        b"{",
        b"",
        b"[]",
    ],
)
def test_an_event_of_a_new_shape_ends_the_count(data: bytes) -> None:
    with pytest.raises(ProbeError):
        counting()[0].feed("", data)


def test_an_empty_alias_does_not_speak_of_all_models() -> None:
    model = {"id": "x", "state": "ready", "aliases": [""]}
    assert States().feed("", names(model)) == {"x": Residency.LOADED}
    reader = Inflight()
    reader.feed("", names(model))
    assert reader.feed("", SNAPSHOT) == {"x": 0}


def test_a_stream_that_never_tells_an_end_does_not_fill_the_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(llama_swap, "MOST_OPEN", 2)
    reader, _ = counting(begin("1"), begin("2"))
    with pytest.raises(ProbeError):
        reader.feed("", begin("3"))


def test_the_states_of_all_models_are_told_for_all_their_names() -> None:
    found = States().feed("", names(TINY, OTHER, {"id": "x", "state": "stopping"}))
    assert found == {
        "tiny": Residency.LOADED,
        "small": Residency.LOADED,
        "other": Residency.COLD,
        "x": Residency.COLD,
    }
    assert States().feed("", SNAPSHOT) == {}
    with pytest.raises(ProbeError):
        States().feed("", names({"id": "x", "state": "resting"}))


steps = st.lists(st.tuples(st.booleans(), st.integers(0, 4), st.sampled_from(["tiny", "small", "other"])), max_size=40)


@given(steps=steps)
def test_the_count_is_that_of_the_requests_that_are_open(steps: list[tuple[bool, int, str]]) -> None:
    reader, told = counting()
    open_ones: dict[int, str] = {}
    for begins, number, model in steps:
        told |= reader.feed("", begin(str(number), model) if begins else end(str(number)))
        if begins:
            open_ones[number] = {"small": "tiny"}.get(model, model)
        else:
            open_ones.pop(number, None)
        counts = Counter(open_ones.values())
        assert told == {"tiny": counts["tiny"], "small": counts["tiny"], "other": counts["other"]}


@given(cut=st.integers(0, 400), at=st.integers(0, 2))
def test_a_cut_event_tells_nothing(cut: int, at: int) -> None:
    whole = (begin("1"), end("1"), names(TINY))[at]
    data = whole[: min(cut, len(whole) - 1)]
    for reader in (counting()[0], States()):
        with contextlib.suppress(ProbeError):
            assert reader.feed("", data) == {}


# -- detection

PAGES = {
    "/v1/models": ok({"data": [{"id": "a", "owned_by": "llama-swap"}]}),
    "/running": ok({"running": []}),
    "/api/version": ok({"version": "v1", "commit": "0123"}),
}


def judged(pages: dict[str, Page]) -> bool | None:
    assert RECIPE.fingerprint is not None
    return RECIPE.fingerprint.judge(pages).matches


def test_it_is_known_by_what_runs_and_the_commit_it_was_built_from() -> None:
    assert judged(PAGES) is True
    assert judged({**PAGES, "/v1/models": ok({"data": [{"id": "a"}]})}) is True
    for path in ("/running", "/api/version"):
        assert judged({**PAGES, path: fault()}) is None
        assert judged({**PAGES, path: status(503)}) is None
        assert judged({**PAGES, path: ok({})}) is False
        assert judged({**PAGES, path: ok(b'{"running":[')}) is None


def test_an_older_version_without_a_commit_is_known_by_the_owner_of_its_models() -> None:
    older = {**PAGES, "/api/version": status(404)}
    assert judged(older) is True
    assert judged({**older, "/v1/models": ok({"data": [{"id": "a", "owned_by": "x"}]})}) is False


def test_the_version_is_asked_only_where_models_are_told_to_run() -> None:
    fingerprint = RECIPE.fingerprint
    assert fingerprint is not None
    assert fingerprint.may(PAGES)
    assert not fingerprint.may({"/running": status(404)})
    assert not fingerprint.may({})
