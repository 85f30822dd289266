from collections import Counter

import pytest

from pharos.core.engine import plan
from pharos.core.engine.plan import Situation
from pharos.core.engine.probe import FeedKind
from pharos.core.signals import Residency
from tests.core.engine.pages import NOW, reasons, values
from tests.core.engine.replay.replaying import Row, check, pages_of, resolved, rows, unused
from tests.core.engine.replay.streams import events, follow
from tests.fakes import captures

KIND, VERSION = "llama-swap", "v250-5-g0bdb37"
EVENTS = "streams/api_events.response"
TINY: dict[tuple[str, str], object] = {("residency", "tiny"): Residency.LOADED}
LISTED: dict[tuple[str, str], object] = {
    ("models", ""): ("embed", "other", "tiny", "small"),
    ("physical_group", "embed"): "embed",
    ("physical_group", "other"): "other",
    ("physical_group", "tiny"): "tiny",
    ("physical_group", "small"): "tiny",
    ("residency", ""): Residency.COLD,
}
VALUES: dict[str, dict[tuple[str, str], object]] = {
    "llama-swap/v250-5-g0bdb37": {("version", ""): VERSION, **LISTED},
    "llama-swap/v250-5-g0bdb37/loading": {("residency", "tiny"): Residency.LOADING},
    "llama-swap/v250-5-g0bdb37/idle": TINY,
    "llama-swap/v250-5-g0bdb37/busy": TINY,
    "llama-swap/v250-5-g0bdb37/saturated": TINY,
    "llama-swap/v250-5-g0bdb37/after": TINY,
    "llama-swap/v250-5-g0bdb37/swap_waiting": TINY,
    "llama-swap/v250-5-g0bdb37/swapping": {("residency", "other"): Residency.LOADING},
    "llama-swap/v250-5-g0bdb37/swapped": {("residency", "other"): Residency.LOADED},
    "llama-swap/v250-5-g0bdb37-loading-state": LISTED,
    "llama-swap/v250-5-g0bdb37-loading-state/saturated_limit2": {("residency", "other"): Residency.LOADED},
    "llama-swap/synthetic-gpu": {
        ("version", ""): "v251",
        ("models", ""): ("chat", "gpt", "mini", "gone", "old"),
        **{("physical_group", name): "chat" for name in ("chat", "gpt", "mini")},
        ("physical_group", "gone"): "gone",
        ("physical_group", "old"): "old",
        **{("context_length", name): 16384 for name in ("chat", "gpt", "mini")},
        ("residency", ""): Residency.COLD,
        ("residency", "chat"): Residency.LOADED,
        ("residency", "gone"): Residency.COLD,
        ("residency", "old"): Residency.COLD,
        ("gpu_total_bytes", ""): 40 << 30,
        ("gpu_used_bytes", ""): 1 << 30,
    },
}
NO_GPU = {"llama-swap-gpu-total": "NO_VALUE", "llama-swap-gpu-used": "NO_VALUE"}
NOT_RECORDED = dict.fromkeys(("llama-swap-version", *NO_GPU), "NOT_FOUND")
DROPPED: dict[str, dict[str, str]] = {
    VERSION: NO_GPU,
    f"{VERSION}-loading-state": NOT_RECORDED,
    "synthetic-gpu": {},
}
UPSTREAM = {
    "idle": {"running": 0, "waiting": 0, "work_done": 8},
    "busy": {"running": 1, "waiting": 0},
    "after": {"running": 0, "waiting": 0},
}


@pytest.mark.parametrize("row", rows(KIND), ids="/".join)
def test_a_recorded_state_is_read_exactly(row: Row) -> None:
    made, _ = check(KIND, row, VALUES)
    assert reasons(made) == DROPPED[row[1]]


def test_every_row_is_of_a_recorded_state() -> None:
    assert unused(VALUES, KIND) == set()


def upstream(state: str, *, ours: bool) -> tuple[plan.Plan, tuple[str, ...]]:
    """The plan of a state, and what it may ask of the models' servers."""
    made, first, got = resolved(KIND, pages_of((KIND, VERSION, state)))
    situation = Situation(
        residency=plan.residency_in(first.readings),
        models=("embed", "other", "tiny", "small"),
        ours=frozenset({"tiny"} if ours else ()),
    )
    asks = (*got, *plan.due_paths(made, {}, NOW, situation))
    return made, tuple(ask for ask in asks if ask.startswith("/upstream"))


@pytest.mark.parametrize("row", rows(KIND), ids="/".join)
def test_no_models_server_is_asked_while_none_of_our_requests_runs_there(row: Row) -> None:
    if row[1] == VERSION:
        assert upstream(row[2], ours=False)[1] == ()


@pytest.mark.parametrize("state", sorted(UPSTREAM))
def test_a_models_server_is_read_while_our_requests_run_there(state: str) -> None:
    made, asks = upstream(state, ours=True)
    assert asks == ("/upstream/tiny/metrics", "/upstream/tiny/props")
    there = pages_of((KIND, VERSION, state))
    read = plan.scrape(made, {ask: there[ask] for ask in asks}, NOW, models=("tiny",))
    assert read.failed == ()
    assert not plan.needs_resolve(made, read)
    found = {signal: value for (signal, model), value in values(read).items() if model == "tiny"}
    wanted = {"capacity": 2, "context_length": 4096, "capabilities": ("completion",), **UPSTREAM[state]}
    assert {signal: found[signal] for signal in wanted} == wanted
    assert found.keys() - wanted.keys() <= {"work_done"}


def test_a_full_models_server_that_answers_429_does_not_spoil_the_plan() -> None:
    made, asks = upstream("saturated", ours=True)
    there = pages_of((KIND, VERSION, "saturated"))
    read = plan.scrape(made, {ask: there[ask] for ask in asks}, NOW, models=("tiny",))
    assert values(read) == {}
    assert all(one.will_pass for one in read.failed)
    assert not plan.needs_resolve(made, read)


def test_the_recorded_events_count_the_requests_of_each_model_and_of_its_alias() -> None:
    made, _, _ = resolved(KIND, pages_of((KIND, VERSION, "cold")))
    stream = follow(made, FeedKind.SSE, ("embed", "other", "tiny", "small"))
    running: list[int] = []
    states: list[str] = []
    names: Counter[str] = Counter()
    for data in events(KIND, VERSION, EVENTS):
        seen = stream.event("message", data, NOW)
        assert seen.failed == ()
        for (signal, model), reading in seen.readings.items():
            names[f"{signal.value} {model}"] += 1
            if model == "tiny":
                (running if signal.value == "running" else states).append(reading.value)
    # One request; one beside reads of /props, which are none; fourteen at once, of which ten were let in; no end seen.
    begun = list(range(1, 14))
    assert running == [0, 1, 0, 1, 0, *begun, 12, 11, 10, 11, 10, 9, 8, 7, 6]
    assert states == ["cold", "loading", "loaded"]
    assert names["running tiny"] == names["running small"] == len(running)
    assert names["residency small"] == 3
    assert names["running other"] == names["running embed"] == 1


def test_nothing_that_a_client_sent_leaves_the_stream() -> None:
    made, _, _ = resolved(KIND, pages_of((KIND, VERSION, "cold")))
    stream = follow(made, FeedKind.SSE)
    told = {
        str(reading.value)
        for data in events(KIND, VERSION, EVENTS)
        for reading in stream.event("message", data, NOW).readings.values()
    }
    assert told <= {*map(str, range(20)), "cold", "loading", "loaded"}
    assert b"User-Agent" in (captures.TESTDATA / KIND / VERSION / EVENTS).read_bytes()
