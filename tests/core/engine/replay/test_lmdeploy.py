"""LMDeploy's hand-made states, from its source, are read exactly as written here."""

import pytest

from pharos.core.engine.recipes import by_kind
from pharos.core.signals import Residency
from tests.core.engine.pages import ok, refusal, status
from tests.core.engine.replay.replaying import UNKNOWN, check, detected, pages_of, readers, rows, unused

PROBES = {probe.name: probe for probe in by_kind("lmdeploy").probes}
VALUES: dict[str, dict[tuple[str, str], object]] = {
    "lmdeploy": {
        ("version", ""): UNKNOWN,  # told nowhere
        ("models", ""): ("internlm3-8b",),
        ("residency", ""): Residency.LOADED,
        ("physical_group", "internlm3-8b"): "internlm3-8b",
        ("process", ""): "started at 1796029512.11",
    },
    "lmdeploy/synthetic-0.18.0/busy": {
        ("running", ""): 5,
        ("waiting", ""): 1 + 2,  # in the engine, and before it
        ("kv_usage", ""): 0.6875,
        ("work_done", ""): 3120.0 + 900,
    },
    "lmdeploy/synthetic-0.18.0/sleeping": {
        ("residency", ""): Residency.COLD,
        ("running", ""): 0,
        ("waiting", ""): 0,
        ("kv_usage", ""): 0.0,
        ("work_done", ""): 4020.0,
    },
    "lmdeploy/synthetic-0.18.0/no-metrics": {("process", ""): UNKNOWN},
    "lmdeploy/synthetic-0.16.0/busy": {
        ("running", ""): 2,
        ("waiting", ""): 0,
        ("kv_usage", ""): 0.25,
        ("work_done", ""): 110.0,
    },
}


@pytest.mark.parametrize("row", rows("lmdeploy"), ids="/".join)
def test_a_state_is_read_exactly(row: tuple[str, str, str]) -> None:
    check("lmdeploy", row, VALUES)


def test_every_row_of_the_table_is_of_a_recording() -> None:
    assert not unused(VALUES, "lmdeploy")


def test_the_health_page_tells_of_sleep_where_nothing_else_does() -> None:
    _, first = check("lmdeploy", ("lmdeploy", "synthetic-0.16.0", "busy"), VALUES)
    assert readers(first)["residency"] == {"lmdeploy-health"}


def test_the_path_that_ends_the_server_is_never_asked() -> None:
    for row in rows("lmdeploy"):
        assert "/terminate" not in detected(pages_of(row))[1]
    recipe = by_kind("lmdeploy")
    assert "/terminate" not in {probe.feed.path for probe in recipe.probes} | set(recipe.record_paths)


WAITING = 'lmdeploy:num_requests_waiting{engine="0",model_name="m"} 1\n'
BEFORE = 'lmdeploy:num_api_requests_waiting{engine="0",model_name="m"} %s\n'


@pytest.mark.parametrize(
    ("probe", "body", "reason"),
    [
        ("waiting", WAITING + "end 1\n", "NO_VALUE"),  # half of the queue is not told
        ("waiting", WAITING + BEFORE % -1 + "end 1\n", "PARSE_ERROR"),
        ("waiting", WAITING + BEFORE % "NaN" + "end 1\n", "NO_VALUE"),
        ("health", {"status": "initializing", "message": ""}, "NO_VALUE"),
        ("health", {"message": ""}, "NO_VALUE"),
        ("residency", {"is_sleeping": "no"}, "PARSE_ERROR"),
    ],
)
def test_what_cannot_be_or_is_half_told_is_unknown(probe: str, body: object, reason: str) -> None:
    assert refusal(PROBES[f"lmdeploy-{probe}"], ok(body)) == reason


@pytest.mark.parametrize(
    ("changes", "kind"),
    [
        ({"/metrics": status(503)}, None),
        ({"/metrics": ok("lmdeploy:num_requests_running{")}, None),
        ({"/metrics": ok("<html>")}, "lmdeploy"),
        ({"/metrics": ok("other 1\n"), "/is_sleeping": status(404)}, "openai"),  # its proxy
        ({"/metrics": status(404), "/is_sleeping": status(503)}, None),
        ({"/metrics": status(404), "/is_sleeping": ok({"asleep": False})}, "openai"),
        ({"/v1/models": ok({"data": [{"id": "m", "owned_by": "somebody"}]})}, "openai"),
    ],
)
def test_a_page_that_is_not_its_own_is_not_taken_for_it(changes: dict[str, object], kind: str | None) -> None:
    there = pages_of(("lmdeploy", "synthetic-0.18.0", "busy"))
    there |= changes  # type: ignore[arg-type]
    assert detected(there)[0].kind == kind
