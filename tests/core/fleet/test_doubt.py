import pytest

from pharos.core.fleet import Event, Fleet
from pharos.core.fleet.doubt import FROZEN_S
from pharos.core.signals import BACKEND, Signal
from tests.core.fleet.given import OPENAI, M, backend, fleet_of, publish, spec, target

WORK = 1234.0


def seen(fleet: Fleet, at: float, work: float = WORK, running: int = 106, of: str = BACKEND) -> list[Event]:
    values = {(Signal.WORK_DONE, of): work, (Signal.RUNNING, of): running, (Signal.KV_USAGE, of): 0.99}
    return publish(fleet, "gpu-1", at, values, plan=OPENAI)


def doubts(events: list[Event]) -> list[str]:
    return [event.text for event in events if event.outcome == "frozen"]


@pytest.mark.parametrize("of", [BACKEND, M])
def test_gauges_that_stand_still_for_long_are_taken_for_unknown_and_that_is_said_once(of: str) -> None:
    fleet = fleet_of(spec())
    assert not doubts(seen(fleet, 0.0, of=of))
    assert not doubts(seen(fleet, FROZEN_S - 1, of=of))
    assert target(fleet).view(FROZEN_S - 1).running == 106
    (text,) = doubts(seen(fleet, FROZEN_S, of=of))
    assert "have not moved for 60 s" in text
    view = target(fleet).view(FROZEN_S)
    assert (view.running, view.kv_usage) == (None, None)
    assert not doubts(seen(fleet, FROZEN_S + 1, of=of))
    assert target(fleet).view(FROZEN_S + 1).running is None
    assert list(backend(fleet).doubts) == [of]


@pytest.mark.parametrize(("work", "running"), [(WORK + 1, 106), (WORK, 0)])
def test_an_engine_that_moves_again_or_is_idle_is_believed(work: float, running: int) -> None:
    fleet = fleet_of(spec())
    seen(fleet, 0.0)
    seen(fleet, FROZEN_S)
    seen(fleet, FROZEN_S + 1, work, running)
    assert target(fleet).view(FROZEN_S + 1).running == running
    assert backend(fleet).doubts == {}


def test_while_requests_of_ours_run_there_a_pause_is_no_reason_for_doubt() -> None:
    fleet = fleet_of(spec())
    seen(fleet, 0.0)
    fleet.dispatched(target(fleet))
    assert not doubts(seen(fleet, FROZEN_S))
    assert target(fleet).view(FROZEN_S).running == 106


def test_counters_that_are_not_read_any_more_are_no_reason_for_doubt() -> None:
    fleet = fleet_of(spec())
    seen(fleet, 0.0)
    for at in (FROZEN_S, 2 * FROZEN_S):  # its metrics hang, the rest of it answers
        assert not doubts(publish(fleet, "gpu-1", at, {Signal.VERSION: "1"}, plan=OPENAI))
    fleet.eject(backend(fleet), "closed", 2 * FROZEN_S, connected_at=2 * FROZEN_S)
    assert not doubts(publish(fleet, "gpu-1", 3 * FROZEN_S, {Signal.VERSION: "1"}, plan=OPENAI))
    assert backend(fleet).doubts == {}


def test_a_doubt_outlives_a_round_in_which_the_gauges_were_not_read() -> None:
    fleet = fleet_of(spec())
    seen(fleet, 0.0)
    seen(fleet, FROZEN_S)
    assert not doubts(publish(fleet, "gpu-1", FROZEN_S + 1, {Signal.VERSION: "1"}, plan=OPENAI))
    assert list(backend(fleet).doubts) == [BACKEND]
    assert not doubts(seen(fleet, FROZEN_S + 2)), "said once"
    assert target(fleet).view(FROZEN_S + 2).running is None
