import pytest

from pharos.control.pace import BUSY_SHARE, REQUESTS_PER_S, Pace
from pharos.core.engine.plan import Plan, Situation
from pharos.core.engine.probe import Feed, FeedKind, FetchFault, Page, Probe, SideEffect
from pharos.core.signals import Found, Residency, Signal

T0 = 1000.0
NOTHING = Situation()


def nothing(_: Page) -> Found:
    return {}


def plan_of(*feeds: Feed, signal: Signal = Signal.RUNNING) -> Plan:
    probes = tuple(Probe(name=f"p{n}", signal=signal, feed=feed, parse=nothing) for n, feed in enumerate(feeds))
    return Plan(kind="toy", kind_source="config", version=None, active=probes, dropped=())


def pace_of(plan: Plan) -> Pace:
    pace = Pace()
    pace.adopt(plan, {}, T0)
    return pace


def page(took_s: float = 0.0) -> Page:
    return Page(status=200, took_s=took_s)


EACH = Feed(FeedKind.GET, "/metrics?model={model}", per_model=True)


def test_before_there_is_a_plan_nothing_is_due() -> None:
    pace = Pace()
    assert (pace.due(T0, NOTHING), pace.intervals(NOTHING), pace.slowed()) == ([], {}, {})
    pace.answered({"/x": page()}, T0)
    assert pace.last_answer == T0


def test_a_plan_too_big_for_the_rate_is_read_more_slowly() -> None:
    pace = pace_of(plan_of(*(Feed(FeedKind.GET, f"/m{n}") for n in range(8))))
    assert pace.intervals(NOTHING) == {f"/m{n}": 4.0 for n in range(8)}
    asked = 0
    for second in range(60):
        due = pace.due(T0 + second, NOTHING)[:2]
        asked += len(due)
        pace.answered({ask: page() for ask in due}, T0 + second)
    assert asked <= 60 * REQUESTS_PER_S


def test_the_models_of_a_feed_take_turns_within_the_rate() -> None:
    pace = pace_of(plan_of(EACH))
    models = tuple(f"org/m{n}" for n in range(6))
    situation = Situation(models=models)
    assert pace.intervals(situation) == {"/metrics?model={model}": 3.0}
    seen: list[str] = []
    for second in range(3):
        due = pace.due(T0 + second, situation)[:2]
        seen += due
        pace.answered({ask: page() for ask in due}, T0 + second)
    assert sorted(seen) == [f"/metrics?model=org%2Fm{n}" for n in range(6)]


def test_models_that_may_not_be_asked_slow_nothing_down() -> None:
    pins = Feed(FeedKind.GET, "/pins?model={model}", SideEffect.PINS, per_model=True)
    loaded = Feed(FeedKind.GET, "/loaded?model={model}", per_model=True, loaded_only=True)
    pace = pace_of(plan_of(pins, loaded))
    models = tuple("abcdefgh")
    assert set(pace.intervals(Situation(models=models)).values()) == {1.0}
    assert pace.due(T0, Situation(models=models)) == []
    some = Situation(models=models, ours=frozenset("a"), residency={"b": Residency.LOADED})
    assert pace.due(T0, some) == ["/pins?model=a", "/loaded?model=b"]


@pytest.mark.parametrize("fault", [None, FetchFault.TIMEOUT])
def test_a_feed_that_takes_long_is_read_less_often(fault: FetchFault | None) -> None:
    pace = pace_of(plan_of(Feed(FeedKind.GET, "/slow"), Feed(FeedKind.GET, "/quick")))
    slow = Page(status=200 if fault is None else None, fault=fault, took_s=0.5)
    for second in range(40):
        pace.answered({"/slow": slow, "/quick": page(0.001)}, T0 + second)
    assert pace.intervals(NOTHING) == pytest.approx({"/slow": 0.5 / BUSY_SHARE, "/quick": 1.0})
    assert list(pace.slowed()) == ["/slow"]
    for second in range(40, 80):
        pace.answered({"/slow": page(0.001)}, T0 + second)
    assert pace.intervals(NOTHING) == {"/slow": 1.0, "/quick": 1.0}


def test_one_slow_answer_of_one_model_does_not_outweigh_the_others() -> None:
    pace = pace_of(plan_of(EACH))
    pace.answered({f"/metrics?model={name}": page(0.001) for name in "abcd"}, T0)
    pace.answered({"/metrics?model=a": page(0.1)}, T0 + 1)
    assert pace.intervals(NOTHING) == {"/metrics?model={model}": 1.0}


def test_what_gave_no_answer_is_due_again_at_once() -> None:
    pace = pace_of(plan_of(Feed(FeedKind.GET, "/a"), Feed(FeedKind.GET, "/b")))
    pace.answered({"/a": page(), "/b": Page(status=None, fault=FetchFault.TIMEOUT)}, T0)
    assert pace.due(T0 + 0.1, NOTHING) == ["/b"]


def test_a_read_only_question_is_a_request_of_its_own_for_each_model() -> None:
    show = Feed(FeedKind.POST, "/api/show", per_model=True, interval_s=300.0)
    pace = pace_of(plan_of(show, signal=Signal.CAPABILITIES))
    situation = Situation(models=("a", "b"))
    assert pace.due(T0, situation) == ["POST /api/show a", "POST /api/show b"]
    pace.answered({"POST /api/show a": page()}, T0)
    assert pace.due(T0 + 1, situation) == ["POST /api/show b"]
    assert repr(pace) == "<Pace 1 read, 0 slowed>"


SHOW = Probe(
    name="show",
    signal=Signal.CAPABILITIES,
    feed=Feed(FeedKind.POST, "/api/show", per_model=True, interval_s=300.0),
    parse=nothing,
)
MANY = Situation(models=tuple(f"m{n}" for n in range(900)))


def test_what_is_asked_for_each_of_many_models_keeps_nothing_else_waiting() -> None:
    load = plan_of(Feed(FeedKind.GET, "/ps")).active
    pace = pace_of(Plan(kind="toy", kind_source="config", version=None, active=(SHOW, *load), dropped=()))
    intervals = pace.intervals(MANY)
    assert intervals["/ps"] == 1.0
    assert intervals["POST /api/show"] == pytest.approx(900.0)
    for second in range(20):
        due = pace.due(T0 + second, MANY)
        assert due[0] == "/ps", "although most models were never asked about"
        assert [pace.can_wait(ask) for ask in due[:2]] == [False, True]
        pace.answered({ask: page() for ask in due[:2]}, T0 + second)


def test_what_the_same_probe_read_is_not_read_again_because_of_another_plan() -> None:
    load = plan_of(Feed(FeedKind.GET, "/ps")).active
    pace = pace_of(Plan(kind="toy", kind_source="config", version="1", active=(SHOW, *load), dropped=()))
    pace.answered({"POST /api/show m0": page(), "/ps": page()}, T0)
    pace.adopt(Plan(kind="toy", kind_source="config", version="2", active=(SHOW,), dropped=()), {}, T0 + 5)
    assert "POST /api/show m0" not in pace.due(T0 + 6, MANY)
    assert "/ps" not in pace.read_at
    pace.forget(T0 + 6)
    assert "POST /api/show m0" in pace.due(T0 + 6, MANY)
