import pytest

from pharos.core.engine.drift import likely_successor, lost
from pharos.core.engine.jsonfeed import json_number
from pharos.core.engine.probe import DropReason, Feed, FeedKind, Page, Probe
from pharos.core.engine.prom import prom
from pharos.core.signals import Signal
from tests.core.engine.pages import fault, ok, resolved, status
from tests.core.engine.test_plan import RUNNING, recipe

OLD = prom("old", Signal.RUNNING, "toy:num_requests_running")
METRICS = "toy:requests_waiting 1\ntoy:requests_running 2\nprocess_cpu_seconds 3\n"
SIZE = json_number("size", Signal.SIZE_BYTES, Feed(FeedKind.GET, "/info"), "meta.size")


def test_a_renamed_series_is_found_by_its_likeness() -> None:
    assert likely_successor(OLD, ok(METRICS)) == "toy:requests_running"


def test_a_likely_successor_is_found_behind_thousands_of_other_names() -> None:
    others = "".join(f"other_{number} 1\n" for number in range(2000))
    assert likely_successor(OLD, ok(others + METRICS)) == "toy:requests_running"


def test_what_another_probe_reads_is_no_successor() -> None:
    assert likely_successor(OLD, ok(METRICS), ["toy:requests_running"]) == "toy:requests_waiting"


@pytest.mark.parametrize(
    ("body", "successor"),
    [
        ({"meta": {"size_bytes": 5}}, "meta.size_bytes"),
        ({"model": {"meta": [{"size": 5}]}}, "model.meta.size"),
        ({"other": []}, ""),
        ([1], ""),
        ("no JSON and no metrics", ""),
    ],
)
def test_a_moved_field_is_found_in_a_document(body: object, successor: str) -> None:
    assert likely_successor(SIZE, ok(body)) == successor


def test_a_document_is_not_searched_without_end() -> None:
    deep: object = 1
    for _ in range(50):
        deep = {"meta": deep}
    assert likely_successor(SIZE, ok({"x": deep})) in ("", "x.meta.meta")


def test_a_probe_that_names_no_field_has_no_successor() -> None:
    assert likely_successor(RUNNING, ok(METRICS)) == ""


def test_a_plan_names_the_successor_of_a_probe_whose_signal_nothing_reads() -> None:
    made, _ = resolved(recipe(OLD, RUNNING), {"/metrics": ok(METRICS), "/running": status(404)})
    assert [(one.probe, one.reason, one.successor) for one in made.dropped] == [
        ("old", DropReason.NO_VALUE, "toy:requests_running"),
        ("running", DropReason.NOT_FOUND, ""),
    ]
    made, _ = resolved(recipe(OLD, RUNNING), {"/metrics": ok("x 1\n"), "/running": status(404)})
    assert [one.successor for one in made.dropped] == ["", ""]
    made, _ = resolved(recipe(OLD, RUNNING), {"/metrics": ok(METRICS), "/running": ok({"v": 1})})
    assert [one.successor for one in made.dropped] == [""]


@pytest.mark.parametrize(
    ("page", "names"), [(ok("x 1\n"), ["old"]), (status(404), ["old"]), (fault(), []), (ok(METRICS), ["old"])]
)
def test_a_probe_that_told_something_and_has_no_heir_is_lost(page: Page, names: list[str]) -> None:
    before: tuple[Probe, ...] = (OLD,)
    made, _ = resolved(recipe(OLD), {"/metrics": page})
    assert [one.probe for one in lost(before, frozenset({"old"}), made.active, made.dropped)] == names
    assert lost(before, frozenset(), made.active, made.dropped) == []


def test_a_probe_whose_signal_another_one_reads_now_is_not_lost() -> None:
    made, _ = resolved(recipe(OLD, RUNNING), {"/metrics": ok("x 1\n"), "/running": ok({"v": 1})})
    assert lost((OLD,), frozenset({"old"}), made.active, made.dropped) == []


def test_nobody_misses_a_mark() -> None:
    steps = prom("steps", Signal.WORK_DONE, "toy:steps_total")
    made, _ = resolved(recipe(steps), {"/metrics": ok("x 1\n")})
    assert [one.probe for one in made.dropped] == ["steps"]
    assert lost((steps,), frozenset({"steps"}), made.active, made.dropped) == []
