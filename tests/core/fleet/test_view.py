import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pharos.core.fleet.view import REPLY_PROVES_LOADED_S, View, look
from pharos.core.signals import BACKEND, Key, Reading, Residency, Signal, Value


def see(now: float, readings: dict[Key, Reading], loaded_at: float | None = None) -> View:
    return look(readings, "m", loaded_at, now)[0]


def read(
    signal: Signal, value: Value, at: float = 0.0, interval: float | None = 1.0, model: str = BACKEND
) -> dict[Key, Reading]:
    return {(signal, model): Reading(value, at, "test", interval)}


def test_nothing_read_is_all_unknown_and_holds_for_good() -> None:
    assert look({}, "m", None, 5.0) == (View(), math.inf)


@pytest.mark.parametrize(
    ("signal", "value", "field"),
    [
        (Signal.RESIDENCY, Residency.COLD, "residency"),
        (Signal.RUNNING, 0, "running"),
        (Signal.WAITING, 2, "waiting"),
        (Signal.CAPACITY, 4, "capacity"),
        (Signal.KV_USAGE, 0.5, "kv_usage"),
        (Signal.CONTEXT_LENGTH, 4096, "context_length"),
        (Signal.SIZE_BYTES, 10**9, "size_bytes"),
        (Signal.VRAM_BYTES, 10**9, "vram_bytes"),
    ],
)
def test_each_signal_is_seen_while_fresh_and_unknown_once_stale(signal: Signal, value: Value, field: str) -> None:
    readings = read(signal, value, at=10.0, interval=2.0)
    assert getattr(see(16.0, readings), field) == value
    assert getattr(see(16.1, readings), field) is None


def test_signals_age_each_by_its_own_time() -> None:
    readings = read(Signal.RUNNING, 1, at=0.0) | read(Signal.WAITING, 2, at=2.0)
    assert see(3.5, readings) == View(waiting=2, waiting_at=2.0)


def test_a_reading_without_an_interval_never_ages() -> None:
    assert see(1e9, read(Signal.CAPACITY, 3, interval=None)).capacity == 3


def test_a_models_own_reading_wins_over_the_backends_until_it_is_stale() -> None:
    readings = read(Signal.RUNNING, 1, at=0.0, model="m") | read(Signal.RUNNING, 5, at=2.0)
    assert see(1.0, readings).running == 1
    assert see(4.0, readings).running == 5
    assert see(1.0, read(Signal.RUNNING, 1, model="other")).running is None


@pytest.mark.parametrize("signal", [Signal.RESIDENCY, Signal.RUNNING, Signal.KV_USAGE])
def test_a_value_of_the_wrong_type_is_unknown(signal: Signal) -> None:
    assert see(0.0, read(signal, ("x",))) in (View(), View(running_at=0.0))


def test_a_reply_newer_than_the_reading_shows_the_model_loaded() -> None:
    cold = read(Signal.RESIDENCY, Residency.COLD, at=10.0, interval=5.0)
    assert see(12.0, cold, loaded_at=11.0).residency is Residency.LOADED
    assert see(12.0, cold, loaded_at=9.0).residency is Residency.COLD
    assert see(12.0, {}, loaded_at=11.0).residency is Residency.LOADED


def test_what_a_reply_showed_ages_like_a_reading() -> None:
    assert see(11.0 + REPLY_PROVES_LOADED_S + 0.1, {}, loaded_at=11.0).residency is None


times = st.floats(0, 60, allow_nan=False)


@given(
    readings=st.dictionaries(
        st.tuples(
            st.sampled_from([Signal.RUNNING, Signal.CAPACITY, Signal.RESIDENCY]), st.sampled_from(["m", BACKEND])
        ),
        st.builds(
            Reading,
            st.sampled_from([1, 2, Residency.LOADED, Residency.COLD]),
            times,
            st.just("p"),
            st.sampled_from([1.0, 5.0, None]),
        ),
    ),
    loaded_at=st.none() | times,
    now=times,
    later=times,
)
def test_a_view_holds_until_the_time_it_says(
    readings: dict[Key, Reading], loaded_at: float | None, now: float, later: float
) -> None:
    view, until = look(readings, "m", loaded_at, now)
    if now <= later < until:
        assert look(readings, "m", loaded_at, later)[0] == view
