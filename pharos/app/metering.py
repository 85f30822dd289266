"""What concerns `/metrics`: where it is served, what is read for it at each scrape, and the watch over the loop."""

from collections.abc import Awaitable, Callable, Mapping
from typing import Final

from pharos import clock
from pharos.app.reporting import Reporting
from pharos.config.schema import Config
from pharos.control.bucket import Bucket
from pharos.control.tasks import Tasks
from pharos.core.fleet import Fleet
from pharos.core.sched import Ledger
from pharos.obs.exposition import CONTENT_TYPE
from pharos.obs.listener import PageListener
from pharos.obs.reports import PeerShown
from pharos.obs.watchdog import Watchdog
from pharos.peer.record import PeerRecord
from pharos.proxy.incoming import PageView, Steps

PATH: Final = "/metrics"
PAGES_PER_S: Final = 2.0
"""Pages made anew in the long run; whoever asks beyond that gets the last one: it needs no key, and takes a while."""
BURST: Final = 20.0


class Metering:
    """The page of metrics, on the public listener or on one of its own."""

    def __init__(self, config: Config, fleet: Fleet, ledger: Ledger, reporting: Reporting) -> None:
        self._listen = config.metrics_listen
        self._fleet = fleet
        self._ledger = ledger
        self._reporting = reporting
        self._bucket = Bucket(PAGES_PER_S, BURST, clock.monotonic())
        self._last = b""
        """The last page that was made."""
        self._own = PageListener({PATH: self.page})
        self._watchdog = Watchdog(reporting.metrics.reports.lagged, clock=clock.monotonic, cpu=clock.cpu)
        reporting.metrics.reports.config_read(clock.wall(), ok=True)
        self.adopt(config)

    @property
    def port(self) -> int:
        """Of the listener of its own, once it has started; 0 without one."""
        return self._own.port

    @property
    def public(self) -> Mapping[str, PageView]:
        """What of it is served beside the API."""
        return {PATH: self.page} if self._listen is None else {}

    def adopt(self, config: Config) -> None:
        """Its keys have changed, perhaps."""
        self._reporting.metrics.keep_keys({key.name for key in config.keys})

    async def start(self, tasks: Tasks, *, otherwise: Callable[[], Awaitable[None]]) -> None:
        """Open the listener, if it has one, and watch the loop. Raises OSError, `otherwise` done first."""
        if self._listen is not None:
            try:
                await self._own.start(self._listen)
            except OSError as fault:
                fault.filename = f"metrics_listen {self._listen}"
                await otherwise()
                raise
        tasks.start("watchdog", self._watchdog.run)

    async def close(self) -> None:
        """Close the listener."""
        await self._own.close()

    def page(self, _query: Mapping[str, str], _accept: str, _is_admin: bool) -> Steps:  # noqa: FBT001 (as the proxy calls)
        """The page, a step at a time: with thousands of series, streams go on between them."""
        reporting, ledger = self._reporting, self._ledger
        now = clock.monotonic()
        if not self._bucket.available(now) and self._last:
            return 200, CONTENT_TYPE, self._last
        self._bucket.take(1, now)
        reporting.count()
        busted = ledger.caches.busters.found()
        beginnings = len(ledger.caches.index)
        moment = reporting.metrics.moment(self._fleet, clock.monotonic(), ledger.waiting, busted, beginnings)
        text = yield from reporting.metrics.render(moment)
        self._last = text
        return 200, CONTENT_TYPE, text


def peer_shown(peer: PeerRecord) -> PeerShown:
    """A peer as the metrics show it; given to `Reports.peers` for each one at each scrape."""
    return PeerShown(
        peer.name,
        up=peer.up,
        mismatched=bool(peer.config_differs),
        protocol_mismatched=peer.state == "protocol_differs",
        last_heard_at=peer.heard_at,
        dropped_prefix_ops=peer.dropped,
        sent_bytes=peer.bytes_sent,
    )
