from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from pharos.core.engine.plan import Dropped, Plan, Round
from pharos.core.engine.probe import DropReason, Feed, FeedKind, Probe, SideEffect
from pharos.core.fleet.backend import BackendSpec
from pharos.core.fleet.registry import Fleet
from pharos.core.signals import MARKS, Reading, Residency, Signal
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


NOT_MISSED = MARKS | {Signal.GPU_TOTAL_BYTES, Signal.GPU_USED_BYTES, Signal.MODELS_AT_ONCE}


def test_every_signal_is_either_known_or_unknown_with_a_reason(fleet: Fleet) -> None:
    for now in (NOW, NOW + 100):
        described = describe.backend(fleet.backends["gpu-1"], now)
        known = {row["signal"] for row in described["plan"]}
        assert known | {signal for signal, _ in unknown(described)} == set(Signal) - NOT_MISSED
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


def test_what_is_told_of_a_queue_is_known_of_each_of_its_names(fleet: Fleet) -> None:
    values = {key: value for key, value in VALUES.items() if key[0] is not Signal.CAPACITY}
    values |= {(Signal.MODELS, ""): ("a", "b", "c"), (Signal.CAPACITY, "file"): 2}
    backend = publish(fleet, "gpu-2", values)
    for name in ("a", "b"):
        backend.targets[name].group = "file"
    reasons = unknown(describe.backend(backend, NOW))
    assert [model for signal, model in reasons if signal == "capacity"] == ["c"]


def silent(fleet: Fleet, one: Probe, dropped: tuple[Dropped, ...] = (), **spec: int) -> dict[str, Any]:
    """The row of a signal whose one probe, or none, is planned and told nothing."""
    fleet.set_backends((BackendSpec("gpu-3", "http://gpu-3:8080", **spec),), NOW)  # type: ignore[arg-type]
    backend = fleet.backends["gpu-3"]
    active = () if dropped else (one,)
    plan = Plan(kind="llamacpp", kind_source="detected", version=None, active=active, dropped=dropped)
    fleet.publish(backend, plan, Round({}, (), frozenset()), NOW, full=True, started_at=NOW)
    (row,) = [row for row in describe.backend(backend, NOW)["unknown"] if row["signal"] == one.signal.value]
    return row


@pytest.mark.parametrize(
    ("kind", "may_be_empty", "is_expected"),
    [
        (FeedKind.GET, True, True),
        (FeedKind.LOG, False, True),
        (FeedKind.SSE, False, True),
        (FeedKind.GET, False, False),
    ],
)
def test_a_probe_that_tells_of_some_models_only_may_be_silent(
    fleet: Fleet,
    kind: FeedKind,
    may_be_empty: bool,  # noqa: FBT001
    is_expected: bool,  # noqa: FBT001
) -> None:
    one = Probe("it", Signal.VRAM_BYTES, Feed(kind), lambda _: {}, may_be_empty=may_be_empty)
    row = silent(fleet, one)
    assert row["expected"] is is_expected
    assert ("tells of some models only" in row["reason"]) is is_expected


@pytest.mark.parametrize("effect", [SideEffect.WAKES, SideEffect.PINS])
@pytest.mark.parametrize("per_model", [False, True])
def test_what_is_read_only_while_requests_from_here_run_says_so_when_it_is_old(
    fleet: Fleet,
    effect: SideEffect,
    per_model: bool,  # noqa: FBT001
) -> None:
    it = fleet.backends["gpu-1"]
    path = "/m/{model}" if per_model else "/metrics"
    probe = Probe("busy", Signal.RUNNING, Feed(FeedKind.GET, path, effect, per_model=per_model), lambda _: {})
    it.plan = msgspec.structs.replace(it.plan, active=(probe,))
    it.told.take({(Signal.RESIDENCY, ""): Reading(Residency.LOADED, NOW + 50, "residency", 5.0)}, NOW + 50)
    (row,) = [row for row in describe.backend(it, NOW + 50)["unknown"] if row["signal"] == "running"]
    assert row["reason"] == "busy: would disturb the engine (read only while requests from here run)"
    assert row["expected"]
    fleet.dispatched(it.targets["tiny"])
    if not per_model:
        assert unknown(describe.backend(it, NOW + 50))["running", None] == "too old: busy read it 50 s ago"


@pytest.mark.parametrize(
    ("feed", "name"), [(Feed(FeedKind.LOG), "log"), (Feed(FeedKind.SSE, "/events"), "stream /events")]
)
def test_a_feed_that_cannot_be_followed_is_the_reason_of_its_signals(fleet: Fleet, feed: Feed, name: str) -> None:
    it = fleet.backends["gpu-1"]
    it.plan = msgspec.structs.replace(it.plan, active=(Probe("told", Signal.WAITING, feed, lambda _: {}),))
    fleet.feed_lost(it, feed, "needs a credential")
    (row,) = [row for row in describe.backend(it, NOW)["unknown"] if row["signal"] == "waiting"]
    assert row["reason"] == f"told: its {name} cannot be followed (needs a credential)"
    assert not row["expected"]


def test_a_doubt_about_one_model_is_no_reason_for_another(fleet: Fleet) -> None:
    values = VALUES | {(Signal.MODELS, ""): ("a", "b", "c"), (Signal.RUNNING, "c"): 1}
    del values[Signal.RUNNING, ""]
    it = publish(fleet, "gpu-2", values)
    it.doubts["a"] = "frozen"
    reasons = unknown(describe.backend(it, NOW))
    assert reasons["running", "a"] == "frozen"
    assert reasons["running", "b"] == "no value from busy in the last round"
    assert reasons["waiting", None].startswith("deferred: ")
    it.doubts |= {"b": "frozen", "c": "frozen"}
    assert unknown(describe.backend(it, NOW))["waiting", None] == "frozen"


def test_a_path_that_is_not_there_is_no_fault_where_nothing_can_be_done_or_that_was_done(fleet: Fleet) -> None:
    for signal, spec, is_expected in (
        (Signal.VERSION, {}, False),
        (Signal.CAPACITY, {}, False),
        (Signal.CAPACITY, {"capacity": 4}, True),
        (Signal.KV_USAGE, {}, True),
    ):
        gone = Dropped(probe="it", signal=signal, reason=DropReason.NOT_FOUND)
        row = silent(fleet, Probe("it", signal, Feed(FeedKind.GET), lambda _: {}), (gone,), **spec)
        assert row["expected"] is is_expected, (signal, row)


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
    learned = ("prefill_s_per_token", "load_s", "service_s", "base_s", "decode_s_per_token")
    assert described["learned"] == dict.fromkeys(learned)


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
