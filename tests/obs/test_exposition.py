from collections.abc import Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families

from pharos.obs.exposition import MAX_VALUE_LENGTH, OTHER, Bound, Counter, Gauge, Histogram


def samples(pieces: Iterable[bytes]) -> dict[tuple[str, tuple[str, ...]], float]:
    """What the client library's reader makes of our text."""
    families = text_string_to_metric_families(b"".join(pieces).decode())
    return {(one.name, tuple(one.labels.values())): one.value for family in families for one in family.samples}


def test_a_counter_shows_each_series_with_its_count() -> None:
    counter = Counter("c_total", "Help.", ("a", "b"), made=[("x", "y")])
    counter.inc(("x", "z"), 3)
    counter.inc(("x", "z"))
    assert samples(counter.pieces()) == {("c_total", ("x", "y")): 0.0, ("c_total", ("x", "z")): 4.0}


def test_a_made_series_counts_and_any_other_is_refused() -> None:
    counter = Counter("c_total", "Help.", ("a",), made=[("x",)])
    counter.inc_made(("x",))
    assert counter.value("x") == 1
    with pytest.raises(KeyError):
        counter.inc_made(("y",))


def test_a_series_with_the_wrong_number_of_labels_is_refused() -> None:
    with pytest.raises(ValueError, match="shorter"):
        Counter("c_total", "Help.", ("a", "b")).inc(("x",))


@given(st.text())
def test_any_label_value_comes_back_as_it_was_or_made_harmless(value: str) -> None:
    counter = Counter("c_total", "Help.", ("a",))
    counter.inc((value,))
    ((_, (read,)),) = samples(counter.pieces())
    if len(value) <= MAX_VALUE_LENGTH:
        assert read == value
    else:
        assert len(read) == MAX_VALUE_LENGTH
        assert read.startswith(value[:100])


def test_long_values_that_begin_alike_stay_two_series() -> None:
    gauge = Gauge("g", "Help.", ("backend",))
    pods = ("namespace/" + "x" * 200 + end for end in ("-abcde", "-fghij"))
    shown = samples([gauge.piece({(pod,): 1 for pod in pods})])
    assert len(shown) == 2
    assert all(len(label) == MAX_VALUE_LENGTH for _, (label,) in shown)


def test_half_of_a_surrogate_pair_cannot_break_the_text() -> None:
    counter = Counter("c_total", "Help.", ("a",))
    counter.inc(("\ud800x",))
    assert b'{a="?x"} 1' in b"".join(counter.pieces())


def test_a_histogram_sums_its_buckets_up() -> None:
    histogram = Histogram("h_seconds", "Help.", ("m",), bounds=(0.1, 1.0))
    for value in (0.05, 0.1, 0.5, 7.0):
        histogram.observe(value, ("x",))
    assert samples(histogram.pieces()) == {
        ("h_seconds_bucket", ("x", "0.1")): 2.0,
        ("h_seconds_bucket", ("x", "1")): 3.0,
        ("h_seconds_bucket", ("x", "+Inf")): 4.0,
        ("h_seconds_sum", ("x",)): 7.65,
        ("h_seconds_count", ("x",)): 4.0,
    }


def test_a_histogram_without_labels_exists_from_the_start() -> None:
    assert samples(Histogram("h_seconds", "Help.", bounds=(1.0,)).pieces())["h_seconds_count", ()] == 0.0


@pytest.mark.parametrize("bounds", [(2.0, 1.0), tuple(map(float, range(8)))])
def test_bounds_must_rise_and_be_few(bounds: tuple[float, ...]) -> None:
    with pytest.raises(ValueError, match="at most 7 rising bounds"):
        Histogram("h_seconds", "Help.", bounds=bounds)


def test_a_gauge_shows_exactly_the_series_it_is_given() -> None:
    gauge = Gauge("g", "Help.", ("a",))
    gauge.piece({("x",): 1, ("y",): 2})
    assert samples([gauge.piece({("y",): 12345678.5})]) == {("g", ("y",)): 12345678.5}


def test_values_past_the_bound_share_one_label() -> None:
    bound = Bound(2)
    assert [bound.admit(name) for name in ("a", "b", "c", "a")] == ["a", "b", OTHER, "a"]


def test_a_value_that_may_be_made_up_takes_no_place() -> None:
    bound = Bound(1)
    assert bound.known("made up") == OTHER
    assert bound.admit("real") == "real"
    assert bound.known("real") == "real"
