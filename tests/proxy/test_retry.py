import pytest

from pharos.proxy.retry import PassedOver, RetryBudget, Standing, is_retriable, names_usage_field, retry_after_s

ALL = frozenset({1, 2, 3})


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


@pytest.mark.parametrize("status", [409, 429, 500, 501, 502, 503, 504, 529, 404, 405, 401, 403, 407])
def test_what_another_engine_may_answer_is_retriable(status: int) -> None:
    assert is_retriable(status)


@pytest.mark.parametrize("status", [200, 204, 301, 400, 408, 413, 415, 422])
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
    assert over.among(ALL, 9.0, may_try=True) == {3}
    assert over.among(ALL, 10.0, may_try=True) == frozenset()


def test_a_longer_pause_is_not_shortened_by_a_later_word() -> None:
    over = PassedOver()
    over.note(3, 10.0)
    over.note(3, 1.0)
    assert over.among(ALL, 9.0, may_try=True) == {3}


def test_only_a_refusal_that_names_the_field_is_about_the_field() -> None:
    assert names_usage_field(b"unknown field stream_options")
    assert not names_usage_field(b"bad temperature")


def test_a_target_that_keeps_failing_is_passed_over_for_longer_and_longer() -> None:
    over = PassedOver()
    over.failed(1, 0.0)
    over.failed(1, 0.0)
    assert not over
    over.failed(1, 0.0)
    assert over.among(ALL, 0.5, may_try=True) == {1}
    assert over.among(ALL, 1.0, may_try=True) == frozenset(), "one request tries it"
    over.failed(1, 1.0)
    assert over.among(ALL, 2.5, may_try=True) == {1}
    assert over.among(ALL, 3.0, may_try=True) == frozenset()
    over.served(1)
    over.failed(1, 3.0)
    assert over.among(ALL, 3.0, may_try=True) == frozenset()


def test_failures_of_requests_sent_before_a_target_was_passed_over_do_not_lengthen_that() -> None:
    over = PassedOver()
    for _ in range(50):
        over.failed(1, 0.0)
    assert over.among(ALL, 1.0, may_try=True) == frozenset()


def test_one_request_a_second_tries_a_target_that_failed_and_no_retry_does() -> None:
    over = PassedOver()
    for _ in range(3):
        over.failed(1, 0.0)
    assert over.among(ALL, 1.0, may_try=False) == {1}
    assert over.among(ALL, 1.0, may_try=True) == frozenset()
    assert over.among(ALL, 1.5, may_try=True) == {1}
    assert over.among(ALL, 2.0, may_try=True) == frozenset()
    over.served(1)
    assert over.among(ALL, 2.1, may_try=True) == frozenset()


def test_a_missing_route_says_nothing_about_the_others() -> None:
    standing = Standing()
    for _ in range(3):
        standing.failed(1, "/v1/completions", 404, 0.0)
    assert standing.is_clear("/v1/chat/completions")
    assert standing.among(ALL, "/v1/completions", 0.5, may_try=True) == {1}
    standing.served(1, "/v1/chat/completions")
    assert standing.among(ALL, "/v1/completions", 0.5, may_try=True) == {1}
    standing.served(1, "/v1/completions")
    assert standing.is_clear("/v1/completions")
