from collections.abc import Callable

import pytest
from prometheus_client.parser import text_string_to_metric_families

from pharos.core.decisions import DECISIONS
from pharos.core.engine.usage_fields import Usage
from pharos.core.fleet.registry import Fleet
from pharos.core.signals import Signal
from pharos.obs.metrics import Metrics
from pharos.proxy.done import Done

from .conftest import NOW, VALUES, publish

Finished = Callable[..., Done]
Samples = dict[tuple[str, tuple[str, ...]], float]


@pytest.fixture
def metrics() -> Metrics:
    return Metrics(version="1.2.3", max_models=2, max_keys=2)


def read(metrics: Metrics, fleet: Fleet, waiting: int = 0, now: float = NOW) -> Samples:
    families = text_string_to_metric_families(metrics.render(fleet, waiting, now).decode())
    return {(one.name, tuple(one.labels.values())): one.value for family in families for one in family.samples}


def test_every_row_of_the_decision_table_is_a_series_from_the_start(metrics: Metrics, fleet: Fleet) -> None:
    shown = read(metrics, fleet)
    rows = [(stage, outcome) for stage, outcomes in DECISIONS.items() for outcome in outcomes]
    assert {row: shown["pharos_decisions_total", row] for row in rows} == dict.fromkeys(rows, 0.0)


def test_a_decision_that_the_table_lacks_is_refused(metrics: Metrics) -> None:
    with pytest.raises(ValueError, match="route=nowhere"):
        metrics.decided("route", "nowhere")


def test_a_finished_request_is_counted_once_everywhere(metrics: Metrics, fleet: Fleet, finished: Finished) -> None:
    metrics.finished(finished())
    shown = read(metrics, fleet)
    assert shown["pharos_decisions_total", ("route", "warm")] == 1
    assert shown["pharos_requests_total", ("alice", "tiny", "200")] == 1
    tokens = {
        kind: shown["pharos_tokens_total", ("alice", "tiny", kind)] for kind in ("prompt", "cached", "completion")
    }
    assert tokens == {"prompt": 100, "cached": 60, "completion": 7}
    assert shown["pharos_ttft_seconds_bucket", ("tiny", "0.25")] == 0
    assert shown["pharos_ttft_seconds_bucket", ("tiny", "0.75")] == 1
    assert shown["pharos_first_byte_seconds_sum", ("tiny",)] == 0.2
    assert shown["pharos_overhead_seconds_count", ()] == 1
    assert shown["pharos_queue_wait_seconds_count", ("alice",)] == 1
    assert ("pharos_unmetered_requests_total", ("alice", "tiny")) not in shown


@pytest.mark.parametrize(("status", "usage", "count"), [
    (200, None, 1), (499, None, 1), (200, Usage(), 1), (500, None, None), (200, Usage(completion_tokens=0), None),
])  # fmt: skip
def test_a_request_is_unmetered_when_it_was_served_and_nothing_told_its_tokens(
    metrics: Metrics, fleet: Fleet, finished: Finished, status: int, usage: Usage | None, count: int | None
) -> None:
    metrics.finished(finished(status=status, usage=usage))
    assert read(metrics, fleet).get(("pharos_unmetered_requests_total", ("alice", "tiny"))) == count


def test_names_that_clients_make_up_take_no_place(metrics: Metrics, fleet: Fleet, finished: Finished) -> None:
    for number in range(10):
        metrics.finished(finished(model=f"made-up-{number}", target=None, status=404, usage=None))
    metrics.finished(finished(key=None, model=None, target=None, status=401, usage=None))
    shown = read(metrics, fleet)
    assert shown["pharos_requests_total", ("alice", "_other", "404")] == 10
    assert shown["pharos_requests_total", ("", "", "401")] == 1
    assert ("pharos_queue_wait_seconds_count", ("",)) not in shown


def test_models_and_keys_past_their_bounds_are_counted_together(
    metrics: Metrics, fleet: Fleet, finished: Finished
) -> None:
    for number in range(4):
        metrics.finished(finished(model=f"m{number}", key=f"k{number}"))
    shown = read(metrics, fleet)
    assert shown["pharos_requests_total", ("_other", "_other", "200")] == 2


def test_gauges_show_what_is_known_and_leave_out_what_is_not(metrics: Metrics, fleet: Fleet) -> None:
    shown = read(metrics, fleet, waiting=3)
    assert shown["pharos_backend_up", ("gpu-1", "llamacpp", "")] == 1
    assert shown["pharos_backend_probes_active", ("gpu-1",)] == 5
    assert shown["pharos_target_inflight", ("gpu-1", "tiny")] == 0
    assert shown["pharos_target_signals_unknown", ("gpu-1", "tiny")] == 2
    assert shown["pharos_queue_waiting", ()] == 3
    assert shown["pharos_build_info", ("1.2.3",)] == 1
    assert shown["process_resident_memory_bytes", ()] > 0
    assert not [labels for name, labels in shown if labels[:1] == ("gpu-2",)]


def test_a_backend_that_does_not_answer_is_shown_down(metrics: Metrics, fleet: Fleet) -> None:
    fleet.unreachable(fleet.backends["gpu-2"], "connection refused")
    assert read(metrics, fleet)["pharos_backend_up", ("gpu-2", "", "")] == 0


def test_signals_that_age_count_as_unknown(metrics: Metrics, fleet: Fleet) -> None:
    assert read(metrics, fleet, now=NOW + 16)["pharos_target_signals_unknown", ("gpu-1", "tiny")] == 5


def test_models_of_one_backend_past_the_bound_share_a_series(metrics: Metrics, fleet: Fleet) -> None:
    publish(fleet, "gpu-2", VALUES | {(Signal.MODELS, ""): ("a", "b", "c")})
    for model, count in (("a", 1), ("b", 2), ("c", 4)):
        for _ in range(count):
            fleet.dispatched(fleet.backends["gpu-2"].targets[model])
    shown = read(metrics, fleet)
    assert shown["pharos_target_inflight", ("gpu-2", "_other")] == 6
    assert shown["pharos_target_inflight", ("gpu-2", "a")] == 1


def test_every_family_has_a_name_a_meaning_and_a_kind(metrics: Metrics) -> None:
    assert all(family.name.startswith("pharos_") and family.meaning and family.kind for family in metrics.families)
    assert len({family.name for family in metrics.families}) == len(metrics.families) == 15
