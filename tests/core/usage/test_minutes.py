import pytest
from hypothesis import given
from hypothesis import strategies as st

from pharos.core.usage import Minutes
from pharos.core.usage import minutes as minutes_module
from pharos.core.usage.minutes import WINDOW_S, Entry

NOW = 1_800_000_000.25
reports = st.tuples(
    st.sampled_from(["x", "y"]),
    st.tuples(st.sampled_from(["alice", "bob"]), st.integers(int(NOW) - 59, int(NOW))),
    st.integers(1, 9),
)


def test_a_request_leaves_the_window_after_a_minute() -> None:
    minutes = Minutes("me")
    minutes.add("alice", NOW)
    assert minutes.count("alice", NOW) == 1
    assert minutes.count("alice", NOW + 59.5) == 1
    assert minutes.count("alice", NOW + 60) == 0
    assert minutes.count("bob", NOW) == 0


@given(st.lists(st.floats(0, 300), min_size=1, max_size=60), st.floats(0, 400))
def test_the_window_slides(times: list[float], later: float) -> None:
    minutes = Minutes("me")
    for at in sorted(times):
        minutes.add("alice", NOW + at)
    now = NOW + max(*times, later)
    inside = sum(int(now) - 60 < int(NOW + at) for at in times)
    assert minutes.count("alice", now) == inside


def test_the_wait_is_until_enough_of_the_oldest_have_left() -> None:
    minutes = Minutes("me")
    for at in (0, 10, 10, 20):
        minutes.add("alice", NOW + at)
    now = NOW + 25
    assert minutes.wait_s("alice", 5, now) == 0
    assert minutes.wait_s("alice", 4, now) == pytest.approx(60 - 25 - 0.25)
    assert minutes.wait_s("alice", 3, now) == pytest.approx(70 - 25 - 0.25)
    assert minutes.wait_s("alice", 2, now) == pytest.approx(70 - 25 - 0.25)
    assert minutes.wait_s("alice", 1, now) == pytest.approx(80 - 25 - 0.25)
    assert minutes.wait_s("alice", 0, now) == WINDOW_S
    assert minutes.count("alice", now + minutes.wait_s("alice", 4, now)) == 3


@given(st.lists(reports, max_size=12), st.randoms(use_true_random=False))
def test_reports_may_come_in_any_order_and_twice(told: list[Entry], chance: object) -> None:
    straight, mixed = Minutes("me"), Minutes("me")
    twice = told * 2
    chance.shuffle(twice)  # type: ignore[attr-defined]
    for minutes, some in ((straight, told), (mixed, twice)):
        for origin, cell, count in some:
            minutes.take(origin, cell, count, NOW)
    best: dict[tuple[str, tuple[str, int]], int] = {}
    for origin, cell, count in told:
        best[origin, cell] = max(best.get((origin, cell), 0), count)
    for key in ("alice", "bob"):
        assert straight.count(key, NOW) == mixed.count(key, NOW)
        assert straight.count(key, NOW) == sum(count for (_, (who, _)), count in best.items() if who == key)


def test_what_others_counted_adds_up_with_the_own() -> None:
    a, b = Minutes("a"), Minutes("b")
    a.add("alice", NOW)
    b.add("alice", NOW)
    b.add("alice", NOW + 1)
    for origin, cell, count in b.changed():
        assert a.take(origin, cell, count, NOW + 1)
        assert not a.take(origin, cell, count, NOW + 1)
    assert a.count("alice", NOW + 1) == 3
    assert [entry for entry in a.full(NOW + 1) if entry[0] == "b"] == [], "copies are not passed on"
    assert list(a.full(NOW + 1)) == [("a", ("alice", int(NOW)), 1)]


@pytest.mark.parametrize(
    ("origin", "at", "count"),
    [("me", 0, 5), ("x", -60, 1), ("x", 61, 1), ("x", 0, 0), ("x", 0, -1), ("x", 0, 2**31 + 1)],
)
def test_a_report_that_says_nothing_of_this_minute_is_left_out(origin: str, at: int, count: int) -> None:
    minutes = Minutes("me")
    assert not minutes.take(origin, ("alice", int(NOW) + at), count, NOW)
    assert minutes.count("alice", NOW) == 0


def test_only_own_cells_that_grew_are_told() -> None:
    minutes = Minutes("me")
    assert minutes.changed() == []
    minutes.add("alice", NOW)
    minutes.add("alice", NOW)
    minutes.take("x", ("alice", int(NOW)), 7, NOW)
    assert minutes.changed() == [("me", ("alice", int(NOW)), 2)]
    assert minutes.changed() == []
    minutes.add("alice", NOW + 1)
    minutes.add("bob", NOW + 1)
    minutes.add("alice", NOW + 90)
    minutes.forget(NOW + 90)
    assert minutes.changed() == [("me", ("alice", int(NOW) + 90), 1)], "what has left the window is no news"


def test_a_clock_that_is_put_back_blocks_nobody_for_longer_than_two_minutes() -> None:
    minutes = Minutes("me")
    for _ in range(5):
        minutes.add("alice", NOW)
    assert minutes.count("alice", NOW - 3600) == 0
    minutes.add("bob", NOW)
    assert minutes.count("bob", NOW - 30) == 1
    assert minutes.wait_s("bob", 1, NOW - 30) <= 2 * WINDOW_S


def test_keys_that_ask_for_nothing_are_forgotten() -> None:
    minutes = Minutes("me")
    minutes.add("alice", NOW)
    minutes.add("bob", NOW + 50)
    minutes.forget(NOW + 70)
    assert repr(minutes) == "<Minutes me 1 keys>"
    assert len(minutes) == 1
    assert minutes.count("bob", NOW + 70) == 1


def test_a_peer_cannot_fill_the_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(minutes_module, "MOST_KEYS", 2)
    minutes = Minutes("me")
    second = int(NOW)
    taken = [minutes.take("x", (f"k{number}", second), 1, NOW) for number in range(4)]
    assert taken == [True, True, False, False]
    assert minutes.take("x", ("late", second + 100), 1, NOW + 100), "those of the last minute have made room"
