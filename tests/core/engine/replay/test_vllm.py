"""vLLM's recorded and hand-made states are read exactly as written here."""

import pytest

from pharos.core.engine.probe import SideEffect
from pharos.core.engine.recipes import by_kind
from pharos.core.signals import Residency
from tests.core.engine.pages import ok, reasons, refusal, status, values
from tests.core.engine.replay.replaying import UNKNOWN, check, detected, pages_of, readers, resolved, rows, unused

PROBES = {probe.name: probe for probe in by_kind("vllm").probes}
FIRST, SECOND = "started at 1796029405.15", "started at 1796029674.99"
VALUES: dict[str, dict[tuple[str, str], object]] = {
    "vllm": {
        ("version", ""): "0.32.0",
        ("models", ""): ("tiny",),
        ("residency", ""): Residency.LOADED,
        ("context_length", "tiny"): 4096,
        ("physical_group", "tiny"): "tiny",
        ("capacity", ""): UNKNOWN,  # told in development mode only
        ("running", ""): 0,
        ("waiting", ""): 0,
        ("kv_usage", ""): 0.0,
        ("process", ""): FIRST,
        ("work_done", ""): 0.0,
    },
    "vllm/0.32.0/busy": {("running", ""): 1, ("kv_usage", ""): 0.0001220740379039853, ("work_done", ""): 419.0 + 50},
    "vllm/0.32.0/saturated": {
        ("running", ""): 2,
        ("waiting", ""): 4,
        ("kv_usage", ""): 0.0003662221137119559,
        ("work_done", ""): 4331.0 + 150,
    },
    "vllm/0.32.0/after": {("work_done", ""): 12000.0 + 350},
    "vllm/0.32.0-defaults": {
        ("models", ""): ("tiny", "tiny-alias"),
        ("context_length", "tiny"): 1024,
        ("context_length", "tiny-alias"): 1024,
        ("physical_group", "tiny-alias"): "tiny",
        ("process", ""): SECOND,
    },
    "vllm/0.32.0-defaults/busy": {
        ("running", ""): 1,
        ("kv_usage", ""): 0.3846153846153846,
        ("work_done", ""): 495.0 + 50,
    },
    "vllm/0.32.0-defaults/saturated": {
        ("running", ""): 4,
        ("waiting", ""): 1,
        ("kv_usage", ""): 0.9230769230769231,
        ("work_done", ""): 3570.0 + 450,
    },
    "vllm/0.32.0-defaults/after": {("work_done", ""): 4500.0 + 450},
    "vllm/synthetic-engines": {
        ("running", ""): 3 + 5,
        ("waiting", ""): 1 + 2,  # of four: one is deferred
        ("kv_usage", ""): 0.9,  # the fuller of 0.2 and 0.9
        ("work_done", ""): 1200.0 + 2200 + 310 + 690,
    },
    "vllm/synthetic-engines/development": {("capacity", ""): 2 * 256},
    "vllm/synthetic-lora": {
        ("models", ""): ("tiny", "tiny-alias", "tiny-sql", "tiny-poems"),
        **{("context_length", name): 4096 for name in ("tiny-alias", "tiny-sql", "tiny-poems")},
        **{("physical_group", name): "tiny" for name in ("tiny-alias", "tiny-sql", "tiny-poems")},
        ("running", ""): 2,
        ("kv_usage", ""): 0.125,
        ("work_done", ""): 508.0,
    },
    "vllm/synthetic-sleep": {("work_done", ""): 508.0, ("capacity", ""): 128},
    "vllm/synthetic-sleep/level-1": {("residency", ""): Residency.COLD},
    "vllm/synthetic-sleep/level-2": {("residency", ""): Residency.COLD},
    "vllm/synthetic-sleep/half-asleep": {("residency", ""): UNKNOWN, ("capacity", ""): UNKNOWN},
    "vllm/synthetic-renamed": {
        ("version", ""): "0.8.5",
        ("residency", ""): UNKNOWN,
        ("running", ""): 2,
        ("waiting", ""): 4,
        ("work_done", ""): 508.0,
    },
    "vllm/synthetic-renamed/old-name": {("kv_usage", ""): 0.75},
    "vllm/synthetic-renamed/new-name": {("kv_usage", ""): 0.25},
    "vllm/synthetic-renamed/both-names": {("kv_usage", ""): 0.25},
    "vllm/synthetic-renamed/neither-name": {("kv_usage", ""): UNKNOWN},
    "vllm/synthetic-no-stats": {
        (signal, ""): UNKNOWN for signal in ("residency", "running", "waiting", "kv_usage", "work_done")
    },
    "vllm/synthetic-api-servers": {
        ("running", ""): 7,
        ("kv_usage", ""): 0.3125,
        ("work_done", ""): 11300.0,
        ("process", ""): UNKNOWN,  # several processes write the one page
    },
    "vllm/synthetic-frozen": {
        ("running", ""): 106,
        ("waiting", ""): 15,
        ("kv_usage", ""): 0.99,
        ("work_done", ""): 138623.0,
    },
}
LOCKED = ("vllm", "synthetic-no-stats", "locked")


@pytest.mark.parametrize("row", [row for row in rows("vllm") if row != LOCKED], ids="/".join)
def test_a_state_is_read_exactly(row: tuple[str, str, str]) -> None:
    check("vllm", row, VALUES)


def test_every_row_of_the_table_is_of_a_recording() -> None:
    assert not unused(VALUES, "vllm")


def test_a_locked_list_names_the_credential_and_tells_nothing() -> None:
    there = pages_of(LOCKED)
    found, seen = detected(there)
    assert found.kind is None
    assert found.pending is not None
    assert "401" in found.pending
    assert "credential" in found.pending
    made, first, _ = resolved("vllm", there, seen)
    assert set(values(first)) == {("version", ""), ("process", "")}
    assert reasons(made)["vllm-models"] == "UNAUTHORIZED"


def test_each_signal_has_the_reader_of_most_trust() -> None:
    _, first = check("vllm", ("vllm", "0.32.0", "saturated"), VALUES)
    assert readers(first) == {
        "version": {"vllm-version"},
        "models": {"vllm-models"},
        "residency": {"vllm-residency"},
        "context_length": {"vllm-context"},
        "physical_group": {"vllm-group"},
        "running": {"vllm-running"},
        "waiting": {"vllm-waiting-capacity"},
        "kv_usage": {"vllm-kv"},
        "process": {"vllm-process"},
        "work_done": {"vllm-work"},
    }


def test_without_its_series_the_development_pages_still_tell_of_sleep() -> None:
    there = pages_of(("vllm", "synthetic-sleep", "level-1"))
    there["/metrics"] = pages_of(("vllm", "synthetic-no-stats", "idle"))["/metrics"]
    _, first, _ = resolved("vllm", there)
    assert values(first)["residency", ""] is Residency.COLD
    assert readers(first)["residency"] == {"vllm-is-sleeping"}


def test_settings_are_read_when_planning_only_and_stay_fresh_until_the_next_plan() -> None:
    made, first = check("vllm", ("vllm", "synthetic-engines", "development"), VALUES)
    probe = next(probe for probe in made.active if probe.name == "vllm-capacity")
    assert probe.feed.side_effect is SideEffect.HEAVY
    reading = first.readings[probe.signal, ""]
    assert reading.interval_s == 600.0


def test_a_frozen_engine_says_the_same_however_often_it_is_read() -> None:
    page = pages_of(("vllm", "synthetic-frozen", "frozen"))["/metrics"]
    assert [PROBES["vllm-work"].parse(page)[""] for _ in range(3)] == [138623.0] * 3


def settings(parallel: object, **scheduler: object) -> dict[str, object]:
    return {"vllm_config": {"scheduler_config": scheduler, "parallel_config": parallel}}


ONE = {"data_parallel_size": 1}
EIGHT = {
    "data_parallel_size": 8,
    "data_parallel_size_local": 4,
    "data_parallel_external_lb": False,
    "data_parallel_hybrid_lb": False,
}


@pytest.mark.parametrize(
    ("body", "slots"),
    [
        (settings(ONE, max_num_seqs=256), 256),
        (settings(ONE, max_num_seqs=256, max_num_active_seqs=64), 64),
        (settings(EIGHT, max_num_seqs=256), 2048),
        (settings({**EIGHT, "data_parallel_external_lb": True}, max_num_seqs=256), 256),
        (settings({**EIGHT, "data_parallel_hybrid_lb": True}, max_num_seqs=256), 1024),
    ],
)
def test_slots_are_those_of_all_ranks_behind_the_address(body: object, slots: int) -> None:
    assert PROBES["vllm-capacity"].parse(ok(body)) == {"": slots}


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ({"vllm_config": "VllmConfig(max_num_seqs=256)"}, "PARSE_ERROR"),  # the text form
        (settings(ONE), "NO_VALUE"),
        (settings(ONE, max_num_seqs=0), "NO_VALUE"),
        (settings({}, max_num_seqs=256), "NO_VALUE"),
        (settings({"data_parallel_size": 8}, max_num_seqs=256), "NO_VALUE"),
        (settings({**EIGHT, "data_parallel_external_lb": "no"}, max_num_seqs=256), "PARSE_ERROR"),
        (
            settings({**EIGHT, "data_parallel_hybrid_lb": True, "data_parallel_size_local": 9}, max_num_seqs=2),
            "PARSE_ERROR",
        ),
        (settings(ONE, max_num_seqs=256, max_num_active_seqs="all"), "PARSE_ERROR"),
    ],
)
def test_settings_that_do_not_tell_the_slots_are_no_capacity(body: object, reason: str) -> None:
    assert refusal(PROBES["vllm-capacity"], ok(body)) == reason


STATE = 'vllm:engine_sleep_state{engine="0",model_name="m",sleep_state="%s"} %s\n'


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ("end 1\n", "NO_VALUE"),
        (STATE % ("awake", 1), "NO_EVIDENCE"),  # nothing follows
        (STATE % ("awake", 2) + "end 1\n", "PARSE_ERROR"),
        (STATE % ("awake", "NaN") + "end 1\n", "PARSE_ERROR"),
        (STATE % ("awake", 1) + STATE % ("discard_all", 1) + "end 1\n", "NO_EVIDENCE"),
        (STATE % ("weights_offloaded", 0) + "end 1\n", "NO_EVIDENCE"),
        (STATE % ("awake", 1) * 2 + "end 1\n", "PARSE_ERROR"),
        ('vllm:engine_sleep_state{model_name="m",sleep_state="awake"} 1\nend 1\n', "NO_EVIDENCE"),
    ],
)
def test_a_sleep_state_that_is_not_plain_is_unknown(body: str, reason: str) -> None:
    assert refusal(PROBES["vllm-residency"], ok(body)) == reason


@pytest.mark.parametrize("body", [{"version": " "}, {}])
def test_an_empty_version_is_none(body: object) -> None:
    assert refusal(PROBES["vllm-version"], ok(body)) == "NO_VALUE"


def test_a_second_model_on_one_page_is_not_added_up() -> None:
    series = 'vllm:num_requests_running{engine="0",model_name="%s"} 1\n'
    assert refusal(PROBES["vllm-running"], ok(series % "a" + series % "b" + "end 1\n")) == "NO_EVIDENCE"


IDLE = ("vllm", "0.32.0", "idle")


@pytest.mark.parametrize(
    ("path", "page", "kind"),
    [
        ("/version", status(404), "openai"),
        ("/version", ok({"build": 7}), "openai"),
        ("/version", ok("<html>"), "openai"),
        ("/version", ok('{"version":'), None),
        ("/version", status(503), None),
        ("/metrics", status(503), None),
        ("/metrics", ok('vllm:num_requests_running{engine="0"'), None),
        ("/metrics", status(404), "vllm"),
        ("/metrics", ok("<html>"), "vllm"),
        ("/metrics", ok('vllm:num_requests_running{server="http://a:8000"} 1\n'), "openai"),
    ],
)
def test_a_page_that_is_not_its_own_is_not_taken_for_vllm(path: str, page: object, kind: str | None) -> None:
    there = pages_of(IDLE)
    there[path] = page  # type: ignore[assignment]
    assert detected(there)[0].kind == kind


@pytest.mark.parametrize(
    ("page", "kind"),
    [(status(404), "openai"), (ok({"server_load": "none"}), None), (ok({"load": 0}), "openai"), (status(503), None)],
)
def test_with_its_statistics_off_it_is_known_by_its_load_page_only(page: object, kind: str | None) -> None:
    there = pages_of(("vllm", "synthetic-no-stats", "idle"))
    there["/load"] = page  # type: ignore[assignment]
    assert detected(there)[0].kind == kind


def test_a_list_of_another_owner_is_not_vllm() -> None:
    there = pages_of(IDLE)
    there["/v1/models"] = ok({"data": [{"id": "tiny", "owned_by": "somebody"}]})
    found, seen = detected(there)
    assert found.kind == "openai"
    assert "/metrics" not in seen  # TensorRT-LLM's would lose what others have not read yet
