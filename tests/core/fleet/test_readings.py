import pytest

from pharos.core.fleet.readings import Readings
from pharos.core.signals import BACKEND, Key, Reading, Signal

CONTEXT: Key = (Signal.CONTEXT_LENGTH, "m")


def reading(value: int, probe: str, at: float, *, rank: int = 0, interval_s: float | None = 5.0) -> Reading:
    return Reading(value, at, probe, interval_s, rank)


def told(*readings: Reading, now: float = 10.0) -> Readings:
    made = Readings()
    for one in readings:
        made.take({CONTEXT: one}, now)
    return made


LOADED = reading(4096, "ps", 10.0)
BOUND = reading(131072, "show", 9.0, rank=1, interval_s=300.0)


@pytest.mark.parametrize("order", [(LOADED, BOUND), (BOUND, LOADED)])
def test_the_more_trusted_reading_counts_whichever_came_first(order: tuple[Reading, Reading]) -> None:
    assert told(*order).best == {CONTEXT: LOADED}


@pytest.mark.parametrize("order", [(LOADED, BOUND), (BOUND, LOADED)])
def test_what_is_taken_back_uncovers_the_next_one(order: tuple[Reading, Reading]) -> None:
    made = told(*order)
    made.forget(lambda _, one: one.probe == "ps")
    assert made.best == {CONTEXT: BOUND}
    made.forget(lambda _, one: one.probe == "show")
    assert made.best == {}
    assert repr(made) == "<Readings 0, 0 with others behind>"


def test_a_hidden_reading_can_be_taken_back_too() -> None:
    made = told(LOADED, BOUND)
    made.forget(lambda _, one: one.probe == "show")
    made.forget(lambda _, one: one.probe == "ps")
    assert made.best == {}


def test_a_stale_reading_gives_way_to_a_less_trusted_one() -> None:
    made = told(LOADED)
    made.take({CONTEXT: BOUND}, 26.0)
    assert made.best == {CONTEXT: BOUND}


def test_of_equal_trust_the_newer_counts() -> None:
    scraped, pushed = reading(1, "scraped", 10.0), reading(2, "pushed", 11.0, interval_s=None)
    assert told(scraped, pushed).best == told(pushed, scraped).best == {CONTEXT: pushed}
    later = reading(3, "scraped", 12.0)
    made = told(scraped, pushed, later, now=12.0)
    assert made.best == {CONTEXT: later}
    made.forget(lambda _, one: one.probe == "scraped")
    assert made.best == {CONTEXT: pushed}


def test_each_probe_has_its_last_word_only() -> None:
    made = told(LOADED, BOUND, reading(8192, "ps", 11.0), reading(65536, "show", 11.0, rank=1, interval_s=300.0))
    assert made.best[CONTEXT].value == 8192
    made.forget(lambda _, one: one.probe == "ps")
    assert made.best[CONTEXT].value == 65536


def test_another_process_knows_nothing() -> None:
    made = told(LOADED, BOUND)
    made.clear()
    made.forget(lambda *_: True)
    assert made.best == {}
    made.take({(Signal.CAPACITY, BACKEND): reading(2, "slots", 1.0)}, 1.0)
    assert len(made.best) == 1
