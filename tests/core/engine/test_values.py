import pytest
from hypothesis import given
from hypothesis import strategies as st

from pharos.core.engine.probe import ProbeError
from pharos.core.engine.values import LIMITS, NUMBERS, from_text, number, quoted
from pharos.core.signals import Residency, Signal


@pytest.mark.parametrize("raw", ["2", True, None, [2], 1.5, -1, 1e300, float("inf"), 10**400, 10**9])
def test_what_is_no_count_is_refused(raw: object) -> None:
    with pytest.raises(ProbeError, match="cannot be read"):
        number(Signal.RUNNING, raw)


def test_a_whole_float_is_a_count() -> None:
    assert repr(number(Signal.RUNNING, 2.0)) == "2"


def test_nan_is_unknown() -> None:
    with pytest.raises(ProbeError, match="no value"):
        number(Signal.RUNNING, float("nan"))


@pytest.mark.parametrize("signal", [Signal.CAPACITY, Signal.CONTEXT_LENGTH, Signal.SIZE_BYTES])
def test_a_zero_that_only_means_not_told_is_unknown(signal: Signal) -> None:
    with pytest.raises(ProbeError, match="no value"):
        number(signal, 0)


@pytest.mark.parametrize("signal", [Signal.RUNNING, Signal.WAITING, Signal.VRAM_BYTES, Signal.KV_USAGE])
def test_a_zero_that_means_none_is_a_value(signal: Signal) -> None:
    assert number(signal, 0) == 0


@pytest.mark.parametrize("raw", [-1, 2**53 + 2, 1e30])
def test_work_that_a_counter_cannot_hold_is_none(raw: float) -> None:
    with pytest.raises(ProbeError, match="work"):
        number(Signal.WORK_DONE, raw)


@pytest.mark.parametrize("raw", [-0.1, 1.1, 55])
def test_a_share_lies_between_0_and_1(raw: float) -> None:
    with pytest.raises(ProbeError, match="share"):
        number(Signal.KV_USAGE, raw)


@given(st.sampled_from(sorted(NUMBERS)), st.one_of(st.integers(), st.floats(), st.text(), st.booleans(), st.none()))
def test_a_number_comes_out_as_it_went_in_or_not_at_all(signal: Signal, raw: object) -> None:
    try:
        value = number(signal, raw)
    except ProbeError:
        return
    assert value == raw
    assert not isinstance(raw, bool)
    assert signal not in LIMITS or LIMITS[signal][0] <= value <= LIMITS[signal][1]


@pytest.mark.parametrize(
    ("signal", "text", "value"),
    [
        (Signal.VERSION, " 1.2 ", "1.2"),
        (Signal.RESIDENCY, "cold", Residency.COLD),
        (Signal.KV_USAGE, "0.5", 0.5),
        (Signal.CAPACITY, "4", 4),
    ],
)
def test_values_are_read_from_text(signal: Signal, text: str, value: object) -> None:
    assert from_text(signal, text) == value


@pytest.mark.parametrize(
    ("signal", "text"),
    [
        (Signal.VERSION, " "),
        (Signal.RESIDENCY, "asleep"),
        (Signal.KV_USAGE, "half"),
        (Signal.KV_USAGE, "1_0"),
        (Signal.CAPACITY, "four"),
        (Signal.CAPACITY, "4.0"),
        (Signal.MODELS, "a"),
    ],
)
def test_text_that_cannot_be_its_signal_is_refused(signal: Signal, text: str) -> None:
    with pytest.raises(ProbeError):
        from_text(signal, text)


def test_an_explanation_quotes_little_and_nothing_that_moves_a_cursor() -> None:
    assert quoted("a\nb") == "'a\\nb'"
    assert quoted("x" * 1000) == "'" + "x" * 39 + "…"
