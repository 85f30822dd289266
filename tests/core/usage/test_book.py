import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pharos.core.usage import Count, Day, Denial, Quota, Standing, UsageBook, quota_of

HOUR = 3600.0
STARTS = list(itertools.accumulate([0.0, 24 * HOUR, 23 * HOUR, 25 * HOUR, 24 * HOUR, 24 * HOUR]))
"""Starts of days 1 to 6: the second has 23 hours, the third 25."""


def day_of(now: float) -> Day:
    number = max(n for n, start in enumerate(STARTS, 1) if start <= now)
    return Day(number, STARTS[number - 1], STARTS[number])


def book(now: float = 0.0, *, retention_days: int = 400, origin: str = "me") -> UsageBook:
    return UsageBook(origin, day_of, retention_days=retention_days, now=now)


@pytest.mark.parametrize("day", [1, 2, 3])
def test_a_days_tokens_are_free_again_exactly_when_the_day_ends(day: int) -> None:
    starts, ends = STARTS[day - 1], STARTS[day]
    usage = book(starts)
    quota = Quota(tokens_per_day=100)
    assert usage.admit("alice", quota, starts) is None
    usage.count("alice", "m", starts + 60, prompt_tokens=60, completion_tokens=40)
    assert usage.admit("alice", quota, starts + 60) == Denial("quota_exceeded", int(ends - starts) - 60, 100)
    assert usage.admit("alice", quota, ends - 0.5) == Denial("quota_exceeded", 1, 100)
    assert usage.admit("bob", quota, ends - 0.5) is None
    assert usage.admit("alice", quota, ends) is None


def test_a_clock_that_is_put_back_over_midnight_gives_no_second_day() -> None:
    usage = book()
    quota = Quota(tokens_per_day=10)
    midnight = STARTS[1]
    usage.count("alice", "m", midnight - 60, prompt_tokens=10)
    assert usage.admit("alice", quota, midnight + 60) is None
    usage.count("alice", "m", midnight + 60, prompt_tokens=10)
    assert usage.admit("alice", quota, midnight + 60) is not None
    again = usage.admit("alice", quota, midnight + 60 - HOUR)
    assert again == Denial("quota_exceeded", int(HOUR) - 60, 10), "the old day is as used up as it was"
    assert usage.admit("alice", quota, midnight + 61) is not None, "and so is the new one"
    assert usage.cells.tokens(2, "alice") == 10


def test_a_quota_counts_only_tokens_that_are_known() -> None:
    usage = book()
    quota = Quota(tokens_per_day=5)
    for _ in range(100):
        usage.count("alice", "m", 1.0)
    assert usage.admit("alice", quota, 1.0) is None
    assert usage.today(1.0)["alice"] == Count(100, 0, 0, 0, 100)


def test_requests_per_minute_count_when_they_are_let_in_and_refused_ones_do_not() -> None:
    usage = book()
    quota = Quota(rpm=2)
    assert usage.admit("alice", quota, 10.5) is None
    assert usage.admit("alice", quota, 20.5) is None
    for _ in range(50):
        assert usage.admit("alice", quota, 30.5) == Denial("rate_limited", 40, 2)
    assert usage.admit("alice", quota, 70.0) is None
    assert usage.admit("alice", quota, 70.0) == Denial("rate_limited", 10, 2)


def test_a_look_counts_nothing() -> None:
    usage = book()
    quota = Quota(rpm=1)
    assert usage.look("alice", quota, 1.0) is None
    assert usage.look("alice", quota, 1.0) is None
    assert usage.admit("alice", quota, 1.0) is None
    assert usage.look("alice", quota, 1.0) is not None


def test_a_request_refused_for_tokens_takes_no_place_in_the_minute() -> None:
    usage = book()
    quota = Quota(rpm=5, tokens_per_day=1)
    usage.count("alice", "m", 1.0, prompt_tokens=1)
    denial = usage.admit("alice", quota, 2.0)
    assert denial is not None
    assert denial.outcome == "quota_exceeded"
    assert usage.minutes.count("alice", 2.0) == 0


@given(st.lists(st.floats(0, 240), max_size=200), st.integers(1, 20))
def test_no_sixty_whole_seconds_let_more_in_than_the_limit(times: list[float], rpm: int) -> None:
    usage = book()
    quota = Quota(rpm=rpm)
    let_in = [at for at in sorted(times) if usage.admit("alice", quota, at) is None]
    for at in let_in:
        assert sum(int(at) - 60 < int(other) <= int(at) for other in let_in) <= rpm


@given(st.lists(st.floats(0, 100), min_size=1, max_size=50), st.integers(1, 5))
def test_who_comes_back_when_told_is_let_in(times: list[float], rpm: int) -> None:
    usage = book()
    quota = Quota(rpm=rpm)
    for at in sorted(times):
        usage.admit("alice", quota, at)
    last = max(times)
    denial = usage.look("alice", quota, last)
    if denial is not None:
        assert usage.look("alice", quota, last + denial.retry_after_s) is None


def test_instances_that_hear_each_other_share_one_quota() -> None:
    a, b = book(origin="a"), book(origin="b")
    quota = Quota(rpm=4, tokens_per_day=100)
    let_in = 0
    for number in range(10):
        here, there = (a, b) if number % 2 else (b, a)
        let_in += here.admit("alice", quota, 1.0) is None
        for origin, cell, count in here.minutes.changed():
            there.minutes.take(origin, cell, count, 1.0)
    assert let_in == 4
    a.count("alice", "m", 70.0, prompt_tokens=100)
    for entry in a.cells.changed():
        b.cells.take(*entry)
    denial = b.admit("alice", quota, 70.0)
    assert denial is not None
    assert denial.outcome == "quota_exceeded"


def test_what_is_left_of_quotas_is_told() -> None:
    usage = book()
    usage.count("alice", "m", 5.0, prompt_tokens=30, completion_tokens=90)
    usage.admit("alice", Quota(rpm=3), 5.25)
    assert usage.standing("alice", Quota(3, 1000), 6.25) == Standing(
        requests_limit=3,
        requests_left=2,
        requests_reset_s=58.75,
        tokens_limit=1000,
        tokens_left=880,
        tokens_reset_s=24 * HOUR - 6.25,
    )
    assert usage.standing("alice", Quota(tokens_per_day=50), 6.0).tokens_left == 0
    assert usage.standing("alice", Quota(rpm=1), 6.0).requests_left == 0
    assert usage.standing("bob", Quota(rpm=1), 6.0) == Standing(1, 1, 0.0, None, None, None)


def test_totals_are_of_today_and_of_thirty_days() -> None:
    usage = book()
    usage.count("alice", "m", 1.0, prompt_tokens=1)
    usage.count("alice", "n", STARTS[1] + 1, prompt_tokens=2)
    usage.count("bob", "n", STARTS[1] + 1, prompt_tokens=4)
    now = STARTS[1] + 2
    assert usage.today(now) == {"alice": Count(1, 2), "bob": Count(1, 4)}
    assert usage.today(now, "model") == {"n": Count(2, 6)}
    assert usage.month(now) == {"alice": Count(2, 3), "bob": Count(1, 4)}
    assert usage.month(now, "model") == {"m": Count(1, 1), "n": Count(2, 6)}
    assert usage.cells.total(2, 2) == usage.today(now)


def test_days_beyond_retention_are_forgotten_once_a_new_one_is_an_hour_old() -> None:
    usage = book(retention_days=2)
    usage.count("alice", "m", 1.0, prompt_tokens=1)
    usage.count("alice", "m", STARTS[1], prompt_tokens=2)
    usage.day(STARTS[2])
    assert usage.month(STARTS[2])["alice"].tokens == 3
    now = STARTS[2] + HOUR
    usage.day(now)
    assert usage.month(now)["alice"].tokens == 2
    assert not usage.cells.take("x", (1, "alice", "m"), Count(1, 1))
    assert not usage.cells.take("x", (6, "alice", "m"), Count(1, 1)), "nobody's clock is so far ahead"
    assert usage.cells.take("x", (5, "alice", "m"), Count(1, 1))
    assert repr(usage) == "<UsageBook <Cells me 2>>"


def test_a_clock_that_is_wrong_for_a_while_costs_no_history() -> None:
    usage = book(retention_days=1)
    usage.count("alice", "m", 1.0, prompt_tokens=1)
    for wrong in (STARTS[3], STARTS[3] + HOUR - 1):
        usage.day(wrong)
    assert usage.day(HOUR * 2).number == 1
    assert usage.day(HOUR * 4).number == 1
    assert usage.today(HOUR * 4)["alice"].tokens == 1


def test_a_key_without_limits_has_no_quota() -> None:
    assert quota_of(None, None) is None
    assert quota_of(3, None) == Quota(rpm=3)
    assert quota_of(None, 3) == Quota(tokens_per_day=3)
