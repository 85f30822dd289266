"""Predictions are held against the truth, and a model whose estimates mislead is left to least-load for a while."""

import pytest

from pharos.core.decisions import DECISIONS
from pharos.core.fleet import Calibration, Event
from pharos.core.fleet.calibration import FLOOR_S, LEAST, SMALL_S, WINDOW
from tests.core.fleet.given import fleet_of, publish, spec


def run(calibration: Calibration, predicted_s: float, actual_s: float, times: int, backend: str = "a") -> list[Event]:
    return [event for _ in range(times) for event in calibration.note("m", backend, predicted_s, actual_s)]


def test_the_ratio_of_a_target_is_the_median_of_its_last_requests() -> None:
    calibration = Calibration()
    assert calibration.ratio("m", "a") is None
    assert calibration.spread("m", "a") is None
    run(calibration, 2.0, 1.0, 3)
    run(calibration, 1.0, 1.0, 2)
    run(calibration, 1.0, 4.0, 1, "b")
    assert calibration.ratio("m", "a") == pytest.approx(2.0)
    assert calibration.ratio("m", "b") == pytest.approx(0.25)
    assert calibration.spread("m", "b") == pytest.approx(1.386, rel=0.01)
    assert (calibration.seen("m", "a"), calibration.seen("m", "c")) == (5, 0)
    run(calibration, 1.0, 1.0, WINDOW)
    assert calibration.ratio("m", "a") == pytest.approx(1.0), "older ones are forgotten"
    assert repr(calibration) == "<Calibration 2 targets, 0 models fallen>"


def test_waits_are_a_series_of_their_own() -> None:
    calibration = Calibration()
    calibration.note_wait("m", "a", 3.0, 1.0)
    assert calibration.wait_ratio("m", "a") == pytest.approx(3.0)
    assert calibration.ratio("m", "a") is None


def test_times_that_are_next_to_nothing_are_all_alike() -> None:
    calibration = Calibration()
    run(calibration, 0.0, FLOOR_S / 2, 1)
    assert calibration.ratio("m", "a") == pytest.approx(1.0)


def test_errors_that_nobody_would_notice_throw_no_model_back() -> None:
    calibration = Calibration()
    assert run(calibration, 0.01, 0.01 + SMALL_S, WINDOW) == [], "six times as long as predicted, but 50 ms"
    assert calibration.error("m") == pytest.approx(1.0)
    assert calibration.ratio("m", "a") == pytest.approx(1 / 6), "what is shown is the truth"
    assert [event.outcome for event in run(calibration, 0.01, 0.02 + SMALL_S, WINDOW)] == ["fell_back"]
    assert [event.outcome for event in run(calibration, 0.01, 0.03, WINDOW)] == ["recovered"]


def test_a_few_requests_say_nothing() -> None:
    calibration = Calibration()
    assert run(calibration, 1.0, 9.0, LEAST - 1) == []
    assert calibration.error("m") is None
    [event] = run(calibration, 1.0, 9.0, 1)
    assert event.outcome == "fell_back"
    assert calibration.error("m") == pytest.approx(9.0)


def test_a_prefill_cost_that_doubles_is_seen_within_20_requests_and_said_once_and_recovery_ends_it() -> None:
    calibration = Calibration()
    run(calibration, 1.0, 1.0, 500)
    [event] = run(calibration, 1.0, 2.0, 20)
    assert (event.stage, event.outcome, event.level) == ("calibration", "fell_back", "warning")
    assert event.text.startswith("estimates for m are off by 2.0 times")
    assert calibration.fallen == {"m"}
    [event] = run(calibration, 2.0, 2.0, 20)
    assert (event.outcome, event.level) == ("recovered", "info")
    assert calibration.fallen == set()
    assert {"fell_back", "recovered"} <= DECISIONS["calibration"].keys()


@pytest.mark.parametrize(("predicted_s", "actual_s"), [(1.0, 3.0), (3.0, 1.0)], ids=["too low", "too high"])
def test_it_misleads_either_way(predicted_s: float, actual_s: float) -> None:
    calibration = Calibration()
    assert len(run(calibration, predicted_s, actual_s, WINDOW)) == 1


def test_it_does_not_go_to_and_fro_between_the_two_bounds() -> None:
    calibration = Calibration()
    assert run(calibration, 1.0, 1.9, 100) == []
    assert len(run(calibration, 1.0, 2.1, 100)) == 1
    assert run(calibration, 1.0, 1.6, 100) == []
    assert len(run(calibration, 1.0, 1.4, 100)) == 1


def test_errors_of_either_sign_do_not_cancel_out() -> None:
    calibration = Calibration()
    events = [e for _ in range(10) for e in run(calibration, 1.0, 3.0, 1) + run(calibration, 3.0, 1.0, 1)]
    assert len(events) == 1


def test_where_estimates_do_not_choose_nobody_falls_back() -> None:
    calibration = Calibration()
    calibration.steers = False
    assert run(calibration, 1.0, 9.0, 50) == []
    assert calibration.fallen == set()
    assert calibration.ratio("m", "a") == pytest.approx(1 / 9)


def test_models_and_backends_that_are_gone_are_forgotten() -> None:
    fleet = fleet_of(spec("a"), spec("b"))
    for name in ("a", "b"):
        publish(fleet, name, 1.0, models=("m",))
    calibration = fleet.calibration
    run(calibration, 1.0, 9.0, 50)
    run(calibration, 1.0, 9.0, 5, "strange")
    calibration.note("gone", "a", 1.0, 9.0)
    calibration.note_wait("gone", "a", 1.0, 9.0)
    fleet.set_backends([spec("a"), spec("b"), spec("c")], 2.0)
    assert calibration.fallen == {"m"}
    assert calibration.ratio("m", "a") is not None
    assert calibration.ratio("m", "strange") is None
    assert calibration.ratio("gone", "a") is None
    assert calibration.wait_ratio("gone", "a") is None
