"""The pages of the public listener that show how this instance is. Forbidden here: what they look like (obs knows)."""

import asyncio
from collections.abc import Callable, Mapping
from typing import Any

from pharos import __version__, clock
from pharos.app.metering import Metering
from pharos.app.reporting import Reporting
from pharos.core.fleet import Fleet
from pharos.core.sched import Ledger
from pharos.obs import status
from pharos.obs.overview import Overview, Parts
from pharos.obs.status import Status
from pharos.proxy.incoming import PageView, Steps


class Pages:
    """`/metrics` and `/status`."""

    def __init__(  # noqa: PLR0913 - what the page tells of
        self,
        fleet: Fleet,
        ledger: Ledger,
        reporting: Reporting,
        *,
        policy: str,
        phase: Callable[[], str],
        metering: Metering,
        config: Callable[[], dict[str, Any] | None],
        usage: Callable[[], dict[str, Any]],
        peers: Callable[[], list[dict[str, Any]] | None],
        cluster: Callable[[], dict[str, Any] | None],
    ) -> None:
        """`config`: how the configuration stands. `usage`: what was used. `peers`: the other instances."""
        self._metering = metering
        self._reporting = reporting
        parts = Parts(
            phase=phase,
            waiting=ledger.waiting_by_model,
            policy=lambda: policy,
            busted=ledger.caches.busters.found,
            config=config,
            usage=usage,
            peers=peers,
            cluster=cluster,
        )
        self.overview = Overview(
            fleet,
            reporting.recent,
            parts,
            version=__version__,
            monotonic=clock.monotonic,
            wall=clock.wall,
            pulse=reporting.pulse,
            happened=reporting.happened,
        )
        self.status = Status(self.overview)

    @property
    def by_path(self) -> Mapping[str, PageView]:
        """What the proxy answers for each path."""
        return {**self._metering.public, "/status": self._page}

    def _page(self, query: Mapping[str, str], accept: str, is_admin: bool) -> Steps:  # noqa: FBT001 (as the proxy calls)
        self._reporting.count()
        return self.status.page(query, accept, is_admin)


async def prepare(is_ready: asyncio.Event) -> None:
    """Load what only pages need after the start, and not in the middle of someone's stream."""
    await is_ready.wait()
    await asyncio.to_thread(status.prepare)
