"""What happened, told to those who report it: counters, the log, the page of last requests, the file of decisions.

Forbidden here: changing anything that decides.
"""

import logging
from typing import TYPE_CHECKING, Final

from pharos import __version__, clock
from pharos.config.reload import State
from pharos.config.schema import Config
from pharos.control.tasks import Restart
from pharos.core.fleet import Event, Fleet
from pharos.obs import logs, usage
from pharos.obs.decision_log import DecisionLog
from pharos.obs.happened import Happened
from pharos.obs.metrics import Metrics
from pharos.obs.pulse import Pulse
from pharos.obs.recent import Recent
from pharos.obs.request_log import request_fields
from pharos.proxy.done import Done

if TYPE_CHECKING:
    from pharos.core.usage import UsageBook
    from pharos.obs.spans import Spans

log = logging.getLogger(__name__)

COUNTED_AT: Final = 32
"""Ended requests that are counted at once; those before are counted when somebody asks for the metrics."""


class Reporting:
    """Everything that hears of ended requests, events and restarts."""

    def __init__(self, config: Config, fleet: Fleet) -> None:
        self._fleet = fleet
        self._policy = config.policy
        self.metrics = Metrics(
            version=__version__, max_models=config.metrics.max_models, max_keys=config.metrics.max_keys
        )
        self.recent = Recent()
        self.pulse = Pulse()
        self.happened = Happened()
        self.decision_log = self._decision_log(config)
        self.book: UsageBook | None = None
        """Where usage is written; `None` until there is one."""
        self.spans: Spans | None = None
        """What sends spans; `None`: nothing does."""
        self._uncounted: list[Done] = []

    def event(self, event: Event) -> None:
        """Something happened to a backend: count it, and log it when it has words."""
        if event.outcome:
            self.metrics.decided(event.stage, event.outcome)
        if event.text:
            if event.level != "debug":
                self.happened.add(event.level, event.text, clock.wall(), event.backend or None)
            log.log(logs.LEVELS[event.level], "%s", event.text)
        elif event.outcome:
            log.debug("%s: %s=%s", event.backend, event.stage, event.outcome)

    def restarted(self, restart: Restart) -> None:
        """A background task died."""
        self.metrics.decided("task", "restarted")
        text = f"background task {restart.name!r} died ({restart.error}), started again in {restart.delay_s:g} s"
        self.happened.add("error", text, clock.wall())
        log.error("%s", text, exc_info=restart.error)

    def done(self, done: Done) -> None:
        """A request ended."""
        self._uncounted.append(done)
        if len(self._uncounted) >= COUNTED_AT:
            self.count()
        self.recent.add(done)
        if self.decision_log is not None:
            self.decision_log.add(done, self._policy_for(done.model))
        if log.isEnabledFor(logging.DEBUG):
            log.debug("request", extra={"fields": request_fields(done)})

    def config_read(self, state: State) -> None:
        """The configuration was read again, or was tried to be."""
        self.metrics.reports.config_read(state.at, ok=state.fault is None)

    def count(self) -> None:
        """Count the requests that have ended: many at once, as the processor has forgotten how after each by itself."""
        ended, self._uncounted = self._uncounted, []
        for done in ended:
            self.metrics.finished(done)
            self.pulse.note(done)
            if self.book is not None:
                usage.count(self.book, done)
            if self.spans is not None:
                self.spans.add(done)

    def _policy_for(self, model: str | None) -> str:
        """The policy that chooses for a model now."""
        return "least-load" if model in self._fleet.calibration.fallen else self._policy

    def _decision_log(self, config: Config) -> DecisionLog | None:
        wanted = config.decision_log
        if wanted is None:
            return None
        return DecisionLog(
            wanted.path,
            wanted.max_size_bytes,
            wanted.keep,
            version=__version__,
            wall=clock.wall,
            on_event=self.event,
        )
