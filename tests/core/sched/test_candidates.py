from pharos.core.assumptions import ASSUMPTIONS
from pharos.core.engine.plan import Plan
from pharos.core.fleet import Fleet
from pharos.core.fleet.names import Meant
from pharos.core.policy import Candidate
from pharos.core.sched.candidates import gather
from pharos.core.signals import Key, Residency, Signal, Value
from tests.core.fleet.given import OLLAMA_LIKE, OPENAI, M, fleet_of, publish, spec, target, warm


def see(fleet: Fleet, now: float = 1.0, model: str = M, ahead: int = 0) -> Candidate:
    return gather(fleet.targets_for(model, now), ahead, now)[0]


def test_a_candidate_carries_what_is_known_and_leaves_unknown_what_is_not() -> None:
    fleet = fleet_of(spec())
    publish(fleet, "gpu-1", 1.0, warm(4, running=2, waiting=1) | {Signal.KV_USAGE: 0.5})
    target(fleet).stats.service_s.add(3.0)
    it = see(fleet, ahead=7)
    assert (it.name, it.running, it.waiting, it.capacity, it.warm, it.kv_usage) == ("gpu-1", 2, 1, 4, True, 0.5)
    assert (it.router_ahead, it.service_s, it.load_s, it.reports_residency) == (7, 3.0, None, True)
    later = see(fleet, now=5.0)
    assert (later.running, later.waiting, later.kv_usage, later.capacity) == (None, None, None, 4)


def test_the_engines_slots_win_over_the_configured_ones() -> None:
    fleet = fleet_of(spec(capacity=3))
    publish(fleet, "gpu-1", 1.0, {})
    assert see(fleet).capacity == 3
    publish(fleet, "gpu-1", 1.0, {Signal.CAPACITY: 5})
    assert see(fleet).capacity == 5


def test_counts_asked_before_a_reply_ended_give_way_to_our_own() -> None:
    fleet = fleet_of(spec())
    publish(fleet, "gpu-1", 1.0, warm(2, running=2, waiting=1))
    it = target(fleet)
    fleet.dispatched(it)
    fleet.dispatched(it)
    fleet.ended(it, it.slots, 1.5)
    candidate = see(fleet, now=1.6)
    assert (candidate.ours, candidate.running, candidate.waiting) == (1, 1, 0)
    publish(fleet, "gpu-1", 2.0, {Signal.RUNNING: 2, Signal.WAITING: 3}, models=None, full=False)
    candidate = see(fleet, now=2.0)
    assert (candidate.running, candidate.waiting) == (2, 3)
    assert (see(fleet, now=9.0).running, see(fleet, now=9.0).waiting) == (None, None)


def test_requests_in_flight_on_a_cold_model_load_it() -> None:
    fleet = fleet_of(spec())
    publish(fleet, "gpu-1", 1.0, {Signal.RESIDENCY: Residency.COLD})
    assert (see(fleet).warm, see(fleet).loading) == (False, False)
    fleet.dispatched(target(fleet))
    assert (see(fleet).warm, see(fleet).loading) == (False, True)


def test_the_engine_may_say_that_it_loads() -> None:
    fleet = fleet_of(spec())
    publish(fleet, "gpu-1", 1.0, {Signal.RESIDENCY: Residency.LOADING})
    assert see(fleet).loading


def test_an_engine_that_reports_no_residency_never_loads() -> None:
    fleet = fleet_of(spec())
    publish(fleet, "gpu-1", 1.0, plan=OPENAI)
    fleet.dispatched(target(fleet))
    assert (see(fleet).warm, see(fleet).loading, see(fleet).reports_residency) == (None, False, False)


def held(more: dict[Signal | Key, Value | None] | None = None, *, busy: bool = True) -> Fleet:
    """10 bytes of memory, the model y (6 bytes) loaded there and maybe busy, M (5 bytes) cold."""
    fleet = fleet_of(spec(memory_bytes=10))
    values: dict[Signal | Key, Value | None] = {
        (Signal.RESIDENCY, M): Residency.COLD,
        (Signal.RESIDENCY, "y"): Residency.LOADED,
        (Signal.SIZE_BYTES, M): 5,
        (Signal.SIZE_BYTES, "y"): 6,
    } | (more or {})
    kept = {key: value for key, value in values.items() if value is not None}
    publish(fleet, "gpu-1", 1.0, kept, models=(M, "y"), plan=OLLAMA_LIKE)
    if busy:
        fleet.dispatched(target(fleet, model="y"))
    return fleet


def test_a_load_does_not_fit_beside_a_busy_model_that_would_have_to_go() -> None:
    assert see(held()).fits_if_cold is False
    assert see(held(busy=False)).fits_if_cold is True


def test_the_memory_a_model_really_holds_wins_over_its_size() -> None:
    assert see(held({(Signal.VRAM_BYTES, "y"): 4})).fits_if_cold is True


def test_a_busy_model_of_unknown_size_leaves_no_room() -> None:
    assert see(held({(Signal.SIZE_BYTES, "y"): None})).fits_if_cold is False


def test_an_unknown_size_is_that_of_the_same_model_elsewhere_or_stays_unknown() -> None:
    fleet = held({(Signal.SIZE_BYTES, M): None})
    assert see(fleet).fits_if_cold is None
    fleet.set_backends([*[b.spec for b in fleet.backends.values()], spec("gpu-2")], 1.0)
    publish(fleet, "gpu-2", 1.0, {Signal.SIZE_BYTES: 5})
    assert see(fleet).fits_if_cold is False


def test_memory_matters_only_for_a_load_and_only_where_it_is_configured() -> None:
    fleet = held({(Signal.RESIDENCY, M): Residency.LOADED})
    assert see(fleet).fits_if_cold is None
    fleet = fleet_of(spec())
    publish(fleet, "gpu-1", 1.0, {Signal.RESIDENCY: Residency.COLD})
    assert see(fleet).fits_if_cold is None


def test_names_of_one_queue_do_not_evict_each_other() -> None:
    fleet = fleet_of(spec(memory_bytes=10))
    publish(fleet, "gpu-1", 1.0, {Signal.RESIDENCY: Residency.COLD, Signal.SIZE_BYTES: 8}, models=(M, "alias"))
    fleet.dispatched(target(fleet, model="alias"))
    assert see(fleet).fits_if_cold is True


def test_a_busy_model_holds_its_memory_once_under_all_its_names() -> None:
    fleet = Fleet({"also y": (Meant("y"),)})
    fleet.set_backends((spec(memory_bytes=10),), 0.0)
    sizes = {(Signal.SIZE_BYTES, name): 4 for name in (M, "y")} | {(Signal.RESIDENCY, M): Residency.COLD}
    publish(fleet, "gpu-1", 1.0, sizes, models=(M, "y"), plan=OLLAMA_LIKE)
    for name in ("y", "also y"):
        fleet.dispatched(target(fleet, model=name))
    assert see(fleet).fits_if_cold is True


def test_slots_that_nobody_tells_are_those_of_the_configuration_else_of_the_kind_else_unknown() -> None:
    vllm = Plan("vllm", "config", None, (), ())
    fleet = fleet_of(spec("told"), spec("given", capacity=7), spec("usual"), spec("other"))
    for name, plan, values in (
        ("told", vllm, {Signal.CAPACITY: 2}),
        ("given", vllm, {}),
        ("usual", vllm, {}),
        ("other", OPENAI, {}),
    ):
        publish(fleet, name, 1.0, values, plan=plan)
    seen = gather(fleet.targets_for(M, 1.0), 0, 1.0)
    usual = int(ASSUMPTIONS["capacity_vllm"].value)
    assert [candidate.capacity for candidate in seen] == [2, 7, usual, None]
