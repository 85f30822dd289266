"""What others learned is used where nothing was learned here, whatever order it comes in."""

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pharos.core.fleet import Feedback, Fleet
from pharos.core.fleet.calibration import LEAST
from pharos.core.fleet.inherit import LONGEST, MOST, Inheritance, Key, Value
from tests.core.fleet.given import OPENAI, fleet_of, publish, spec

NOW = 1_800_000_000.0
SPEED = "prefill_s_per_token"


def fleet() -> Fleet:
    """Two backends with a model each, and one that both have."""
    return listing(e0=("m", "a"), e1=("m", "b"))


def listing(**models: tuple[str, ...]) -> Fleet:
    of = fleet_of(*(spec(name) for name in models))
    for name, some in models.items():
        publish(of, name, 0.0, models=some, plan=OPENAI)
    return of


def speed(of: Fleet, backend: str = "e0", model: str = "m") -> float | None:
    value: float | None = getattr(of.backends[backend].targets[model].stats, SPEED).value
    return value


def test_a_fleet_that_learned_nothing_takes_everything_over_and_tells_the_same_of_the_same_time() -> None:
    old = fleet()
    target = old.backends["e0"].targets["m"]
    old.learn(target, Feedback(ok=True, cold=False, ttft_s=2.0, duration_s=5.0, prompt_tokens=1000, cached_tokens=0,
                               completion_tokens=100, bytes_prompt=4000))  # fmt: skip
    old.calibration.note("m", "e0", 1.0, 2.0)
    old.calibration.note_wait("m", "e0", 3.0, 2.0)
    old.lengths.add("k", "m", "/v1/chat/completions", 50, 40)
    words = [*Inheritance(old).export(NOW)]
    new = fleet()
    taker = Inheritance(new)
    for kind, key, at, value in words:
        assert taker.take(kind, tuple(key), at, value, NOW + 1)
    assert speed(new) == speed(old) == 0.002
    assert new.tokens_per_byte("m") == 0.25
    assert new.calibration.ratio("m", "e0") == pytest.approx(0.5)
    assert new.calibration.wait_ratio("m", "e0") == pytest.approx(1.5)
    assert new.lengths.expected("k", "m", "/v1/chat/completions", 50) == 40
    key = lambda word: (word[0], repr(word[1]))  # noqa: E731 - an order for comparing
    assert sorted(taker.export(NOW + 99), key=key) == sorted(words, key=key)


def test_a_sample_of_our_own_counts_more_than_any_later_word() -> None:
    of = fleet()
    taker = Inheritance(of)
    assert taker.take("speed", ("e0", "m", SPEED), NOW, 0.5, NOW)
    of.backends["e0"].targets["m"].stats.prefill_s_per_token.add(0.1)
    mixed = speed(of)
    assert taker.take("speed", ("e0", "m", SPEED), NOW + 1, 0.9, NOW + 1)
    assert speed(of) == mixed
    assert [word for word in taker.export(NOW + 5) if word[0] == "speed"] == [
        ["speed", ["e0", "m", SPEED], NOW + 5, mixed]
    ]


def test_a_later_word_replaces_an_earlier_one_and_not_the_other_way_round() -> None:
    of = fleet()
    taker = Inheritance(of)
    assert taker.take("bytes", ("m",), NOW, 0.3, NOW)
    assert not taker.take("bytes", ("m",), NOW - 1, 0.9, NOW)
    assert not taker.take("bytes", ("m",), NOW, 0.3, NOW)
    assert taker.take("bytes", ("m",), NOW + 1, 0.2, NOW + 2)
    assert of.tokens_per_byte("m") == 0.2


def test_a_word_of_the_future_counts_as_of_now() -> None:
    taker = Inheritance(fleet())
    assert taker.take("bytes", ("m",), NOW + 1e6, 0.3, NOW)
    assert taker.take("bytes", ("m",), NOW + 1, 0.2, NOW + 1)


def test_what_is_about_an_unknown_target_waits_until_it_comes() -> None:
    of = fleet()
    taker = Inheritance(of)
    assert taker.take("speed", ("e0", "later", SPEED), NOW, 0.5, NOW)
    assert taker.take("speed", ("elsewhere", "m", SPEED), NOW, 0.5, NOW)
    assert [*taker.export(NOW)] == []
    taker.retry()
    publish(of, "e0", 1.0, models=("m", "later"), plan=OPENAI)
    taker.retry()
    assert speed(of, model="later") == 0.5
    taker.retry()
    assert len(taker._waiting) == 1


def test_estimates_that_mislead_there_mislead_here_as_well() -> None:
    of = fleet()
    taker = Inheritance(of)
    taker.take("errors", ("m",), NOW, [math.log(3)] * LEAST, NOW)
    assert of.calibration.fallen == {"m"}
    taker.take("errors", ("a",), NOW, [math.log(1.1)] * LEAST, NOW)
    assert of.calibration.fallen == {"m"}
    of.calibration.steers = False
    taker.take("errors", ("b",), NOW, [math.log(3)] * LEAST, NOW)
    assert of.calibration.fallen == {"m"}


@pytest.mark.parametrize(
    ("kind", "key", "at", "value"),
    [
        ("later", ("m",), NOW, 0.1),
        ("bytes", ("m",), NOW, -0.1),
        ("bytes", ("m",), NOW, math.nan),
        ("bytes", ("m",), math.nan, 0.1),
        ("bytes", ("m", "m"), NOW, 0.1),
        ("bytes", (7,), NOW, 0.1),
        ("bytes", ("m" * (LONGEST + 1),), NOW, 0.1),
        ("bytes", ("m",), NOW, [0.1]),
        ("speed", ("e0", "m", "__class__"), NOW, 0.1),
        ("speed", ("e0", "m"), NOW, 0.1),
        ("starts", ("m", "e0"), NOW, []),
        ("starts", ("m", "e0"), NOW, [0.1] * 100_000),
        ("starts", ("m", "e0"), NOW, [math.inf]),
        ("starts", ("m", "e0"), NOW, ["x"]),
        ("starts", ("m",), NOW, [0.1]),
        ("errors", (None,), NOW, [0.1]),
        ("length", ("k", "m", "r"), NOW, 0.1),
        ("length", ("k", "m", "r", "4"), NOW, 0.1),
    ],
)
def test_what_nobody_can_have_said_is_left_out(kind: str, key: Key, at: float, value: Any) -> None:
    taker = Inheritance(fleet())
    assert not taker.take(kind, key, at, value, NOW)
    assert "0 told" in repr(taker)


def test_words_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pharos.core.fleet.inherit.MOST", 3)
    taker = Inheritance(fleet())
    assert [taker.take("bytes", (f"m{number}",), NOW, 0.1, NOW) for number in range(5)] == [True] * 3 + [False] * 2
    assert taker.take("bytes", ("m0",), NOW + 1, 0.2, NOW + 1), "what is known may still be renewed"
    assert MOST > 10_000


THINGS: list[tuple[str, Key, st.SearchStrategy[Value]]] = [
    ("speed", ("e0", "m", SPEED), st.floats(0, 9)),
    ("speed", ("e1", "b", "load_s"), st.floats(0, 9)),
    ("bytes", ("m",), st.floats(0, 9)),
    ("length", (None, "m", "r", 3), st.floats(0, 9)),
    ("length", ("k", "m", "r", 0), st.floats(0, 9)),
    ("starts", ("m", "e0"), st.lists(st.floats(-3, 3), min_size=1, max_size=4)),
    ("waits", ("m", "e1"), st.lists(st.floats(-3, 3), min_size=1, max_size=4)),
    ("errors", ("m",), st.lists(st.floats(0, 3), min_size=1, max_size=4)),
]
WORDS = st.lists(
    st.sampled_from(THINGS).flatmap(
        lambda thing: st.tuples(st.just(thing[0]), st.just(thing[1]), st.floats(0, 5).map(lambda s: NOW - s), thing[2])
    ),
    max_size=12,
)


@given(words=WORDS, data=st.data())
def test_in_whatever_order_and_however_often_words_come_the_end_is_the_same(
    words: list[tuple[str, Key, float, Value]], data: st.DataObject
) -> None:
    one, two = Inheritance(fleet()), Inheritance(fleet())
    for word in words:
        one.take(*word, NOW)
    for word in [
        *data.draw(st.permutations(words)),
        *data.draw(st.lists(st.sampled_from(words)) if words else st.just([])),
    ]:
        two.take(*word, NOW)
    assert sorted(map(repr, one.export(NOW))) == sorted(map(repr, two.export(NOW)))
    # What one of them says brings a third one to the same.
    three = Inheritance(fleet())
    for kind, key, at, value in one.export(NOW):
        three.take(kind, tuple(key), at, value, NOW)
    assert sorted(map(repr, three.export(NOW))) == sorted(map(repr, one.export(NOW)))
