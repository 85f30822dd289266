"""Text Generation Inference's hand-made states, from notes on its source, are read exactly as written here."""

import pytest

from pharos.core.engine import plan
from pharos.core.engine.recipes import by_kind
from pharos.core.signals import Residency
from tests.core.engine.pages import NOW, ok, refusal, status, values
from tests.core.engine.replay.replaying import UNKNOWN, check, detected, pages_of, readers, resolved, rows, unused

PROBES = {probe.name: probe for probe in by_kind("tgi").probes}
VALUES: dict[str, dict[tuple[str, str], object]] = {
    "tgi": {
        ("version", ""): "3.3.4",
        ("models", ""): ("mistral-7b",),
        ("residency", ""): Residency.LOADED,
        ("physical_group", "mistral-7b"): "mistral-7b",
        ("context_length", ""): 4096,
        ("capacity", ""): UNKNOWN,  # max_concurrent_requests counts those that wait, too
        ("running", ""): 7,
        ("waiting", ""): 2,
    },
    "tgi/synthetic-3.3.4/fresh": {("running", ""): UNKNOWN, ("waiting", ""): 0},
    "tgi/synthetic-1.4.0": {
        ("version", ""): "1.4.0",
        ("physical_group", "mistral-7b"): UNKNOWN,
        ("context_length", ""): 2048,
        ("running", ""): 3,
        ("waiting", ""): 0,
    },
}
FRESH, BUSY = ("tgi", "synthetic-3.3.4", "fresh"), ("tgi", "synthetic-3.3.4", "busy")


@pytest.mark.parametrize("row", rows("tgi"), ids="/".join)
def test_a_state_is_read_exactly(row: tuple[str, str, str]) -> None:
    check("tgi", row, VALUES)


def test_every_row_of_the_table_is_of_a_recording() -> None:
    assert not unused(VALUES, "tgi")


def test_a_series_that_comes_with_the_first_request_is_read_from_then_on() -> None:
    made, _, _ = resolved("tgi", pages_of(FRESH))
    later = plan.scrape(made, {"/metrics": pages_of(BUSY)["/metrics"]}, NOW)
    assert values(later)["running", ""] == 7


def test_a_server_without_a_list_is_named_by_its_info() -> None:
    _, first = check("tgi", ("tgi", "synthetic-1.4.0", "busy"), VALUES)
    assert readers(first)["models"] == {"tgi-model"}


@pytest.mark.parametrize(
    ("page", "kind"),
    [
        (status(404), "openai"),
        (status(503), None),
        (ok({"model_id": "e5", "version": "1.7", "max_input_length": 512}), "openai"),  # the embedding server
        (ok({"model_id": "m", "version": "1", "max_total_tokens": "many"}), None),
    ],
)
def test_an_info_page_of_another_program_is_not_taken_for_it(page: object, kind: str | None) -> None:
    there = pages_of(BUSY)
    there["/info"] = page  # type: ignore[assignment]
    assert detected(there)[0].kind == kind


@pytest.mark.parametrize(
    ("probe", "body", "reason"),
    [
        ("version", {"version": ""}, "NO_VALUE"),
        ("model", {"model_id": " "}, "NO_VALUE"),
        ("residency", {}, "NO_VALUE"),
        ("context", {"max_total_tokens": 0}, "NO_VALUE"),
        ("waiting", 'tgi_queue_size{shard="0"} 1\n', "NO_EVIDENCE"),
    ],
)
def test_what_cannot_be_is_unknown(probe: str, body: object, reason: str) -> None:
    assert refusal(PROBES[f"tgi-{probe}"], ok(body)) == reason
