import math
import string

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pharos.core.engine.probe import DropReason, Probe, ProbeError, SideEffect
from pharos.core.engine.prom import MOST_SERIES, Aggregate, has_series, prom
from pharos.core.engine.promtext import MOST_LABELS, labels_of, parse
from pharos.core.signals import Signal
from tests.core.engine.pages import ok, read, refusal

RUNNING = prom("running", Signal.RUNNING, "x:running")
BY_MODEL = prom("by-model", Signal.WAITING, "x:waiting", per_model="model")
SUM = prom("sum", Signal.RUNNING, "x:running", per_model="model", aggregate=Aggregate.SUM, over=("engine",))
MAX = prom("max", Signal.KV_USAGE, "x:kv", aggregate=Aggregate.MAX, over=("engine",))
CHOSEN = prom("chosen", Signal.RUNNING, "x:running", where={"priority": ""})
PERCENT = prom("percent", Signal.KV_USAGE, "x:kv_percent", scale=0.01)
PROVEN = prom("proven", Signal.WAITING, "x:waiting", needs=("x:new_total",))
END = "end 1\n"


def test_a_gauge_of_the_backend_is_read() -> None:
    assert read(RUNNING, ok("# HELP x:running text\n# TYPE x:running gauge\nx:running 2\n")) == {"": 2}


@pytest.mark.parametrize(
    "line",
    ["x:running 2.0", "x:running  +2", "x:running\t2e0 ", "x:running{} 2", "x:running{ } 2", 'x:running {empty="",} 2'],
)
def test_every_way_to_write_a_sample_is_understood(line: str) -> None:
    assert read(RUNNING, ok(f"{line}\n\n# a remark\n")) == {"": 2}


@pytest.mark.parametrize(
    "body",
    [
        "x:running 2",  # cut
        "x:running 2\nx:other",
        "x:running two\n",
        "x:running 1_0\n",
        "x:running 0x2\n",
        "x:running ٢\n",
        "x:running infinity\n",
        "x:running \n",
        "x:running 2 3 4\n",
        "x:running 2 1700000000\n",  # a time of its own: the value may be an old one
        " x:running 2\n",
        'x:running{a="b} 2\n',
        'x:running{a="b"c="d"} 2\n',
        'x:running{a="\\x"} 2\n',
        "x:running{a=b} 2\n",
        "x:running 2\r\n",
        "x:running 2\nx:running 2\n",
        "x:running 2\nx:running 3\n",
        "x:running -1\n",
        "x:running 1.5\n",
        "x:running 1e300\n",
        "x:running +Inf\n",
        "# TYPE x:running gauge\n# TYPE x:running counter\nx:running 2\n",
        "# TYPE x:running gauge x:running 1\nx:running 2\n",
        '{"error": "not metrics"}\n',
        "<html>\n",
    ],
)
def test_what_is_not_plainly_a_right_number_cannot_be_read(body: str) -> None:
    assert refusal(RUNNING, ok(body)) == "PARSE_ERROR"


def test_one_bad_line_makes_the_whole_body_unreadable_for_every_probe_on_it() -> None:
    page = ok('x:running 2\nx:waiting{model="a"} 1\nsomething else\n')
    assert [refusal(RUNNING, page), refusal(BY_MODEL, page)] == ["PARSE_ERROR", "PARSE_ERROR"]


@pytest.mark.parametrize("body", [b"x:running 2\n\xff\n", b"x:running 2\n" + b"#" * (1 << 20) + b"\n"])
def test_bytes_that_are_no_text_or_too_many_cannot_be_read(body: bytes) -> None:
    assert refusal(RUNNING, ok(body)) == "PARSE_ERROR"


@pytest.mark.parametrize("body", ["", "# nothing\n", "x:running_total 2\n", "x:running NaN\n"])
def test_an_absent_gauge_and_nan_are_unknown(body: str) -> None:
    assert refusal(RUNNING, ok(body)) == "NO_VALUE"


def test_a_new_label_makes_the_signal_unknown_instead_of_wrong() -> None:
    with pytest.raises(ProbeError) as caught:
        read(RUNNING, ok('x:running{engine="0"} 2\n'))
    assert caught.value.reason is DropReason.NO_EVIDENCE
    assert "'engine' is new" in caught.value.detail


def test_a_counter_is_not_taken_for_a_gauge() -> None:
    assert refusal(RUNNING, ok("# TYPE x:running counter\nx:running 2\n")) == "NO_EVIDENCE"


def test_each_model_has_its_own_number() -> None:
    page = ok('x:waiting{model="a"} 1\nx:waiting{model="b\\"\\\\\\n"} 0\n')
    assert read(BY_MODEL, page) == {"a": 1, 'b"\\\n': 0}


def test_a_model_whose_number_is_nan_is_left_out() -> None:
    assert read(BY_MODEL, ok('x:waiting{model="a"} NaN\nx:waiting{model="b"} 4\n')) == {"b": 4}


def test_a_series_without_its_model_cannot_be_read() -> None:
    assert refusal(BY_MODEL, ok("x:waiting 1\n")) == "PARSE_ERROR"


def test_a_choice_of_one_label_keeps_the_models_apart() -> None:
    both = prom("both", Signal.RUNNING, "x:running", where={"kind": "a"}, per_model="model")
    assert read(both, ok('x:running{model="m",kind="a"} 1\nx:running{model="m",kind="b"} 2\n')) == {"m": 1}


def test_an_empty_label_does_not_make_another_series() -> None:
    assert refusal(RUNNING, ok('x:running 1\nx:running{a=""} 1\n')) == "PARSE_ERROR"


def test_a_label_that_comes_twice_cannot_be_read() -> None:
    assert refusal(RUNNING, ok('x:running{a="",a=""} 1\n')) == "PARSE_ERROR"


def test_sums_and_maxima_fold_the_declared_labels() -> None:
    body = 'x:running{model="a",engine="0"} 1\nx:running{model="a",engine="1"} 2\nx:running{model="b",engine="0"} 4\n'
    assert read(SUM, ok(body + END)) == {"a": 3, "b": 4}
    assert read(MAX, ok('x:kv{engine="0"} 0.25\nx:kv{engine="1"} 0.5\n' + END)) == {"": 0.5}


def test_a_fold_with_one_unknown_part_is_unknown() -> None:
    body = 'x:running{model="a",engine="0"} NaN\nx:running{model="a",engine="1"} 2\nx:running{model="b",engine="0"} 4\n'
    assert read(SUM, ok(body + END)) == {"b": 4}


def test_a_whole_beside_its_parts_is_not_added_to_them() -> None:
    assert refusal(MAX, ok('x:kv 0.5\nx:kv{engine="0"} 0.5\n' + END)) == "NO_EVIDENCE"


def test_a_fold_at_the_end_of_the_body_may_lack_its_other_parts() -> None:
    assert refusal(MAX, ok('x:kv{engine="0"} 0.25\n')) == "NO_EVIDENCE"


def test_a_sum_out_of_bounds_cannot_be_read() -> None:
    body = "".join(f'x:running{{model="a",engine="{index}"}} 900000\n' for index in range(2))
    assert refusal(SUM, ok(body + END)) == "PARSE_ERROR"


def test_series_are_chosen_by_label_value() -> None:
    assert read(CHOSEN, ok('x:running{priority="high"} 1\nx:running{priority=""} 3\n')) == {"": 3}
    assert read(CHOSEN, ok('x:running{priority="high"} 1\nx:running 3\n')) == {"": 3}
    assert refusal(CHOSEN, ok('x:running{priority="high"} 1\n')) == "NO_VALUE"


def test_percents_become_shares() -> None:
    assert read(PERCENT, ok("x:kv_percent 55\n")) == {"": pytest.approx(0.55)}
    assert refusal(PERCENT, ok("x:kv_percent 101\n")) == "PARSE_ERROR"


def test_a_metric_counts_only_beside_what_proves_its_meaning() -> None:
    assert read(PROVEN, ok("x:new_total 0\nx:waiting 3\n")) == {"": 3}
    assert refusal(PROVEN, ok("x:waiting 3\n")) == "NO_EVIDENCE"


def test_a_page_tells_whether_it_holds_a_series() -> None:
    assert has_series(ok("a 1\n"), "a")
    assert not has_series(ok("a 1\n"), "b")
    assert not has_series(ok("no metrics"), "a")


def test_the_declaration_says_how_a_feed_is_read() -> None:
    probe = prom("p", Signal.RUNNING, "x", path="/m?x=1", side_effect=SideEffect.PINS, interval_s=7.0, own=True)
    assert (probe.feed.path, probe.feed.side_effect, probe.interval_s, probe.own) == (
        "/m?x=1",
        SideEffect.PINS,
        7.0,
        True,
    )


@pytest.mark.parametrize(
    "wrong",
    [
        {"signal": Signal.VERSION},
        {"signal": Signal.RESIDENCY},
        {"signal": Signal.KV_USAGE, "aggregate": Aggregate.SUM, "over": ("engine",)},
        {"signal": Signal.RUNNING, "aggregate": Aggregate.SUM},
        {"signal": Signal.RUNNING, "over": ("engine",)},
    ],
)
def test_a_declaration_that_cannot_be_right_is_refused(wrong: dict) -> None:
    with pytest.raises(ValueError, match="p: "):
        prom("p", metric="x", **wrong)


# Whatever comes: the number that is there, or none.

NAMES = st.from_regex(r"[a-z_:][a-z0-9_:]{0,8}", fullmatch=True)
LABEL_VALUES = st.text(st.characters(codec="utf-8", exclude_categories=["Cs"]), max_size=8)
LABELS = st.dictionaries(st.from_regex(r"[a-z_][a-z0-9_]{0,5}", fullmatch=True), LABEL_VALUES, max_size=3)


def written(labels: dict[str, str]) -> str:
    escaped = {k: v.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n") for k, v in labels.items()}
    return "{" + ",".join(f'{k}="{v}"' for k, v in escaped.items()) + "}" if labels else ""


@given(st.dictionaries(NAMES, st.tuples(LABELS, st.floats()), max_size=6))
def test_a_written_exposition_is_read_back(families: dict[str, tuple[dict[str, str], float]]) -> None:
    text = "".join(
        f"{name}{written(labels)} {str(value).replace('inf', 'Inf').replace('nan', 'NaN')}\n"
        for name, (labels, value) in families.items()
    )
    found = parse(text)
    assert set(found.series) == set(families)
    assert len(found.series) == len(families)
    for name, (labels, value) in families.items():
        (one,) = found.series[name]
        assert labels_of(one.label_text) == {label: text for label, text in labels.items() if text}
        assert one.value == value or (math.isnan(one.value) and math.isnan(value))


@given(st.text(st.sampled_from(string.printable + "é٢\u2028"), max_size=200))
def test_any_text_is_parsed_or_refused_and_nothing_else_happens(text: str) -> None:
    for probe in (RUNNING, BY_MODEL, SUM, MAX, CHOSEN, PERCENT, PROVEN):
        assert refusal(probe, ok(text)) in {"PARSE_ERROR", "NO_VALUE", "NO_EVIDENCE"} or "x:" in text


BODY = """# HELP x:running Requests
# TYPE x:running gauge
x:running{model="a",engine="0"} 12
x:running{model="a",engine="1"} 30
# TYPE x:waiting gauge
x:waiting{model="a"} 45
# TYPE x:kv gauge
x:kv{engine="0"} 0.25
x:kv{engine="1"} 0.125
x:kv_percent 55
"""
TRUE = {"sum": {"a": 42}, "by-model": {"a": 45}, "max": {"": 0.25}, "percent": {"": 55 * 0.01}}


def agrees(probe: Probe, body: str) -> None:
    outcome = refusal(probe, ok(body))
    if outcome.startswith("read"):
        assert outcome == f"read {TRUE[probe.name]}"


@pytest.mark.parametrize("probe", [SUM, BY_MODEL, MAX, PERCENT], ids=lambda probe: probe.name)
def test_a_body_cut_anywhere_gives_the_true_number_or_none(probe: Probe) -> None:
    for end in range(len(BODY) + 1):
        agrees(probe, BODY[:end])
    assert refusal(probe, ok(BODY)) == f"read {TRUE[probe.name]}"


@given(st.sampled_from([SUM, BY_MODEL, MAX, PERCENT]), st.data())
def test_a_damaged_line_gives_the_true_number_or_none(probe: Probe, data: st.DataObject) -> None:
    lines = BODY.splitlines(keepends=True)
    index = data.draw(st.integers(0, len(lines) - 1))
    head, _, _ = lines[index].rstrip("\n").rpartition(" ")
    damage = st.sampled_from(
        [
            lines[index] * 2,
            f"{head} NaN\n",
            f"{head} -5\n",
            f"{head} 1e300\n",
            f'{head} "7"\n',
            f"{head} 7.5 8\n",
            lines[index].replace("{", '{dp_rank="0",'),
            lines[index].rstrip("\n"),
        ]
    )
    lines[index] = data.draw(damage)
    agrees(probe, "".join(lines))


def test_a_sample_with_more_labels_than_any_engine_has_is_not_read() -> None:
    labels = ",".join(f'l{number}="v"' for number in range(MOST_LABELS + 1))
    with pytest.raises(ProbeError, match="more than 64 labels"):
        labels_of(labels)


def test_a_metric_with_more_series_than_any_engine_has_is_not_read() -> None:
    probe = prom("p", Signal.RUNNING, "x", aggregate=Aggregate.SUM, over=("n",))
    body = "".join(f'x{{n="{number}"}} 1\n' for number in range(MOST_SERIES + 1))
    assert refusal(probe, ok(body + "y 1\n")) == "PARSE_ERROR"
