"""What Pharos counts, and how `/metrics` reads it. `docs/metrics.md` is generated from these definitions.

Forbidden here: labels that a client could fill with names of its own making.
"""

from functools import cache
from typing import TYPE_CHECKING

from pharos.core.decisions import DECISIONS
from pharos.core.engine.usage_fields import Usage
from pharos.core.fleet.backend import State, Target
from pharos.core.fleet.registry import Fleet
from pharos.obs.exposition import CONTENT_TYPE, Bound, Counter, Family, Gauge, Histogram, Labels
from pharos.proxy.done import CLIENT_LEFT_STATUS, Done

if TYPE_CHECKING:
    import prometheus_client

__all__ = ["CONTENT_TYPE", "Metrics"]

_FIRST_TOKEN_S = (0.05, 0.1, 0.25, 0.75, 2.0, 6.0, 20.0)
"""From a cached prompt on a GPU to a model that is loaded first."""
_OVERHEAD_S = (0.0005, 0.001, 0.002, 0.004, 0.01, 0.05, 0.25)
"""The budget is 2 ms at the 99th percentile, so it is a bound of its own."""
_QUEUE_WAIT_S = (0.001, 0.1, 0.5, 2.0, 5.0, 15.0, 60.0)
"""The first is for those that did not wait."""
_FIRST_ERROR = 400


def _process_metrics() -> bytes:
    """Memory, CPU and files of this process."""
    import prometheus_client  # a tenth of the start, and no scrape comes so soon

    return prometheus_client.generate_latest(_registry())


@cache
def _registry() -> "prometheus_client.CollectorRegistry":
    import prometheus_client

    registry = prometheus_client.CollectorRegistry()
    prometheus_client.ProcessCollector(registry=registry)
    return registry


def prepare() -> None:
    """Load what the first scrape needs. Call it in a thread, once requests are served."""
    _process_metrics()


class Metrics:
    """Every metric of one instance. Call `finished` and `decided` as things happen, `render` at each scrape."""

    def __init__(self, *, version: str, max_models: int, max_keys: int) -> None:
        self._models = Bound(max_models)
        self._keys = Bound(max_keys)
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
        self._gauges = _Gauges(version)

    @property
    def families(self) -> tuple[Family, ...]:
        """Every family of our own, for the generated document."""
        return (*self._written, *self._gauges.families)

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
            self._count_tokens(key, model, done)

    def render(self, fleet: Fleet, waiting: int, now: float) -> bytes:
        """Everything as Prometheus text, in `CONTENT_TYPE`; `waiting` is the length of the queue."""
        parts = [line for family in self._written for line in family.lines()]
        parts += self._gauges.lines(fleet, waiting, now, self._models)
        return "".join(parts).encode() + _process_metrics()

    @property
    def _written(self) -> tuple[Counter | Histogram, ...]:
        return (
            *(self._decisions, self._requests, self._tokens, self._unmetered),
            *(self._ttft, self._first_byte, self._overhead, self._queue_wait),
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
        if not is_metered and (done.status < _FIRST_ERROR or done.status == CLIENT_LEFT_STATUS):
            self._unmetered.inc((key, model))


def _token_counts(usage: Usage) -> tuple[tuple[str, int | None], ...]:
    """A reply's tokens by type; `None` is unknown."""
    return ("prompt", usage.prompt_tokens), ("cached", usage.cached_tokens), ("completion", usage.completion_tokens)


class _Gauges:
    """What is read from fleet and ledger at each scrape. A value that is unknown is a series left out, never 0."""

    def __init__(self, version: str) -> None:
        self._version = version
        self._up = Gauge(
            "pharos_backend_up",
            "Whether the backend answers; left out until the first answer is due",
            ("backend", "kind", "version"),
        )
        self._probes = Gauge("pharos_backend_probes_active", "Probes of the backend's plan", ("backend",))
        self._lost = Gauge(
            "pharos_probe_lost",
            "Always 1: a probe that told something before an upgrade of the engine, and which nothing replaces now",
            ("backend", "probe"),
        )
        self._inflight = Gauge("pharos_target_inflight", "Our requests running there now", ("backend", "model"))
        self._unknown = Gauge(
            "pharos_target_signals_unknown",
            "Count of what is not known now, out of residency, running, waiting, capacity, KV usage",
            ("backend", "model"),
        )
        self._waiting = Gauge("pharos_queue_waiting", "Requests waiting for a slot")
        self._build = Gauge("pharos_build_info", "Always 1; the version is the label", ("version",))

    @property
    def families(self) -> tuple[Gauge, ...]:
        """All of them."""
        return (
            *(self._up, self._probes, self._lost, self._inflight),
            *(self._unknown, self._waiting, self._build),
        )

    def lines(self, fleet: Fleet, waiting: int, now: float, models: Bound) -> list[str]:
        """All of them as text."""
        up: dict[Labels, float] = {}
        probes: dict[Labels, float] = {}
        lost: dict[Labels, float] = {}
        inflight: dict[Labels, float] = {}
        unknown: dict[Labels, float] = {}
        for backend in fleet.backends.values():
            name, plan = backend.spec.name, backend.plan
            if backend.state is not State.UNKNOWN:
                kind = plan.kind if plan is not None else ""
                version = plan.version if plan is not None and plan.version is not None else ""
                up[name, kind, version] = backend.is_up(now)
            if plan is not None:
                probes[(name,)] = len(plan.active)
            lost.update(dict.fromkeys(((name, probe) for probe in backend.lost_probes), 1))
            for target in backend.targets.values():
                if not target.listed and not target.inflight:
                    continue
                labels = (name, models.admit(target.model))
                inflight[labels] = inflight.get(labels, 0) + target.inflight
                unknown[labels] = unknown.get(labels, 0) + _count_unknown(target, now)
        return [
            *self._up.lines(up),
            *self._probes.lines(probes),
            *self._lost.lines(lost),
            *self._inflight.lines(inflight),
            *self._unknown.lines(unknown),
            *self._waiting.lines({(): waiting}),
            *self._build.lines({(self._version,): 1}),
        ]


def _count_unknown(target: Target, now: float) -> int:
    view = target.view(now)
    return (view.residency, view.running, view.waiting, view.capacity, view.kv_usage).count(None)
