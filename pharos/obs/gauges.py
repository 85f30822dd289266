"""What `/metrics` reads from fleet and queue at each scrape. A value that is unknown is a series left out, never 0.

Forbidden here: counting, and labels that a client could fill with names of its own making.
"""

from collections.abc import Iterator

from pharos.core.engine.probe import FeedKind
from pharos.core.fleet.backend import Backend, State, Target
from pharos.obs.exposition import Gauge, Labels
from pharos.obs.moment import Moment

Values = dict[Labels, float]
_TOLD = ("backend", "model")


class FleetGauges:
    """Backends, targets, the queue."""

    def __init__(self, version: str) -> None:
        self._version = version
        self._up = Gauge(
            "pharos_backend_up",
            "Whether the backend answers; left out until the first answer is due",
            ("backend", "kind", "version"),
        )
        self._age = Gauge(
            "pharos_backend_read_age_seconds", "How long ago all that is asked of the backend was read", ("backend",)
        )
        self._feed = Gauge(
            "pharos_backend_log_feed_up", "Whether the log from which its plan reads is followed", ("backend",)
        )
        self._probes = Gauge("pharos_backend_probes_active", "Probes of the backend's plan", ("backend",))
        self._lost = Gauge(
            "pharos_probe_lost",
            "Always 1: a probe that told something before an upgrade of the engine, and which nothing replaces now",
            ("backend", "probe"),
        )
        self._drained = Gauge(
            "pharos_backend_drained", "Whether an operator or discovery keeps new requests from it", ("backend",)
        )
        self._inflight = Gauge("pharos_target_inflight", "Our requests running there now", _TOLD)
        self._cluster = Gauge(
            "pharos_target_inflight_cluster",
            "The same with what peers told lately of theirs; with all peers connected it is the sum over instances",
            _TOLD,
        )
        self._unknown = Gauge(
            "pharos_target_signals_unknown",
            "Count of what is not known now, out of residency, running, waiting, capacity, KV usage",
            _TOLD,
        )
        self._waiting = Gauge("pharos_queue_waiting", "Requests waiting for a slot")
        self._beginnings = Gauge(
            "pharos_prefix_entries", "Beginnings of prompts of which is known whose cache holds them; 200,000 at most"
        )
        self._build = Gauge("pharos_build_info", "Always 1; the version is the label", ("version",))

    @property
    def families(self) -> tuple[Gauge, ...]:
        """All of them."""
        return (
            *(self._up, self._age, self._feed, self._probes, self._lost, self._drained),
            *(self._inflight, self._cluster, self._unknown, self._waiting),
            *(self._beginnings, self._build),
        )

    def pieces(self, moment: Moment) -> Iterator[bytes]:
        """All of them as text; a backend is one step."""
        backends: tuple[Values, ...] = ({}, {}, {}, {}, {}, {})
        targets: tuple[Values, ...] = ({}, {}, {})
        for backend in list(moment.fleet.backends.values()):
            _read_backend(backend, moment.now, *backends)
            _read_targets(backend, moment, *targets)
            yield b""
        for family, values in zip(self.families, (*backends, *targets), strict=False):
            yield family.piece(values)
        yield self._waiting.piece({(): moment.waiting})
        yield self._beginnings.piece({(): moment.beginnings})
        yield self._build.piece({(self._version,): 1})


def _read_backend(
    backend: Backend,
    now: float,
    up: Values,
    age: Values,
    feed: Values,
    probes: Values,
    lost: Values,
    drained: Values,
) -> None:
    name, plan = backend.spec.name, backend.plan
    if backend.state is not State.UNKNOWN:
        kind = plan.kind if plan is not None else ""
        version = plan.version if plan is not None and plan.version is not None else ""
        up[name, kind, version] = backend.is_alive(now)
        drained[(name,)] = backend.drained_by is not None
    if backend.last_full_at is not None:
        age[(name,)] = max(0.0, now - backend.last_full_at)
    if plan is not None:
        probes[(name,)] = len(plan.active)
        followed = [probe.name for probe in plan.active if probe.feed.kind is FeedKind.LOG]
        if followed:
            feed[(name,)] = not any(probe in backend.feed_faults for probe in followed)
    lost.update(dict.fromkeys(((name, probe) for probe in backend.lost_probes), 1))


def _read_targets(backend: Backend, moment: Moment, inflight: Values, cluster: Values, unknown: Values) -> None:
    for target in backend.targets.values():
        others = target.peers
        if not target.listed and not target.inflight and not others:
            continue
        labels = (backend.spec.name, moment.models.admit(target.model))
        inflight[labels] = inflight.get(labels, 0) + target.inflight
        cluster[labels] = cluster.get(labels, 0) + target.inflight + others
        unknown[labels] = unknown.get(labels, 0) + _count_unknown(target, moment.now)


def _count_unknown(target: Target, now: float) -> int:
    view = target.view(now)
    return (view.residency, view.running, view.waiting, view.capacity, view.kv_usage).count(None)
