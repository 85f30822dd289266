"""Feeds that are asked for each model, questions with a body, and probes that stay beside a better one."""

import pytest

from pharos.core.engine import plan
from pharos.core.engine.asking import asks_of, is_of
from pharos.core.engine.jsonfeed import json_number
from pharos.core.engine.probe import Feed, FeedKind, Page, Probe, SideEffect, split_ask
from pharos.core.signals import Residency, Signal
from tests.core.engine.pages import NOW, fault, fetched, ok, reasons, resolved, status, values
from tests.core.engine.test_plan import RUNNING, probe, recipe

LOADED, COLD = Residency.LOADED, Residency.COLD


def each(name: str, path: str = "/load?model={model}", signal: Signal = Signal.WAITING, **feed: object) -> Probe:
    """A per-model probe that reads the field `v`."""
    kind = FeedKind.GET if "{model}" in path else FeedKind.POST
    return json_number(name, signal, Feed(kind, path, per_model=True, **feed), "v")  # type: ignore[arg-type]


def listing(*names: str) -> Probe:
    made = probe("models", Signal.MODELS, "/models")
    return Probe(name="models", signal=Signal.MODELS, feed=made.feed, parse=lambda _: {"": names})


def residing(**states: Residency) -> Probe:
    made = probe("residency", Signal.RESIDENCY, "/residency")
    return Probe(name="residency", signal=Signal.RESIDENCY, feed=made.feed, parse=lambda _: states)


BASE = {"/models": ok({}), "/residency": ok({})}
EACH = each("each")
SHOW = each("show", "/api/show", Signal.CONTEXT_LENGTH, interval_s=300.0)


def test_a_request_names_its_model_in_a_form_that_no_path_can_be_mistaken_for() -> None:
    name = "org/name v1?&{model}"
    assert split_ask(EACH.feed.ask(name)) == ("GET", "/load?model=org%2Fname%20v1%3F%26%7Bmodel%7D", None)
    assert split_ask(SHOW.feed.ask(name)) == ("POST", "/api/show", b'{"model": "org/name v1?&{model}"}')
    assert split_ask(RUNNING.feed.ask()) == ("GET", "/running", None)


@pytest.mark.parametrize("feed", [EACH.feed, SHOW.feed, RUNNING.feed])
def test_a_request_is_known_to_belong_to_its_feed(feed: Feed) -> None:
    for other in (EACH.feed, SHOW.feed, RUNNING.feed):
        assert is_of(feed, other.ask("a b")) == (feed is other)
    assert not is_of(EACH.feed, "/load?model=")


def test_what_is_asked_for_each_model_is_filed_under_it() -> None:
    there = {**BASE, "/load?model=a": ok({"v": 1}), "/load?model=b": ok({"v": 2})}
    made, first = resolved(recipe(listing("a", "b"), EACH), there)
    assert values(first) == {("models", ""): ("a", "b"), ("waiting", "a"): 1, ("waiting", "b"): 2}
    assert {("each", "a"), ("each", "b")} <= first.answered
    later = plan.scrape(made, {"/load?model=b": ok({"v": 7})}, NOW, models=("a", "b"))
    assert values(later) == {("waiting", "b"): 7}
    assert later.answered == {("each", "b")}


def test_planning_tries_a_few_models_and_those_in_memory_first() -> None:
    names = tuple("abcdefgh")
    there = {**BASE, **{f"/load?model={name}": ok({"v": 1}) for name in names}}
    made = recipe(listing(*names), residing(g=LOADED, a=COLD), EACH)
    got = fetched(lambda pages: plan.next_paths(made, (), pages), there)
    assert [path for path in got if "load" in path] == ["/load?model=g", "/load?model=a", "/load?model=b"]


def test_one_model_that_works_is_enough_for_a_probe_and_a_failing_one_is_told() -> None:
    there = {**BASE, "/load?model=a": status(400), "/load?model=b": ok({"v": 2})}
    made, first = resolved(recipe(listing("a", "b"), EACH), there)
    assert [p.name for p in made.active] == ["models", "each"]
    assert values(first)["waiting", "b"] == 2
    later = plan.scrape(made, {path: page for path, page in there.items() if "load" in path}, NOW, models=("a", "b"))
    assert [one.probe for one in later.failed] == ["each"]
    assert not plan.needs_resolve(made, later)
    alone = plan.scrape(made, {"/load?model=a": status(400)}, NOW, models=("a", "b"))
    assert plan.needs_resolve(made, alone)


def test_a_refusal_that_means_not_now_keeps_a_probe_in_the_plan() -> None:
    patient = each("patient", passing=frozenset({400}))
    there = {**BASE, "/load?model=a": status(400), "/load?model=b": status(404)}
    made, first = resolved(recipe(listing("a", "b"), patient), there)
    assert "patient" in made.trusted
    assert ("waiting", "a") not in values(first)
    assert not plan.needs_resolve(made, plan.scrape(made, {"/load?model=a": status(400)}, NOW, models=("a",)))
    hopeless, _ = resolved(recipe(listing("b"), patient), there)
    assert reasons(hopeless) == {"patient": "NOT_FOUND"}


@pytest.mark.parametrize(("names", "detail"), [((), "no model is listed"), (("a",), "no model is in memory")])
def test_with_no_model_to_ask_about_a_probe_is_planned_on_trust(names: tuple[str, ...], detail: str) -> None:
    loaded = each("loaded", loaded_only=True)
    made, first = resolved(recipe(listing(*names), residing(a=COLD), loaded), BASE)
    assert [one.detail for one in first.failed if one.probe == "loaded"] == [detail]
    assert "loaded" in made.trusted


def test_only_models_in_memory_are_asked_where_a_feed_says_so() -> None:
    loaded = each("loaded", loaded_only=True)
    there = {**BASE, "/load?model=a": ok({"v": 1}), "/load?model=b": ok({"v": 2})}
    made, first = resolved(recipe(listing("a", "b"), residing(a=LOADED, b=COLD), loaded), there)
    assert values(first)["waiting", "a"] == 1
    situation = plan.Situation(models=("a", "b"), residency={"a": LOADED, "b": COLD})
    assert "/load?model=b" not in plan.due_paths(made, {}, NOW, situation)
    assert "/load?model=a" in plan.due_paths(made, {}, NOW, situation)
    whole = plan.Situation(models=("a", "b"), residency={"": LOADED})
    assert set(asks_of(made.active, whole)) == {"/models", "/residency", "/load?model=a", "/load?model=b"}


def test_what_wakes_a_model_is_asked_for_those_seen_in_memory_in_this_round() -> None:
    waking = each("waking", side_effect=SideEffect.WAKES, loaded_only=True)
    there = {**BASE, "/load?model=a": ok({"v": 1})}
    made, first = resolved(recipe(listing("a", "b"), residing(a=LOADED, b=COLD), waking), there)
    assert values(first)["waiting", "a"] == 1
    read = {"/models": NOW, "/residency": NOW}
    known = {"a": LOADED, "b": COLD}
    ours = frozenset({"a", "b"})
    before = plan.Situation(models=("a", "b"), residency=known, ours=ours)
    assert plan.due_paths(made, read, NOW + 1, before) == ("/residency",)
    seen = plan.Situation(asleep=True, models=("a", "b"), residency=known, ours=ours)
    assert plan.due_paths(made, read, NOW + 1, seen) == ("/load?model=a",)
    others = plan.Situation(asleep=True, models=("a", "b"), residency=known, ours=frozenset({"b"}))
    assert plan.due_paths(made, read, NOW + 1, others) == ()


def test_what_keeps_a_model_loaded_is_asked_for_those_of_which_our_requests_run() -> None:
    pinning = each("pinning", side_effect=SideEffect.PINS)
    made, first = resolved(recipe(listing("a", "b"), pinning), BASE)
    assert [one.probe for one in first.withheld] == ["pinning"]
    read = {"/models": NOW}
    ours = plan.Situation(models=("a", "b"), ours=frozenset({"b"}))
    assert plan.due_paths(made, read, NOW, ours) == ("/load?model=b",)
    assert set(asks_of(made.active, plan.Situation(models=("a", "b")))) == {"/models"}
    unknown = plan.why_unknown(made, Signal.WAITING, asleep=False)
    assert unknown is not None
    assert unknown.detail == "read only while requests from here run"


def test_a_probe_beside_a_better_one_fills_its_gaps_and_never_outweighs_it() -> None:
    ps = Probe(name="ps", signal=Signal.CONTEXT_LENGTH, feed=Feed(FeedKind.GET, "/ps"), parse=lambda _: {"a": 4096})
    bound = json_number("bound", Signal.CONTEXT_LENGTH, SHOW.feed, "v", beside=True, rank=1)
    there = {**BASE, "/ps": ok({}), "POST /api/show a": ok({"v": 131072}), "POST /api/show b": ok({"v": 32768})}
    for order in ((ps, bound), (bound, ps)):
        made, first = resolved(recipe(listing("a", "b"), *order), there)
        assert {p.name for p in made.active} == {"models", "ps", "bound"}
        assert (values(first)["context_length", "a"], values(first)["context_length", "b"]) == (4096, 32768)
        assert {reading.rank for reading in first.readings.values() if reading.probe == "bound"} == {1}


@pytest.mark.parametrize("page", [fault(), status(503)])
def test_a_probe_beside_a_better_one_that_only_got_no_answer_stays(page: Page) -> None:
    spare = probe("spare", Signal.RUNNING, "/spare", beside=True, rank=1)
    made, _ = resolved(recipe(RUNNING, spare), {"/running": ok({"v": 1}), "/spare": page})
    assert [p.name for p in made.active] == ["running", "spare"]
    gone, _ = resolved(recipe(RUNNING, spare), {"/running": ok({"v": 1}), "/spare": status(404)})
    assert reasons(gone) == {"spare": "NOT_FOUND"}


def test_a_stream_of_events_is_planned_untried_and_gives_way_to_a_scraped_reader_unless_it_stays_beside() -> None:
    events = Feed(FeedKind.SSE, "/events")
    stream = Probe(name="stream", signal=Signal.RUNNING, feed=events, parse=lambda _: {})
    beside = Probe(name="stream", signal=Signal.RUNNING, feed=events, parse=lambda _: {}, beside=True)
    assert reasons(resolved(recipe(RUNNING, stream), {"/running": ok({"v": 1})})[0]) == {"stream": "REDUNDANT"}
    made, first = resolved(recipe(RUNNING, beside), {"/running": ok({"v": 1})})
    assert [p.name for p in made.active] == ["running", "stream"]
    assert made.trusted == frozenset()
    assert values(first) == {("running", ""): 1}
    assert plan.due_paths(made, {}, NOW) == ("/running",)
