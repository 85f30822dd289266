"""What Pharos counts, and how `/metrics` reads it. `docs/metrics.md` is generated from these definitions.

Forbidden here: labels that a client could fill with names of its own making.
"""

from collections.abc import Collection, Generator, Iterator, Sequence
from typing import Final

from pharos.core.decisions import DECISIONS
from pharos.core.engine.usage_fields import Usage
from pharos.core.fleet.registry import Fleet
from pharos.core.prefix.buster import Busted
from pharos.obs.estimates import EstimateGauges
from pharos.obs.exposition import Bound, Counter, Family, Histogram
from pharos.obs.gauges import FleetGauges
from pharos.obs.moment import Moment
from pharos.obs.process import ProcessGauges
from pharos.obs.reports import Reports
from pharos.obs.usage import is_usage
from pharos.proxy.done import Done

_FIRST_TOKEN_S = (0.05, 0.1, 0.25, 0.75, 2.0, 6.0, 20.0)
"""From a cached prompt on a GPU to a model that is loaded first."""
_OVERHEAD_S = (0.0005, 0.001, 0.002, 0.004, 0.01, 0.05, 0.25)
"""The budget is 2 ms at the 99th percentile, so it is a bound of its own."""
_QUEUE_WAIT_S = (0.001, 0.1, 0.5, 2.0, 5.0, 15.0, 60.0)
"""The first is for those that did not wait."""
_DURATION_S = (0.1, 0.5, 2.0, 6.0, 20.0, 60.0, 300.0)
"""From an embedding to a long answer of a large model."""
_PIECE_BYTES: Final = 4096
"""Smaller pieces of text are put together before others get their turn."""


class Metrics:
    """Every metric of one instance. Call `finished` and `decided` as things happen, `render` at each scrape."""

    def __init__(self, *, version: str, max_models: int, max_keys: int) -> None:
        self._models = Bound(max_models)
        self._keys = Bound(max_keys)
        self._key_names: Collection[str] = ()
        """Those that are configured; empty where anybody may ask."""
        pairs = [(stage, outcome) for stage, outcomes in DECISIONS.items() for outcome in outcomes]
        self._decisions = Counter(
            "pharos_decisions_total",
            "Branches taken by requests and background rounds",
            ("stage", "outcome"),
            made=pairs,
        )
        self._requests = Counter(
            "pharos_requests_total", "Finished requests; status 499: the client left first", ("key", "model", "status")
        )
        self._tokens = Counter(
            "pharos_tokens_total",
            "Tokens as the engines counted them: prompt, cached (part of prompt), completion",
            ("key", "model", "type"),
        )
        self._unmetered = Counter(
            "pharos_unmetered_requests_total",
            "Requests that engines served without telling token counts",
            ("key", "model"),
        )
        self._ttft = Histogram(
            "pharos_ttft_seconds", "Dispatch to the first token of a streamed reply", ("model",), bounds=_FIRST_TOKEN_S
        )
        self._first_byte = Histogram(
            "pharos_first_byte_seconds", "Dispatch to the first byte of a reply", ("model",), bounds=_FIRST_TOKEN_S
        )
        self._overhead = Histogram(
            "pharos_overhead_seconds",
            "Pharos's own time before the first byte to the engine, queue excluded",
            bounds=_OVERHEAD_S,
        )
        self._queue_wait = Histogram(
            "pharos_queue_wait_seconds",
            "Time in the queue of requests that reached an engine",
            ("key",),
            bounds=_QUEUE_WAIT_S,
        )
        self._duration = Histogram(
            "pharos_request_seconds",
            "From a request's head to the end of its reply, whatever became of it",
            ("route",),
            bounds=_DURATION_S,
        )
        self._predictions = Counter(
            "pharos_prefix_predictions_total",
            "Replies whose prompt the prefix index had predicted in the engine's cache, by how it knew and what came",
            ("source", "outcome"),
        )
        self.reports = Reports()
        """What parts tell that may be switched off, and the event loop."""
        self._gauges = FleetGauges(version)
        self._estimates = EstimateGauges()
        self._process = ProcessGauges()

    @property
    def families(self) -> tuple[Family, ...]:
        """Every family, for the generated document."""
        parts = (self._gauges, self._estimates, self.reports, self._process)
        return (*self._written, *(family for part in parts for family in part.families))

    def decided(self, stage: str, outcome: str) -> None:
        """Count one branch; raises `ValueError` for one that the decision table lacks."""
        try:
            self._decisions.inc_made((stage, outcome))
        except KeyError:
            raise ValueError(f"no row in the decision table: {stage}={outcome}") from None

    def finished(self, done: Done) -> None:
        """Count one finished request with all its decisions."""
        for outcome in done.stages:
            try:
                self._decisions.inc_made(outcome)
            except KeyError:
                self.decided(*outcome)  # says which row is missing
        self._duration.observe(done.duration_s, (done.path,))
        key = self._keys.admit(done.key) if done.key is not None else ""
        reached = done.target is not None
        model = self._model(done.model, is_real=reached)
        self._requests.inc((key, model, str(done.status)))
        if done.ttft_s is not None:
            self._ttft.observe(done.ttft_s, (model,))
        if done.first_byte_s is not None:
            self._first_byte.observe(done.first_byte_s, (model,))
        if done.overhead_s is not None:
            self._overhead.observe(done.overhead_s)
        if reached:
            self._queue_wait.observe(done.queue_wait_s, (key,))
            if is_usage(done):
                self._count_tokens(key, model, done)
        if done.predicted_from is not None:
            for stage, what in done.stages:
                if stage == "prefix":
                    self._predictions.inc((done.predicted_from, what))

    def moment(
        self, fleet: Fleet, now: float, waiting: int, busted: Sequence[Busted] = (), beginnings: int = 0
    ) -> Moment:
        """What the gauges of one scrape are read from: see `Moment`."""
        return Moment(fleet, now, self._models, self._keys, waiting, busted, beginnings)

    def render(self, moment: Moment) -> Generator[None, None, bytes]:
        """Everything as Prometheus text, of `exposition.CONTENT_TYPE`; yields where others may go on."""
        self._make_room(moment.fleet)
        parts, small = [], 0
        for piece in self._pieces(moment):
            parts.append(piece)
            small += len(piece)
            if small > _PIECE_BYTES or not piece:
                small = 0
                yield
        return b"".join(parts)

    def keep_keys(self, names: Collection[str]) -> None:
        """Note which keys are configured now: the series of others go once there is no place left for new ones."""
        self._key_names = names

    def _make_room(self, fleet: Fleet) -> None:
        """Once there is no place left, drop series of models that no backend lists and of keys that are no more."""
        if self._models.is_full:
            targets = (target for backend in fleet.backends.values() for target in backend.targets.values())
            self._forget("model", self._models.keep({target.model for target in targets if target.listed}))
        if self._keys.is_full and self._key_names:
            self._forget("key", self._keys.keep(self._key_names))

    def _forget(self, label: str, values: Collection[str]) -> None:
        if values:
            for family in self._written:
                family.forget(label, values)

    def _pieces(self, moment: Moment) -> Iterator[bytes]:
        for family in self._written:
            yield from family.pieces()
        yield from self._gauges.pieces(moment)
        yield from self._estimates.pieces(moment)
        yield from self.reports.pieces(self._keys)
        yield from self._process.pieces()

    @property
    def _written(self) -> tuple[Counter | Histogram, ...]:
        return (
            *(self._decisions, self._requests, self._tokens, self._unmetered),
            *(self._ttft, self._first_byte, self._overhead, self._queue_wait, self._duration, self._predictions),
        )

    def _model(self, name: str | None, *, is_real: bool) -> str:
        """The label of a model; a name that no engine took must not use up a place."""
        if name is None:
            return ""
        return self._models.admit(name) if is_real else self._models.known(name)

    def _count_tokens(self, key: str, model: str, done: Done) -> None:
        is_metered = False
        if done.usage is not None:
            for kind, count in _token_counts(done.usage):
                if count is not None:
                    is_metered = True
                    self._tokens.inc((key, model, kind), count)
        if not is_metered:
            self._unmetered.inc((key, model))


def _token_counts(usage: Usage) -> tuple[tuple[str, int | None], ...]:
    """A reply's tokens by type; `None` is unknown."""
    return ("prompt", usage.prompt_tokens), ("cached", usage.cached_tokens), ("completion", usage.completion_tokens)
