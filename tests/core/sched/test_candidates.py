from pharos.core.assumptions import ASSUMPTIONS
from pharos.core.engine.plan import Plan
from pharos.core.fleet import Fleet
from pharos.core.fleet.names import Meant
from pharos.core.policy import Candidate
from pharos.core.sched.candidates import gather, memory_of
from pharos.core.signals import Key, Residency, Signal, Value
from tests.core.fleet.given import LLAMACPP, OLLAMA_LIKE, OPENAI, M, backend, fleet_of, publish, spec, target, warm


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


def shared(used: int | None, **more: Value | None) -> Fleet:
    """As `held`, but the 10 bytes are what the engine says of its GPUs; M needs 5, y holds 6 and is busy."""
    fleet = fleet_of(spec())
    values: dict[Signal | Key, Value | None] = {
        (Signal.RESIDENCY, M): Residency.COLD,
        (Signal.RESIDENCY, "y"): Residency.LOADED,
        (Signal.SIZE_BYTES, M): 5,
        (Signal.VRAM_BYTES, "y"): 6,
        Signal.GPU_TOTAL_BYTES: 12,
        Signal.GPU_USED_BYTES: used,
    } | {Signal(name): value for name, value in more.items()}
    kept = {key: value for key, value in values.items() if value is not None}
    publish(fleet, "gpu-1", 1.0, kept, models=(M, "y"), plan=OLLAMA_LIKE)
    fleet.dispatched(target(fleet, model="y"))
    return fleet


def test_memory_that_nobody_configured_is_what_the_engine_says_of_its_own() -> None:
    assert see(shared(None)).fits_if_cold is True
    assert see(shared(None, gpu_total_bytes=10)).fits_if_cold is False
    assert see(shared(6)).fits_if_cold is True


def test_memory_that_others_use_is_not_there() -> None:
    assert see(shared(8)).fits_if_cold is False, "2 of the 12 are somebody else's"
    assert see(shared(3)).fits_if_cold is True, "less in use than the models hold is nobody else's"


def test_what_is_whose_cannot_be_told_while_a_loaded_model_is_of_unknown_size() -> None:
    fleet = shared(12)
    publish(fleet, "gpu-1", 1.0, {(Signal.RESIDENCY, "z"): Residency.LOADED}, models=(M, "y", "z"), plan=OLLAMA_LIKE)
    assert see(fleet).fits_if_cold is True


def test_memory_that_was_read_too_long_ago_is_unknown() -> None:
    fleet = shared(12)
    assert memory_of(backend(fleet), 1.0) == 6
    assert memory_of(backend(fleet), 100.0) is None
    publish(fleet, "gpu-1", 90.0, {Signal.GPU_TOTAL_BYTES: 12}, models=None, plan=OLLAMA_LIKE)
    assert memory_of(backend(fleet), 100.0) == 12
    assert memory_of(backend(fleet_of(spec(memory_bytes=7))), 0.0) == 7


def test_when_the_first_of_ours_ends_is_told_of_a_queue_that_may_be_full() -> None:
    fleet = fleet_of(spec(capacity=2))
    publish(fleet, "gpu-1", 1.0, {Signal.RUNNING: 1}, plan=OPENAI)
    it = target(fleet)
    fleet.dispatched(it, 1.0)
    it.slots.progress[1] = (1.0, 5.0)
    assert see(fleet).frees_at is None, "a slot is free"
    publish(fleet, "gpu-1", 1.0, {Signal.RUNNING: 2}, plan=OPENAI)
    assert see(fleet).frees_at == 6.0
    publish(fleet, "gpu-1", 7.0, {Signal.RUNNING: 2}, plan=OPENAI)
    assert see(fleet, now=7.0).frees_at == 1.0 + 5.0 * 1.5
    publish(fleet, "gpu-1", 7.0, {Signal.RUNNING: 0}, plan=OPENAI)
    assert see(fleet, now=7.0).frees_at is None


def test_a_load_began_when_the_engine_first_said_so_or_when_our_first_request_went_there() -> None:
    fleet = fleet_of(spec())
    publish(fleet, "gpu-1", 1.0, {Signal.RESIDENCY: Residency.LOADING})
    publish(fleet, "gpu-1", 3.0, {Signal.RESIDENCY: Residency.LOADING})
    assert see(fleet, now=3.0).loading_since == 1.0
    fleet.dispatched(target(fleet), 0.5)
    fleet.dispatched(target(fleet), 2.0)
    assert see(fleet, now=3.0).loading_since == 0.5
    publish(fleet, "gpu-1", 4.0, {Signal.RESIDENCY: Residency.COLD})
    assert (see(fleet, now=4.0).loading, see(fleet, now=4.0).loading_since) == (True, 0.5)
    publish(fleet, "gpu-1", 5.0, {Signal.RESIDENCY: Residency.LOADED})
    assert (see(fleet, now=5.0).loading, see(fleet, now=5.0).loading_since) == (False, None)


def test_what_a_model_was_said_to_lack_is_carried_and_silence_says_nothing() -> None:
    ollama = Plan("ollama", "config", None, LLAMACPP.active, ())
    fleet = fleet_of(spec("ollama"), spec("other"))
    for name, plan in (("ollama", ollama), ("other", OPENAI)):
        publish(fleet, name, 1.0, {(Signal.CAPABILITIES, M): ("completion", "tools")}, plan=plan)
    seen = gather(fleet.targets_for(M, 1.0), 0, 1.0)
    assert [candidate.unable for candidate in seen] == [frozenset({"insert", "thinking", "vision"}), frozenset()]


def test_the_context_a_model_was_loaded_for_is_the_one_asked_for_until_the_engine_tells() -> None:
    ollama = Plan("ollama", "config", None, LLAMACPP.active, ())
    fleet = fleet_of(spec())

    def read(at: float, context: int | None, residency: Residency = Residency.LOADED) -> tuple[int | None, bool]:
        values: dict[Signal | Key, Value] = {(Signal.RESIDENCY, M): residency}
        if context is not None:
            values[Signal.CONTEXT_LENGTH, M] = context
        publish(fleet, "gpu-1", at, values, plan=ollama)
        candidate = see(fleet, now=at)
        return candidate.loaded_for, candidate.is_soft

    assert read(1.0, 4096) == (4096, True)
    it = target(fleet)
    fleet.dispatched(it, 2.0, 32768)
    assert see(fleet, now=2.0).loaded_for == 32768
    assert read(3.0, None, Residency.COLD) == (32768, True), "a request of ours is loading it"
    assert read(4.0, 65536) == (65536, True), "the engine has the last word"
    fleet.dispatched(it, 5.0, 32768)
    fleet.ended(it, it.slots, 6.0)
    fleet.ended(it, it.slots, 6.0)
    assert read(7.0, None, Residency.COLD) == (None, True), "it went with the model"


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
    ollama = Plan("ollama", "config", None, (), ())
    fleet = fleet_of(spec("told"), spec("given", capacity=7), spec("usual"), spec("other"), spec("one"))
    for name, plan, values in (
        ("told", vllm, {Signal.CAPACITY: 2}),
        ("given", vllm, {}),
        ("usual", vllm, {}),
        ("other", OPENAI, {}),
        ("one", ollama, {}),
    ):
        publish(fleet, name, 1.0, values, plan=plan)
    seen = gather(fleet.targets_for(M, 1.0), 0, 1.0)
    usual = int(ASSUMPTIONS["capacity_vllm"].value)
    assert [candidate.capacity for candidate in seen] == [2, 7, usual, None, 1]


# -- engines that hold few models at once


def few(at_once: int | None, *loaded: str, plan: Plan = OLLAMA_LIKE) -> Fleet:
    """Models a, b, c and M on one engine; those named are in memory."""
    fleet = fleet_of(spec())
    told: dict[Signal | Key, Value] = {} if at_once is None else {Signal.MODELS_AT_ONCE: at_once}
    for name in ("a", "b", "c", M):
        told[Signal.RESIDENCY, name] = Residency.LOADED if name in loaded else Residency.COLD
    publish(fleet, "gpu-1", 1.0, told, models=("a", "b", "c", M), plan=plan)
    return fleet


def test_one_more_model_does_not_fit_where_all_that_may_be_there_are_in_use() -> None:
    fleet = few(1, "a")
    assert see(fleet).fits_if_cold is True
    fleet.dispatched(target(fleet, model="a"), 1.0)
    assert see(fleet).fits_if_cold is False
    assert see(few(None, "a")).fits_if_cold is None, "nobody knows"


def test_of_two_that_may_be_there_the_one_used_longest_ago_goes_even_while_it_is_in_use() -> None:
    fleet = few(2, "a", "b")
    a, b = (target(fleet, model=name) for name in ("a", "b"))
    fleet.dispatched(a, 1.0)
    assert see(fleet).fits_if_cold is True, "b was never asked"
    fleet.dispatched(b, 2.0)
    assert see(fleet).fits_if_cold is False
    fleet.ended(b, b.slots, 3.0)
    assert see(fleet).fits_if_cold is False, "a was asked before b"
    fleet.dispatched(b, 4.0)
    fleet.ended(a, a.slots, 3.5)
    assert see(fleet).fits_if_cold is True, "a has gone idle before b was asked"
    assert see(few(2, "a")).fits_if_cold is True


def test_a_kind_that_holds_one_model_as_a_rule_is_believed_until_two_were_seen_together() -> None:
    swap = Plan("llama-swap", "config", None, LLAMACPP.active, ())
    fleet = few(None, "a", plan=swap)
    fleet.dispatched(target(fleet, model="a"), 1.0)
    assert see(fleet).fits_if_cold is False
    fleet = few(None, "a", "b", plan=swap)
    fleet.dispatched(target(fleet, model="a"), 1.0)
    assert backend(fleet).most_loaded == 2
    assert see(fleet).fits_if_cold is None
    publish(fleet, "gpu-1", 2.0, {(Signal.RESIDENCY, "a"): Residency.LOADED}, models=("a", "b", M), plan=swap)
    assert see(fleet, now=2.0).fits_if_cold is None, "one that was seen once may be there again"


def test_how_many_it_holds_is_forgotten_when_it_was_read_too_long_ago() -> None:
    fleet = few(1, "a")
    fleet.dispatched(target(fleet, model="a"), 1.0)
    publish(fleet, "gpu-1", 60.0, {(Signal.RESIDENCY, M): Residency.COLD}, models=None, plan=OLLAMA_LIKE)
    assert see(fleet, now=60.0).fits_if_cold is None


def test_a_model_that_a_load_of_ours_has_pushed_out_is_not_warm_though_the_last_scrape_saw_it() -> None:
    fleet = few(1, "a")
    it = backend(fleet)
    it.load_sent_at = 2.0
    fleet.dispatched(target(fleet, model=M), 2.0)
    seen = see(fleet, now=2.1, model="a")
    assert (seen.warm, seen.loading, seen.fits_if_cold) == (False, False, False)
    fleet.ended(target(fleet, model=M), target(fleet, model=M).slots, 3.0)
    assert see(fleet, now=3.1, model="a").warm, "M may never have come that far"
    fleet.replied(target(fleet, model=M), 3.2)
    assert not see(fleet, now=3.3, model="a").warm, "it has"
    fleet.dispatched(target(fleet, model=M), 4.0)
    told: dict[Signal | Key, Value] = {(Signal.RESIDENCY, "a"): Residency.LOADED, Signal.MODELS_AT_ONCE: 1}
    publish(fleet, "gpu-1", 5.0, told, models=None, plan=OLLAMA_LIKE)
    assert see(fleet, now=5.1, model="a").warm, "the engine was asked since"


def test_a_reply_since_shows_that_it_was_not_pushed_out() -> None:
    fleet = few(1, "a")
    backend(fleet).load_sent_at = 2.0
    fleet.dispatched(target(fleet, model=M), 2.0)
    fleet.replied(target(fleet, model="a"), 3.0)
    assert see(fleet, now=3.1, model="a").warm
    fleet.dispatched(target(fleet, model="a"), 3.2)
    assert see(fleet, now=3.3, model="a").warm
