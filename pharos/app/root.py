"""One running instance: what is built over the fleet and the ledger, and the order of its start and its end.

Forbidden here: more than an order. What a part needs of the others goes into a file of its own beside this one.
"""

import asyncio
import logging
import os
import random
from typing import Any, Final

import aiohttp

from pharos import clock
from pharos.app import pages, reloading
from pharos.app.admin import Administration
from pharos.app.backends import Backends
from pharos.app.discovering import Discovering, docker_of
from pharos.app.from_config import keyring, settings
from pharos.app.kubernetes import Enter, cluster_of
from pharos.app.metering import Metering
from pharos.app.peering import Peering
from pharos.app.reporting import Reporting
from pharos.app.tracing import Tracing
from pharos.app.usage import Accounting
from pharos.config import aliases, load
from pharos.config.credentials import Credentials
from pharos.config.reload import Source
from pharos.config.schema import Config, Drain
from pharos.control.discovery import static
from pharos.control.fetch import Fetcher
from pharos.control.scraper import Scraper
from pharos.control.shelf import Shelf
from pharos.control.streams import Streams, openers
from pharos.control.tasks import Tasks
from pharos.core.fleet import Backend, Event, Fleet
from pharos.core.sched import Ledger
from pharos.proxy import ollama
from pharos.proxy.auth import Keyring
from pharos.proxy.gate import Gate
from pharos.proxy.server import Proxy

log = logging.getLogger(__name__)

SEED_BITS: Final = 63
EVERYWHERE: Final = ("", "0.0.0.0", "[::]")  # noqa: S104 (a name for it, not a choice of it)


class App:
    """Everything that is built, and what each part tells the others."""

    def __init__(
        self,
        config: Config,
        session: aiohttp.ClientSession,
        source: Source | None = None,
        *,
        enter: Enter | None = None,
    ) -> None:
        """`source`: where the configuration is read again from; `None`: it stays.

        `enter`: the way into the Kubernetes cluster; `None`: as configured.
        """
        self.is_ready = asyncio.Event()
        """Set once requests are let in, and never cleared."""
        self._chance = random.Random()  # noqa: S311 (breaks ties and spreads rounds; no secret hangs on it)
        self.fleet = Fleet(aliases.of_fleet(config))
        self.reporting = Reporting(config, self.fleet)
        self.tasks = Tasks(self.reporting.restarted)
        self.tracing = Tracing(os.environ, session, self.reporting)
        self.ledger = Ledger(
            self.fleet,
            policy=config.policy,
            queue_size=config.queue.size,
            max_wait_s=config.queue.max_wait_s,
            absent_wait_s=config.queue.absent_wait_s,
        )
        self.gate = Gate(self.ledger, clock.monotonic, lambda: self._chance.getrandbits(SEED_BITS))
        self.shelf = Shelf(ollama.PAGES)
        credentials = Credentials(config.credentials, os.environ, on_event=self.reporting.event)
        self.usage = Accounting(config, self.reporting)
        self.metering = Metering(config, self.fleet, self.ledger, self.reporting)
        keys = keyring(config)
        self._serve_clients(config, keys, credentials)
        self.peering = Peering(
            config, fleet=self.fleet, ledger=self.ledger, gate=self.gate, responses=self.proxy.responses,
            usage=self.usage, reporting=self.reporting,
        )  # fmt: skip
        self.cluster = cluster_of(config, session, self.reporting.event, self._chance, enter)
        self._read_engines(config, session, credentials)
        parts = reloading.Parts(self.proxy, self.fleet, self.ledger, keys, credentials, self.backends)
        self._follow_config(config, source, parts)
        self.admin = Administration(
            config.admin_listen, self.pages, self.fleet, self.reporting, on_change=self.gate.kick,
            config=self.reloading.shown,
            before_doctor=self.cluster.ask if self.cluster is not None else None,
        )  # fmt: skip

    def _serve_clients(self, config: Config, keys: Keyring, credentials: Credentials) -> None:
        """Build what answers clients, its pages included."""
        self.pages = pages.Pages(
            self.fleet, self.ledger, self.reporting, policy=config.policy, phase=self._phase, metering=self.metering,
            config=lambda: self.reloading.told(), usage=self.usage.told, peers=lambda: self.peering.told(),  # noqa: PLW0108 - made later
            cluster=self._cluster_told,
        )  # fmt: skip
        self.proxy = Proxy(
            settings(config),
            ledger=self.ledger,
            fleet=self.fleet,
            gate=self.gate,
            keyring=keys,
            on_done=self.reporting.done,
            on_event=self._on_ejection,
            pages={**self.pages.by_path, **self.usage.by_path},
            quotas=self.usage.quotas,
            identity=credentials,
            last_page=self.shelf.last,
            traced=self.tracing.is_on,
            clock=clock.monotonic,
            wall=clock.wall,
        )

    def _follow_config(self, config: Config, source: Source | None, parts: reloading.Parts) -> None:
        """Build what reads the configuration again, and name who hears of a new one beside `parts`."""
        self.reloading = reloading.Reloading(
            config, source, parts, on_event=self.reporting.event, on_state=self.reporting.config_read
        )
        self.reloading.adopters += [self.usage.adopt, self.peering.adopt, self.metering.adopt]
        self.reloading.adopters.append(lambda _: self.tasks.start("remarks on addresses", self._remark))
        self.reloading.adopters.append(lambda _: self.discovering.wake())

    def _read_engines(self, config: Config, session: aiohttp.ClientSession, credentials: Credentials) -> None:
        """Build what finds engines and reads them."""
        docker = docker_of(config, os.environ)
        pod_log = self.cluster.open_log if self.cluster is not None else None
        self.streams = Streams(
            self.fleet,
            self.tasks,
            openers(session, credentials, docker_socket=docker.socket, pod_log=pod_log),
            on_event=self.reporting.event,
            on_change=self._on_told,
        )
        self.scraper = Scraper(
            self.fleet,
            Fetcher(session, credentials=credentials, on_page=self.shelf.put),
            self.tasks,
            rng=self._chance,
            on_event=self.reporting.event,
            on_round=self._on_round,
            on_plan=self.streams.follow,
        )
        self.discovering = Discovering(docker, self.cluster, self.reporting.event)
        sources = (reloading.STATIC, *self.discovering.sources)
        self.backends = Backends(
            self.scraper, self.shelf, sources, on_event=self.reporting.event, on_change=self._on_list
        )

    @property
    def config(self) -> Config:
        """What it is served by now."""
        return self.reloading.config

    async def start(self) -> None:
        """Open the listener, which answers "not ready" at first, then read the engines. Raises OSError."""
        await self.proxy.start(self.config.listen)
        await self.metering.start(self.tasks, otherwise=self.proxy.close)
        self.tracing.start(self.tasks)
        await self.admin.start()
        await self.peering.start(self.tasks, otherwise=self._close)
        specs = load.backend_specs(self.config)
        self.backends.tell(reloading.STATIC, specs)
        self.discovering.start(self.tasks, self.backends, lambda: self.config)
        if not self.config.keys:
            log.warning("no keys are configured: everyone who reaches %s may use these engines", self.config.listen)
        if not specs and not self.discovering.sources:
            log.warning("no backends are configured: every request will be answered 503")
        self.reloading.start(self.tasks)
        self.tasks.start("remarks on addresses", self._remark)
        self.tasks.start("prepare pages", lambda: pages.prepare(self.is_ready))
        if self.reporting.decision_log is not None:
            self.tasks.start("decision log", self.reporting.decision_log.run)

    @property
    def url(self) -> str:
        """Where people reach it from this machine; known once it has started."""
        host = self.config.listen.rpartition(":")[0]
        return f"http://{'localhost' if host in EVERYWHERE else host}:{self.proxy.port}"

    async def end(self, drain: Drain | None = None) -> None:
        """Drain, by default as configured: nothing is cut before its timeout."""
        drain = drain if drain is not None else self.config.drain
        log.info("draining: %s; a second signal ends at once", farewell(self.proxy.inflight, drain))
        await self.proxy.drain(drain.grace_s, drain.timeout_s)
        if self.reporting.decision_log is not None:
            await self.reporting.decision_log.close()
        await self.peering.end(self.tasks)
        await self._close()

    async def _close(self) -> None:
        """Close all listeners but that of peers."""
        await self.proxy.close()
        await self.tracing.close()
        await self.metering.close()
        await self.admin.close()

    # --- what the planes tell each other

    def _on_ejection(self, event: Event) -> None:
        """A request found a backend dead: see at once whether it is."""
        self.reporting.event(event)
        self.scraper.wake(event.backend)

    def _on_round(self, backend: Backend) -> None:
        del backend
        self.gate.kick()
        self._look_ready()

    def _on_list(self) -> None:
        """Backends came, went, or are drained or not: where the last one went no round tells those who wait."""
        self.gate.kick()
        self._look_ready()

    def _on_told(self, backend: Backend) -> None:
        """A line or an event set a value: somebody who waits may have a slot now."""
        del backend
        self.gate.kick()

    def _look_ready(self) -> None:
        if self.proxy.ready or not self.fleet.is_ready:
            return
        if not self.peering.is_restored:
            self.peering.begin_restore(self.tasks, self._look_ready)
        else:
            self.proxy.ready = True
            self.is_ready.set()
            log.info("ready on %s (status page: /status)", self.url)

    def _cluster_told(self) -> dict[str, Any] | None:
        """What the doctor tells of the cluster; `None`: none is looked at."""
        if self.cluster is None:
            return None
        return self.cluster.told(self.fleet, self.config.drain, self.peering.told())

    def _phase(self) -> str:
        if self.proxy.draining:
            return "draining"
        return "ready" if self.proxy.ready else "starting"

    async def _remark(self) -> None:
        for event in await static.remarks(load.backend_specs(self.config)):
            self.reporting.event(event)


def farewell(running: int, drain: Drain) -> str:
    """What an instance that ends has left to do, for people. `running`: requests in work, waiting ones included."""
    requests = f"{running or 'no'} {'requests' if running > 1 else 'request'} in work"
    accepting = f"still accepting for {drain.grace_s:g} s, then " if drain.grace_s else ""
    return f"{requests}, {accepting}up to {drain.timeout_s:g} s for replies"
