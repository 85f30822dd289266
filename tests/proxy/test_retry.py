import pytest

from pharos.proxy.retry import PassedOver, RetryBudget, is_retriable, names_usage_field, retry_after_s


def test_the_budget_is_a_share_of_the_last_minute_with_a_floor() -> None:
    budget = RetryBudget(0.2, floor=2)
    assert [budget.take(0.0) for _ in range(3)] == [True, True, False]
    for _ in range(20):
        budget.seen(1.0)
    assert [budget.take(1.0) for _ in range(3)] == [True, True, False]
    assert budget.take(62.5), "both the requests and the retries of that minute are forgotten"


def test_requests_leave_the_budget_after_a_minute() -> None:
    budget = RetryBudget(1.0, floor=0)
    for second in range(5):
        budget.seen(float(second))
    assert budget.take(5.0)
    assert not budget.take(70.0)


@pytest.mark.parametrize("status", [409, 429, 500, 501, 502, 503, 504, 529, 404, 405])
def test_what_another_engine_may_answer_is_retriable(status: int) -> None:
    assert is_retriable(status)


@pytest.mark.parametrize("status", [200, 204, 301, 400, 401, 403, 408, 413, 415, 422])
def test_what_is_the_client_s_business_is_not(status: int) -> None:
    assert not is_retriable(status)


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        (b"5", 5.0),
        (b"0", 0.0),
        (b"600", 60.0),
        (None, None),
        (b"Wed, 21 Oct 2015 07:28:00 GMT", None),
        (b"-1", None),
        (b"9" * 40, None),
    ],
)
def test_a_stated_pause_is_believed_within_bounds(value: bytes | None, seconds: float | None) -> None:
    assert retry_after_s(value) == seconds


def test_a_target_is_passed_over_until_its_time() -> None:
    over = PassedOver()
    over.note(3, 10.0)
    assert over.now(9.0) == {3}
    assert over.now(10.0) == frozenset()


def test_only_a_refusal_that_names_the_field_is_about_the_field() -> None:
    assert names_usage_field(b"unknown field stream_options")
    assert not names_usage_field(b"bad temperature")


def test_a_target_that_keeps_failing_is_passed_over_for_longer_and_longer() -> None:
    over = PassedOver()
    over.failed(1, 0.0)
    over.failed(1, 0.0)
    assert over.now(0.0) == frozenset()
    over.failed(1, 0.0)
    assert over.now(0.5) == {1}
    over.failed(1, 1.0)
    assert over.now(2.5) == {1}
    assert over.now(3.0) == frozenset()
    over.served(1)
    over.failed(1, 3.0)
    assert over.now(3.0) == frozenset()
