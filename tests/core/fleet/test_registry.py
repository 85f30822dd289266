import msgspec
import pytest

from pharos.core.engine.follow import Follow, Followed
from pharos.core.engine.logline import log_line
from pharos.core.engine.probe import Feed, FeedKind
from pharos.core.fleet import Event, Feedback, Fleet, State
from pharos.core.fleet.registry import STRANGERS
from pharos.core.signals import BACKEND, Reading, Residency, Signal
from tests.core.fleet.given import EVERYTHING, OPENAI, M, backend, fleet_of, publish, spec, target, warm


def said(events: list[Event]) -> list[tuple[str, str]]:
    return [(event.level, event.text) for event in events]


def test_targets_are_registered_in_the_order_of_the_list() -> None:
    fleet = fleet_of(spec())
    publish(fleet, "gpu-1", 1.0, models=("b", "a", "b"))
    assert [(t.id, t.model) for t in backend(fleet).targets.values()] == [(0, "b"), (1, "a")]
    publish(fleet, "gpu-1", 2.0, models=("c", "a", "b"))
    assert [(t.id, t.model) for t in backend(fleet).targets.values()] == [(0, "b"), (1, "a"), (2, "c")]


def test_what_a_feed_no_longer_tells_is_unknown_and_what_was_not_read_ages() -> None:
    fleet = fleet_of(spec())
    publish(fleet, "gpu-1", 1.0, warm(2))
    publish(
        fleet,
        "gpu-1",
        2.0,
        {Signal.RUNNING: 1},
        models=None,
        full=False,
        read=frozenset({Signal.RUNNING, Signal.WAITING}),
    )
    view = target(fleet).view(2.0)
    assert (view.running, view.waiting, view.capacity) == (1, None, 2)
    assert (backend(fleet).last_full_at, backend(fleet).last_load_at) == (1.0, 2.0)


def test_a_list_of_models_that_cannot_be_read_changes_no_target() -> None:
    fleet = fleet_of(spec())
    publish(fleet, "gpu-1", 1.0, {Signal.MODELS: 7}, models=None)
    assert not backend(fleet).models_read
    publish(fleet, "gpu-1", 2.0)
    publish(fleet, "gpu-1", 3.0, models=None, read=EVERYTHING)
    assert fleet.models(3.0) == [M]


def test_a_backend_says_once_that_it_is_up() -> None:
    fleet = fleet_of(spec())
    first = publish(fleet, "gpu-1", 1.0, {Signal.VERSION: "b9"})
    assert said(first) == [("info", f"gpu-1 is up: llamacpp b9, {M}")]
    assert publish(fleet, "gpu-1", 2.0, {Signal.VERSION: "b9"}) == []


def test_a_backend_that_lists_nothing_says_so() -> None:
    fleet = fleet_of(spec())
    assert said(publish(fleet, "gpu-1", 1.0, models=())) == [("info", "gpu-1 is up: llamacpp, no model yet")]


def test_a_dead_backend_says_so_once_and_once_when_it_answers_again() -> None:
    fleet = fleet_of(spec())
    it = backend(fleet)
    publish(fleet, "gpu-1", 1.0)
    dead = fleet.eject(it, "connection refused", 2.0, connected_at=1.5)
    assert said(dead) == [
        ("warning", "gpu-1 is down: connection refused; it gets no requests until it answers a scrape")
    ]
    assert (it.state, it.error) == (State.EJECTED, "connection refused")
    assert fleet.unreachable(it, "no connection") == []
    assert fleet.eject(it, "again", 3.5, connected_at=3.2) == []
    assert fleet.timed_out(it, 4.0) == []
    assert it.state is State.EJECTED
    assert said(publish(fleet, "gpu-1", 5.0)) == [("info", f"gpu-1 answers again: llamacpp, {M}")]
    assert it.error is None
    assert said(fleet.unreachable(it, "no connection")) == [("warning", "gpu-1 is down: no connection")]
    assert fleet.unreachable(it, "no connection") == []
    assert not it.is_up(7.0)


@pytest.mark.parametrize("trouble", ["unreachable", "unrecognised"])
def test_a_backend_answers_again_only_when_it_was_up_before(trouble: str) -> None:
    fleet = fleet_of(spec())
    fail = getattr(fleet, trouble)
    fail(backend(fleet), "no connection")
    assert said(publish(fleet, "gpu-1", 2.0)) == [("info", f"gpu-1 is up: llamacpp, {M}")]
    fail(backend(fleet), "no connection")
    assert said(publish(fleet, "gpu-1", 4.0)) == [("info", f"gpu-1 answers again: llamacpp, {M}")]


@pytest.mark.parametrize(("capacity", "told"), [(1, f"{M}, 1 slot"), (4, f"{M}, 4 slots")])
def test_a_backend_that_comes_up_is_told_with_its_slots(capacity: int, told: str) -> None:
    assert said(publish(fleet_of(spec()), "gpu-1", 1.0, warm(capacity))) == [("info", f"gpu-1 is up: llamacpp, {told}")]


def test_a_long_list_of_models_is_cut() -> None:
    (event,) = publish(fleet_of(spec()), "gpu-1", 1.0, models=tuple(f"m{i}" for i in range(500)))
    assert event.text == "gpu-1 is up: llamacpp, m0, m1, m2, m3, m4, m5 and 494 more"


def test_a_backend_that_starts_is_not_dead() -> None:
    fleet = fleet_of(spec())
    assert said(fleet.starting(backend(fleet))) == [("info", "gpu-1 is starting: it is loading its model (503)")]
    assert fleet.starting(backend(fleet)) == []
    assert fleet.is_starting()
    publish(fleet, "gpu-1", 3.0)
    assert not fleet.is_starting()


def test_a_backend_of_no_known_kind_is_not_routable() -> None:
    fleet = fleet_of(spec())
    events = fleet.unrecognised(backend(fleet), "its /v1/models is HTML")
    assert said(events) == [("warning", "gpu-1 answers, but not like an engine known here: its /v1/models is HTML")]
    assert not backend(fleet).is_up(1.0)


def test_a_busy_backend_stays_routable_while_it_is_heard_of() -> None:
    fleet = fleet_of(spec())
    it = backend(fleet)
    publish(fleet, "gpu-1", 1.0)
    assert [event.level for event in fleet.timed_out(it, 3.0)] == ["warning"]
    assert (it.state, it.is_up(3.0)) == (State.BUSY, True)
    fleet.heard(it, 20.0)
    fleet.heard(it, 19.0)
    assert fleet.timed_out(it, 50.0) == []
    assert it.is_up(50.0)
    assert said(fleet.timed_out(it, 50.1)) == [("warning", "gpu-1 is down: no answer in time")]
    assert (it.state, it.is_up(50.1)) == (State.DOWN, False)


def test_busy_and_back_is_no_new_process() -> None:
    fleet = fleet_of(spec())
    it = backend(fleet)
    publish(fleet, "gpu-1", 1.0)
    fleet.timed_out(it, 2.0)
    publish(fleet, "gpu-1", 3.0)
    assert (it.state, it.up_since) == (State.UP, 1.0)


def test_a_timeout_before_any_answer_is_down() -> None:
    fleet = fleet_of(spec())
    fleet.timed_out(backend(fleet), 1.0)
    assert backend(fleet).state is State.DOWN
    fleet.heard(backend(fleet), 2.0)
    fleet.timed_out(backend(fleet), 2.0)
    assert backend(fleet).state is State.DOWN


def test_only_a_round_started_after_an_ejection_lifts_it() -> None:
    fleet = fleet_of(spec())
    publish(fleet, "gpu-1", 1.0)
    fleet.eject(backend(fleet), "died", 2.0, connected_at=1.5)
    assert publish(fleet, "gpu-1", 2.5, started_at=1.9) == []
    assert not backend(fleet).is_up(2.5)
    publish(fleet, "gpu-1", 3.0, started_at=2.6)
    assert backend(fleet).is_up(3.0)
    assert backend(fleet).up_since == 2.6


def test_a_late_failure_of_an_older_process_ejects_nobody() -> None:
    fleet = fleet_of(spec())
    publish(fleet, "gpu-1", 5.0)
    assert fleet.eject(backend(fleet), "died", 6.0, connected_at=4.0) == []
    assert backend(fleet).is_up(6.0)


def test_a_backend_that_was_never_up_can_be_ejected() -> None:
    fleet = fleet_of(spec())
    assert len(fleet.eject(backend(fleet), "died", 1.0, connected_at=0.5)) == 1


def test_events_about_a_removed_backend_are_left_out() -> None:
    fleet = fleet_of(spec())
    it = backend(fleet)
    publish(fleet, "gpu-1", 1.0)
    fleet.set_backends([], 2.0)
    assert fleet.unreachable(it, "x") == []
    assert fleet.starting(it) == []
    assert fleet.unrecognised(it, "x") == []
    assert fleet.timed_out(it, 3.0) == []
    assert fleet.eject(it, "x", 3.0, connected_at=2.9) == []
    assert it.state is State.UNKNOWN
    assert not it.is_up(1.0)


def test_readiness_waits_for_a_round_of_each_first_backend_and_latches() -> None:
    fleet = Fleet()
    assert not fleet.is_ready, "no list yet"
    fleet.set_backends([spec(n) for n in "abcdef"], 0.0)
    publish(fleet, "a", 1.0)
    fleet.unreachable(backend(fleet, "b"), "refused")
    fleet.starting(backend(fleet, "c"))
    fleet.timed_out(backend(fleet, "d"), 1.0)
    fleet.unrecognised(backend(fleet, "e"), "HTML")
    assert not fleet.is_ready
    publish(fleet, "f", 1.0)
    assert fleet.is_ready
    fleet.set_backends([spec("later")], 2.0)
    assert fleet.is_ready
    publish(fleet, "later", 3.0)
    assert fleet.is_ready


def test_no_backend_at_all_is_ready() -> None:
    assert fleet_of().is_ready


def test_a_first_backend_that_is_removed_is_not_waited_for() -> None:
    fleet = fleet_of(spec("a"), spec("b"))
    publish(fleet, "a", 1.0)
    fleet.set_backends([spec("a")], 2.0)
    assert fleet.is_ready


def test_models_and_targets_are_those_of_backends_that_are_up() -> None:
    fleet = fleet_of(spec("a"), spec("b"))
    publish(fleet, "a", 1.0, models=("x", "y"))
    publish(fleet, "b", 1.0, models=("y", "z"))
    assert fleet.models(1.0) == ["x", "y", "z"]
    fleet.unreachable(backend(fleet, "a"), "gone")
    assert fleet.models(2.0) == ["y", "z"]
    assert [t.backend.name for t in fleet.targets_for("y", 2.0)] == ["b"]
    assert [t.backend.name for t in fleet.targets_listed("y")] == ["a", "b"]
    assert fleet.targets_for("nope", 2.0) == []


def test_a_model_is_known_unknown_or_not_yet_told() -> None:
    fleet = fleet_of(spec("a"), spec("b"))
    assert fleet.knows("x") is None
    publish(fleet, "a", 1.0, models=("x",))
    assert fleet.knows("x") is True
    assert fleet.knows("y") is None, "b has not told yet"
    publish(fleet, "b", 1.0, models=("z",))
    assert fleet.knows("y") is False
    fleet.set_backends([spec("b")], 2.0)
    assert fleet.knows("x") is True, "lately removed"


def test_when_a_model_was_last_up_includes_lately_removed_backends() -> None:
    fleet = fleet_of(spec("a"), spec("b"))
    assert fleet.last_up("x") is None
    publish(fleet, "a", 1.0, models=("x",))
    publish(fleet, "b", 2.0, models=("x",))
    assert fleet.last_up("x") == 2.0
    fleet.set_backends([spec("a")], 3.0)
    assert fleet.last_up("x") == 2.0
    publish(fleet, "a", 4.0, models=("y",))
    assert fleet.last_up("x") == 2.0


def test_tokens_per_byte_are_learned_per_model() -> None:
    fleet = fleet_of(spec())
    publish(fleet, "gpu-1", 1.0, models=("x", "y"))
    assert fleet.prompt_tokens("x", 4000) == 1000
    assert fleet.prompt_tokens("x", 0) == 0
    for feedback in (
        Feedback(ok=True, cold=False, prompt_tokens=100, bytes_prompt=None),
        Feedback(ok=True, cold=False, prompt_tokens=None, bytes_prompt=100),
        Feedback(ok=False, cold=False, prompt_tokens=1000, bytes_prompt=1000),
        Feedback(ok=True, cold=False, prompt_tokens=30, bytes_prompt=2),
    ):
        fleet.learn(target(fleet, model="x"), feedback)
    assert fleet.prompt_tokens("x", 4000) == 1000
    fleet.learn(
        target(fleet, model="x"), Feedback(ok=True, cold=False, prompt_tokens=500, bytes_prompt=1000, duration_s=3.0)
    )
    assert fleet.prompt_tokens("x", 4000) == 2000
    assert fleet.prompt_tokens("y", 4000) == 1000
    assert target(fleet, model="x").stats.service_s.value == 3.0


def test_learned_tokens_per_byte_go_with_the_models_last_backend() -> None:
    fleet = fleet_of(spec())
    publish(fleet, "gpu-1", 1.0)
    fleet.learn(target(fleet), Feedback(ok=True, cold=False, prompt_tokens=500, bytes_prompt=1000))
    fleet.set_backends([], 2.0)
    assert fleet.prompt_tokens(M, 1000) == 500
    for n in range(33):
        fleet.set_backends([spec(f"other-{n}")], 3.0)
    fleet.set_backends([], 4.0)
    assert fleet.prompt_tokens(M, 1000) == 250


def test_an_ended_request_frees_its_slot_and_notes_when() -> None:
    fleet = fleet_of(spec())
    publish(fleet, "gpu-1", 1.0)
    it = target(fleet)
    slots = it.slots
    fleet.dispatched(it)
    fleet.dispatched(it)
    fleet.ended(it, slots, 5.0)
    fleet.ended(it, slots, 4.0)
    assert (it.inflight, slots.inflight, slots.last_end_at) == (0, 0, 5.0)


def test_two_backends_of_one_name_are_refused() -> None:
    with pytest.raises(ValueError, match="same name"):
        fleet_of(spec(), spec())


def test_what_ran_on_an_ejected_backend_is_unknown_and_what_it_can_run_is_still_known() -> None:
    fleet = fleet_of(spec())
    publish(fleet, "gpu-1", 1.0, {Signal.RUNNING: 2, Signal.WAITING: 1, Signal.CAPACITY: 2})
    target = backend(fleet).targets[M]
    assert target.view(1.0).running == 2
    fleet.eject(backend(fleet), "died", 1.5, connected_at=1.2)
    view = target.view(1.5)
    assert (view.running, view.waiting, view.capacity) == (None, None, 2)


# Queues and followed feeds.


def test_names_of_one_group_share_slots_and_others_have_their_own() -> None:
    fleet = fleet_of(spec())
    groups = {(Signal.PHYSICAL_GROUP, "a"): "base", (Signal.PHYSICAL_GROUP, "b"): "base"}
    publish(fleet, "gpu-1", 1.0, groups, models=("a", "b", "c"), plan=OPENAI)
    one, two, three = (target(fleet, model=name) for name in "abc")
    assert one.slots is two.slots
    assert three.slots is not one.slots
    assert (one.physical, two.physical, three.physical) == (one.id, one.id, three.id)


def test_a_group_that_is_told_later_joins_queues_and_leaves_running_requests_where_they_count() -> None:
    fleet = fleet_of(spec())
    publish(fleet, "gpu-1", 1.0, models=("a", "b"), plan=OPENAI)
    one, two = (target(fleet, model=name) for name in "ab")
    taken = two.slots
    fleet.dispatched(two)
    groups = {(Signal.PHYSICAL_GROUP, "a"): "base", (Signal.PHYSICAL_GROUP, "b"): "base"}
    publish(fleet, "gpu-1", 2.0, groups, models=("a", "b"), plan=OPENAI)
    assert one.slots is two.slots
    fleet.ended(two, taken, 3.0)
    assert (taken.inflight, two.slots.inflight, two.inflight) == (0, 0, 0)
    publish(fleet, "gpu-1", 4.0, {**groups, (Signal.PHYSICAL_GROUP, "b"): "other"}, models=("a", "b"), plan=OPENAI)
    assert one.slots is not two.slots


def test_what_is_told_of_a_queue_holds_for_the_names_that_share_it() -> None:
    fleet = fleet_of(spec())
    told = {(Signal.PHYSICAL_GROUP, "a"): "base", (Signal.CAPACITY, "base"): 4, Signal.CAPACITY: 2}
    publish(fleet, "gpu-1", 1.0, told, models=("a", "b"), plan=OPENAI)
    assert [target(fleet, model=name).view(1.0).capacity for name in "ab"] == [4, 2]
    publish(fleet, "gpu-1", 2.0, {**told, (Signal.CAPACITY, "a"): 1}, models=("a", "b"), plan=OPENAI)
    assert target(fleet, model="a").view(2.0).capacity == 1


def test_a_target_that_joins_a_queue_counts_as_changed() -> None:
    fleet = fleet_of(spec())
    publish(fleet, "gpu-1", 1.0, models=("a", "b"), plan=OPENAI)
    it = target(fleet, model="b")
    for _ in range(9):
        fleet.dispatched(it)
    before = it.slots.turns
    groups = {(Signal.PHYSICAL_GROUP, "a"): "base", (Signal.PHYSICAL_GROUP, "b"): "base"}
    publish(fleet, "gpu-1", 2.0, groups, models=("a", "b"), plan=OPENAI)
    assert it.slots.turns > before


LOG = Feed(kind=FeedKind.LOG)
BY_LINE = log_line("by line", Signal.CAPACITY, r"slots (?P<value>[0-9]+)")
FOLLOWING = msgspec.structs.replace(OPENAI, active=(*OPENAI.active, BY_LINE))


def test_what_a_line_told_holds_until_the_log_breaks_off() -> None:
    fleet = fleet_of(spec())
    publish(fleet, "gpu-1", 1.0, plan=FOLLOWING)
    line = Follow(FOLLOWING.active, LOG, (M,)).line(b"slots 4", 2.0)
    assert fleet.followed(backend(fleet), line, 2.0) == []
    publish(fleet, "gpu-1", 900.0, plan=FOLLOWING)
    assert target(fleet).view(900.0).capacity == 4
    fleet.feed_lost(backend(fleet), LOG)
    assert target(fleet).view(900.0).capacity is None


def test_why_a_log_cannot_be_followed_is_known_until_it_tells_something_again() -> None:
    fleet = fleet_of(spec())
    publish(fleet, "gpu-1", 1.0, plan=FOLLOWING)
    fleet.feed_lost(backend(fleet), LOG, "not found")
    assert backend(fleet).feed_faults == {"by line": "not found"}
    fleet.followed(backend(fleet), Follow(FOLLOWING.active, LOG, (M,)).line(b"slots 4", 2.0), 2.0)
    assert backend(fleet).feed_faults == {}
    fleet.feed_lost(backend(fleet), LOG, "not found")
    fleet.feed_lost(backend(fleet), LOG)
    assert backend(fleet).feed_faults == {}


def test_a_line_that_cannot_be_read_takes_back_what_its_probe_told() -> None:
    fleet = fleet_of(spec())
    publish(fleet, "gpu-1", 1.0, plan=FOLLOWING)
    follow = Follow(FOLLOWING.active, LOG, (M,))
    fleet.followed(backend(fleet), follow.line(b"slots 4", 2.0), 2.0)
    fleet.followed(backend(fleet), follow.line(b"slots 99999999999", 3.0), 3.0)
    assert target(fleet).view(3.0).capacity is None


def test_a_line_that_shows_a_model_unloaded_bumps_its_generation() -> None:
    fleet = fleet_of(spec())
    publish(fleet, "gpu-1", 1.0, {(Signal.RESIDENCY, M): Residency.LOADED}, plan=FOLLOWING)
    cold = Followed({(Signal.RESIDENCY, M): Reading(Residency.COLD, 2.0, "log", None)})
    assert [event.outcome for event in fleet.followed(backend(fleet), cold, 2.0)] == ["unloaded"]


def test_a_log_that_names_ever_new_models_does_not_fill_the_memory() -> None:
    fleet = fleet_of(spec())
    publish(fleet, "gpu-1", 1.0, {(Signal.PHYSICAL_GROUP, M): "file"}, plan=FOLLOWING)
    it = backend(fleet)

    def told(model: str, value: int) -> None:
        fleet.followed(it, Followed({(Signal.CAPACITY, model): Reading(value, 2.0, "log", None)}), 2.0)

    told("early", 3)
    for number in range(2 * STRANGERS):
        told(f"m{number}", 1)
    assert len(it.readings) <= STRANGERS + len(Signal)
    for model in ("early", M, "file", BACKEND):
        told(model, 7)
        assert it.readings[Signal.CAPACITY, model].value == 7


def test_a_removed_backend_takes_nothing_from_its_log() -> None:
    fleet = fleet_of(spec())
    publish(fleet, "gpu-1", 1.0, plan=FOLLOWING)
    gone = backend(fleet)
    fleet.set_backends((), 2.0)
    fleet.followed(gone, Followed({(Signal.CAPACITY, BACKEND): Reading(4, 2.0, "log", None)}), 2.0)
    assert (Signal.CAPACITY, BACKEND) not in gone.readings


def test_the_log_of_a_backend_without_a_plan_can_break_off() -> None:
    fleet = fleet_of(spec())
    fleet.feed_lost(backend(fleet), LOG)
    assert backend(fleet).readings == {}


def test_a_choice_is_there_once_two_targets_have_the_model_up_or_not() -> None:
    fleet = fleet_of(spec("a"), spec("b"))
    publish(fleet, "a", 1.0, models=("x",))
    assert not fleet.has_choice("x")
    publish(fleet, "b", 1.0, models=("x",))
    fleet.unreachable(backend(fleet, "b"), "gone")
    assert fleet.has_choice("x")
