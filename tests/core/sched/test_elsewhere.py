"""What other instances have in hand counts where targets are chosen, until it is too old."""

from hypothesis import given
from hypothesis import strategies as st

from pharos.core.sched import Ledger, Report
from pharos.core.sched.candidates import gather
from pharos.core.sched.elsewhere import SILENT_S
from pharos.core.signals import Residency, Signal
from tests.core.fleet.given import OLLAMA_LIKE, M, fleet_of, publish, spec, target, warm
from tests.core.sched.given import ask, granted, lease, ticket, world


def report(count: int, name: str = "gpu-1", model: str = M, **waiting: int) -> Report:
    return Report({(name, model): count}, waiting)


def test_requests_of_others_take_slots_until_they_are_reported_gone() -> None:
    fleet, ledger = world(2)
    ledger.elsewhere.take("b", report(2), 1.0)
    assert (target(fleet).peers, target(fleet).slots.peers, target(fleet).in_use) == (2, 2, True)
    waits = ticket(ledger.submit(ask(), 1.0, 0))
    ledger.elsewhere.take("b", report(1), 1.2)
    assert granted(ledger.kick(1.2, 0)) == [waits.id]
    assert repr(ledger.elsewhere) == "<Elsewhere 1 origins, 0 waiting>"


def test_a_slot_that_others_gave_back_is_free_though_the_engine_was_last_read_before() -> None:
    fleet, ledger = world(1)
    ledger.elsewhere.take("b", report(1), 1.0)
    publish(fleet, "gpu-1", 1.1, warm(1, running=1))
    waits = ticket(ledger.submit(ask(), 1.2, 0))
    ledger.elsewhere.take("b", report(0), 1.3)
    assert granted(ledger.kick(1.3, 0)) == [waits.id]
    ledger.elsewhere.take("b", report(1), 1.2)
    ledger.elsewhere.take("b", report(0), 1.2)
    assert target(fleet).slots.last_end_at == 1.3, "an older report does not put it back"


def test_what_an_instance_tells_is_what_it_has_in_hand() -> None:
    _, ledger = world(1, 1)
    lease(ledger.submit(ask(), 1.0, 0))
    lease(ledger.submit(ask(), 1.0, 0))
    ticket(ledger.submit(ask(), 1.0, 0))
    told = ledger.elsewhere.own(ledger.waiting_by_model())
    assert told == Report({("gpu-1", M): 1, ("gpu-2", M): 1}, {M: 1})


def test_one_that_is_silent_or_leaves_has_nothing_there_any_more() -> None:
    fleet, ledger = world(2)
    ledger.elsewhere.take("b", report(1), 1.0)
    ledger.elsewhere.take("c", report(1, **{M: 3}), 2.0)
    assert (target(fleet).peers, ledger.elsewhere.waiting) == (2, {M: 3})
    ledger.kick(1.0 + SILENT_S, 0)
    assert target(fleet).peers == 2
    ledger.kick(1.1 + SILENT_S, 0)
    assert target(fleet).peers == 1
    ledger.elsewhere.forget("c")
    ledger.elsewhere.forget("never heard of")
    assert (target(fleet).peers, target(fleet).slots.peers, ledger.elsewhere.waiting) == (0, 0, {})


def test_what_nobody_knows_here_is_left_out() -> None:
    fleet, ledger = world(2)
    ledger.elsewhere.take("b", Report({("gpu-9", M): 1, ("gpu-1", "other"): 1, ("gpu-1", M): 0}, {M: 0}), 1.0)
    assert (target(fleet).peers, ledger.elsewhere.waiting) == (0, {})


def test_those_who_wait_elsewhere_stand_in_front() -> None:
    fleet, ledger = world(1)
    target(fleet).stats.service_s.add(4.0)
    lease(ledger.submit(ask(), 1.0, 0))
    [alone] = ledger._decide(ask(), [target(fleet)], 0, 1.0, 0).scores
    ledger.elsewhere.take("b", report(0, **{M: 5}), 1.0)
    [behind] = ledger._decide(ask(), [target(fleet)], 0, 1.0, 0).scores
    assert behind.wait_s == alone.wait_s + 5 * 4.0


def test_when_requests_of_others_end_is_not_known_but_one_of_them_may_be_the_first() -> None:
    fleet, ledger = world(2)
    it = target(fleet)
    it.stats.service_s.add(4.0)
    it.slots.progress[1] = (0.0, 100.0)
    it.begin(1.0, None)
    ledger.elsewhere.take("b", report(1), 1.0)
    [candidate] = gather([it], 0, 1.0)
    assert (candidate.ours, candidate.peers) == (2, 1)
    [score] = ledger._decide(ask(), [it], 0, 1.0, 0).scores
    assert score.wait_s == 2.0, "not the 99 s that are left of ours"


def test_a_model_that_others_use_is_loading_where_it_was_cold_and_is_not_pushed_out() -> None:
    fleet = fleet_of(spec(memory_bytes=10))
    cold = {(Signal.RESIDENCY, "x"): Residency.COLD, (Signal.RESIDENCY, "y"): Residency.COLD}
    sizes = {(Signal.SIZE_BYTES, "x"): 8, (Signal.SIZE_BYTES, "y"): 8}
    publish(fleet, "gpu-1", 0.0, {**cold, **sizes, Signal.CAPACITY: 4}, models=("x", "y"), plan=OLLAMA_LIKE)
    ledger = Ledger(fleet)
    ledger.elsewhere.take("b", report(1, model="x"), 1.0)
    [loading] = gather([target(fleet, model="x")], 0, 1.0)
    assert (loading.loading, loading.loading_since) == (True, None)
    waits = ticket(ledger.submit(ask(model="y"), 1.0, 0))
    ledger.elsewhere.forget("b")
    assert granted(ledger.kick(1.1, 0)) == [waits.id]


@given(
    st.lists(
        st.one_of(
            st.tuples(st.just("take"), st.sampled_from("bc"), st.integers(0, 3), st.integers(0, 3)),
            st.tuples(st.just("forget"), st.sampled_from("bc"), st.just(0), st.just(0)),
            st.tuples(st.just("move"), st.just(""), st.just(0), st.just(0)),
        )
    )
)
def test_sums_are_those_of_the_last_reports_whatever_targets_share(steps: list[tuple[str, str, int, int]]) -> None:
    fleet, ledger = world(4, models=("x", "y"))
    x, y = target(fleet, model="x"), target(fleet, model="y")
    last: dict[str, tuple[int, int]] = {}
    for what, origin, first, second in steps:
        if what == "take":
            ledger.elsewhere.take(origin, Report({("gpu-1", "x"): first, ("gpu-1", "y"): second}), 1.0)
            last[origin] = (first, second)
        elif what == "forget":
            ledger.elsewhere.forget(origin)
            last.pop(origin, None)
        else:
            group = None if x.slots is not y.slots else "other"
            publish(fleet, "gpu-1", 1.0, {(Signal.PHYSICAL_GROUP, "y"): group or "same"}, models=("x", "y"))
            ledger.elsewhere.take("d", Report(), 1.0)
        sums = (sum(one for one, _ in last.values()), sum(two for _, two in last.values()))
        assert (x.peers, y.peers) == sums
        if x.slots is y.slots:
            assert x.slots.peers == sum(sums)
        else:
            assert (x.slots.peers, y.slots.peers) == sums
