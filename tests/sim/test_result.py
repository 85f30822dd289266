import math
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pharos.sim.fleets import FLEETS
from pharos.sim.plots import BOTTOM, HEIGHT, TOP, chart, write
from pharos.sim.report import as_csv, as_json, markdown, rows, text, verdicts
from pharos.sim.result import Measures, Range, bootstrap, difference, jain, measure, median_error, quantile
from pharos.sim.run import Outcome, Sample
from pharos.sim.study import Found, Study, carry_out

UNIT = st.floats(0.001, 1000.0)


def sample(ttft_s: float = 1.0, wait_s: float = 0.0, key: str = "k", **more: float) -> Sample:
    plain = {"work_s": 2.0, "prompt_tokens": 100, "cached_tokens": 50, "predicted_s": None, "start_s": None} | more
    return Sample(kind="chat", key=key, arrived_at=0.0, ttft_s=ttft_s, wait_s=wait_s, **plain)  # type: ignore[arg-type]


def outcome(*samples: Sample) -> Outcome:
    return Outcome(list(samples), refused=0, loads=3, fell_back=0, asked=len(samples), held=0)


def measures(**more: float) -> Measures:
    plain = measure(outcome(sample()))
    return Measures(**{field: more.get(field, getattr(plain, field)) for field in plain.__struct_fields__})


def found(policy: str, p50: float, seed: int = 1, load: float = 8.0) -> Found:
    return Found("mixed", load, policy, seed, measures(ttft_p50_s=p50))


def test_quantiles_lie_between_the_nearest_values() -> None:
    assert [quantile([1, 2, 3, 4], share) for share in (0.0, 0.5, 1.0)] == [1, 2.5, 4]


def test_a_run_is_measured() -> None:
    found = measure(outcome(sample(1.0), sample(3.0, predicted_s=1.0, start_s=math.e)))
    assert (found.requests, found.ttft_p50_s, found.hits, found.loads) == (2, 2.0, 0.5, 3)
    assert found.error == pytest.approx(1.0)
    assert found.by_kind_p95_s == {"chat": pytest.approx(2.9)}


def test_keys_that_are_served_alike_are_fair_and_one_that_waits_is_not() -> None:
    fair = measure(outcome(sample(key="a", wait_s=2.0), sample(key="b", wait_s=2.0)))
    assert (fair.jain, fair.min_share) == (1.0, 1.0)
    unfair = measure(outcome(sample(key="a"), sample(key="b", wait_s=2.0)))
    assert (unfair.jain, unfair.min_share) == (pytest.approx(0.9), 0.5)


def test_a_run_that_served_nobody_has_no_measures() -> None:
    with pytest.raises(ValueError, match="no request"):
        measure(outcome())


def test_without_predictions_there_is_no_error() -> None:
    assert median_error([sample()]) is None


@given(st.lists(UNIT, min_size=1, max_size=20))
def test_jains_index_lies_between_a_share_and_one(values: list[float]) -> None:
    assert 1 / len(values) - 1e-9 <= jain(values) <= 1 + 1e-9


@given(st.lists(UNIT, min_size=1, max_size=8))
def test_an_interval_holds_its_mean_and_is_the_same_again(values: list[float]) -> None:
    one = bootstrap(values)
    assert one == bootstrap(values)
    assert one.low <= one.mean + 1e-9
    assert one.mean <= one.high + 1e-9
    assert min(values) - 1e-9 <= one.low
    assert one.high <= max(values) + 1e-9


def test_policies_are_compared_seed_by_seed() -> None:
    ours = [measures(ttft_p50_s=value) for value in (2.0, 12.0)]
    theirs = [measures(ttft_p50_s=value) for value in (1.0, 11.0)]
    assert difference(ours, theirs, "ttft_p50_s") == Range(1.0, 1.0, 1.0)


def test_a_policy_that_is_beaten_beyond_chance_is_named() -> None:
    worse = [found("cost", 2.0), found("cost", 2.2, 2), found("prefix", 1.0), found("prefix", 1.1, 2)]
    assert verdicts(worse) == ["mixed, load 8: cost has p50 1.05 s above prefix (1 to 1.1)"]
    even = [found("cost", 2.0), found("cost", 1.0, 2), found("prefix", 1.0), found("prefix", 2.0, 2)]
    assert verdicts(even) == [
        "cost is nowhere worse than the best other policy beyond chance, and better than round-robin"
    ]
    assert verdicts(even[:2]) == []


def test_a_policy_that_is_no_better_than_taking_turns_is_named() -> None:
    even = [found("cost", 1.0), found("cost", 2.0, 2), found("round-robin", 2.0), found("round-robin", 1.0, 2)]
    assert verdicts(even) == [
        "mixed, load 8: cost is not better than round-robin in p50 beyond chance",
        "mixed, load 8: cost is not better than round-robin in p95 beyond chance",
        "mixed, load 8: cost makes no fewer loads than round-robin",
    ]


def test_tables_have_a_row_for_each_fleet_load_and_policy() -> None:
    runs = [
        found("cost", 2.0),
        found("cost", 4.0, 2),
        found("prefix", 1.0),
        found("prefix", 1.0, 2),
        found("cost", 1.0, load=16.0),
    ]
    table = rows(runs)
    assert [row[:3] for row in table[1:]] == [["mixed", "8", "cost"], ["mixed", "8", "prefix"], ["mixed", "16", "cost"]]
    assert table[1][4] == "3.00 ±1.00"
    assert table[2][4] == "1.00"
    assert table[1][-1] == "–"
    assert len(markdown(runs).splitlines()) == 5
    assert "mixed" in text(runs)
    assert as_csv(runs).splitlines()[1].startswith("mixed,8,cost,1,0,0,1,2.0,")
    assert as_csv(runs).splitlines()[1].endswith(",")
    assert b'"policy":"prefix"' in as_json(runs)


def test_plots_are_drawn_for_what_there_is_to_see(tmp_path: Path) -> None:
    names = {path.name for path in write([found("cost", 2.0), found("<b>", 1.0)], tmp_path / "plots")}
    assert names == {"mixed-ttft-p50.svg", "mixed-ttft-p95.svg", "mixed-hits.svg", "mixed-loads.svg"}
    drawn = (tmp_path / "plots" / "mixed-ttft-p50.svg").read_text()
    assert "&lt;b&gt;" in drawn
    assert "<b>" not in drawn


def test_bars_stand_on_the_floor_and_end_below_the_title() -> None:
    drawn = chart("t", {"8": {"cost": Range(10.0, 9.0, 11.0), "x": None}})
    bar = re.search(r'<rect x="[\d.]+" y="([\d.]+)" width="[\d.]+" height="([\d.]+)"', drawn.split("</text>")[-1])
    assert bar is not None
    top, height = float(bar[1]), float(bar[2])
    assert top + height == pytest.approx(HEIGHT - BOTTOM)
    assert top > TOP


@pytest.mark.parametrize("workers", [1, 2])
def test_a_study_is_the_same_in_one_process_and_in_two(workers: int) -> None:
    seen: list[tuple[int, int]] = []
    study = Study((FLEETS["mixed"],), ("cost", "prefix"), (1, 2), (4.0,), 60.0)
    runs = carry_out(study, lambda done, whole: seen.append((done, whole)), workers)
    assert [(one.policy, one.seed) for one in runs] == [("cost", 1), ("cost", 2), ("prefix", 1), ("prefix", 2)]
    assert seen == [(0, 2), (1, 2), (2, 2)]
    assert runs == carry_out(study, lambda _done, _whole: None, 1)
