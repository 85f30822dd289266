"""SGLang's hand-made states, from its source, are read exactly as written here."""

import pytest

from pharos.core.engine import plan
from pharos.core.engine.probe import SideEffect
from pharos.core.engine.recipes import by_kind
from pharos.core.signals import Residency
from tests.core.engine.pages import NOW, ok, reasons, refusal, status, values
from tests.core.engine.replay.replaying import UNKNOWN, check, detected, pages_of, readers, resolved, rows, unused

PROBES = {probe.name: probe for probe in by_kind("sglang").probes}
NEW, OLD = "synthetic-0.5.23", "synthetic-0.5.4"
UNTOLD = {(signal, ""): UNKNOWN for signal in ("running", "waiting", "kv_usage", "work_done")}
VALUES: dict[str, dict[tuple[str, str], object]] = {
    "sglang": {
        ("version", ""): "0.5.23",
        ("models", ""): ("qwen3-8b",),
        ("residency", ""): Residency.LOADED,
        ("context_length", "qwen3-8b"): 32768,
        ("physical_group", "qwen3-8b"): "qwen3-8b",
        ("capabilities", ""): ("completion", "thinking", "tools"),
    },
    f"sglang/{NEW}": {
        ("size_bytes", ""): 16407848813,  # 15.281 GiB
        ("capacity", ""): 512,
        ("running", ""): 1,
        ("waiting", ""): 0,
        ("kv_usage", ""): 0.01,
        ("work_done", ""): 512.0 + 3,
    },
    f"sglang/{NEW}/ranks": {
        ("size_bytes", ""): UNKNOWN,
        ("capacity", ""): 8 * 512,
        ("running", ""): sum(range(1, 9)),
        ("waiting", ""): 0 + 1 + 2 + 0 + 1 + 2 + 0 + 1,
        ("kv_usage", ""): 160000 / 409600,
        ("work_done", ""): 36000.0 + sum(range(100, 108)),
        ("cached_tokens", ""): 720000 + 8 * 100000,
    },
    f"sglang/{NEW}/single": {
        ("running", ""): 3,
        ("waiting", ""): 2,
        ("kv_usage", ""): 0.25,
        ("work_done", ""): 40960.0 + 700,
    },
    f"sglang/{NEW}/idle": {("running", ""): 0, ("kv_usage", ""): 0.0, ("work_done", ""): 0.0},
    f"sglang/{NEW}/tensor-parallel": {("size_bytes", ""): UNKNOWN},
    # Zeros that a silent scheduler shows are not taken for an idle one; its settings tell the slots all the same.
    f"sglang/{NEW}/not-yet-told": {**UNTOLD, ("size_bytes", ""): UNKNOWN, ("capacity", ""): 2 * 512},
    f"sglang/{NEW}/rank-missing": {**UNTOLD, ("size_bytes", ""): UNKNOWN, ("capacity", ""): 3 * 512},
    f"sglang/{NEW}/adapters": {
        ("models", ""): ("qwen3-8b", "sql"),
        ("context_length", "sql"): 32768,
        ("physical_group", "sql"): "qwen3-8b",
    },
    f"sglang/{NEW}/embedding": {
        ("models", ""): ("e5",),
        ("context_length", "qwen3-8b"): UNKNOWN,
        ("physical_group", "qwen3-8b"): UNKNOWN,
        ("context_length", "e5"): 512,
        ("physical_group", "e5"): "e5",
        ("capabilities", ""): UNKNOWN,  # it may embed, rank or classify
        ("running", ""): 0,
        ("kv_usage", ""): 0.0,
        ("work_done", ""): 512.0,
    },
    f"sglang/{OLD}": {("version", ""): "0.5.4", ("capabilities", ""): UNKNOWN, ("capacity", ""): 2 * 128},
    f"sglang/{OLD}/metrics": {("running", ""): 6, ("waiting", ""): 1, ("kv_usage", ""): 0.2},
    "sglang/synthetic-0.4.9": {
        ("version", ""): "0.4.9.post2",
        ("capabilities", ""): UNKNOWN,
        ("capacity", ""): 64,
    },
}
OLDEST = ("sglang", "synthetic-0.4.9", "no-metrics")


@pytest.mark.parametrize("row", [row for row in rows("sglang") if row != OLDEST], ids="/".join)
def test_a_state_is_read_exactly(row: tuple[str, str, str]) -> None:
    check("sglang", row, VALUES)


def test_every_row_of_the_table_is_of_a_recording() -> None:
    assert not unused(VALUES, "sglang")


def test_a_very_old_server_is_read_once_its_kind_is_given() -> None:
    there = pages_of(OLDEST)
    found, seen = detected(there)
    assert found.kind == "openai"
    assert "/get_server_info" not in seen  # newer servers would complain in their log
    _, first, _ = resolved("sglang", there)
    assert values(first) == {
        key: value for key, value in (VALUES["sglang"] | VALUES["sglang/synthetic-0.4.9"]).items() if value
    }


def test_its_loads_are_trusted_before_its_metrics_and_its_settings() -> None:
    _, first = check("sglang", ("sglang", NEW, "ranks"), VALUES)
    told = readers(first)
    assert {told[signal].pop() for signal in ("version", "capacity", "running", "waiting", "kv_usage")} == {
        "sglang-version",
        "sglang-capacity",
        "sglang-running",
        "sglang-waiting",
        "sglang-kv",
    }
    _, first = check("sglang", ("sglang", OLD, "metrics"), VALUES)
    assert readers(first)["running"] == {"sglang-metrics-running"}


def test_metrics_and_loads_of_one_moment_say_the_same() -> None:
    page = pages_of(("sglang", NEW, "ranks"))["/metrics"]
    assert PROBES["sglang-metrics-running"].parse(page) == {"": 36}
    assert PROBES["sglang-metrics-waiting"].parse(page) == {"": 7}
    assert PROBES["sglang-metrics-kv"].parse(page) == {"": 0.390625}
    old = pages_of(("sglang", OLD, "metrics"))["/metrics"]
    assert refusal(PROBES["sglang-metrics-used"], page) == "NO_EVIDENCE"  # its successor is there
    assert PROBES["sglang-metrics-used"].parse(old) == {"": 0.2}


def test_a_prefix_with_an_underscore_is_the_same_metric() -> None:
    page = pages_of(("sglang", NEW, "ranks"))["/metrics"]
    other = ok(page.body.replace(b"sglang:", b"sglang_"))
    assert refusal(PROBES["sglang-metrics-running"], other) == "NO_VALUE"
    assert PROBES["sglang-metrics-running-underscore"].parse(other) == {"": 36}


def test_its_settings_are_only_asked_where_nothing_cheaper_tells() -> None:
    for row in [("sglang", NEW, "ranks"), ("sglang", NEW, "single"), ("sglang", NEW, "idle")]:
        _, _, got = resolved("sglang", pages_of(row))
        assert not [path for path in got if "server_info" in path]
    assert PROBES["sglang-settings-capacity"].feed.side_effect is SideEffect.HEAVY
    assert not {probe.feed.path for probe in PROBES.values()} & {"/health", "/health_generate", "/get_loads"}


def test_a_scheduler_that_was_silent_when_planning_is_read_as_soon_as_it_tells() -> None:
    made, first, _ = resolved("sglang", pages_of(("sglang", NEW, "not-yet-told")))
    assert ("running", "") not in values(first)
    later = plan.scrape(made, {"/v1/loads": pages_of(("sglang", NEW, "single"))["/v1/loads"]}, NOW)
    assert values(later)["running", ""] == 3
    assert plan.needs_resolve(made, later)


RANK = {
    "dp_rank": 0,
    "num_running_reqs": 1,
    "num_waiting_reqs": 0,
    "num_used_tokens": 10,
    "max_total_num_tokens": 100,
    "max_running_requests": 8,
    "total_prefill_uncached_tokens": 5,
    "decode_moments": [2.0, 2.0],
}


def loads(*ranks: dict[str, object], **more: object) -> object:
    return {"version": "0.5.23", "num_accelerators": 1, "loads": list(ranks), **more}


@pytest.mark.parametrize(
    ("probe", "body", "reason"),
    [
        ("running", loads(), "NO_EVIDENCE"),
        ("running", loads(RANK, RANK), "NO_EVIDENCE"),
        ("running", loads({**RANK, "dp_rank": 1}), "NO_EVIDENCE"),
        ("running", loads({**RANK, "num_running_reqs": -1}), "PARSE_ERROR"),
        ("running", loads({**RANK, "num_running_reqs": 0.5}), "PARSE_ERROR"),
        ("running", loads({**RANK, "num_running_reqs": None}), "NO_VALUE"),
        ("running", {"version": "0.5.8", "aggregate": {"total_running_reqs": 3}}, "NO_VALUE"),
        ("waiting", loads({**RANK, "max_running_requests": 0}), "NO_VALUE"),
        ("kv", loads({**RANK, "max_total_num_tokens": 0, "num_used_tokens": 0}), "NO_VALUE"),
        ("kv", loads({**RANK, "num_used_tokens": 101}), "PARSE_ERROR"),
        ("size", loads(RANK), "NO_VALUE"),
        ("size", loads({**RANK, "memory": {"weight_gb": 15}}), "PARSE_ERROR"),
        ("size", loads({**RANK, "memory": {"weight_gb": -1.5}}), "PARSE_ERROR"),
        ("size", loads({**RANK, "memory": {"weight_gb": 0.0}}), "NO_VALUE"),
        ("work", loads({key: value for key, value in RANK.items() if key != "decode_moments"}), "NO_EVIDENCE"),
        ("work", loads({**RANK, "decode_moments": []}), "PARSE_ERROR"),
        ("work", loads({**RANK, "decode_moments": {}}), "PARSE_ERROR"),
        ("version", loads(version=""), "NO_VALUE"),
        ("residency", {"data": []}, "NO_VALUE"),
        ("settings-capacity", {"internal_states": []}, "NO_VALUE"),
        ("settings-capacity", {"internal_states": [{}]}, "NO_VALUE"),
        ("settings-capacity", {"max_running_requests": 64}, "NO_VALUE"),
        ("capabilities", {"is_generation": "yes"}, "PARSE_ERROR"),
        ("capabilities", {"is_generation": False}, "NO_VALUE"),
        ("capabilities", {"is_generation": True, "has_image_understanding": True}, "NO_VALUE"),
        (
            "capabilities",
            {"is_generation": True, "has_image_understanding": True, "has_audio_understanding": False},
            "NO_VALUE",
        ),
    ],
)
def test_what_cannot_be_or_is_not_told_is_unknown(probe: str, body: object, reason: str) -> None:
    assert refusal(PROBES[f"sglang-{probe}"], ok(body)) == reason


def test_work_before_the_first_decode_step_is_that_of_prompts() -> None:
    assert PROBES["sglang-work"].parse(ok(loads({**RANK, "decode_moments": None}))) == {"": 5.0}


def test_a_model_that_sees_and_hears_says_so_and_an_embedding_one_too() -> None:
    able = {
        "is_generation": True,
        "has_image_understanding": True,
        "has_audio_understanding": True,
        "tool_call_parser": None,
        "reasoning_parser": None,
    }
    assert PROBES["sglang-capabilities"].parse(ok(able)) == {"": ("audio", "completion", "vision")}
    embeds = {"is_generation": False, "embedding": {"dimensions": 384}}
    assert PROBES["sglang-capabilities"].parse(ok(embeds)) == {"": ("embedding",)}


@pytest.mark.parametrize(
    ("path", "page", "kind"),
    [
        ("/v1/loads", status(503), None),
        ("/v1/loads", ok('{"loads":'), None),
        ("/v1/loads", ok({"loads": {}, "version": "1"}), None),
        ("/v1/loads", ok({"version": "1"}), "openai"),
        ("/v1/loads", ok("<html>"), "openai"),
        ("/server_info", status(503), None),
        ("/server_info", ok({"version": "1"}), "openai"),
        ("/server_info", status(404), "openai"),
        ("/v1/models", ok({"data": [{"id": "m", "owned_by": "somebody"}]}), "openai"),
    ],
)
def test_a_page_that_is_not_its_own_is_not_taken_for_sglang(path: str, page: object, kind: str | None) -> None:
    there = pages_of(
        ("sglang", OLD if path == "/server_info" else NEW, "metrics" if path == "/server_info" else "single")
    )
    there[path] = page  # type: ignore[assignment]
    assert detected(there)[0].kind == kind


def test_without_metrics_an_old_server_gives_no_load_and_says_why() -> None:
    made, _ = check("sglang", ("sglang", OLD, "no-metrics"), VALUES)
    assert reasons(made)["sglang-running"] == "NOT_FOUND"
    assert reasons(made)["sglang-metrics-running"] == "NOT_FOUND"
