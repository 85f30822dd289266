from pharos.core.engine import recipes
from pharos.core.engine.plan import Plan
from pharos.core.engine.usage_fields import PLAIN
from pharos.core.fleet import Feedback
from pharos.core.fleet.lacking import LACKING_FOR_S, Lacking
from pharos.core.fleet.tokens import TokensPerByte
from pharos.core.signals import Residency, Signal
from tests.core.fleet.given import LLAMACPP, OPENAI, M, backend, fleet_of, publish, spec, target, warm


def test_a_view_is_made_once_for_as_long_as_nothing_changes() -> None:
    fleet = fleet_of(spec())
    publish(fleet, "gpu-1", 1.0, warm(2))
    it = target(fleet)
    assert it.view(1.0) is it.view(2.0)
    assert it.view(2.0).running == 0
    assert it.view(4.5).running is None
    assert it.view(1.0).running == 0, "an earlier moment is seen as it was"


def test_a_new_round_is_seen_at_once() -> None:
    fleet = fleet_of(spec())
    publish(fleet, "gpu-1", 1.0, warm(2))
    assert target(fleet).view(1.0).running == 0
    publish(fleet, "gpu-1", 1.0, warm(2, running=1))
    assert target(fleet).view(1.0).running == 1


def test_names_of_one_queue_share_its_slots_and_others_do_not() -> None:
    fleet = fleet_of(spec("a"), spec("b"))
    publish(fleet, "a", 1.0, models=("x", "y"), plan=LLAMACPP)
    publish(fleet, "b", 1.0, models=("x", "y"), plan=OPENAI)
    assert target(fleet, "a", "x").slots is target(fleet, "a", "y").slots
    assert target(fleet, "a", "y").physical == target(fleet, "a", "x").id
    assert target(fleet, "b", "x").physical != target(fleet, "b", "y").physical


def test_refused_usage_is_remembered_for_that_version_of_the_engine() -> None:
    fleet = fleet_of(spec())
    publish(fleet, "gpu-1", 1.0, {Signal.VERSION: "b1"})
    it = target(fleet)
    assert it.may_ask_usage()
    it.refuse_usage()
    assert not it.may_ask_usage()
    publish(fleet, "gpu-1", 2.0, {Signal.VERSION: "b2"})
    assert it.may_ask_usage()


def test_a_missing_route_is_remembered_until_the_engine_s_version_changes() -> None:
    fleet = fleet_of(spec())
    publish(fleet, "gpu-1", 1.0, {Signal.VERSION: "b1"})
    it = target(fleet)
    assert not it.lacks("/v1/messages", 3.0)
    it.note_lacking("/v1/messages", 3.0)
    it.note_lacking("/v1/responses", 3.0)
    publish(fleet, "gpu-1", 2.0, {Signal.VERSION: "b1"})
    assert it.lacks("/v1/messages", 3.0)
    assert it.lacks("/v1/responses", 3.0)
    assert not it.lacks("/v1/chat/completions", 3.0)
    publish(fleet, "gpu-1", 3.0, {Signal.VERSION: "b2"})
    assert not it.lacks("/v1/messages", 3.0)
    it.note_lacking("/v1/responses", 3.0)
    assert it.lacks("/v1/responses", 3.0)
    assert not it.lacks("/v1/messages", 3.0), "that was another version"


def test_a_missing_route_is_asked_for_again_once_the_engine_was_away() -> None:
    fleet = fleet_of(spec())
    publish(fleet, "gpu-1", 1.0)
    target(fleet).note_lacking("/v1/messages", 3.0)
    fleet.unreachable(backend(fleet), "connection refused")
    assert target(fleet).lacks("/v1/messages", 3.0)
    publish(fleet, "gpu-1", 5.0)
    assert not target(fleet).lacks("/v1/messages", 3.0)


def test_a_route_that_was_served_is_not_taken_for_missing() -> None:
    fleet = fleet_of(spec())
    publish(fleet, "gpu-1", 1.0)
    target(fleet).proven.add("/v1/messages")
    target(fleet).note_lacking("/v1/messages", 3.0)
    assert not target(fleet).lacks("/v1/messages", 3.0)


def test_an_engine_counts_cached_tokens_once_it_has_stated_some_until_its_process_changes() -> None:
    fleet = fleet_of(spec())
    publish(fleet, "gpu-1", 1.0, {Signal.VERSION: "b1"})
    it = backend(fleet)
    fleet.learn(target(fleet), Feedback(ok=True, cold=False, prompt_tokens=5))
    assert not it.counts_cached
    fleet.learn(target(fleet), Feedback(ok=True, cold=False, prompt_tokens=5, cached_tokens=0))
    assert it.counts_cached
    publish(fleet, "gpu-1", 2.0, {Signal.VERSION: "b2"})
    assert not it.counts_cached
    it.counts_cached = True
    fleet.unreachable(it, "connection refused")
    publish(fleet, "gpu-1", 3.0, {Signal.VERSION: "b2"})
    assert not it.counts_cached


def test_what_token_counts_mean_is_known_from_the_kind_and_the_version() -> None:
    fleet = fleet_of(spec())
    assert backend(fleet).dialect == PLAIN
    publish(fleet, "gpu-1", 1.0, {Signal.VERSION: "b1"}, plan=LLAMACPP)
    assert backend(fleet).dialect == recipes.by_kind("llamacpp").dialect("b1") != PLAIN
    ollama = Plan("ollama", "config", "0.17.4", (), ())
    publish(fleet, "gpu-1", 2.0, {Signal.VERSION: "0.17.4"}, plan=ollama)
    assert backend(fleet).dialect == recipes.by_kind("ollama").dialect("0.17.4")
    publish(fleet, "gpu-1", 3.0, {Signal.VERSION: "0.33.0"}, plan=ollama)
    assert backend(fleet).dialect == recipes.by_kind("ollama").dialect("0.33.0")


def test_a_backend_is_up_while_it_is_heard_of() -> None:
    fleet = fleet_of(spec())
    it = backend(fleet)
    assert not it.is_up(0.0)
    publish(fleet, "gpu-1", 1.0)
    assert it.is_up(31.0)
    assert not it.is_up(31.1)


def test_inflight_of_a_backend_is_that_of_all_its_models() -> None:
    fleet = fleet_of(spec())
    publish(fleet, "gpu-1", 1.0, models=("x", "y"))
    fleet.dispatched(target(fleet, model="x"))
    fleet.dispatched(target(fleet, model="y"))
    assert backend(fleet).inflight == 2
    assert target(fleet, model="x").slots.inflight == 2


def test_reprs_tell_what_matters() -> None:
    fleet = fleet_of(spec())
    publish(fleet, "gpu-1", 1.0, {})
    assert repr(target(fleet)) == f"<Target {M}@gpu-1 residency unknown 0 in flight gen=0>"
    publish(fleet, "gpu-1", 1.0, {Signal.RESIDENCY: Residency.LOADED})
    assert repr(target(fleet)) == f"<Target {M}@gpu-1 loaded 0 in flight gen=0>"
    assert repr(backend(fleet)) == "<Backend gpu-1 up 1 targets>"
    assert repr(fleet) == "<Fleet 1 backends, 1 targets>"
    assert repr(TokensPerByte()) == "<TokensPerByte of 0 models>"


def test_a_missing_route_is_asked_for_again_after_a_while() -> None:
    fleet = fleet_of(spec())
    publish(fleet, "gpu-1", 1.0)
    it = target(fleet)
    assert it.note_lacking("/v1/messages", 3.0)
    assert it.lacks("/v1/messages", 3.0 + LACKING_FOR_S - 1.0)
    assert not it.lacks("/v1/messages", 3.0 + LACKING_FOR_S)
    assert not it.note_lacking("/v1/messages", 3.0 + LACKING_FOR_S), "this was told before"
    assert it.lacks("/v1/messages", 4.0 + LACKING_FOR_S)


def test_what_it_lacks_is_shown_by_name() -> None:
    lacking = Lacking()
    lacking.note("/v1/messages", "process", 1.0, None)
    assert repr(lacking) == "<Lacking ['/v1/messages']>"


def test_what_may_be_about_one_request_takes_another_one_to_prove_a_missing_route() -> None:
    fleet = fleet_of(spec())
    publish(fleet, "gpu-1", 1.0, {Signal.VERSION: "b1"})
    it = target(fleet)
    for _ in range(3):
        assert not it.note_lacking("/v1/messages", 3.0, request=1)
    assert not it.lacks("/v1/messages", 3.0)
    assert not it.note_lacking("/v1/responses", 3.0, request=2), "that is another route"
    publish(fleet, "gpu-1", 4.0, {Signal.VERSION: "b2"})
    assert not it.note_lacking("/v1/messages", 4.0, request=2), "that was another version"
    assert it.note_lacking("/v1/messages", 4.0, request=3)
    assert it.lacks("/v1/messages", 4.0)
