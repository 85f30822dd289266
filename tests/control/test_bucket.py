from hypothesis import given
from hypothesis import strategies as st

from pharos.control.bucket import Bucket


def test_a_new_bucket_is_full() -> None:
    assert Bucket(2.0, 16, now=0.0).available(0.0) == 16


def test_tokens_come_back_at_the_rate_and_not_beyond_the_burst() -> None:
    bucket = Bucket(2.0, 4, now=0.0)
    bucket.take(4, 0.0)
    assert [bucket.available(t) for t in (0.0, 0.4, 0.5, 1.0, 100.0)] == [0, 0, 1, 2, 4]


def test_a_debt_is_paid_before_anything_is_available() -> None:
    bucket = Bucket(2.0, 4, now=0.0)
    bucket.take(8, 0.0)
    assert [bucket.available(t) for t in (1.0, 2.0, 2.5)] == [0, 0, 1]


def test_a_clock_reading_from_before_changes_nothing() -> None:
    bucket = Bucket(2.0, 4, now=10.0)
    bucket.take(4, 10.0)
    bucket.take(0, 5.0)
    assert bucket.available(10.0) == 0


@given(st.lists(st.floats(0, 3), max_size=60))
def test_no_more_is_given_than_the_burst_and_the_rate_allow(pauses: list[float]) -> None:
    bucket, now, given_out = Bucket(2.0, 16, now=0.0), 0.0, 0
    for pause in pauses:
        now += pause
        count = min(4, bucket.available(now))
        bucket.take(count, now)
        given_out += count
        assert given_out <= 16 + 2.0 * now + 1e-6


def test_it_shows_what_is_left() -> None:
    assert repr(Bucket(2.0, 16, now=0.0)) == "<Bucket 16.0 of 16, 2/s>"
