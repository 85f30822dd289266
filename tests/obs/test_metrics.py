from collections.abc import Callable

import pytest

from pharos.core.decisions import DECISIONS
from pharos.core.engine.plan import Plan
from pharos.core.engine.probe import Feed, FeedKind, Probe
from pharos.core.engine.usage_fields import Usage
from pharos.core.fleet.registry import Fleet
from pharos.core.prefix.buster import Busted
from pharos.core.signals import BACKEND, Signal
from pharos.obs.metrics import Metrics
from pharos.proxy.done import Done

from .conftest import NOW, PROBES, VALUES, publish
from .reading import Samples, samples, text

Finished = Callable[..., Done]


NAMED = {
    "pharos_requests_total",
    "pharos_tokens_total",
    "pharos_unmetered_requests_total",
    "pharos_ttft_seconds",
    "pharos_overhead_seconds",
    "pharos_queue_wait_seconds",
    "pharos_decisions_total",
    "pharos_backend_up",
    "pharos_backend_log_feed_up",
    "pharos_backend_probes_active",
    "pharos_prefix_predictions_total",
    "pharos_target_inflight",
    "pharos_target_inflight_cluster",
    "pharos_target_signals_unknown",
    "pharos_queue_waiting",
    "pharos_peer_up",
    "pharos_peer_mismatch",
    "pharos_peer_proto_mismatch",
    "pharos_peer_dropped_prefix_ops",
    "pharos_peer_last_heard_timestamp_seconds",
    "pharos_ttft_prediction_ratio",
    "pharos_wait_prediction_ratio",
    "pharos_first_byte_seconds",
    "pharos_request_seconds",
    "pharos_build_info",
    "pharos_loop_lag_seconds",
}
"""What the design promises by name."""


@pytest.fixture
def metrics() -> Metrics:
    return Metrics(version="1.2.3", max_models=2, max_keys=2)


def read(metrics: Metrics, fleet: Fleet, waiting: int = 0, now: float = NOW) -> Samples:
    return samples(text(metrics, fleet, now, waiting))


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


def test_a_reply_that_is_read_again_costs_its_tokens_no_second_time(
    metrics: Metrics, fleet: Fleet, finished: Finished
) -> None:
    for path in ("/v1/responses/{id}", "/api/show"):
        metrics.finished(finished(path=path))
        metrics.finished(finished(path=path, usage=None))
    shown = read(metrics, fleet)
    assert ("pharos_tokens_total", ("alice", "tiny", "prompt")) not in shown
    assert ("pharos_unmetered_requests_total", ("alice", "tiny")) not in shown


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


def test_ten_thousand_names_that_clients_make_up_do_not_grow_the_page(
    metrics: Metrics, fleet: Fleet, finished: Finished
) -> None:
    def invent(number: int) -> None:
        name = f"made-up-{number}"
        metrics.finished(finished(model=name, key=None, target=None, status=401, usage=None, path="/v1/messages"))

    invent(0)
    before = set(read(metrics, fleet))
    for number in range(10_000):
        invent(number)
    assert set(read(metrics, fleet)) == before
    assert len(metrics._models._admitted) == 1, "the one that the engine lists"


def test_the_time_of_a_request_is_counted_by_its_route(metrics: Metrics, fleet: Fleet, finished: Finished) -> None:
    for seconds in (0.2, 3.0):
        metrics.finished(finished(duration_s=seconds))
    shown = read(metrics, fleet)
    assert shown["pharos_request_seconds_count", ("/v1/chat/completions",)] == 2
    assert shown["pharos_request_seconds_bucket", ("/v1/chat/completions", "0.5")] == 1


def test_a_model_that_no_backend_lists_any_more_gives_its_place_to_a_new_one(
    metrics: Metrics, fleet: Fleet, finished: Finished
) -> None:
    for model in ("old", "tiny"):
        metrics.finished(finished(model=model))
    assert ("pharos_requests_total", ("alice", "old", "200")) not in read(metrics, fleet), "both places were taken"
    publish(fleet, "gpu-2", VALUES | {(Signal.MODELS, BACKEND): ("new",)})
    metrics.finished(finished(model="new"))
    shown = read(metrics, fleet)
    assert shown["pharos_requests_total", ("alice", "new", "200")] == 1
    assert shown["pharos_requests_total", ("alice", "tiny", "200")] == 1


def test_a_model_that_is_gone_keeps_its_series_while_there_is_room(fleet: Fleet, finished: Finished) -> None:
    metrics = Metrics(version="", max_models=3, max_keys=2)
    for model in ("old", "tiny"):
        metrics.finished(finished(model=model))
    assert read(metrics, fleet)["pharos_ttft_seconds_count", ("old",)] == 1


def test_keys_that_are_not_configured_any_more_give_their_places_back(
    metrics: Metrics, fleet: Fleet, finished: Finished
) -> None:
    for key in ("alice", "bob", "carol"):
        metrics.finished(finished(key=key))
    metrics.keep_keys({"alice", "dave"})
    read(metrics, fleet)
    metrics.finished(finished(key="dave"))
    shown = read(metrics, fleet)
    keys = {labels[0] for name, labels in shown if name == "pharos_requests_total"}
    assert keys == {"alice", "_other", "dave"}
    assert ("pharos_queue_wait_seconds_count", ("bob",)) not in shown


def test_a_page_of_thousands_of_series_is_made_in_steps_that_tell_of_one_moment_each(
    fleet: Fleet, finished: Finished
) -> None:
    metrics = Metrics(version="", max_models=200, max_keys=200)
    done = [finished(key=f"key-{key}", model=f"model-{model}") for key in range(60) for model in range(60)]
    for one in done:
        metrics.finished(one)
    steps = metrics.render(metrics.moment(fleet, NOW, 0))
    count = 0
    while True:
        try:
            next(steps)
        except StopIteration as end:
            page = end.value.decode()
            break
        count += 1
        metrics.finished(finished(key=f"late-{count}", model="late"))  # others go on, and count
    assert count > 10, "18,000 series are no single step"
    shown = samples(page)
    assert all(shown["pharos_requests_total", (one.key, one.model, "200")] == 1 for one in done)
    assert ("pharos_requests_total", (f"late-{count}", "late", "200")) not in shown, "that was written already"


def test_a_log_that_is_followed_and_one_that_is_not_are_told(metrics: Metrics, fleet: Fleet) -> None:
    backend = fleet.backends["gpu-1"]
    assert ("pharos_backend_log_feed_up", ("gpu-1",)) not in read(metrics, fleet), "its plan reads no log"
    log = Probe("load", Signal.RESIDENCY, Feed(FeedKind.LOG), lambda _: {})
    backend.plan = Plan("llamacpp", "detected", None, (*PROBES, log), ())
    assert read(metrics, fleet)["pharos_backend_log_feed_up", ("gpu-1",)] == 1
    backend.feed_faults["load"] = "no such file"
    assert read(metrics, fleet)["pharos_backend_log_feed_up", ("gpu-1",)] == 0


def test_how_old_the_last_whole_reading_is_can_be_told_of_a_backend_that_was_read(
    metrics: Metrics, fleet: Fleet
) -> None:
    shown = read(metrics, fleet, now=NOW + 70)
    assert shown["pharos_backend_read_age_seconds", ("gpu-1",)] == 70
    assert ("pharos_backend_read_age_seconds", ("gpu-2",)) not in shown


def test_requests_that_peers_told_of_are_in_the_cluster_s_count_only(metrics: Metrics, fleet: Fleet) -> None:
    target = fleet.backends["gpu-1"].targets["tiny"]
    fleet.dispatched(target)
    target.peers = 3
    shown = read(metrics, fleet)
    assert shown["pharos_target_inflight", ("gpu-1", "tiny")] == 1
    assert shown["pharos_target_inflight_cluster", ("gpu-1", "tiny")] == 4
    target.listed = False
    target.inflight = 0
    assert read(metrics, fleet)["pharos_target_inflight_cluster", ("gpu-1", "tiny")] == 3, "while any are there"


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
    publish(fleet, "gpu-2", VALUES | {(Signal.MODELS, BACKEND): ("a", "b", "c")})
    for model, count in (("a", 1), ("b", 2), ("c", 4)):
        for _ in range(count):
            fleet.dispatched(fleet.backends["gpu-2"].targets[model])
    shown = read(metrics, fleet)
    assert shown["pharos_target_inflight", ("gpu-2", "_other")] == 6
    assert shown["pharos_target_inflight", ("gpu-2", "a")] == 1


def test_every_family_has_a_name_a_meaning_and_a_kind(metrics: Metrics) -> None:
    assert all(family.name and family.meaning and family.kind for family in metrics.families)
    names = [family.name for family in metrics.families]
    assert len(set(names)) == len(names)
    ours = [name for name in names if name.startswith("pharos_")]
    assert not NAMED - set(ours)
    assert {name.partition("_")[0] for name in names if name not in ours} == {"process", "python"}


def test_predictions_of_caches_are_counted_by_how_they_were_known(metrics: Metrics, finished: Finished) -> None:
    fleet = Fleet()
    for source, outcome in (("local", "predicted_hit"), ("local", "wrong_prediction"), ("restored", "predicted_hit")):
        metrics.finished(finished(stages=[("admission", "ok"), ("prefix", outcome)], predicted_from=source))
    metrics.finished(finished(stages=[("prefix", "miss")]))
    shown = read(metrics, fleet)
    counts = {labels: count for (name, labels), count in shown.items() if name == "pharos_prefix_predictions_total"}
    assert counts == {
        ("local", "predicted_hit"): 1, ("local", "wrong_prediction"): 1, ("restored", "predicted_hit"): 1,
    }  # fmt: skip
    assert shown["pharos_decisions_total", ("prefix", "miss")] == 1
    assert shown["pharos_decisions_total", ("prefix", "predicted_hit")] == 2


def test_how_good_the_estimates_are_is_shown_of_each_target_that_showed_it(metrics: Metrics, fleet: Fleet) -> None:
    assert not [name for name, _ in read(metrics, fleet) if "prediction_ratio" in name], "unknown is left out"
    fleet.calibration.note("tiny", "gpu-1", 2.0, 1.0)
    fleet.calibration.note_wait("tiny", "gpu-1", 1.0, 4.0)
    shown = read(metrics, fleet)
    assert shown["pharos_ttft_prediction_ratio", ("gpu-1", "tiny")] == pytest.approx(2.0)
    assert shown["pharos_ttft_prediction_spread", ("gpu-1", "tiny")] == pytest.approx(0.693, abs=0.001)
    assert shown["pharos_wait_prediction_ratio", ("gpu-1", "tiny")] == pytest.approx(0.25)
    assert shown["pharos_model_fallen_back", ("tiny",)] == 0
    fleet.calibration.fallen.add("tiny")
    assert read(metrics, fleet)["pharos_model_fallen_back", ("tiny",)] == 1


def test_estimates_of_models_beyond_the_bound_are_left_out(metrics: Metrics, fleet: Fleet) -> None:
    publish(fleet, "gpu-2", VALUES | {(Signal.MODELS, BACKEND): ("a", "b", "c")})
    for model in ("tiny", "a", "b", "c"):
        fleet.calibration.note(model, "gpu-1" if model == "tiny" else "gpu-2", 1.0, 1.0)
    names = [labels for name, labels in read(metrics, fleet) if name == "pharos_ttft_prediction_ratio"]
    assert len(names) == 2
    assert not [labels for labels in names if "_other" in labels]


def test_whoever_defeats_every_cache_is_shown_with_place_and_size(metrics: Metrics, fleet: Fleet) -> None:
    page = text(metrics, fleet, NOW, busted=(Busted("alice", "tiny", 64, 32, 5),))
    assert 'pharos_prompt_changes_at_bytes{key="alice",model="tiny"} 64' in page
    assert 'pharos_prompt_changes_bytes{key="alice",model="tiny"} 32' in page
