"""The probe constructor over Prometheus text. It gives the right number or none.

Forbidden here: leniency. A label that the probe does not know means that the number may have another meaning.
"""

import enum
import math
from collections.abc import Callable, Iterator, Mapping, Sequence

import msgspec

from pharos.core.engine.probe import DropReason, Feed, FeedKind, Page, Probe, ProbeError, SideEffect
from pharos.core.engine.promtext import Exposition, Series, exposition_of, labels_of
from pharos.core.engine.values import NUMBERS, number, quoted
from pharos.core.signals import BACKEND, Found, Signal, Value

_LEVELS = frozenset({"gauge", "untyped", "unknown"})
"""Declared types whose number is a level now. A counter that bears the name of a gauge means something else."""
_COUNTS = frozenset({"counter", "untyped", "unknown"})
"""Declared types whose number only grows."""
MOST_SERIES = 5000
"""Series of one metric: one for each model and engine."""
FAR_FUTURE_S = 1e11
"""Seconds since 1970 that no process starts at."""


class Aggregate(enum.StrEnum):
    """How the series of one model (or of the backend) become one number."""

    ONLY = "only"
    """There is one series."""
    SUM = "sum"
    MAX = "max"


def distinct(metric: str, series: Sequence[Series]) -> Iterator[tuple[dict[str, str], float]]:
    """Read the labels of a metric's series.

    Raises `ProbeError` for one that comes twice or bears a time of its own, and for more than any engine has.
    """
    if len(series) > MOST_SERIES:
        raise ProbeError(DropReason.PARSE_ERROR, f"more than {MOST_SERIES} series of {metric}")
    seen: set[frozenset[tuple[str, str]]] = set()
    for one in series:
        labels = labels_of(one.label_text)
        identity = frozenset(labels.items())
        if identity in seen:
            raise ProbeError(DropReason.PARSE_ERROR, f"{metric} comes twice")
        seen.add(identity)
        if one.has_timestamp:
            raise ProbeError(DropReason.PARSE_ERROR, f"{metric} bears a time of its own")
        yield labels, one.value


def process_start(name: str, feed: Feed) -> Probe:
    """Declare a probe of the mark `process`: the start time that Prometheus client libraries tell of their process."""
    metric = "process_start_time_seconds"

    def parse_start(page: Page) -> Found:
        series = exposition_of(page).series.get(metric)
        if series is None:
            raise ProbeError(DropReason.NO_VALUE, f"no {metric}")
        [(labels, started), *more] = distinct(metric, series)
        if labels or more:
            raise ProbeError(DropReason.NO_EVIDENCE, f"{metric} of more than one process")
        if not 0 < started < FAR_FUTURE_S:
            raise ProbeError(DropReason.PARSE_ERROR, f"{quoted(started)} is no time")
        return {BACKEND: f"started at {started:.2f}"}

    return Probe(name, Signal.PROCESS, feed, parse_start, wants=metric)


def has_series(page: Page, metric: str) -> bool:
    """Whether a page is an exposition that holds the metric."""
    try:
        return metric in exposition_of(page).series
    except ProbeError:
        return False


def prom(  # noqa: PLR0913 - a declaration: every argument is a word of it
    name: str,
    signal: Signal,
    metric: str,
    *,
    path: str = "/metrics",
    per_model: str | None = None,
    aggregate: Aggregate = Aggregate.ONLY,
    over: Sequence[str] = (),
    where: Mapping[str, str] | None = None,
    scale: float = 1.0,
    needs: Sequence[str] = (),
    side_effect: SideEffect = SideEffect.NONE,
    interval_s: float | None = None,
    when: Callable[[str | None], bool] | None = None,
    own: bool = False,
    feed: Feed | None = None,
    beside: bool = False,
    rank: int = 0,
    one: Sequence[str] = (),
    alike: Sequence[str] = (),
    plus: Sequence[str] = (),
    share_of: str | None = None,
    may_come: bool = False,
    without: Sequence[str] = (),
    lag_s: float = 0.0,
) -> Probe:
    """Declare a probe that reads one gauge; for the mark `work_done`, one counter.

    `per_model`: the label that names the model; without it the number speaks of the backend. `aggregate` folds the
    series that differ in the labels `over`; `where` chooses series by label values ("" is an absent label). Labels in
    `one` have the same value in all series; series that differ only in labels in `alike` tell the same thing each for
    itself, and the largest counts. A series with any other label makes the signal unknown. `scale` multiplies (0.01 for
    percent). `plus`: further metrics whose numbers are added; without one of them nothing is known. `share_of`: the
    number is a share of this metric's, series by series. `needs`: metrics that must be in the same body because they
    prove what this one means; `without`: metrics that must not be, because this one is their predecessor. `may_come`:
    the engine has the metric only once it has served something. `lag_s`: see `Probe`. `feed`: instead of a plain GET of
    `path`. Raises `ValueError` for a declaration that cannot be right.
    """
    reader = _Reader(
        name=name,
        signal=signal,
        metrics=(metric, *plus),
        per_model=per_model,
        aggregate=aggregate,
        over=tuple(over),
        where=dict(where) if where is not None else {},
        one=tuple(one),
        alike=tuple(alike),
        share_of=share_of,
        may_come=may_come,
        scale=scale,
        needs=tuple(needs),
        without=tuple(without),
    )
    if feed is None:
        feed = Feed(kind=FeedKind.GET, path=path, side_effect=side_effect, interval_s=interval_s)
    return Probe(
        name, signal, feed, reader.read, when=when, own=own, beside=beside, rank=rank, lag_s=lag_s, wants=metric
    )


class _Reader(msgspec.Struct, frozen=True):
    """The declaration of one Prometheus probe, and how it reads a page."""

    name: str
    signal: Signal
    metrics: tuple[str, ...]
    per_model: str | None
    aggregate: Aggregate
    over: tuple[str, ...]
    where: dict[str, str]
    one: tuple[str, ...]
    alike: tuple[str, ...]
    share_of: str | None
    may_come: bool
    scale: float
    needs: tuple[str, ...]
    without: tuple[str, ...]

    def __post_init__(self) -> None:
        """Raise `ValueError` for a declaration that cannot be right."""
        if self.signal not in NUMBERS:
            raise ValueError(f"{self.name}: {self.signal.value} is no number")
        if self.signal is Signal.KV_USAGE and (self.aggregate is Aggregate.SUM or len(self.metrics) > 1):
            raise ValueError(f"{self.name}: shares cannot be added")
        if self.share_of is not None and self.signal is not Signal.KV_USAGE:
            raise ValueError(f"{self.name}: {self.signal.value} is no share")
        if (self.aggregate is Aggregate.ONLY) == bool(self.over):
            raise ValueError(f"{self.name}: `over` names the labels that sum or max fold, and only those")

    def read(self, page: Page) -> Found:
        """Return each model's number. Raises `ProbeError`."""
        body = exposition_of(page)
        for metric in self.needs:
            if metric not in body.series:
                raise ProbeError(DropReason.NO_EVIDENCE, f"no {metric} beside it")
        for metric in self.without:
            if metric in body.series:
                raise ProbeError(DropReason.NO_EVIDENCE, f"{metric} took its place")
        parts = [self._read_metric(body, metric) for metric in self.metrics]
        known = [model for model in parts[0] if all(model in part for part in parts)]
        if not known:
            raise ProbeError(DropReason.NO_VALUE, "the engine says NaN")
        found: dict[str, Value] = {}
        for model in known:
            numbers = [part[model] for part in parts]
            found[model] = number(self.signal, sum(numbers)) if len(numbers) > 1 else numbers[0]
        return found

    def _read_metric(self, body: Exposition, metric: str) -> dict[str, int | float]:
        """Return each model's number in one metric; without those that are NaN."""
        series = body.series.get(metric)
        if series is None:
            raise ProbeError(DropReason.NO_VALUE, f"no {metric}", will_pass=self.may_come)
        self._prove(body, metric)
        wholes = self._wholes(body)
        groups: dict[str, dict[tuple[str, ...], int | float] | None] = {}
        for labels, raw in self._chosen(metric, series):
            model, part = self._model(metric, labels), tuple(labels.get(label, "") for label in self.over)
            numbers = groups.setdefault(model, {})
            read = self._number(raw, wholes, labels)
            if numbers is None or read is None:
                groups[model] = None
            else:
                numbers[part] = max(read, numbers.get(part, read))
        return {model: self._fold(list(parts.values())) for model, parts in groups.items() if parts is not None}

    def _prove(self, body: Exposition, metric: str) -> None:
        """Refuse a metric of another meaning, and one of which a part may be missing."""
        declared = body.types.get(metric, "untyped")
        if declared not in (_COUNTS if self.signal is Signal.WORK_DONE else _LEVELS):
            raise ProbeError(DropReason.NO_EVIDENCE, f"{metric} is a {declared} here")
        if (self.aggregate is not Aggregate.ONLY or self.alike) and body.last == metric:
            raise ProbeError(DropReason.NO_EVIDENCE, f"nothing follows {metric}: more of it may have been cut off")

    def _chosen(self, metric: str, series: Sequence[Series]) -> Iterator[tuple[dict[str, str], float]]:
        """Check the labels of every series; give those that `where` chooses, with their numbers as they came."""
        known = {*self.over, *self.where, *self.one, *self.alike}
        if self.per_model is not None:
            known.add(self.per_model)
        shape: set[str] | None = None
        same: dict[str, str] = {}
        for labels, raw in distinct(metric, series):
            if not labels.keys() <= known:
                raise ProbeError(DropReason.NO_EVIDENCE, f"label {quoted(min(labels.keys() - known))} is new")
            if any(labels.get(label, "") != wanted for label, wanted in self.where.items()):
                continue
            if shape is not None and shape != labels.keys():
                raise ProbeError(DropReason.NO_EVIDENCE, f"{metric} has parts and a whole")
            shape = set(labels)
            for label in self.one:
                if same.setdefault(label, labels.get(label, "")) != labels.get(label, ""):
                    raise ProbeError(DropReason.NO_EVIDENCE, f"{metric} speaks of more than one {label}")
            yield labels, raw
        if shape is None:
            raise ProbeError(DropReason.NO_VALUE, f"no {metric} with the wanted labels")

    def _model(self, metric: str, labels: Mapping[str, str]) -> str:
        """Name the model that a series speaks of."""
        if self.per_model is None:
            return BACKEND
        try:
            return labels[self.per_model]
        except KeyError:
            raise ProbeError(DropReason.PARSE_ERROR, f"{metric} without the label {self.per_model}") from None

    def _wholes(self, body: Exposition) -> dict[frozenset[tuple[str, str]], float]:
        """Labels of each series to what its number is a share of."""
        if self.share_of is None:
            return {}
        series = body.series.get(self.share_of)
        if series is None:
            raise ProbeError(DropReason.NO_EVIDENCE, f"no {self.share_of} beside it")
        self._prove(body, self.share_of)
        return {frozenset(labels.items()): raw for labels, raw in distinct(self.share_of, series)}

    def _number(
        self, raw: float, wholes: Mapping[frozenset[tuple[str, str]], float], labels: Mapping[str, str]
    ) -> int | float | None:
        """Check one number; `None` for NaN."""
        if math.isnan(raw):
            return None
        if self.share_of is not None:
            whole = wholes.get(frozenset(labels.items()))
            if whole is None or not 0 < whole < math.inf:
                raise ProbeError(DropReason.NO_EVIDENCE, f"no {self.share_of} to make a share of")
            return number(self.signal, raw / whole)
        # Unscaled numbers are checked as they came: a product would round.
        return number(self.signal, raw * self.scale if self.scale != 1.0 else raw)

    def _fold(self, numbers: list[int | float]) -> int | float:
        """Make one number of a model's series; without labels to fold there is only one."""
        return number(self.signal, sum(numbers)) if self.aggregate is Aggregate.SUM else max(numbers)
