from collections.abc import Callable
from typing import Any

from pharos.core.fleet.backend import BackendSpec
from pharos.core.fleet.registry import Fleet
from pharos.core.signals import Residency, Signal
from pharos.obs import describe
from pharos.proxy.done import Done

from .conftest import NOW, VALUES, publish


def unknown(described: dict[str, Any]) -> dict[tuple[str, str | None], str]:
    return {(row["signal"], row["model"]): row["reason"] for row in described["unknown"]}


def test_a_backend_has_exactly_the_agreed_fields(fleet: Fleet) -> None:
    described = describe.backend(fleet.backends["gpu-1"], NOW)
    assert list(described) == [
        *("schema", "name", "url", "kind", "kind_source", "version", "up", "plan", "dropped", "unknown"),
    ]
    assert {tuple(row) for row in described["plan"]} == {("signal", "model", "value", "probe", "feed", "age_s", "own")}
    assert {tuple(row) for row in described["unknown"]} == {("signal", "model", "reason", "expected", "cost", "fix")}


def test_a_known_value_tells_its_probe_feed_and_age(fleet: Fleet) -> None:
    rows = {row["signal"]: row for row in describe.backend(fleet.backends["gpu-1"], NOW + 2)["plan"]}
    assert rows["running"] == {
        "signal": "running", "model": None, "value": 0, "probe": "busy", "feed": "GET /metrics",
        "age_s": 2.0, "own": False,
    }  # fmt: skip
    assert rows["residency"]["value"] == "loaded"
    assert rows["models"]["value"] == ["tiny"]
    assert rows["context_length"]["own"]


def test_every_signal_is_either_known_or_unknown_with_a_reason(fleet: Fleet) -> None:
    for now in (NOW, NOW + 100):
        described = describe.backend(fleet.backends["gpu-1"], now)
        known = {row["signal"] for row in described["plan"]}
        assert known | {signal for signal, _ in unknown(described)} == set(Signal)
        assert not known & {signal for signal, _ in unknown(described)}
        assert all(row["reason"] and row["cost"] and row["fix"] for row in described["unknown"])


def test_an_unknown_signal_says_which_probe_failed_and_why(fleet: Fleet) -> None:
    reasons = unknown(describe.backend(fleet.backends["gpu-1"], NOW))
    assert reasons["waiting", None] == "deferred: not found (/metrics answers 501)"
    assert reasons["vram_bytes", None] == describe.NOT_OFFERED


def test_a_stale_value_is_unknown_and_says_since_when(fleet: Fleet) -> None:
    reasons = unknown(describe.backend(fleet.backends["gpu-1"], NOW + 16))
    assert reasons["running", None] == "too old: busy read it 16 s ago"


def test_a_model_left_out_by_a_per_model_signal_is_named(fleet: Fleet) -> None:
    values = {key: value for key, value in VALUES.items() if key[0] is not Signal.RESIDENCY}
    values |= {(Signal.MODELS, ""): ("a", "b"), (Signal.RESIDENCY, "a"): Residency.COLD}
    described = describe.backend(publish(fleet, "gpu-2", values), NOW)
    assert ("residency", "b") in unknown(described)
    assert ("residency", "a") not in unknown(described)


def test_a_planned_probe_without_a_value_is_named(fleet: Fleet) -> None:
    values = {key: value for key, value in VALUES.items() if key[0] is not Signal.CAPACITY}
    described = describe.backend(publish(fleet, "gpu-2", values), NOW)
    assert unknown(described)["capacity", None] == "no value from slots in the last round"


def test_a_backend_that_was_never_read_is_neither_up_nor_down(fleet: Fleet) -> None:
    described = describe.backend(fleet.backends["gpu-2"], NOW)
    assert described["up"] is None
    assert described["kind"] is None
    assert set(unknown(described).values()) == {"not read yet"}


def test_a_dead_backend_gives_its_error_as_the_reason() -> None:
    fleet = Fleet()
    fleet.set_backends((BackendSpec("x", "http://x", kind="vllm"),), NOW)
    fleet.unreachable(fleet.backends["x"], "connection refused")
    described = describe.backend(fleet.backends["x"], NOW)
    assert described["up"] is False
    assert described["kind"] == "vllm"
    assert "connection refused" in unknown(described)["running", None]


def test_complete_is_a_backend_whose_unknowns_are_those_its_engine_never_tells(fleet: Fleet) -> None:
    described = describe.backend(fleet.backends["gpu-1"], NOW)
    assert not describe.is_complete(described)
    told = [row for row in described["unknown"] if row["signal"] != "waiting"]
    assert describe.is_complete(described | {"unknown": told})


def test_a_target_shows_unknown_as_none_and_zero_as_zero(fleet: Fleet) -> None:
    target = fleet.backends["gpu-1"].targets["tiny"]
    fleet.dispatched(target)
    described = describe.target(target, NOW)
    assert (described["inflight"], described["running"], described["waiting"]) == (1, 0, None)
    assert described["residency"] == "loaded"
    assert described["learned"] == {"prefill_s_per_token": None, "load_s": None, "service_s": None}


def test_a_decision_has_exactly_the_agreed_fields(finished: Callable[..., Done]) -> None:
    described = describe.decision(finished())
    assert list(described) == [
        *("request_id", "key", "model", "target", "reason", "stages", "predicted", "actual", "candidates"),
    ]
    assert described["stages"] == ["admission=ok", "route=warm", "upstream=ok"]
    assert (described["predicted"], described["actual"]) == (0.4, 0.3)
    assert list(described["candidates"][0]) == [
        *("target", "wait_s", "load_s", "prefill_s", "kv_s", "feasible", "why_not"),
    ]
    assert described["candidates"][0]["why_not"] is None


def test_a_request_without_usage_has_unknown_token_counts(finished: Callable[..., Done]) -> None:
    assert describe.request(finished(usage=None))["prompt_tokens"] is None
    assert describe.request(finished())["cached_tokens"] == 60
