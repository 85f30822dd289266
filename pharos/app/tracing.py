"""Spans of requests, where a collector for them is configured. Without one nothing here costs anything."""

import logging
import random
import secrets
from collections.abc import Mapping

import aiohttp

from pharos import __version__
from pharos.app.reporting import Reporting
from pharos.config import otel
from pharos.control.tasks import Tasks
from pharos.obs.spans import Spans

log = logging.getLogger(__name__)


class Tracing:
    """Sends a span of each request, or does nothing."""

    def __init__(self, environ: Mapping[str, str], session: aiohttp.ClientSession, reporting: Reporting) -> None:
        self._spans: Spans | None = None
        try:
            collector = otel.collector(environ)
        except ValueError as fault:
            log.warning("no spans are sent: %s", fault)
            return
        if collector is not None:
            self._spans = reporting.spans = Spans(
                collector,
                session,
                instance=secrets.token_hex(8),
                version=__version__,
                chance=random.SystemRandom(),
                on_event=reporting.event,
                on_dropped=lambda: reporting.metrics.decided("spans", "dropped"),
                fetch=reporting.count,
            )

    @property
    def is_on(self) -> bool:
        """Whether requests must keep what trace they belong to."""
        return self._spans is not None

    def start(self, tasks: Tasks) -> None:
        """Send from now on."""
        if self._spans is not None:
            log.info("a span of each request goes to the collector")
            tasks.start("spans", self._spans.run)

    async def close(self) -> None:
        """Send what is left."""
        if self._spans is not None:
            await self._spans.close()
