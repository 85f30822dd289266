"""TensorRT-LLM's hand-made states, from notes on its source, are read exactly as written here."""

import pytest

from pharos.core.engine.recipes import by_kind
from pharos.core.signals import Residency
from tests.core.engine.pages import ok, refusal, status, values
from tests.core.engine.replay.replaying import check, detected, pages_of, resolved, rows, unused

PROBES = {probe.name: probe for probe in by_kind("trtllm").probes}
TOLD = {
    ("version", ""): "1.2.0",
    ("models", ""): ("llama-3.1-8b",),
    ("residency", ""): Residency.LOADED,
    ("physical_group", "llama-3.1-8b"): "llama-3.1-8b",
}
VALUES: dict[str, dict[tuple[str, str], object]] = {
    "trtllm/synthetic-1.2.0/busy": {
        **TOLD,
        ("capacity", ""): 64,
        ("running", ""): 6,
        ("waiting", ""): 3,
        ("kv_usage", ""): 0.4375,
    },
}
BUSY, BARE = ("trtllm", "synthetic-1.2.0", "busy"), ("trtllm", "synthetic-1.2.0", "no-metrics")


@pytest.mark.parametrize("row", [row for row in rows("trtllm") if row != BARE], ids="/".join)
def test_a_state_is_read_exactly(row: tuple[str, str, str]) -> None:
    check("trtllm", row, VALUES)


def test_every_row_of_the_table_is_of_a_recording() -> None:
    assert not unused(VALUES, "trtllm")


def test_without_performance_metrics_nothing_shows_what_it_is_and_its_load_is_unknown() -> None:
    there = pages_of(BARE)
    found, _ = detected(there)
    assert found.kind == "openai"
    _, first, _ = resolved("trtllm", there)
    assert values(first) == TOLD


def test_the_paths_that_take_statistics_away_are_never_asked() -> None:
    drains = {"/metrics", "/perf_metrics", "/kv_cache_events"}
    for row in rows("trtllm"):
        found, seen = detected(pages_of(row))
        assert not drains & set(seen), found
        _, _, got = resolved("trtllm", pages_of(row))
        assert not drains & set(got)
    assert not drains & set(by_kind("trtllm").record_paths)


@pytest.mark.parametrize(
    ("path", "page", "kind"),
    [
        ("/prometheus/metrics", ok("other 1\n"), "openai"),
        ("/prometheus/metrics", ok("<html>"), "openai"),
        ("/prometheus/metrics", ok("trtllm_num_requests_running{"), None),
        ("/prometheus/metrics", status(503), None),
        ("/version", status(404), "openai"),
        ("/version", status(503), None),
        ("/v1/models", ok({"data": [{"id": "m", "owned_by": "somebody"}]}), "openai"),
    ],
)
def test_a_page_that_is_not_its_own_is_not_taken_for_it(path: str, page: object, kind: str | None) -> None:
    there = pages_of(BUSY)
    there[path] = page  # type: ignore[assignment]
    assert detected(there)[0].kind == kind


@pytest.mark.parametrize(
    ("probe", "body", "reason"),
    [
        ("running", 'trtllm_num_requests_running{gpu="0"} 1\n', "NO_EVIDENCE"),
        (
            "running",
            'trtllm_num_requests_running{model_name="a"} 1\ntrtllm_num_requests_running{model_name="b"} 1\n',
            "NO_EVIDENCE",
        ),
        ("kv_usage", "trtllm_kv_cache_utilization 43.75\n", "PARSE_ERROR"),
        ("capacity", "trtllm_max_num_active_requests 0\n", "NO_VALUE"),
        ("residency", {"data": []}, "NO_VALUE"),
    ],
)
def test_what_cannot_be_is_unknown(probe: str, body: object, reason: str) -> None:
    assert refusal(PROBES[f"trtllm-{probe}"], ok(body)) == reason
