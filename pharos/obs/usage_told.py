"""What the status page and the metrics tell of usage and quotas. Forbidden here: HTML, and text of metrics."""

from collections.abc import Iterator, Mapping
from datetime import date
from typing import Any

import msgspec

from pharos.core.usage import Count, Quota, UsageBook
from pharos.core.usage.book import MONTH_DAYS
from pharos.obs.reports import QuotaShown


def told(book: UsageBook, quotas: Mapping[str, Quota | None], now: float) -> dict[str, Any]:
    """Usage of today and of 30 days, by day and by key, as `Parts.usage` has it. `quotas`: of every configured key."""
    today = book.day(now).number
    days = []
    for number in range(today - MONTH_DAYS + 1, today + 1):
        counts = book.cells.of_day(number).values()
        requests, tokens = sum(one.requests for one in counts), sum(one.tokens for one in counts)
        days.append({"day": date.fromordinal(number).isoformat(), "requests": requests, "tokens": tokens})
    of_today, of_month = book.today(now), book.month(now)
    keys = [
        _key(book, name, quotas.get(name), of_today.get(name), of_month.get(name), now)
        for name in sorted({*quotas, *of_month})
    ]
    return {"today": date.fromordinal(today).isoformat(), "days": days, "keys": keys}


def _key(
    book: UsageBook, name: str, quota: Quota | None, today: Count | None, month: Count | None, now: float
) -> dict[str, Any]:
    left = book.standing(name, quota if quota is not None else Quota(), now)
    return {
        "key": name,
        "today": msgspec.to_builtins(today if today is not None else Count()),
        "month": msgspec.to_builtins(month if month is not None else Count()),
        "tokens_per_day": left.tokens_limit,
        "tokens_left": left.tokens_left,
        "rpm": left.requests_limit,
        "rpm_left": left.requests_left,
    }


def spent(book: UsageBook, quotas: Mapping[str, Quota | None], now: float) -> Iterator[QuotaShown]:
    """How much of each quota is spent, for the metrics."""
    for name, quota in quotas.items():
        if quota is None:
            continue
        left = book.standing(name, quota, now)
        for word, limit, rest in (
            ("rpm", left.requests_limit, left.requests_left),
            ("tokens_per_day", left.tokens_limit, left.tokens_left),
        ):
            if limit is not None and rest is not None:
                yield QuotaShown(name, word, 1 - rest / limit)
