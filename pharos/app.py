"""The composition root: builds the planes over one fleet and one ledger, starts them, and ends them in order.

Forbidden here: deciding anything. Planes meet only here, as callables handed to each other.
"""

import asyncio
import gc
import logging
import math
import os
import random
import signal
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress

import aiohttp
import uvloop

from pharos import __version__, clock
from pharos.config import aliases, load
from pharos.config.credentials import Credentials
from pharos.config.schema import Config, Drain
from pharos.control.discovery import static
from pharos.control.fetch import Fetcher, new_session
from pharos.control.scraper import Scraper
from pharos.control.shelf import Shelf
from pharos.control.streams import Streams, openers
from pharos.control.tasks import Restart, Tasks
from pharos.core.fleet import Backend, Event, Fleet
from pharos.core.sched import Ledger
from pharos.obs import logs, metrics, status
from pharos.obs.metrics import CONTENT_TYPE, Metrics
from pharos.obs.recent import Recent
from pharos.obs.status import Status
from pharos.proxy import ollama
from pharos.proxy.auth import Key, Keyring
from pharos.proxy.done import Done
from pharos.proxy.gate import Gate
from pharos.proxy.incoming import PageView
from pharos.proxy.server import Proxy
from pharos.proxy.settings import ProxySettings

log = logging.getLogger(__name__)

SEED_BITS = 63
YOUNG = 10_000
"""New objects after which garbage is looked for: requests leave none in cycles, and each look walks cold memory."""
COUNTED_AT = 32
"""Ended requests that are counted at once; those before are counted when somebody asks for the metrics."""
EVERYWHERE = ("", "0.0.0.0", "[::]")  # noqa: S104 (a name for it, not a choice of it)
SAME_SIGNAL_S = 0.1
"""Signals this close are one: what ends a whole process group reaches `make` too, which passes it on."""
NO_LIMIT_S = 3600.0
"""Stands for "no limit" where a number of seconds is asked for: no system tries to connect for longer."""


class App:
    """One running instance: everything that is built, and what each part tells the others."""

    def __init__(self, config: Config, session: aiohttp.ClientSession) -> None:
        self.config = config
        self.is_ready = asyncio.Event()
        """Set once requests are let in, and never cleared."""
        self.tasks = Tasks(self._on_restart)
        self._chance = random.Random()  # noqa: S311 (breaks ties and spreads rounds; no secret hangs on it)
        self.fleet = Fleet(aliases.of_fleet(config))
        self.ledger = Ledger(
            self.fleet,
            policy=config.policy,
            queue_size=config.queue.size,
            max_wait_s=config.queue.max_wait_s,
            absent_wait_s=config.queue.absent_wait_s,
        )
        self.gate = Gate(self.ledger, clock.monotonic, lambda: self._chance.getrandbits(SEED_BITS))
        self.metrics = Metrics(
            version=__version__, max_models=config.metrics.max_models, max_keys=config.metrics.max_keys
        )
        self.recent = Recent()
        self._uncounted: list[Done] = []
        self.shelf = Shelf(ollama.PAGES)
        credentials = Credentials(config.credentials, os.environ, on_event=self._on_event)
        self.proxy = Proxy(
            settings(config),
            ledger=self.ledger,
            fleet=self.fleet,
            gate=self.gate,
            keyring=keyring(config),
            on_done=self._on_done,
            on_event=self._on_ejection,
            pages=self._pages(),
            identity=credentials,
            last_page=self.shelf.last,
            clock=clock.monotonic,
            wall=clock.wall,
        )
        self.streams = Streams(
            self.fleet,
            self.tasks,
            openers(session, credentials),
            on_event=self._on_event,
            on_change=self._on_told,
        )
        self.scraper = Scraper(
            self.fleet,
            Fetcher(session, credentials=credentials, on_page=self.shelf.put),
            self.tasks,
            rng=self._chance,
            on_event=self._on_event,
            on_round=self._on_round,
            on_plan=self.streams.follow,
        )

    async def start(self) -> None:
        """Open the listener, which answers "not ready" at first, then read the engines. Raises OSError."""
        await self.proxy.start(self.config.listen)
        specs = load.backend_specs(self.config)
        self.scraper.set_backends(specs)
        self.shelf.keep(spec.name for spec in specs)
        self._look_ready()
        if not self.config.keys:
            log.warning("no keys are configured: everyone who reaches %s may use these engines", self.config.listen)
        if not specs:
            log.warning("no backends are configured: every request will be answered 503")
        self.tasks.start("remarks on addresses", self._remark)
        self.tasks.start("prepare pages", self._prepare_pages)

    @property
    def url(self) -> str:
        """Where people reach it from this machine; known once it has started."""
        host = self.config.listen.rpartition(":")[0]
        return f"http://{'localhost' if host in EVERYWHERE else host}:{self.proxy.port}"

    async def end(self) -> None:
        """Drain: nothing is cut before `drain.timeout`."""
        drain = self.config.drain
        log.info("draining: %s; a second signal ends at once", farewell(self.proxy.inflight, drain))
        await self.proxy.drain(drain.grace_s, drain.timeout_s)

    # --- what the planes tell each other

    def _on_event(self, event: Event) -> None:
        """Something happened to a backend: count it, and log it when it has words."""
        if event.outcome:
            self.metrics.decided(event.stage, event.outcome)
        if event.text:
            log.log(logs.LEVELS[event.level], "%s", event.text)
        elif event.outcome:
            log.debug("%s: %s=%s", event.backend, event.stage, event.outcome)

    def _on_ejection(self, event: Event) -> None:
        """A request found a backend dead: see at once whether it is."""
        self._on_event(event)
        self.scraper.wake(event.backend)

    def _on_restart(self, restart: Restart) -> None:
        """A background task died."""
        self.metrics.decided("task", "restarted")
        log.error(
            "background task %r died (%s), started again in %g s", restart.name, restart.error, restart.delay_s,
            exc_info=restart.error,
        )  # fmt: skip

    def _on_round(self, backend: Backend) -> None:
        del backend
        self.gate.kick()
        self._look_ready()

    def _on_told(self, backend: Backend) -> None:
        """A line or an event set a value: somebody who waits may have a slot now."""
        del backend
        self.gate.kick()

    def _look_ready(self) -> None:
        if not self.proxy.ready and self.fleet.is_ready:
            self.proxy.ready = True
            self.is_ready.set()
            log.info("ready on %s (status page: /status)", self.url)

    def _on_done(self, done: Done) -> None:
        self._uncounted.append(done)
        if len(self._uncounted) >= COUNTED_AT:
            self._count()
        self.recent.add(done)
        if log.isEnabledFor(logging.DEBUG):
            log.debug("request", extra={"fields": request_fields(done)})

    def _count(self) -> None:
        """Count the requests that have ended: many at once, as the processor has forgotten how after each by itself."""
        ended, self._uncounted = self._uncounted, []
        for done in ended:
            self.metrics.finished(done)

    # --- pages

    def _pages(self) -> Mapping[str, PageView]:
        page = Status(
            self.fleet,
            self.recent,
            version=__version__,
            policy=self.config.policy,
            phase=self._phase,
            waiting=self.ledger.waiting_by_model,
            monotonic=clock.monotonic,
            wall=clock.wall,
        )
        return {"/metrics": self._metrics_page, "/status": page.page}

    def _metrics_page(self, _query: Mapping[str, str], _accept: str, _is_admin: bool) -> tuple[int, str, bytes]:  # noqa: FBT001 (as the proxy calls)
        self._count()
        return 200, CONTENT_TYPE, self.metrics.render(self.fleet, self.ledger.waiting, clock.monotonic())

    def _phase(self) -> str:
        if self.proxy.draining:
            return "draining"
        return "ready" if self.proxy.ready else "starting"

    async def _prepare_pages(self) -> None:
        """Load what only pages need after the start, and not in the middle of someone's stream."""
        await self.is_ready.wait()
        await asyncio.to_thread(status.prepare)
        await asyncio.to_thread(metrics.prepare)

    async def _remark(self) -> None:
        for event in await static.remarks(load.backend_specs(self.config)):
            self._on_event(event)


def settings(config: Config) -> ProxySettings:
    """What of the configuration concerns the data plane."""
    return ProxySettings(
        body_bytes=config.limits.body_bytes,
        header_bytes=config.limits.header_bytes,
        buffered_bytes=config.limits.buffered_bytes,
        connections=config.limits.connections,
        connect_s=NO_LIMIT_S if config.deadlines.connect_s is None else config.deadlines.connect_s,
        first_byte_warm_s=config.deadlines.first_byte_warm_s,
        first_byte_cold_s=config.deadlines.first_byte_cold_s,
        reply_idle_s=config.deadlines.idle_s,
        retry_attempts=config.retry.attempts,
        retry_budget=config.retry.budget,
        show_target=config.response_headers.target,
        show_reason=config.response_headers.reason,
    )


def keyring(config: Config) -> Keyring:
    """The configured keys, by hash."""
    keys = config.keys
    return Keyring((k.sha256, Key(k.name, weight=k.weight, admin=k.admin, models=k.models)) for k in keys)


def request_fields(done: Done) -> dict[str, object]:
    """A request's log line: names, times and decisions, nothing of what was said."""
    return {
        "request_id": done.request_id,
        "key": done.key,
        "model": done.model,
        "target": done.target,
        "status": done.status,
        "reason": done.reason,
        "stages": " ".join(f"{stage}={outcome}" for stage, outcome in done.stages),
        "ttft_s": done.ttft_s,
        "overhead_s": done.overhead_s,
        "queue_wait_s": done.queue_wait_s,
        "duration_s": done.duration_s,
    }


def farewell(running: int, drain: Drain) -> str:
    """What an instance that ends has left to do, for people. `running`: requests in work, waiting ones included."""
    requests = f"{running or 'no'} {'requests' if running > 1 else 'request'} in work"
    accepting = f"still accepting for {drain.grace_s:g} s, then " if drain.grace_s else ""
    return f"{requests}, {accepting}up to {drain.timeout_s:g} s for replies"


async def serve(
    config: Config,
    *,
    log_level: str,
    log_format: logs.Format,
    on_ready: Callable[[str], None] | None,
    stop: asyncio.Event,
    on_drain: Callable[[str], None] | None = None,
) -> int:
    """Serve until `stop` is set, then drain; returns the exit status.

    `on_ready` gets the address once requests are let in, `on_drain` a line for people when the end begins.
    Raises OSError when the address cannot be had.
    """
    logs.set_up(log_level, log_format)
    async with new_session() as session:
        app = App(config, session)
        async with app.tasks:
            await app.start()
            gc.collect()
            gc.freeze()  # what is alive now stays: later collections need not walk it
            gc.set_threshold(YOUNG)
            announcing = asyncio.create_task(_announce(app, on_ready), name="announce")
            try:
                await stop.wait()
            finally:
                announcing.cancel()
                if on_drain is not None:
                    on_drain(farewell(app.proxy.inflight, config.drain))
                await app.end()
    log.info("stopped")
    return 0


async def _announce(app: App, on_ready: Callable[[str], None] | None) -> None:
    await app.is_ready.wait()
    if on_ready is not None:
        on_ready(app.url)


def run(config: Config, *, log_level: str, log_format: logs.Format, early_signals: Sequence[int] = ()) -> int:
    """Serve on a loop of its own until SIGTERM or SIGINT; a second one ends at once. Raises OSError as `serve`."""

    async def main() -> int:
        stop = asyncio.Event()
        handle_signals(stop)
        if early_signals:
            stop.set()
        return await serve(config, log_level=log_level, log_format=log_format, on_ready=None, stop=stop)

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(main())


def handle_signals(
    stop: asyncio.Event,
    *,
    numbers: Sequence[int] = (signal.SIGTERM, signal.SIGINT),
    before_exit: Callable[[], object] = lambda: None,
) -> None:
    """The first signal sets `stop`, a second one ends at once, after `before_exit`."""
    first_at = -math.inf

    def asked(number: int) -> None:
        nonlocal first_at
        if not stop.is_set():
            first_at = clock.monotonic()
            stop.set()
        elif clock.monotonic() - first_at > SAME_SIGNAL_S:
            log.warning("second signal: ending at once")
            before_exit()
            os._exit(128 + number)

    for number in numbers:
        with suppress(NotImplementedError):
            asyncio.get_running_loop().add_signal_handler(number, asked, number)
