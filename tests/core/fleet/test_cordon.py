import pytest

from pharos.core.fleet import State
from pharos.core.fleet.cordon import drained
from tests.core.fleet.given import M, backend, fleet_of, publish, spec, target


def test_a_drained_backend_gets_no_new_request_and_is_still_alive() -> None:
    fleet = fleet_of(spec("a"), spec("b"))
    publish(fleet, "a", 1.0)
    publish(fleet, "b", 1.0)
    [event] = fleet.cordons.put("a")
    assert (event.stage, event.outcome, event.backend) == ("drain", "begun", "a")
    assert "an operator drains a: no new requests, none runs there" in event.text
    assert [one.backend.name for one in fleet.targets_for(M, 1.0)] == ["b"]
    assert len(fleet.targets_listed(M)) == 2
    assert (backend(fleet, "a").is_up(1.0), backend(fleet, "a").is_alive(1.0)) == (False, True)
    assert backend(fleet, "a").drained_by == "operator"
    assert fleet.cordons.put("a") == []
    assert repr(fleet.cordons) == "<Cordons 1>"


def test_what_runs_there_is_said_and_goes_on() -> None:
    fleet = fleet_of(spec())
    publish(fleet, "gpu-1", 1.0)
    it = target(fleet)
    fleet.dispatched(it)
    assert "1 that runs there may finish" in fleet.cordons.put("gpu-1")[0].text
    fleet.dispatched(it)
    assert "2 that run there may finish" in drained(it.backend).text
    fleet.ended(it, it.slots, 2.0)
    assert it.inflight == 1


def test_an_undrained_backend_gets_requests_at_once_with_all_that_was_learned() -> None:
    fleet = fleet_of(spec())
    publish(fleet, "gpu-1", 1.0)
    it = target(fleet)
    assert fleet.cordons.lift("gpu-1") == []
    fleet.cordons.put("gpu-1")
    publish(fleet, "gpu-1", 2.0)
    [event] = fleet.cordons.lift("gpu-1")
    assert (event.outcome, event.text) == ("ended", "gpu-1 gets new requests again")
    assert fleet.targets_for(M, 2.0) == [it]


def test_nobody_can_drain_what_is_not_there() -> None:
    fleet = fleet_of(spec())
    with pytest.raises(KeyError):
        fleet.cordons.put("gpu-2")
    with pytest.raises(KeyError):
        fleet.cordons.lift("gpu-2")


def test_a_drained_backend_stays_so_when_its_description_changes_and_when_it_was_away() -> None:
    fleet = fleet_of(spec())
    fleet.cordons.put("gpu-1")
    fleet.set_backends([spec(capacity=3)], 2.0)
    publish(fleet, "gpu-1", 3.0)
    assert fleet.targets_for(M, 3.0) == []
    fleet.set_backends([], 4.0)
    assert backend_names_up(fleet, 4.0) == []
    fleet.set_backends([spec(capacity=3)], 5.0)
    publish(fleet, "gpu-1", 6.0)
    assert (fleet.targets_for(M, 6.0), backend(fleet).drained_by) == ([], "operator")
    fleet.cordons.lift("gpu-1")
    assert len(fleet.targets_for(M, 6.0)) == 1


def backend_names_up(fleet: object, now: float) -> list[str]:
    return [one.name for one in fleet.backends.values() if one.is_up(now)]  # type: ignore[attr-defined]


def test_a_name_that_has_been_forgotten_is_not_drained_any_more() -> None:
    fleet = fleet_of(spec())
    fleet.cordons.put("gpu-1")
    for number in range(34):
        fleet.set_backends([spec(f"other-{number}")], 1.0)
    assert repr(fleet.cordons) == "<Cordons 0>"
    fleet.set_backends([spec()], 2.0)
    assert backend(fleet).drained_by is None


def test_discovery_drains_a_backend_without_making_it_another_one() -> None:
    fleet = fleet_of(spec("a"), spec("b"))
    publish(fleet, "a", 1.0)
    it = backend(fleet, "a")
    changes = fleet.set_backends([spec("a", drain=True), spec("b")], 2.0)
    assert (changes.added, changes.removed, changes.turned) == ((), (), (it,))
    assert backend(fleet, "a") is it
    assert (it.drained_by, it.is_up(2.0), it.is_alive(2.0), it.state) == ("discovery", False, True, State.UP)
    assert drained(it).text == "discovery drains a: no new requests, none runs there"
    assert fleet.cordons.lift("a") == []
    fleet.cordons.put("a")
    fleet.set_backends([spec("a"), spec("b")], 3.0)
    assert (it.drained_by, it.is_up(3.0)) == ("operator", False)
    fleet.set_backends([spec("a", drain=True), spec("b")], 4.0)
    assert fleet.cordons.lift("a")[0].outcome == "begun"
    assert fleet.set_backends([spec("a"), spec("b")], 5.0).turned == (it,)
    assert it.is_up(5.0)


def test_one_that_is_drained_from_the_start_or_comes_back_so_gets_nothing() -> None:
    fleet = fleet_of(spec(drain=True))
    publish(fleet, "gpu-1", 1.0)
    it = backend(fleet)
    assert (it.is_up(1.0), it.is_alive(1.0)) == (False, True)
    fleet.set_backends([], 2.0)
    assert not it.is_alive(2.0)
    fleet.set_backends([spec()], 3.0)
    assert backend(fleet) is it
    publish(fleet, "gpu-1", 4.0)
    assert it.is_up(4.0)


def test_a_backend_that_was_not_heard_of_lately_is_not_alive() -> None:
    fleet = fleet_of(spec())
    it = backend(fleet)
    assert not it.is_alive(0.0)
    publish(fleet, "gpu-1", 1.0)
    assert it.is_alive(1.0)
    assert not it.is_alive(10_000.0)
