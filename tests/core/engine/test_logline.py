import pytest
from hypothesis import given
from hypothesis import strategies as st

from pharos.core.engine.logline import LOG, MAX_OWN_LINE, log_line
from pharos.core.engine.probe import Probe, ProbeError
from pharos.core.signals import Residency, Signal
from tests.core.engine.pages import ok, read, refusal

SLOTS = log_line("slots", Signal.CAPACITY, r"n_slots = (?P<value>\S+)")
UNLOADED = log_line("unloaded", Signal.RESIDENCY, r"unloading (?P<model>\S*)$", value="cold", own=True)


def line(text: str) -> dict[str, object]:
    return dict(read(SLOTS, ok(text)))


def test_the_captured_value_is_read_from_a_matching_line() -> None:
    assert line("init: n_slots = 4") == {"": 4}


def test_a_line_that_does_not_match_says_nothing() -> None:
    assert line("a prompt about slots") == {}


def test_a_fixed_value_is_keyed_by_the_captured_model() -> None:
    assert read(UNLOADED, ok("unloading qwen:3b")) == {"qwen:3b": Residency.COLD}
    assert UNLOADED.own
    assert UNLOADED.feed is LOG


def test_a_very_long_line_is_not_searched() -> None:
    assert line("n_slots = 4 " + "x" * 9000) == {}


def test_an_own_pattern_is_not_tried_on_lines_as_long_as_those_that_a_built_in_one_is_tried_on() -> None:
    text = "n_slots = 4 " + "x" * MAX_OWN_LINE
    own = log_line("own", Signal.CAPACITY, r"n_slots = (?P<value>\S+)", own=True)
    assert read(own, ok(text)) == {}
    assert line(text) == {"": 4}


def test_bytes_that_are_no_text_do_no_harm() -> None:
    assert read(SLOTS, ok(b"\xff n_slots = 4")) == {"": 4}


@pytest.mark.parametrize(("probe", "text"), [(SLOTS, "n_slots = secret words"), (UNLOADED, "unloading ")])
def test_a_matching_line_with_an_unusable_value_is_an_error_that_does_not_quote_it(probe: Probe, text: str) -> None:
    with pytest.raises(ProbeError) as caught:
        read(probe, ok(text))
    assert "secret" not in str(caught.value)


def test_a_group_that_took_no_part_is_an_error() -> None:
    optional = log_line("p", Signal.CAPACITY, r"slots(?: (?P<value>\d+))?")
    assert refusal(optional, ok("slots")) == "PARSE_ERROR"


@pytest.mark.parametrize(
    ("signal", "pattern", "value"),
    [
        (Signal.MODELS, "(?P<value>x)", None),
        (Signal.CAPACITY, "(?P<value>x", None),
        (Signal.CAPACITY, "x", None),
        (Signal.CAPACITY, "(a+)+(?P<value>x)", None),
        (Signal.CAPACITY, "(?P<value>x)", "4"),
        (Signal.RESIDENCY, "x", "gone"),
    ],
)
def test_a_declaration_that_cannot_be_right_is_refused(signal: Signal, pattern: str, value: str | None) -> None:
    with pytest.raises(ValueError, match="p: "):
        log_line("p", signal, pattern, value)


@given(st.binary(max_size=100))
def test_any_line_is_read_or_refused_and_nothing_else_happens(raw: bytes) -> None:
    for probe in (SLOTS, UNLOADED):
        refusal(probe, ok(raw))
