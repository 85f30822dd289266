import pytest

from pharos.core.engine import plan
from pharos.core.engine.recipes import by_kind
from pharos.core.signals import Residency
from tests.core.engine.pages import NOW, fetched, reasons, values
from tests.core.engine.replay.replaying import (
    UNKNOWN,
    Row,
    check,
    detected,
    expected,
    pages_of,
    readers,
    resolved,
    rows,
    unused,
)
from tests.fakes import captures

KIND = "llamacpp"
SLEEPER = "b11549-sleep"
VALUES: dict[str, dict[tuple[str, str], object]] = {
    "llamacpp": {  # both builds say b0-unknown: no version
        ("residency", ""): Residency.LOADED,
        ("capacity", ""): 2,
        ("context_length", ""): 4096,
        ("capabilities", ""): ("completion",),
        ("running", ""): 0,
        ("waiting", ""): 0,
    },
    "llamacpp/b11434": {
        ("models", ""): ("smollm2:135m",),
        ("physical_group", "smollm2:135m"): "smollm2:135m",
        ("size_bytes", "smollm2:135m"): 96576768,
    },
    "llamacpp/b11434/idle": {("work_done", ""): 0, ("cached_tokens", ""): 0},
    "llamacpp/b11434/busy": {("running", ""): 1, ("work_done", ""): 110, ("cached_tokens", ""): 149},
    "llamacpp/b11434/saturated": {
        ("running", ""): 2,
        ("waiting", ""): 4,
        ("work_done", ""): 218,
        ("cached_tokens", ""): 191,
    },
    "llamacpp/b11434/after": {("work_done", ""): 401, ("cached_tokens", ""): 234},
    "llamacpp/b11549-sleep": {
        ("models", ""): ("tiny",),
        ("physical_group", "tiny"): "tiny",
        ("size_bytes", "tiny"): 252160,
    },
    "llamacpp/b11549-sleep/idle": {("work_done", ""): 4, ("cached_tokens", ""): 12},
}
ASLEEP = {("residency", ""): Residency.COLD, ("running", ""): UNKNOWN, ("waiting", ""): UNKNOWN}
NOT_LISTED = {  # the recording lacks the list
    ("models", ""): UNKNOWN,
    ("physical_group", "tiny"): UNKNOWN,
    ("size_bytes", "tiny"): UNKNOWN,
}
VALUES |= {
    "llamacpp/b11549-sleep/sleeping": ASLEEP,
    "llamacpp/b11549-sleep/sleeping_again": ASLEEP,
    "llamacpp/b11549-sleep/asleep_before_request": {**ASLEEP, **NOT_LISTED},
    "llamacpp/b11549-sleep/woken_by_chat": {**NOT_LISTED, ("work_done", ""): 16, ("cached_tokens", ""): 102},
    "llamacpp/b11549-sleep/woken_by_slots": {**NOT_LISTED, ("running", ""): UNKNOWN, ("waiting", ""): UNKNOWN},
}
PROBES = {
    "models": "llamacpp-models",
    "physical_group": "llamacpp-group",
    "residency": "llamacpp-residency",
    "size_bytes": "llamacpp-size",
    "capacity": "llamacpp-capacity",
    "context_length": "llamacpp-context",
    "capabilities": "llamacpp-modalities",
    "running": "llamacpp-running",
    "waiting": "llamacpp-waiting",
    "work_done": "llamacpp-work",
    "cached_tokens": "llamacpp-slots-cached",
}
AWAKE = {
    "llamacpp-version": "NO_VALUE",
    "llamacpp-slots-running": "REDUNDANT",
    "llamacpp-waiting-by-build": "REDUNDANT",
    "llamacpp-slots-kv": "NO_EVIDENCE",
}
SLEEPING = {
    "llamacpp-version": "NO_VALUE",
    "llamacpp-slots-running": "REDUNDANT",
    "llamacpp-waiting-by-build": "VERSION_GUARD",
}

STATES = rows(KIND)
STARTED = [row for row in STATES if row[2] != "loading"]
LOADING = [row for row in STATES if row[2] == "loading"]
COMPLETE = [row for row in STARTED if row[2] not in {"asleep_before_request", "woken_by_chat", "woken_by_slots"}]
"""States in which every path was asked that may be asked then."""


def row_of(state: str) -> Row:
    return (KIND, SLEEPER, state)


@pytest.mark.parametrize("row", STARTED, ids="/".join)
def test_a_recorded_state_is_read_exactly(row: Row) -> None:
    _, first = check(KIND, row, VALUES)
    assert readers(first) == {signal.value: {PROBES[signal.value]} for signal, _ in first.readings}


@pytest.mark.parametrize("row", COMPLETE, ids="/".join)
def test_each_probe_that_is_left_out_has_its_reason(row: Row) -> None:
    made, _, _ = resolved(KIND, pages_of(row))
    assert reasons(made) == (SLEEPING if "sleeping" in row[2] else AWAKE)


def test_every_row_is_of_a_recorded_state() -> None:
    assert unused(VALUES, KIND) == set()


@pytest.mark.parametrize("row", LOADING, ids="/".join)
def test_a_loading_engine_is_not_yet_known(row: Row) -> None:
    found, _ = detected(pages_of(row))
    assert (found.kind, found.pending) == (None, "/v1/models answers 503")


@pytest.mark.parametrize("row", LOADING, ids="/".join)
def test_a_loading_engine_of_a_configured_kind_has_no_values_and_keeps_its_probes(row: Row) -> None:
    made, first, got = resolved(KIND, pages_of(row))
    assert values(first) == {}
    assert {one.reason.name for one in first.failed} == {"STARTING"}
    assert not plan.needs_resolve(made, plan.scrape(made, got, NOW))


@pytest.mark.parametrize("row", [row for row in STATES if "sleep" in row[2]], ids="/".join)
def test_a_sleeping_engine_is_never_asked_for_its_slots(row: Row) -> None:
    there = pages_of(row)
    there["/slots"] = captures.pages(KIND, SLEEPER, "idle")["/slots"]
    made, first, got = resolved(KIND, there)
    assert "/slots" not in got
    assert plan.asleep_in(first.readings) is True
    for known in (True, None):
        assert "/slots" not in plan.due_paths(made, {}, NOW, plan.Situation(asleep=known))


def test_the_plan_of_an_awake_engine_reads_its_metrics_on_while_it_sleeps() -> None:
    made, _, _ = resolved(KIND, pages_of(row_of("idle")))
    asleep = captures.pages(KIND, SLEEPER, "sleeping", sent_at=NOW)
    due = plan.due_paths(made, {}, NOW, plan.Situation(asleep=True))
    assert set(due) == {"/v1/models", "/props", "/metrics"}
    read = plan.scrape(made, {path: asleep[path] for path in due}, NOW)
    assert read.failed == ()
    awake = expected(VALUES, row_of("idle"))
    del awake["cached_tokens", ""]  # of /slots
    assert values(read) == {**awake, ("residency", ""): Residency.COLD}


@pytest.mark.parametrize("row", STARTED, ids="/".join)
def test_a_recorded_engine_of_unknown_kind_gives_its_models_and_nothing_else(row: Row) -> None:
    there = {path: page for path, page in pages_of(row).items() if path == "/v1/models"}
    made, first = plan.resolve(by_kind("openai"), (), there, kind_source="config", logs=False, now=NOW)
    assert values(first) == {key: value for key, value in expected(VALUES, row).items() if key == ("models", "")}
    assert made.version is None


def test_a_sleeping_engine_is_not_asked_for_more_than_it_minds_when_it_is_planned_for() -> None:
    there = pages_of(row_of("sleeping"))
    asked = fetched(lambda pages: plan.next_paths(by_kind(KIND), (), pages), there)
    assert set(asked) == {"/props", "/v1/models"}


def test_every_recorded_version_has_streams_and_says_how_it_was_made() -> None:
    for version in {row[1] for row in STATES}:
        assert captures.streams(KIND, version)
        assert all(captures.request(KIND, version, name) for name in captures.streams(KIND, version))
        meta = (captures.TESTDATA / KIND / version / "meta.yaml").read_text(encoding="utf-8")
        assert all(f"\n{field}:" in f"\n{meta}" for field in ("kind", "version", "model", "recorded", "notes", "how"))
