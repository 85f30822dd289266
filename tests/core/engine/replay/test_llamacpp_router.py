import pytest

from pharos.core.engine import plan
from pharos.core.engine.plan import Situation
from pharos.core.engine.probe import FeedKind
from pharos.core.signals import Residency
from tests.core.engine.pages import NOW, reasons, status, values
from tests.core.engine.replay.replaying import Row, check, pages_of, resolved, rows, unused
from tests.core.engine.replay.streams import events, follow

KIND, VERSION = "llamacpp-router", "b11434"
TINY, SMOL = "tiny", "smollm2-135m"


def loaded(model: str, size: int) -> dict[tuple[str, str], object]:
    return {
        ("residency", model): Residency.LOADED,
        ("size_bytes", model): size,
        ("context_length", model): 4096,
        ("capabilities", model): ("completion",),
    }


VALUES: dict[str, dict[tuple[str, str], object]] = {
    "llamacpp-router/b11434": {
        ("models", ""): (SMOL, TINY),
        ("models_at_once", ""): 1,
        ("physical_group", SMOL): SMOL,
        ("physical_group", TINY): TINY,
        ("residency", SMOL): Residency.COLD,
        ("residency", TINY): Residency.COLD,
    },
    "llamacpp-router/b11434/smollm_loaded": loaded(SMOL, 96576768),
    "llamacpp-router/b11434/tiny_loaded": loaded(TINY, 246016),
    "llamacpp-router/synthetic-options": {
        ("version", ""): "b11600-0123abcd",
        ("models_at_once", ""): 4,
        ("models", ""): ("chat", "gpt", "mini", "embed", "rank", "asleep", "off", "coming", "came", "odd"),
        ("residency", "rank"): Residency.LOADING,
        ("residency", "embed"): Residency.LOADED,
        **{("residency", name): Residency.COLD for name in ("asleep", "off", "coming", "came")},
        **{("physical_group", name): name for name in ("embed", "rank", "asleep", "off", "coming", "came", "odd")},
        ("capabilities", "embed"): ("completion", "embedding"),
        ("context_length", "embed"): 512,
        ("context_length", "asleep"): 4096,
        ("size_bytes", "embed"): 30000000,
        ("size_bytes", "asleep"): 1000000000,
        ("capacity", "asleep"): 2,
        ("capacity", "off"): 8,
        **{
            (signal, name): value
            for name in ("chat", "gpt", "mini")
            for signal, value in {
                "residency": Residency.LOADED,
                "physical_group": "chat",
                "capabilities": ("audio", "completion", "vision"),
                "context_length": 8192,
                "size_bytes": 2000000000,
                "capacity": 3,
            }.items()
        },
    },
}
OURS = {
    ("running", ""): 0,
    ("waiting", ""): 0,
    ("work_done", ""): 4,
    ("capacity", ""): 4,
}
READ_OF = {TINY: {**OURS, ("cached_tokens", ""): 30}, SMOL: OURS}  # the other model's slots were not recorded


@pytest.mark.parametrize("row", rows(KIND), ids="/".join)
def test_a_recorded_state_is_read_exactly(row: Row) -> None:
    made, _ = check(KIND, row, VALUES)
    unversioned = {"llamacpp-router-version": "NO_VALUE"} if row[1] == VERSION else {}
    assert reasons(made) == unversioned


def test_every_row_is_of_a_recorded_state() -> None:
    assert unused(VALUES, KIND) == set()


@pytest.mark.parametrize("row", rows(KIND), ids="/".join)
def test_no_model_is_asked_while_none_of_our_requests_runs(row: Row) -> None:
    made, first, got = resolved(KIND, pages_of(row))
    residency = plan.residency_in(first.readings)
    idle = Situation(asleep=False, residency=residency, models=(TINY, SMOL, "chat", "asleep"))
    assert not any("model=" in ask for ask in (*got, *plan.due_paths(made, {}, NOW, idle)))
    assert {one.reason.name for one in first.withheld} == {"SIDE_EFFECT"}


@pytest.mark.parametrize(("state", "model"), [("smollm_loaded", SMOL), ("tiny_loaded", TINY)])
def test_a_loaded_model_is_asked_and_read_while_our_requests_run_there(state: str, model: str) -> None:
    there = pages_of((KIND, VERSION, state))
    made, first, _ = resolved(KIND, there)
    residency = plan.residency_in(first.readings)
    ours = Situation(asleep=True, residency=residency, models=(SMOL, TINY), ours=frozenset({model}))
    asks = [ask for ask in plan.due_paths(made, {}, NOW, ours) if "model=" in ask]
    assert asks == [f"/{page}?model={model}&autoload=false" for page in ("props", "metrics", "slots")]
    read = plan.scrape(made, {ask: there[ask] for ask in asks if ask in there}, NOW, models=(SMOL, TINY))
    assert values(read) == {(signal, model): value for (signal, _), value in READ_OF[model].items()}
    assert read.failed == ()
    assert not plan.needs_resolve(made, read)


def test_a_models_server_without_metrics_is_not_planned_for_again_and_again() -> None:
    there = pages_of((KIND, VERSION, "tiny_loaded"))
    made, _, _ = resolved(KIND, there)
    metrics, slots = (f"/{page}?model={TINY}&autoload=false" for page in ("metrics", "slots"))
    read = plan.scrape(made, {metrics: status(501), slots: there[slots]}, NOW, models=(SMOL, TINY))
    assert values(read) == {("running", TINY): 0, ("cached_tokens", TINY): 30}
    assert {one.reason.name for one in read.failed} == {"NOT_FOUND"}
    assert not plan.needs_resolve(made, read)


def test_an_unloaded_model_that_says_so_does_not_spoil_the_plan() -> None:
    cold = pages_of((KIND, VERSION, "cold"))
    made, _, _ = resolved(KIND, cold)
    asks = [ask for ask in cold if "model=" in ask]
    read = plan.scrape(made, {ask: cold[ask] for ask in asks}, NOW, models=(SMOL, TINY))
    assert values(read) == {}
    assert {one.reason.name for one in read.failed} == {"STATUS"}
    assert not plan.needs_resolve(made, read)


def test_the_recorded_events_tell_each_step_of_each_load() -> None:
    made, _, _ = resolved(KIND, pages_of((KIND, VERSION, "cold")))
    stream = follow(made, FeedKind.SSE)
    told = []
    for data in events(KIND, VERSION, "models_sse.txt"):
        seen = stream.event("", data, NOW)
        assert seen.failed == ()
        told += [(model, reading.value.value) for (_, model), reading in seen.readings.items()]
    loading = ["loading", "loading", "loading", "loaded"]
    assert told == [*((SMOL, state) for state in [*loading, "cold"]), *((TINY, state) for state in loading)]
