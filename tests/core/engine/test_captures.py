"""Every recorded state, replayed through detection, planning and a scrape: it is read exactly as written here.

Rows are keyed engine, engine/version or engine/version/state; the most specific one wins, value by value.
"""

import pytest

from pharos.core.engine import detect, plan
from pharos.core.engine.recipes import by_kind
from pharos.core.signals import Residency
from tests.core.engine.pages import NOW, fetched, reasons, values
from tests.fakes import captures

UNKNOWN = None
VALUES: dict[str, dict[tuple[str, str], object]] = {
    "llamacpp": {
        ("version", ""): UNKNOWN,  # both builds say b0-unknown
        ("residency", ""): Residency.LOADED,
        ("capacity", ""): 2,
        ("context_length", ""): 4096,
        ("running", ""): 0,
        ("waiting", ""): 0,
        ("kv_usage", ""): UNKNOWN,  # two slots
    },
    "llamacpp/b11434": {("models", ""): ("smollm2:135m",), ("size_bytes", "smollm2:135m"): 96576768},
    "llamacpp/b11434/busy": {("running", ""): 1},
    "llamacpp/b11434/saturated": {("running", ""): 2, ("waiting", ""): 4},
    "llamacpp/b11549-sleep": {("models", ""): ("tiny",), ("size_bytes", "tiny"): 252160},
}
ASLEEP = {("residency", ""): Residency.COLD, ("running", ""): UNKNOWN, ("waiting", ""): UNKNOWN}
NOT_LISTED = {("models", ""): UNKNOWN, ("size_bytes", "tiny"): UNKNOWN}  # the recording lacks the list
VALUES |= {
    "llamacpp/b11549-sleep/sleeping": ASLEEP,
    "llamacpp/b11549-sleep/sleeping_again": ASLEEP,
    "llamacpp/b11549-sleep/asleep_before_request": {**ASLEEP, **NOT_LISTED},
    "llamacpp/b11549-sleep/woken_by_chat": NOT_LISTED,
    "llamacpp/b11549-sleep/woken_by_slots": {**NOT_LISTED, ("running", ""): UNKNOWN, ("waiting", ""): UNKNOWN},
}
PROBES: dict[str, dict[str, str]] = {
    "llamacpp": {
        "models": "llamacpp-models",
        "residency": "llamacpp-residency",
        "size_bytes": "llamacpp-size",
        "capacity": "llamacpp-capacity",
        "context_length": "llamacpp-context",
        "running": "llamacpp-running",
        "waiting": "llamacpp-waiting",
    },
}
DROPPED: dict[str, dict[str, str | None]] = {
    "llamacpp": {
        "llamacpp-version": "NO_VALUE",
        "llamacpp-slots-running": "REDUNDANT",
        "llamacpp-waiting-by-build": "REDUNDANT",
        "llamacpp-slots-kv": "NO_EVIDENCE",
    },
}
WITHHELD: dict[str, str | None] = {"llamacpp-waiting-by-build": "VERSION_GUARD", "llamacpp-slots-kv": None}
for name in ("sleeping", "sleeping_again", "asleep_before_request", "woken_by_slots"):
    DROPPED[f"llamacpp/b11549-sleep/{name}"] = WITHHELD
DROPPED["llamacpp/b11549-sleep/woken_by_slots"] = {**WITHHELD, "llamacpp-slots-running": "FETCH_ERROR"}

STATES = [("llamacpp", *state) for state in captures.states("llamacpp")]
SLEEPING = [row for row in STATES if "sleep" in row[2]]


def expected(table: dict, *row: str) -> dict:
    merged: dict = {}
    for depth in range(1, len(row) + 1):
        merged |= table.get("/".join(row[:depth]), {})
    return {key: value for key, value in merged.items() if value is not None}


def replay(kind: str, version: str, state: str) -> tuple[plan.Plan, plan.Round, dict]:
    there = captures.pages(kind, version, state, sent_at=NOW - 0.5)
    seen = fetched(detect.next_paths, there)
    assert detect.judge(seen).kind == kind
    recipe = by_kind(kind)
    got = fetched(lambda pages: plan.next_paths(recipe, (), pages), there, seen)
    made, first = plan.resolve(recipe, (), got, kind_source="detected", logs=False, now=NOW)
    return made, first, got


@pytest.mark.parametrize("row", [row for row in STATES if row[2] != "loading"], ids="/".join)
def test_a_recorded_state_is_read_exactly(row: tuple[str, str, str]) -> None:
    made, first, got = replay(*row)
    assert values(first) == expected(VALUES, *row)
    probes = expected(PROBES, *row)
    assert all(reading.probe == probes[signal.value] for (signal, _), reading in first.readings.items())
    assert reasons(made) == expected(DROPPED, *row)
    assert values(plan.scrape(made, got, NOW)) == values(first)


@pytest.mark.parametrize("row", [row for row in STATES if row[2] == "loading"], ids="/".join)
def test_a_loading_engine_is_not_yet_known(row: tuple[str, str, str]) -> None:
    found = detect.judge(fetched(detect.next_paths, captures.pages(*row)))
    assert (found.kind, found.pending) == (None, "/props answers 503")


@pytest.mark.parametrize("row", [row for row in STATES if row[2] == "loading"], ids="/".join)
def test_a_loading_engine_of_a_configured_kind_has_no_values_and_keeps_its_probes(row: tuple[str, str, str]) -> None:
    recipe = by_kind(row[0])
    got = fetched(lambda pages: plan.next_paths(recipe, (), pages), captures.pages(*row))
    made, first = plan.resolve(recipe, (), got, kind_source="config", logs=False, now=NOW)
    assert values(first) == {}
    assert {one.reason.name for one in first.failed} == {"STARTING"}
    assert not plan.needs_resolve(made, plan.scrape(made, got, NOW))


@pytest.mark.parametrize("row", SLEEPING, ids="/".join)
def test_a_sleeping_engine_is_never_asked_for_its_slots(row: tuple[str, str, str]) -> None:
    made, first, got = replay(*row)
    recorded = {"/slots": captures.pages("llamacpp", "b11549-sleep", "idle")["/slots"], **got}
    assert "/slots" not in fetched(lambda pages: plan.next_paths(by_kind("llamacpp"), (), pages), recorded)
    asleep = plan.asleep_in(first.readings)
    assert asleep is True
    for known in (True, None):
        assert "/slots" not in plan.due_paths(made, {}, NOW, asleep=known)


def test_the_plan_of_an_awake_engine_reads_its_metrics_on_while_it_sleeps() -> None:
    made, _, _ = replay("llamacpp", "b11549-sleep", "idle")
    asleep = captures.pages("llamacpp", "b11549-sleep", "sleeping", sent_at=NOW)
    due = plan.due_paths(made, {}, NOW, asleep=True)
    assert due == ("/v1/models", "/props", "/metrics")
    read = plan.scrape(made, {path: asleep[path] for path in due}, NOW)
    assert read.failed == ()
    awake = expected(VALUES, "llamacpp", "b11549-sleep", "idle")
    assert values(read) == {**awake, ("residency", ""): Residency.COLD}


@pytest.mark.parametrize("row", [row for row in STATES if row[2] != "loading"], ids="/".join)
def test_a_recorded_engine_of_unknown_kind_gives_its_models_and_nothing_else(row: tuple[str, str, str]) -> None:
    there = {path: page for path, page in captures.pages(*row).items() if path == "/v1/models"}
    made, first = plan.resolve(by_kind("openai"), (), there, kind_source="config", logs=False, now=NOW)
    wanted = {key: value for key, value in expected(VALUES, *row).items() if key == ("models", "")}
    assert values(first) == wanted
    assert made.version is None


def test_every_recorded_version_has_streams_and_says_how_it_was_made() -> None:
    for version in {version for version, _ in captures.states("llamacpp")}:
        assert captures.streams("llamacpp", version)
        assert all(captures.request("llamacpp", version, name) for name in captures.streams("llamacpp", version))
        meta = (captures.TESTDATA / "llamacpp" / version / "meta.yaml").read_text(encoding="utf-8")
        assert all(f"\n{field}:" in f"\n{meta}" for field in ("kind", "version", "model", "recorded", "notes", "how"))
