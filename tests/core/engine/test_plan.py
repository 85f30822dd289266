import pytest

from pharos.core.engine import plan
from pharos.core.engine.jsonfeed import json_probe, member
from pharos.core.engine.logline import log_line
from pharos.core.engine.probe import DropReason, Feed, FeedKind, FetchFault, Page, Probe, SideEffect
from pharos.core.engine.prom import prom
from pharos.core.engine.recipe import Recipe
from pharos.core.signals import BACKEND, Found, Residency, Signal
from tests.core.engine.pages import NOW, fault, fetched, ok, reasons, resolved, status, values


def probe(name: str, signal: Signal, path: str, side_effect: SideEffect = SideEffect.NONE, **rest: object) -> Probe:
    """A probe that reads the field `v`."""

    def read(document: object) -> Found:
        value = member(document, "v")
        return {BACKEND: Residency(value) if signal is Signal.RESIDENCY else value}  # type: ignore[dict-item]

    made = json_probe(name, signal, Feed(kind=FeedKind.GET, path=path, side_effect=side_effect), read)
    return Probe(name=name, signal=signal, feed=made.feed, parse=made.parse, **rest)  # type: ignore[arg-type]


VERSION = probe("version", Signal.VERSION, "/version")
RESIDENCY = probe("residency", Signal.RESIDENCY, "/residency")
RUNNING = probe("running", Signal.RUNNING, "/running")
SPARE = probe("spare", Signal.RUNNING, "/spare")
WAKING = probe("waking", Signal.WAITING, "/waking", SideEffect.WAKES)


def recipe(*probes: Probe, **rest: object) -> Recipe:
    return Recipe(kind="toy", rank=1, probes=probes, **rest)  # type: ignore[arg-type]


def seen(*, asleep: bool | None) -> plan.Situation:
    """A round in which it was seen whether the model sleeps, while requests of ours run."""
    return plan.Situation(asleep=asleep, ours=frozenset({"m"}))


def has_proof(page: Page) -> bool:
    return b"proof" in page.body


# Choosing.


def test_the_first_probe_that_reads_a_signal_is_planned_and_the_others_are_redundant() -> None:
    made, first = resolved(recipe(RUNNING, SPARE), {"/running": ok({"v": 1}), "/spare": ok({"v": 2})})
    assert [p.name for p in made.active] == ["running"]
    assert values(first) == {("running", ""): 1}
    assert made.dropped == (plan.Dropped("spare", Signal.RUNNING, DropReason.REDUNDANT, "running reads it"),)


def test_an_own_probe_goes_ahead_of_the_recipe() -> None:
    own = prom("mine", Signal.RUNNING, "my_gauge", own=True)
    made, first = resolved(recipe(RUNNING), {"/running": ok({"v": 1}), "/metrics": ok("my_gauge 7\n")}, own=[own])
    assert values(first) == {("running", ""): 7}
    assert reasons(made) == {"running": "REDUNDANT"}


@pytest.mark.parametrize(
    ("page", "reason"),
    [
        (status(404), "NOT_FOUND"),
        (status(405), "NOT_FOUND"),
        (status(501), "NOT_FOUND"),
        (status(401), "UNAUTHORIZED"),
        (status(403), "UNAUTHORIZED"),
        (status(400), "STATUS"),
        (status(302), "STATUS"),
        (status(500), "STATUS"),
        (status(503), "STARTING"),
        (fault(), "FETCH_ERROR"),
        (Page(status=None), "FETCH_ERROR"),
        (ok("no JSON"), "PARSE_ERROR"),
        (ok({}), "NO_VALUE"),
    ],
)
def test_a_probe_that_gives_nothing_leaves_its_signal_to_the_next_and_says_why(page: Page, reason: str) -> None:
    made, first = resolved(recipe(RUNNING, SPARE), {"/running": page, "/spare": ok({"v": 2})})
    assert values(first) == {("running", ""): 2}
    assert reasons(made) == {"running": reason}


def test_a_probe_that_finds_nothing_gives_no_value() -> None:
    empty = json_probe("empty", Signal.RUNNING, Feed(kind=FeedKind.GET, path="/x"), lambda _: {})
    assert reasons(resolved(recipe(empty), {"/x": ok({})})[0]) == {"empty": "NO_VALUE"}


def test_a_probe_without_its_evidence_is_dropped() -> None:
    proven = prom("proven", Signal.WAITING, "waiting", needs=("proof",))
    assert reasons(resolved(recipe(proven), {"/metrics": ok("waiting 1\n")})[0]) == {"proven": "NO_EVIDENCE"}


@pytest.mark.parametrize("effect", [SideEffect.LOADS, SideEffect.DRAINS])
def test_what_loads_or_drains_is_never_asked(effect: SideEffect) -> None:
    harmful = probe("harmful", Signal.RUNNING, "/harm", effect)
    made = recipe(harmful, RUNNING)
    assert plan.next_paths(made, (), {}) == ("/running",)
    assert plan.next_paths(made, (), {"/running": status(404)}) == ()
    assert reasons(resolved(made, {"/running": ok({"v": 1})})[0]) == {"harmful": "SIDE_EFFECT"}


def test_a_version_guard_decides_by_the_version_that_was_read() -> None:
    guarded = probe("guarded", Signal.RUNNING, "/running", when=lambda version: version == "2")
    there = {"/running": ok({"v": 1})}
    assert values(resolved(recipe(VERSION, guarded), {**there, "/version": ok({"v": "2"})})[1])["running", ""] == 1
    made, first = resolved(recipe(VERSION, guarded), {**there, "/version": ok({"v": "1"})})
    assert (reasons(made), made.version) == ({"guarded": "VERSION_GUARD"}, "1")
    assert ("running", "") not in values(first)


def test_while_the_version_is_unknown_no_guarded_probe_runs() -> None:
    guarded = probe("guarded", Signal.RUNNING, "/running", when=lambda _: True)
    made, _ = resolved(recipe(VERSION, guarded), {"/running": ok({"v": 1}), "/version": status(404)})
    assert reasons(made) == {"version": "NOT_FOUND", "guarded": "VERSION_GUARD"}
    assert made.version is None


def test_a_version_that_is_no_text_is_no_version() -> None:
    assert resolved(recipe(VERSION), {"/version": ok({"v": 3})})[0].version is None


def test_a_log_probe_stays_while_there_is_a_log_and_nothing_else_reads_its_signal() -> None:
    logged = log_line("logged", Signal.CAPACITY, r"slots (?P<value>\d+)")
    made, first = resolved(recipe(logged, VERSION), {"/version": status(404)}, logs=True)
    assert [p.name for p in made.active] == ["logged"]
    assert plan.intervals_of(made.active) == {}
    assert values(first) == {}
    assert plan.due_paths(made, {}, NOW, plan.Situation(asleep=False)) == ()
    assert values(plan.scrape(made, {}, NOW)) == {}
    assert reasons(resolved(recipe(logged), {})[0]) == {"logged": "NO_LOG_FEED"}
    scraped = probe("scraped", Signal.CAPACITY, "/c")
    assert reasons(resolved(recipe(scraped, logged), {"/c": ok({"v": 2})}, logs=True)[0]) == {"logged": "REDUNDANT"}


def test_every_reason_to_drop_a_probe_has_a_test_here() -> None:
    tested = {
        *("NOT_FOUND", "UNAUTHORIZED", "STATUS", "STARTING", "FETCH_ERROR", "PARSE_ERROR", "NO_VALUE"),
        *("NO_EVIDENCE", "VERSION_GUARD", "REDUNDANT", "NO_LOG_FEED", "SIDE_EFFECT"),
    }
    assert {reason.name for reason in DropReason} == tested


# What could not be tried.


@pytest.mark.parametrize("page", [fault(), fault(FetchFault.RESET), status(503), status(500), status(429)])
def test_a_probe_that_only_got_no_answer_is_planned_on_trust_when_nothing_else_reads_its_signal(page: Page) -> None:
    made, first = resolved(recipe(RUNNING, SPARE), {"/running": page, "/spare": fault()})
    assert [p.name for p in made.active] == ["running"]
    assert made.trusted == {"running"}
    assert [one.probe for one in first.failed] == ["running"]
    assert reasons(made) == {"spare": "FETCH_ERROR"}


def test_a_path_that_was_not_asked_is_planned_on_trust() -> None:
    made, first = plan.resolve(recipe(RUNNING, SPARE), (), {}, kind_source="config", logs=False, now=NOW)
    assert made.trusted == {"running"}
    assert [(one.probe, one.detail) for one in first.failed] == [("running", "/running was not asked")]
    assert made.dropped == (plan.Dropped("spare", Signal.RUNNING, DropReason.REDUNDANT, "running is planned"),)


@pytest.mark.parametrize(
    ("residency", "detail"),
    [
        (ok({"v": "cold"}), "the model sleeps, and a read would wake it"),
        (status(404), "it is not known whether the model sleeps: a read might wake it"),
    ],
)
def test_what_would_wake_a_model_is_not_asked_while_it_sleeps_or_that_is_unknown(residency: Page, detail: str) -> None:
    made, first = resolved(recipe(RESIDENCY, WAKING), {"/residency": residency, "/waking": ok({"v": 1})})
    assert [(one.probe, one.reason.name, one.detail) for one in first.withheld] == [("waking", "SIDE_EFFECT", detail)]
    assert "waking" in made.trusted
    assert Signal.WAITING not in first.read
    asleep = plan.asleep_in(first.readings)
    unknown = plan.why_unknown(made, Signal.WAITING, asleep=asleep)
    assert unknown is not None
    assert unknown.detail == detail


def test_a_withheld_probe_is_dropped_when_a_harmless_one_reads_the_signal() -> None:
    harmless = probe("harmless", Signal.WAITING, "/harmless")
    made, first = resolved(
        recipe(RESIDENCY, WAKING, harmless), {"/residency": ok({"v": "cold"}), "/harmless": ok({"v": 1})}
    )
    assert values(first)["waiting", ""] == 1
    assert reasons(made) == {"waking": "SIDE_EFFECT"}
    assert first.withheld == ()


def test_what_would_wake_a_model_is_asked_once_it_is_known_to_be_awake() -> None:
    made = recipe(RESIDENCY, WAKING)
    assert plan.next_paths(made, (), {}) == ("/residency",)
    assert plan.next_paths(made, (), {"/residency": ok({"v": "loaded"})}) == ("/waking",)
    assert plan.next_paths(made, (), {"/residency": ok({"v": "cold"})}) == ()
    assert plan.next_paths(made, (), {"/residency": fault()}) == ()


def test_a_costly_fallback_is_asked_only_when_the_better_probe_failed() -> None:
    better = probe("better", Signal.WAITING, "/better")
    heavy = probe("heavy", Signal.WAITING, "/heavy", SideEffect.HEAVY)
    made = recipe(better, heavy)
    assert plan.next_paths(made, (), {"/better": ok({"v": 1})}) == ()
    assert plan.next_paths(made, (), {"/better": status(404)}) == ("/heavy",)
    guarded = probe("guarded", Signal.WAITING, "/guarded", SideEffect.HEAVY, when=lambda _: True)
    assert plan.next_paths(recipe(guarded), (), {}) == ()


def test_a_heavy_path_is_read_when_planning_only() -> None:
    heavy = probe("heavy", Signal.SIZE_BYTES, "/heavy", SideEffect.HEAVY)
    made, first = resolved(recipe(heavy), {"/heavy": ok({"v": 1})})
    assert values(first) == {("size_bytes", ""): 1}
    assert plan.due_paths(made, {}, NOW, plan.Situation(asleep=False, ours=frozenset({"m"}))) == ()


def test_what_keeps_a_model_loaded_is_asked_only_while_our_requests_run() -> None:
    pinning = probe("pinning", Signal.RUNNING, "/pin", SideEffect.PINS)
    made, first = resolved(recipe(pinning), {"/pin": ok({"v": 1})})
    assert [one.detail for one in first.withheld] == ["read only while requests from here run"]
    assert plan.due_paths(made, {}, NOW, plan.Situation(asleep=False)) == ()
    assert plan.due_paths(made, {}, NOW, plan.Situation(ours=frozenset({"m"}))) == ("/pin",)


def test_what_is_not_asked_again_stays_as_the_last_plan_of_this_version_found_it() -> None:
    spare = probe("spare", Signal.KV_USAGE, "/waking", SideEffect.WAKES)
    made_of = recipe(VERSION, RESIDENCY, spare)
    there = {"/version": ok({"v": "1"}), "/residency": ok({"v": "loaded"}), "/waking": status(404)}
    first, _ = resolved(made_of, there)
    assert reasons(first) == {"spare": "NOT_FOUND"}
    got = fetched(lambda pages: plan.next_paths(made_of, (), pages, may_keep_awake=False), there)
    again, _ = plan.resolve(made_of, (), got, kind_source="config", logs=False, now=NOW, before=first)
    assert again.same_probes(first)
    newer = {**got, "/version": ok({"v": "2"})}
    other, _ = plan.resolve(made_of, (), newer, kind_source="config", logs=False, now=NOW, before=first)
    assert "spare" in other.trusted


def test_an_own_probe_shares_the_side_effect_of_its_path() -> None:
    own = probe("mine", Signal.CAPACITY, "/waking")
    made, first = resolved(
        recipe(RESIDENCY, WAKING), {"/residency": ok({"v": "cold"}), "/waking": ok({"v": 1})}, own=[own]
    )
    assert [one.probe for one in first.withheld] == ["mine", "waking"]
    assert all(
        plan.due_paths(made, {}, NOW, plan.Situation(asleep=asleep)) == ("/residency",) for asleep in (True, None)
    )


def test_a_body_that_proves_it_makes_a_path_harmless_in_this_plan() -> None:
    made_of = recipe(RESIDENCY, WAKING, harmless_once={"/waking": has_proof})
    proven, _ = resolved(made_of, {"/residency": ok({"v": "loaded"}), "/waking": ok({"v": 1, "proof": 1})})
    assert plan.due_paths(proven, {}, NOW, plan.Situation(asleep=True)) == ("/residency", "/waking")
    plain, _ = resolved(made_of, {"/residency": ok({"v": "loaded"}), "/waking": ok({"v": 1})})
    assert plan.due_paths(plain, {}, NOW, plan.Situation(asleep=True)) == ("/residency",)
    failing, _ = resolved(made_of, {"/residency": ok({"v": "loaded"}), "/waking": status(500)})
    assert plan.due_paths(failing, {}, NOW, plan.Situation(asleep=True)) == ("/residency",)


# Rounds.

BOTH = recipe(VERSION, RESIDENCY, RUNNING, WAKING)
ALL = {"/version": ok({"v": "1"}), "/residency": ok({"v": "loaded"}), "/running": ok({"v": 1}), "/waking": ok({"v": 3})}
PLAN, FIRST = resolved(BOTH, ALL)
PATHS = plan.intervals_of(PLAN.active)


def test_load_signals_are_due_every_second_and_the_rest_every_five() -> None:
    assert tuple(PATHS) == ("/version", "/residency", "/running", "/waking")
    read = dict.fromkeys(PATHS, NOW)
    assert plan.due_paths(PLAN, read, NOW + 0.5, seen(asleep=False)) == ()
    assert plan.due_paths(PLAN, read, NOW + 0.95, seen(asleep=False)) == ("/running", "/waking")
    assert plan.due_paths(PLAN, read, NOW + 4.8, seen(asleep=False)) == (
        "/version",
        "/residency",
        "/running",
        "/waking",
    )


def test_before_anything_that_wakes_the_residency_is_asked_in_the_same_round() -> None:
    read = dict.fromkeys(PATHS, NOW)
    assert plan.due_paths(PLAN, read, NOW + 1, seen(asleep=None)) == ("/running", "/residency")
    assert plan.due_paths(PLAN, {**read, "/running": NOW + 1}, NOW + 1, seen(asleep=False)) == ("/waking",)
    assert plan.due_paths(PLAN, {**read, "/running": NOW + 1}, NOW + 1, seen(asleep=True)) == ()


def test_a_model_that_is_awake_may_fall_asleep_while_no_request_of_ours_runs() -> None:
    read = dict.fromkeys(PATHS, NOW)
    for asleep in (None, False):
        assert plan.due_paths(PLAN, read, NOW + 1, plan.Situation(asleep=asleep)) == ("/running",)
    there = {"/version": ok({"v": "1"}), "/residency": ok({"v": "loaded"}), "/running": ok({"v": 1})}
    assert plan.next_paths(BOTH, (), there) == ("/waking",)
    assert plan.next_paths(BOTH, (), there, may_keep_awake=False) == ()


def test_a_reading_bears_the_time_of_its_request_its_probe_and_the_interval_of_its_path() -> None:
    reading = FIRST.readings[Signal.RUNNING, BACKEND]
    assert (reading.at, reading.probe, reading.interval_s) == (NOW - 0.5, "running", 1.0)
    assert FIRST.readings[Signal.VERSION, BACKEND].interval_s == 5.0
    stretched = plan.scrape(PLAN, ALL, NOW, {"/running": 2.5}).readings
    assert stretched[Signal.RUNNING, BACKEND].interval_s == 2.5
    _, planned = plan.resolve(BOTH, (), ALL, kind_source="config", logs=False, now=NOW, intervals={"/running": 9.0})
    assert planned.readings[Signal.RUNNING, BACKEND].interval_s == 9.0


def test_a_value_that_the_engine_renews_only_now_and_then_is_as_old_as_it_may_be() -> None:
    slow = probe("slow", Signal.RUNNING, "/running", lag_s=10.0)
    _, first = resolved(recipe(slow), {"/running": ok({"v": 1})})
    reading = first.readings[Signal.RUNNING, BACKEND]
    assert (reading.at, reading.interval_s) == (NOW - 10.5, 10.0)
    assert reading.is_fresh(NOW)


def test_no_reading_is_newer_than_now() -> None:
    late = plan.scrape(PLAN, {"/running": ok({"v": 1}, sent_at=NOW + 9)}, NOW)
    assert late.readings[Signal.RUNNING, BACKEND].at == NOW


def test_only_what_was_fetched_is_read() -> None:
    some = plan.scrape(PLAN, {"/running": ok({"v": 2})}, NOW)
    assert values(some) == {("running", ""): 2}
    assert (some.read, some.failed) == (frozenset({Signal.RUNNING}), ())


@pytest.mark.parametrize("page", [status(503), status(404), ok("no JSON"), ok({})])
def test_an_answer_that_cannot_be_read_makes_its_signal_unknown(page: Page) -> None:
    some = plan.scrape(PLAN, {"/running": page}, NOW)
    assert (some.readings, some.read) == ({}, frozenset({Signal.RUNNING}))
    assert [one.probe for one in some.failed] == ["running"]


def test_no_answer_leaves_the_old_value_to_age() -> None:
    some = plan.scrape(PLAN, {"/running": fault()}, NOW)
    assert (some.readings, some.read) == ({}, frozenset())
    assert [one.detail for one in some.failed] == ["no answer in time"]


def test_when_planning_a_signal_is_unknown_only_if_every_probe_that_may_read_it_was_answered() -> None:
    answered, first = resolved(recipe(RUNNING, SPARE), {"/running": ok({}), "/spare": status(404)})
    assert (answered.active, first.read) == ((), frozenset({Signal.RUNNING}))
    _, first = resolved(recipe(RUNNING, SPARE), {"/running": fault(), "/spare": status(404)})
    assert first.read == frozenset()


def test_a_plan_is_made_anew_when_a_round_shows_that_it_no_longer_fits() -> None:
    def after(pages: dict[str, Page], of: plan.Plan = PLAN) -> bool:
        return plan.needs_resolve(of, plan.scrape(of, pages, NOW))

    assert not after(ALL)
    assert not after({"/running": ok({"v": 2})})
    assert not after({"/running": fault(), "/version": status(503)})
    assert after({"/version": ok({"v": "2"})})
    assert after({"/running": status(404)})
    assert after({"/running": ok("no JSON")})
    on_trust, _ = resolved(BOTH, {**ALL, "/residency": ok({"v": "cold"})})
    assert not after({"/running": ok({"v": 2})}, on_trust)
    assert after({"/waking": ok({"v": 2})}, on_trust)


def test_the_plan_tells_why_a_signal_is_unknown() -> None:
    assert plan.why_unknown(PLAN, Signal.RUNNING, asleep=None) is None
    assert plan.why_unknown(PLAN, Signal.WAITING, asleep=False) is None
    assert plan.why_unknown(PLAN, Signal.KV_USAGE, asleep=False) is None
    made, _ = resolved(recipe(RUNNING, SPARE), {"/running": status(501), "/spare": status(404)})
    assert plan.why_unknown(made, Signal.RUNNING, asleep=False) == plan.Dropped(
        "running", Signal.RUNNING, DropReason.NOT_FOUND, "/running answers 501"
    )


def test_what_would_wake_a_model_is_read_only_while_our_requests_run_though_it_is_awake() -> None:
    made, _ = resolved(recipe(RESIDENCY, WAKING), {"/residency": ok({"v": "loaded"}), "/waking": ok({"v": 1})})
    unknown = plan.why_unknown(made, Signal.WAITING, asleep=False, ours=False)
    assert unknown is not None
    assert unknown.detail == "read only while requests from here run"


@pytest.mark.parametrize(
    ("page", "asleep"), [(ok({"v": "cold"}), True), (ok({"v": "loaded"}), False), (status(404), None)]
)
def test_a_round_tells_whether_the_model_sleeps(page: Page, *, asleep: bool | None) -> None:
    assert plan.asleep_in(plan.scrape(PLAN, {"/residency": page, "/running": ok({"v": 1})}, NOW).readings) is asleep


def test_plans_are_compared_by_their_probes() -> None:
    again, _ = resolved(BOTH, {**ALL, "/version": ok({"v": "2"})})
    other, _ = resolved(BOTH, {**ALL, "/running": status(404)})
    assert PLAN.same_probes(again)
    assert not PLAN.same_probes(other)
    assert repr(PLAN) == "<Plan toy 1 4 active, 0 dropped>"


@pytest.mark.parametrize("page", [fault(), status(503), status(404), ok({}), ok({"v": "loaded"})])
def test_asking_ends_whatever_comes(page: Page) -> None:
    got = fetched(lambda pages: plan.next_paths(BOTH, (), pages), dict.fromkeys(ALL, page))
    assert set(got) <= set(ALL)
