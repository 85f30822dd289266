"""Writes metrics as Prometheus text, for families with thousands of series.

Forbidden here: knowing what any metric means. Counting is a dictionary look-up and an addition; the text before each
number is built once per series, because building it at each scrape stalls the event loop (120 ms for
12,500 series with the client library, 3 ms here).
"""

from bisect import bisect_left
from collections.abc import Iterable, Mapping

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
OTHER = "_other"
"""The label value that stands for all values past a bound."""
MAX_VALUE_LENGTH = 128
"""Characters of a label value; engines may send names of any length."""
MAX_BOUNDS = 7
"""Histogram bounds; the one above all of them makes eight buckets."""

Labels = tuple[str, ...]
"""Label values in the order of the family's label names."""


def clean(value: str) -> str:
    """The value as a label may hold it: bounded, and encodable (half of a surrogate pair becomes `?`)."""
    if len(value) > MAX_VALUE_LENGTH:
        value = value[: MAX_VALUE_LENGTH - 1] + "…"
    return value.encode("utf-8", "replace").decode("utf-8")


def escape(value: str) -> str:
    """The value between the quotes of a label."""
    return value.replace("\\", "\\\\").replace("\n", "\\n").replace('"', '\\"')


class Bound:
    """Lets the first `limit` distinct values through and turns all later ones into `OTHER`."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._admitted: dict[str, str] = {}

    def admit(self, value: str) -> str:
        """The label for a value that is real: it takes a place when one is free."""
        label = self._admitted.get(value)
        if label is None:
            if len(self._admitted) >= self._limit:
                return OTHER
            label = self._admitted[value] = clean(value)
        return label

    def known(self, value: str) -> str:
        """The label for a value that anyone may have made up: it never takes a place."""
        return self._admitted.get(value, OTHER)


class Family:
    """What all families share: name, help text, label names and the text before a series' number."""

    kind = ""

    def __init__(self, name: str, meaning: str, labels: Labels = ()) -> None:
        self.name = name
        self.meaning = meaning
        self.labels = labels

    def head(self) -> str:
        """The two comment lines before the series."""
        meaning = self.meaning.replace("\\", "\\\\").replace("\n", "\\n")
        return f"# HELP {self.name} {meaning}\n# TYPE {self.name} {self.kind}\n"

    def prefix(self, values: Labels, suffix: str = "", **more: str) -> str:
        """One series up to its number, the blank before it included."""
        pairs = [*zip(self.labels, values, strict=True), *more.items()]
        inside = ",".join(f'{name}="{escape(clean(value))}"' for name, value in pairs)
        return f"{self.name}{suffix}{{{inside}}} " if inside else f"{self.name}{suffix} "


class Counter(Family):
    """Only goes up."""

    kind = "counter"

    def __init__(self, name: str, meaning: str, labels: Labels = (), *, made: Iterable[Labels] = ()) -> None:
        super().__init__(name, meaning, labels)
        self._counts: dict[Labels, int] = dict.fromkeys(made, 0)
        self._prefixes = {values: self.prefix(values) for values in self._counts}

    def inc(self, values: Labels = (), by: int = 1) -> None:
        """Add to one series, which begins to exist at its first use."""
        try:
            self._counts[values] += by
        except KeyError:
            self._prefixes[values] = self.prefix(values)
            self._counts[values] = by

    def inc_made(self, values: Labels) -> None:
        """Add 1 to one of the series given as `made`; raises `KeyError` for any other."""
        self._counts[values] += 1

    @property
    def counts(self) -> Mapping[Labels, int]:
        """Every series that exists."""
        return self._counts

    def value(self, *values: str) -> int | None:
        """The count of one series; `None` when it does not exist."""
        return self._counts.get(values)

    def lines(self) -> list[str]:
        """The family as text."""
        return [self.head(), *map("{}{}\n".format, self._prefixes.values(), self._counts.values())]


class _Series:
    """One histogram: counts per bucket, not yet summed up."""

    __slots__ = ("counts", "prefixes", "sum")

    def __init__(self, prefixes: tuple[str, ...], buckets: int) -> None:
        self.prefixes = prefixes
        self.counts = [0] * buckets
        self.sum = 0.0


class Histogram(Family):
    """Counts observations up to each bound, in seconds."""

    kind = "histogram"

    def __init__(self, name: str, meaning: str, labels: Labels = (), *, bounds: tuple[float, ...]) -> None:
        super().__init__(name, meaning, labels)
        if len(bounds) > MAX_BOUNDS or sorted(bounds) != list(bounds):
            raise ValueError(f"{name}: at most {MAX_BOUNDS} rising bounds")
        self._bounds = bounds
        self._series: dict[Labels, _Series] = {}
        if not labels:
            self._make(())

    def observe(self, value: float, values: Labels = ()) -> None:
        """Count one observation."""
        series = self._series.get(values)
        if series is None:
            series = self._make(values)
        series.counts[bisect_left(self._bounds, value)] += 1
        series.sum += value

    def count(self, *values: str) -> int | None:
        """How many observations one series holds; `None` when it does not exist."""
        series = self._series.get(values)
        return None if series is None else sum(series.counts)

    def lines(self) -> list[str]:
        """The family as text."""
        out = [self.head()]
        for series in self._series.values():
            total = 0
            texts = []
            for count in series.counts:
                total += count
                texts.append(total)
            out += map("{}{}\n".format, series.prefixes, [*texts, f"{series.sum:.9g}", total])
        return out

    def _make(self, values: Labels) -> _Series:
        bounds = [*(f"{bound:g}" for bound in self._bounds), "+Inf"]
        buckets = [self.prefix(values, "_bucket", le=bound) for bound in bounds]
        prefixes = (*buckets, self.prefix(values, "_sum"), self.prefix(values, "_count"))
        series = self._series[values] = _Series(prefixes, len(bounds))
        return series


class Gauge(Family):
    """Values read at each scrape; keeps only the prefixes of the series it showed last."""

    kind = "gauge"

    def __init__(self, name: str, meaning: str, labels: Labels = ()) -> None:
        super().__init__(name, meaning, labels)
        self._prefixes: dict[Labels, str] = {}

    def lines(self, values: Mapping[Labels, float]) -> list[str]:
        """The family as text, with exactly these series; unknown is a series left out."""
        old = self._prefixes
        self._prefixes = {labels: old[labels] if labels in old else self.prefix(labels) for labels in values}
        return [self.head(), *map("{}{:.15g}\n".format, self._prefixes.values(), values.values())]
