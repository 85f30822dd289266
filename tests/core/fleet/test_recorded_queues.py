"""Recorded engines in a fleet: what is told of a queue, of a model and of the whole backend, seen by each name."""

from pharos.core.engine import plan
from pharos.core.engine.plan import Plan, Round
from pharos.core.engine.probe import FeedKind
from pharos.core.fleet import Backend, Event, Fleet, View
from pharos.core.signals import Residency
from tests.core.engine.pages import NOW
from tests.core.engine.replay import test_ollama
from tests.core.engine.replay.replaying import Answers, pages_of, resolved
from tests.core.engine.replay.streams import events, follow, lines
from tests.core.fleet.given import fleet_of, spec

TINY, EMBED = "tiny:latest", "tiny-embed:latest"


class Given:
    """A fleet of one backend of a recorded kind."""

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self.fleet: Fleet = fleet_of(spec())
        self.backend: Backend = self.fleet.backends["gpu-1"]
        self.plan: Plan | None = None

    def publish(self, there: Answers) -> list[Event]:
        made, first, _ = resolved(self.kind, there, logs=True)
        self.plan = made
        return self.take(made, first)

    def take(self, made: Plan, first: Round) -> list[Event]:
        return self.fleet.publish(self.backend, made, first, NOW, full=True, started_at=NOW)

    def read_log(self, version: str) -> None:
        assert self.plan is not None
        log = follow(self.plan, FeedKind.LOG)
        for line in lines(self.kind, version, "logs/serve.log"):
            self.fleet.followed(self.backend, log.line(line, NOW), NOW)

    def view(self, served: str) -> View:
        return next(one for one in self.backend.targets.values() if one.served == served).view(NOW)

    def capacity(self, served: str) -> int | None:
        return self.view(served).capacity

    def residency(self, served: str) -> Residency | None:
        return self.view(served).residency


def ollama(version: str, state: str) -> Answers:
    return test_ollama.world(("ollama", version, state))


def test_the_slots_of_ollama_are_those_of_its_log_and_one_for_a_model_that_embeds() -> None:
    for version in ("0.17.4", "0.33.0-rc2"):
        engine = Given("ollama")
        engine.publish(ollama(version, "two_models"))
        assert (engine.capacity(TINY), engine.capacity(EMBED)) == (None, 1)
        engine.read_log(version)
        assert (engine.capacity(TINY), engine.capacity(EMBED)) == (2, 1)
        assert engine.plan is not None
        for probe in engine.plan.active:
            if probe.feed.kind is FeedKind.LOG:
                engine.fleet.feed_lost(engine.backend, probe.feed)
        assert (engine.capacity(TINY), engine.capacity(EMBED)) == (None, 1)


def test_slots_that_were_asked_for_are_not_those_of_a_model_of_which_nothing_is_known() -> None:
    there = ollama("0.17.4", "two_models")
    del there[f"POST /api/show {EMBED}"]
    engine = Given("ollama")
    engine.publish(there)
    engine.read_log("0.17.4")
    assert (engine.capacity(TINY), engine.capacity(EMBED)) == (2, None)


def test_a_model_of_ollama_that_another_takes_the_place_of_is_unloaded_and_a_stub_never_is() -> None:
    engine = Given("ollama")
    engine.publish(ollama("0.17.4", "idle"))
    assert engine.residency(TINY) is Residency.LOADED
    assert [one.outcome for one in engine.publish(ollama("0.17.4", "unloaded"))] == ["unloaded"]
    assert engine.residency(TINY) is Residency.COLD


def test_a_model_that_runs_elsewhere_stays_there_whichever_of_its_lists_was_read_last() -> None:
    engine = Given("ollama")
    there = ollama("synthetic-mixed", "idle")
    engine.publish(there)
    assert engine.plan is not None
    lists = {path: there[path] for path in ("/api/ps", "/api/tags")}
    for path, page in lists.items():
        assert engine.take(engine.plan, plan.scrape(engine.plan, {path: page}, NOW)) == []
        assert engine.residency("big:cloud") is Residency.LOADED


def test_an_alias_of_llama_swap_is_where_its_model_is() -> None:
    engine = Given("llama-swap")
    engine.publish(pages_of(("llama-swap", "v250-5-g0bdb37", "busy")))
    assert engine.residency("tiny") is engine.residency("small") is Residency.LOADED
    assert engine.residency("other") is Residency.COLD
    told = engine.publish(pages_of(("llama-swap", "v250-5-g0bdb37", "swapped")))
    assert [one.outcome for one in told] == ["unloaded", "unloaded"]
    assert engine.residency("tiny") is engine.residency("small") is Residency.COLD


def test_events_and_lists_of_llama_swap_do_not_contradict_one_another() -> None:
    engine = Given("llama-swap")
    engine.publish(pages_of(("llama-swap", "v250-5-g0bdb37", "cold")))
    assert engine.plan is not None
    stream = follow(engine.plan, FeedKind.SSE)
    told = [
        event
        for data in events("llama-swap", "v250-5-g0bdb37", "streams/api_events.response")
        for event in engine.fleet.followed(engine.backend, stream.event("", data, NOW), NOW)
    ]
    told += engine.publish(pages_of(("llama-swap", "v250-5-g0bdb37", "saturated")))
    assert told == []
    views = {name: engine.backend.targets[name].view(NOW) for name in ("tiny", "small", "other")}
    assert [view.residency for view in views.values()] == [Residency.LOADED, Residency.LOADED, Residency.COLD]
    assert [view.running for view in views.values()] == [6, 6, 0]
