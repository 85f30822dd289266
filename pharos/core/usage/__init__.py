"""Who used what: counters that instances share, days, and quotas. No clock and no zone is read here."""

from pharos.core.usage.book import Denial, Standing, UsageBook
from pharos.core.usage.cells import OTHER, CellKey, Cells, Count
from pharos.core.usage.days import Day, DayOf
from pharos.core.usage.minutes import MinuteKey, Minutes
from pharos.core.usage.quota import Quota, quota_of

__all__ = [
    "OTHER",
    "CellKey",
    "Cells",
    "Count",
    "Day",
    "DayOf",
    "Denial",
    "MinuteKey",
    "Minutes",
    "Quota",
    "Standing",
    "UsageBook",
    "quota_of",
]
