"""Usage and quotas: the book, who writes into it, who asks it, and where its days end."""

import os
import secrets
from collections.abc import Iterator, Mapping
from typing import Any, Final

from pharos import clock
from pharos.app.reporting import Reporting
from pharos.config import zone
from pharos.config.schema import Config
from pharos.core.usage import Quota, UsageBook, quota_of
from pharos.obs import usage_told
from pharos.obs.reports import QuotaShown
from pharos.obs.usage import UsagePage
from pharos.proxy.incoming import PageView
from pharos.proxy.quotas import Quotas

PATH: Final = "/usage"
ORIGIN_BYTES: Final = 8


class Accounting:
    """What this instance knows of usage, its own and that of others."""

    def __init__(self, config: Config, reporting: Reporting) -> None:
        self.zone = zone.of_config(config.usage.timezone, os.environ)
        """Whose days these are; instances that share usage must agree in it."""
        origin = secrets.token_hex(ORIGIN_BYTES)  # of this run: what an earlier one counted is somebody else's
        self.book = UsageBook(origin, self.zone.day_of, retention_days=config.usage.retention_days, now=clock.wall())
        self.quotas = Quotas(self.book, clock.wall, reporting.count)
        self._settle = reporting.count
        self._limits: dict[str, Quota | None] = {}
        self.adopt(config)
        self._page = UsagePage(self.book, wall=clock.wall, day_start=self.zone.start, settle=reporting.count)
        reporting.book = self.book
        reporting.metrics.reports.quotas = self.spent

    def __repr__(self) -> str:
        return f"<Accounting {self.book!r} in {self.zone.name}>"

    @property
    def by_path(self) -> Mapping[str, PageView]:
        """What the proxy answers for each path."""
        return {PATH: self._page.page}

    def adopt(self, config: Config) -> None:
        """Tell of these keys from now on. What they may use the data plane has from the keyring."""
        self._limits = {key.name: quota_of(key.rpm, key.tokens_per_day) for key in config.keys}

    def told(self) -> dict[str, Any]:
        """What the status page shows."""
        self._settle()
        return usage_told.told(self.book, self._limits, clock.wall())

    def spent(self) -> Iterator[QuotaShown]:
        """What the metrics show."""
        return usage_told.spent(self.book, self._limits, clock.wall())
