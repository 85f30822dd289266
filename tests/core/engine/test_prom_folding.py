"""Series that are added, compared, taken for one another or divided: declared, and unknown wherever it is not plain."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pharos.core.engine.probe import Feed, FeedKind, ProbeError
from pharos.core.engine.prom import Aggregate, process_start, prom
from pharos.core.signals import Signal
from tests.core.engine.pages import ok, read, refusal

END = "end 1\n"
QUEUE = prom("queue", Signal.WAITING, "x:inside", plus=("x:before",))
BY_MODEL = prom("queues", Signal.WAITING, "x:inside", plus=("x:before",), per_model="model")
RANKS = prom(
    "ranks",
    Signal.RUNNING,
    "x:running",
    aggregate=Aggregate.SUM,
    over=("dp",),
    where={"priority": ""},
    one=("model",),
    alike=("tp", "pp"),
)
SHARE = prom("share", Signal.KV_USAGE, "x:used", aggregate=Aggregate.MAX, over=("dp",), share_of="x:size")
LATE = prom("late", Signal.RUNNING, "x:running", may_come=True)
START = process_start("start", Feed(FeedKind.GET, "/metrics"))


def test_two_metrics_of_one_queue_are_added() -> None:
    assert read(QUEUE, ok("x:inside 1\nx:before 2\n")) == {"": 3}
    assert read(BY_MODEL, ok('x:inside{model="a"} 1\nx:before{model="a"} 2\nx:inside{model="b"} 4\n')) == {"a": 3}


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ("x:inside 1\n", "NO_VALUE"),
        ("x:before 1\n", "NO_VALUE"),
        ("x:inside 1\nx:before NaN\n", "NO_VALUE"),
        ("x:inside 1\nx:before -1\n", "PARSE_ERROR"),
        ("# TYPE x:before counter\nx:inside 1\nx:before 1\n", "NO_EVIDENCE"),
        ("x:inside 600000\nx:before 600000\n", "PARSE_ERROR"),  # more than can be
    ],
)
def test_half_a_queue_is_not_a_queue(body: str, reason: str) -> None:
    assert refusal(QUEUE, ok(body)) == reason


def series(value: object, **labels: object) -> str:
    told = ",".join(f'{name}="{text}"' for name, text in labels.items())
    return f"x:running{{{told}}} {value}\n"


def test_ranks_that_share_a_model_count_once_and_ranks_with_one_of_their_own_are_added() -> None:
    body = "".join(
        series(value, model="m", dp=dp, tp=tp, pp=pp)
        for dp, tp, pp, value in [(0, 0, 0, 3), (0, 0, 1, 2), (0, 1, 0, 3), (0, 1, 1, 3), (1, 2, 0, 5), (1, 3, 0, 5)]
    )
    assert read(RANKS, ok(body + END)) == {"": 8}


def test_levels_of_priority_are_parts_of_the_total_beside_them() -> None:
    body = series(3, model="m", dp=0, tp=0, priority="") + series(2, model="m", dp=0, tp=0, priority=5)
    assert read(RANKS, ok(body + END)) == {"": 3}


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (series(1, model="m", dp=0) + series(1, model="n", dp=1) + END, "NO_EVIDENCE"),
        (series(1, model="m", dp=0) + series(1, dp=1) + END, "NO_EVIDENCE"),
        (series(1, model="m", dp=0) + series(1, model="m", tp=1) + END, "NO_EVIDENCE"),
        (series(1, model="m", dp=0, gpu=0) + END, "NO_EVIDENCE"),
        (series(1, model="m", dp=0) * 2 + END, "PARSE_ERROR"),
        (series(1, model="m", dp=0) + series("NaN", model="m", dp=1) + END, "NO_VALUE"),
        (series("NaN", model="m", dp=0) + series(1, model="m", dp=1) + END, "NO_VALUE"),
        (series(1, model="m", dp=0, priority=5) + END, "NO_VALUE"),
        (series("1 1700000000", model="m", dp=0) + END, "PARSE_ERROR"),
        (series(1, model="m", dp=0), "NO_EVIDENCE"),  # nothing follows: another rank may have been cut off
    ],
)
def test_series_that_do_not_plainly_belong_together_are_unknown(body: str, reason: str) -> None:
    assert refusal(RANKS, ok(body)) == reason


def test_a_share_is_that_of_the_fullest_rank() -> None:
    body = 'x:used{dp="0"} 10\nx:used{dp="1"} 30\nx:size{dp="0"} 100\nx:size{dp="1"} 40\n'
    assert read(SHARE, ok(body + END)) == {"": 0.75}


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ('x:used{dp="0"} 1\n', "NO_EVIDENCE"),
        ('x:used{dp="0"} 1\nx:size{dp="1"} 2\n', "NO_EVIDENCE"),
        ('x:used{dp="0"} 0\nx:size{dp="0"} 0\n', "NO_EVIDENCE"),
        ('x:used{dp="0"} 1\nx:size{dp="0"} NaN\n', "NO_EVIDENCE"),
        ('x:used{dp="0"} 1\nx:size{dp="0"} +Inf\n', "NO_EVIDENCE"),
        ('x:used{dp="0"} 1\nx:size{dp="0"} 2\nx:size{dp="0"} 2\n', "PARSE_ERROR"),
        ('x:used{dp="0"} 3\nx:size{dp="0"} 2\n', "PARSE_ERROR"),
        ('x:used{dp="0"} -1\nx:size{dp="0"} 2\n', "PARSE_ERROR"),
        ('x:used{dp="0"} NaN\nx:size{dp="0"} 2\n', "NO_VALUE"),
        ('# TYPE x:size counter\nx:used{dp="0"} 1\nx:size{dp="0"} 2\n', "NO_EVIDENCE"),
    ],
)
def test_a_share_of_what_is_not_told_is_unknown(body: str, reason: str) -> None:
    assert refusal(SHARE, ok(body + END)) == reason


def test_a_metric_that_comes_with_the_first_request_is_waited_for() -> None:
    for probe, will_pass in ((LATE, True), (QUEUE, False)):
        with pytest.raises(ProbeError) as caught:
            probe.parse(ok(END))
        assert caught.value.will_pass is will_pass


def test_a_metric_whose_successor_is_there_is_not_read_even_if_that_one_is_damaged() -> None:
    old = prom("old", Signal.RUNNING, "x:running", without=("x:running_now",))
    assert read(old, ok("x:running 2\n")) == {"": 2}
    for successor in ("x:running_now 2\n", "x:running_now -1\n", "x:running_now NaN\n"):
        assert refusal(old, ok("x:running 2\n" + successor)) == "NO_EVIDENCE"


def test_a_process_is_told_by_its_start() -> None:
    metric = "process_start_time_seconds"
    assert read(START, ok(f"# TYPE {metric} gauge\n{metric} 1.79602940515e+09\n")) == {"": "started at 1796029405.15"}
    for body, reason in {
        END: "NO_VALUE",
        f'{metric}{{pid="1"}} 17\n': "NO_EVIDENCE",
        f'{metric}{{pid="1"}} 17\n{metric}{{pid="2"}} 18\n': "NO_EVIDENCE",
        f"{metric} 0\n": "PARSE_ERROR",
        f"{metric} NaN\n": "PARSE_ERROR",
        f"{metric} +Inf\n": "PARSE_ERROR",
        f"{metric} 1e30\n": "PARSE_ERROR",
        f"{metric} 17\n{metric} 17\n": "PARSE_ERROR",
    }.items():
        assert refusal(START, ok(body)) == reason, body


@pytest.mark.parametrize(
    "declare",
    [
        lambda: prom("p", Signal.KV_USAGE, "x:used", plus=("x:more",)),
        lambda: prom("p", Signal.RUNNING, "x:used", share_of="x:size"),
        lambda: prom("p", Signal.MODELS, "x:used"),
    ],
)
def test_a_declaration_that_cannot_be_right_is_refused(declare: object) -> None:
    with pytest.raises(ValueError, match="p: "):
        declare()  # type: ignore[operator]


@given(
    ranks=st.dictionaries(
        st.integers(0, 9), st.lists(st.integers(0, 50), min_size=1, max_size=4), min_size=1, max_size=10
    ),
    order=st.randoms(use_true_random=False),
)
def test_the_order_of_series_changes_nothing(ranks: dict[int, list[int]], order: object) -> None:
    lines = [
        series(value, model="m", dp=dp, tp=tp, pp=0) for dp, values in ranks.items() for tp, value in enumerate(values)
    ]
    order.shuffle(lines)  # type: ignore[attr-defined]
    assert read(RANKS, ok("".join(lines) + END)) == {"": sum(max(values) for values in ranks.values())}
