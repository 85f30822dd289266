"""Prometheus text: a strict parser, and the probe constructor over it. It gives the right number or none.

Forbidden here: leniency. One line that is no exposition line makes the whole body unreadable, since nothing tells which
series that line held; a label that the probe does not know means that the number may have another meaning.
"""

import enum
import math
import re
from collections.abc import Callable, Mapping, Sequence

import msgspec

from pharos.core.engine.probe import DropReason, Feed, FeedKind, Page, Probe, ProbeError, SideEffect
from pharos.core.engine.values import NUMBERS, decoded, number, quoted
from pharos.core.signals import BACKEND, Found, Signal, Value

_NAME = r"[a-zA-Z_:][a-zA-Z0-9_:]*"
_LABEL_NAME = r"[a-zA-Z_][a-zA-Z0-9_]*"
_LABEL_VALUE = r'(?:[^"\\\n]|\\[\\"n])*'
_LABELS = rf'[ \t]*(?:{_LABEL_NAME}[ \t]*=[ \t]*"{_LABEL_VALUE}"[ \t]*(?:,[ \t]*|(?=\}})))*'
_NUMBER = r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?|NaN|[+-]?Inf"
_SAMPLE = re.compile(rf"({_NAME})[ \t]*(?:\{{({_LABELS})\}})?[ \t]+({_NUMBER})(?:[ \t]+(-?[0-9]+))?[ \t]*")
_ONE_LABEL = re.compile(rf'({_LABEL_NAME})[ \t]*=[ \t]*"({_LABEL_VALUE})"')
_TYPE_START = re.compile(r"#[ \t]+TYPE\b")
_TYPE = re.compile(rf"#[ \t]+TYPE[ \t]+({_NAME})[ \t]+([a-z]+)[ \t]*")
_ESCAPES = {"\\\\": "\\", '\\"': '"', "\\n": "\n"}
_ESCAPE = re.compile(r'\\[\\"n]')
_LEVELS = frozenset({"gauge", "untyped", "unknown"})
"""Declared types whose number is a level now. A counter that bears the name of a gauge means something else."""


class Aggregate(enum.StrEnum):
    """How the series of one model (or of the backend) become one number."""

    ONLY = "only"
    """There is one series."""
    SUM = "sum"
    MAX = "max"


class Series(msgspec.Struct, frozen=True, gc=False):
    """One sample line."""

    label_text: str
    """What stands between the braces; read by `labels_of` only for the metrics that a probe wants."""
    value: float
    has_timestamp: bool


class Exposition(msgspec.Struct, frozen=True):
    """A whole body."""

    series: Mapping[str, Sequence[Series]]
    types: Mapping[str, str]
    last: str
    """Name of the last sample: its family may go on behind a cut that left whole lines."""


def parse(text: str) -> Exposition:
    """Read a body in the text format 0.0.4. Raises `ProbeError` (cannot be read) unless every line is in it, whole."""
    if text and not text.endswith("\n"):
        raise ProbeError(DropReason.PARSE_ERROR, "the last line is cut")
    series: dict[str, list[Series]] = {}
    types: dict[str, str] = {}
    last = ""
    for index, line in enumerate(text.split("\n"), 1):
        if line.startswith("#"):
            if "TYPE" not in line or not _TYPE_START.match(line):
                continue
            declared = _TYPE.fullmatch(line)
            if declared is None:
                raise ProbeError(DropReason.PARSE_ERROR, f"line {index} declares no type")
            if types.setdefault(declared[1], declared[2]) != declared[2]:
                raise ProbeError(
                    DropReason.PARSE_ERROR, f"line {index} declares another type for {quoted(declared[1])}"
                )
        elif line:
            sample = _SAMPLE.fullmatch(line)
            if sample is None:
                raise ProbeError(DropReason.PARSE_ERROR, f"line {index} is no sample")
            last = sample[1]
            text_of_labels = sample[2] if sample[2] is not None else ""
            one = Series(label_text=text_of_labels, value=float(sample[3]), has_timestamp=sample[4] is not None)
            series.setdefault(last, []).append(one)
    return Exposition(series=series, types=types, last=last)


def labels_of(text: str) -> dict[str, str]:
    """Read the labels of a sample; an empty label is an absent one. Raises `ProbeError` when one comes twice."""
    labels: dict[str, str] = {}
    for one in _ONE_LABEL.finditer(text):
        if one[1] in labels:
            raise ProbeError(DropReason.PARSE_ERROR, f"label {quoted(one[1])} comes twice")
        labels[one[1]] = _ESCAPE.sub(lambda found: _ESCAPES[found[0]], one[2])
    return {label: value for label, value in labels.items() if value}


def exposition_of(page: Page) -> Exposition:
    """Parse a page's body once, however many probes read it. Raises `ProbeError`."""
    found = page.parsed.get("prometheus")
    if found is None:
        try:
            found = parse(decoded(page.body))
        except ProbeError as error:
            found = error
        page.parsed["prometheus"] = found
    if isinstance(found, ProbeError):
        raise ProbeError(found.reason, found.detail)
    read: Exposition = found
    return read


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
) -> Probe:
    """Declare a probe that reads one gauge.

    `per_model`: the label that names the model; without it the number speaks of the backend. `aggregate` folds the
    series that differ in the labels `over`; `where` chooses series by label values ("" is an absent label). A series
    with any other label makes the signal unknown. `scale` multiplies (0.01 for percent). `needs`: metrics that must
    be in the same body because they prove what this one means. Raises `ValueError` for a declaration that cannot be
    right.
    """
    if signal not in NUMBERS:
        raise ValueError(f"{name}: {signal.value} is no number")
    if aggregate is Aggregate.SUM and signal is Signal.KV_USAGE:
        raise ValueError(f"{name}: shares cannot be added")
    if (aggregate is Aggregate.ONLY) == bool(over):
        raise ValueError(f"{name}: `over` names the labels that sum or max fold, and only those")
    reader = _Reader(
        signal=signal,
        metric=metric,
        per_model=per_model,
        aggregate=aggregate,
        over=tuple(over),
        where=dict(where) if where is not None else {},
        scale=scale,
        needs=tuple(needs),
    )
    feed = Feed(kind=FeedKind.GET, path=path, side_effect=side_effect, interval_s=interval_s)
    return Probe(name=name, signal=signal, feed=feed, parse=reader.read, when=when, own=own)


class _Reader(msgspec.Struct, frozen=True):
    """The declaration of one Prometheus probe, and how it reads a page."""

    signal: Signal
    metric: str
    per_model: str | None
    aggregate: Aggregate
    over: tuple[str, ...]
    where: dict[str, str]
    scale: float
    needs: tuple[str, ...]

    def read(self, page: Page) -> Found:
        """Return each model's number. Raises `ProbeError`."""
        body = exposition_of(page)
        series = body.series.get(self.metric)
        if series is None:
            raise ProbeError(DropReason.NO_VALUE, f"no {self.metric}")
        self._prove(body)
        groups = self._group(series)
        if not groups:
            raise ProbeError(DropReason.NO_VALUE, f"no {self.metric} with the wanted labels")
        found: dict[str, Value] = {}
        for model, numbers in groups.items():
            if numbers is not None:
                found[model] = self._fold(numbers)
        if not found:
            raise ProbeError(DropReason.NO_VALUE, "the engine says NaN")
        return found

    def _prove(self, body: Exposition) -> None:
        """Refuse a body that does not prove what the metric means, or may lack a part of it."""
        for metric in self.needs:
            if metric not in body.series:
                raise ProbeError(DropReason.NO_EVIDENCE, f"no {metric} beside it")
        declared = body.types.get(self.metric, "untyped")
        if declared not in _LEVELS:
            raise ProbeError(DropReason.NO_EVIDENCE, f"{self.metric} is a {declared} here")
        if self.aggregate is not Aggregate.ONLY and body.last == self.metric:
            raise ProbeError(DropReason.NO_EVIDENCE, f"nothing follows {self.metric}: more of it may have been cut off")

    def _group(self, series: Sequence[Series]) -> dict[str, list[int | float] | None]:
        """Sort the checked numbers by model; `None` for a model whose number the engine does not know."""
        known = {*self.over, *self.where, *([self.per_model] if self.per_model is not None else [])}
        seen: set[frozenset[tuple[str, str]]] = set()
        shapes: set[frozenset[str]] = set()
        groups: dict[str, list[int | float] | None] = {}
        for one in series:
            labels = labels_of(one.label_text)
            if not labels.keys() <= known:
                raise ProbeError(DropReason.NO_EVIDENCE, f"label {quoted(min(labels.keys() - known))} is new")
            identity = frozenset(labels.items())
            if identity in seen:
                raise ProbeError(DropReason.PARSE_ERROR, f"{self.metric} comes twice")
            seen.add(identity)
            if any(labels.get(label, "") != wanted for label, wanted in self.where.items()):
                continue
            shapes.add(frozenset(labels))
            if len(shapes) > 1:
                raise ProbeError(DropReason.NO_EVIDENCE, f"{self.metric} has parts and a whole")
            model = self._model(labels)
            before = groups.setdefault(model, [])
            read = self._number(one)
            if before is None or read is None:
                groups[model] = None
            else:
                before.append(read)
        return groups

    def _model(self, labels: Mapping[str, str]) -> str:
        """Name the model that a series speaks of."""
        if self.per_model is None:
            return BACKEND
        try:
            return labels[self.per_model]
        except KeyError:
            raise ProbeError(DropReason.PARSE_ERROR, f"{self.metric} without the label {self.per_model}") from None

    def _number(self, one: Series) -> int | float | None:
        """Check one number; `None` for NaN."""
        if one.has_timestamp:
            raise ProbeError(DropReason.PARSE_ERROR, f"{self.metric} bears a time of its own")
        if math.isnan(one.value):
            return None
        # Unscaled numbers are checked as they came: a product would round.
        return number(self.signal, one.value * self.scale if self.scale != 1.0 else one.value)

    def _fold(self, numbers: list[int | float]) -> int | float:
        """Make one number of a model's series; without labels to fold there is only one."""
        return number(self.signal, sum(numbers)) if self.aggregate is Aggregate.SUM else max(numbers)
