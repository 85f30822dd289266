import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pharos.core.engine.probe import Page, ProbeError
from pharos.core.engine.recipes import by_kind
from pharos.core.engine.recipes.llamacpp_router import STATES, Changes
from pharos.core.signals import Residency
from tests.core.engine.pages import fault, ok, read, refusal, status

RECIPE = by_kind("llamacpp-router")
PROBES = {probe.name.removeprefix("llamacpp-router-"): probe for probe in RECIPE.probes}


def cards(*args: str, **changed: object) -> Page:
    card = {
        "id": "chat",
        "status": {"value": "loaded", "args": list(args)},
        "architecture": {"input_modalities": ["text"]},
        **changed,
    }
    return ok({"data": [{field: value for field, value in card.items() if value is not None}]})


@pytest.mark.parametrize(
    ("args", "slots"),
    [
        (("--parallel", "4"), {"chat": 4}),
        (("-np", "4", "--metrics"), {"chat": 4}),
        (("--parallel", "-1"), {}),
        (("--parallel",), {}),
        (("-np", "2", "--parallel", "4"), {}),
        ((), {}),
    ],
)
def test_slots_are_known_where_a_models_server_is_told_how_many_to_have(
    args: tuple[str, ...], slots: dict[str, int]
) -> None:
    assert read(PROBES["slots-given"], cards(*args)) == slots


@pytest.mark.parametrize("args", [("-np", "0"), ("-np", "four"), ("-np", "--metrics")])
def test_slots_that_are_no_number_are_unknown(args: tuple[str, ...]) -> None:
    assert refusal(PROBES["slots-given"], cards(*args)) in {"NO_VALUE", "PARSE_ERROR"}


@pytest.mark.parametrize(
    ("name", "page", "reason"),
    [
        ("slots-given", cards(status={"value": "loaded"}), "NO_VALUE"),
        ("slots-given", cards(status={"value": "loaded", "args": [1]}), "PARSE_ERROR"),
        ("residency", cards(status=None), "NO_VALUE"),
        ("residency", cards(status={"value": 7}), "PARSE_ERROR"),
        ("residency", cards(status={"value": "hibernating"}), "NO_EVIDENCE"),
        ("abilities", cards(architecture=None), "NO_VALUE"),
        ("abilities", cards(architecture={"input_modalities": "text"}), "PARSE_ERROR"),
        ("abilities", cards(architecture={"input_modalities": [1]}), "PARSE_ERROR"),
        ("size", cards(meta={}), "NO_VALUE"),
        ("size", cards(meta=7), "PARSE_ERROR"),
        ("context", cards(meta={"n_ctx": 0}), "NO_VALUE"),
    ],
)
def test_what_a_card_does_not_tell_properly_is_unknown(name: str, page: Page, reason: str) -> None:
    assert refusal(PROBES[name], page) == reason


def test_a_model_that_reranks_or_embeds_says_so_on_its_command_line() -> None:
    assert read(PROBES["abilities"], cards("--reranking", "--embedding")) == {
        "chat": ("completion", "embedding", "rerank")
    }


def change(status: object, model: object = "chat") -> bytes:
    return json.dumps({"model": model, "event": "status_change", "data": {"status": status}}).encode()


@pytest.mark.parametrize(("word", "state"), STATES.items())
def test_an_event_says_where_a_model_is_now(word: str, state: Residency) -> None:
    assert Changes().feed("", change(word)) == {"chat": state}


@pytest.mark.parametrize("data", [b'{"event":"models_changed"}', b'{"data":{"progress":1}}', b'{"data":null}'])
def test_an_event_without_a_status_tells_nothing(data: bytes) -> None:
    assert Changes().feed("", data) == {}


@pytest.mark.parametrize(
    "data", [change("hibernating"), change(7), change(None), change("loaded", ""), change("loaded", 7), b"{", b"[]"]
)
def test_an_event_that_cannot_be_understood_ends_the_reading(data: bytes) -> None:
    with pytest.raises(ProbeError):
        Changes().feed("", data)


@given(cut=st.integers(0, len(change("loaded")) - 1))
def test_a_cut_event_tells_nothing(cut: int) -> None:
    with pytest.raises(ProbeError):
        Changes().feed("", change("loaded")[:cut])


# -- detection

ROUTER = ok({"role": "router", "build_info": "b11434-abc"})
OWNED = ok({"data": [{"id": "a", "owned_by": "llamacpp"}]})


def judged(props: Page, models: Page = OWNED) -> bool | None:
    assert RECIPE.fingerprint is not None
    return RECIPE.fingerprint.judge({"/props": props, "/v1/models": models}).matches


def test_it_is_known_by_its_role_and_by_who_answers() -> None:
    assert judged(ROUTER) is True
    assert judged(ok({"role": "router", "build_info": "x"}, server="llama.cpp"), ok({"data": []})) is True
    assert judged(ROUTER, ok({"data": [{"id": "a", "owned_by": "other"}]})) is False
    assert judged(ROUTER, ok({"data": 7})) is False
    assert judged(ROUTER, fault()) is None


@pytest.mark.parametrize(
    ("props", "matches"),
    [
        (fault(), None),
        (status(503), None),
        (status(404), False),
        (ok({"build_info": "b1", "total_slots": 2}), False),
        (ok({"role": "worker", "build_info": "b1"}), False),
        (ok({"role": "router"}), False),
        (ok({"role": 7, "build_info": "b1"}), None),
        (ok({"role": "router", "build_info": 7}), None),
        (ok(b'{"role":"rou'), None),
        (ok("<html>"), False),
    ],
)
def test_other_pages_are_another_programs_or_damaged(props: Page, matches: bool | None) -> None:  # noqa: FBT001 - three states
    assert judged(props) is matches
