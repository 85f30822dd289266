"""Writes metrics as Prometheus text, for families with thousands of series.

Forbidden here: knowing what any metric means. Counting is a dictionary look-up and an addition; the text before each
number is built once per series, because building it at each scrape stalls the event loop (120 ms for
12,500 series with the client library, 3 ms here). A family gives its text in pieces, so that others get their turn.
"""

from bisect import bisect_left
from collections.abc import Collection, Iterable, Iterator, Mapping
from hashlib import blake2s

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
OTHER = "_other"
"""The label value that stands for all values past a bound."""
MAX_VALUE_LENGTH = 128
"""Characters of a label value; engines may send names of any length."""
MAX_BOUNDS = 7
"""Histogram bounds; the one above all of them makes eight buckets."""
SLICE = 2000
"""Lines of one piece of text: about a millisecond's work."""

Labels = tuple[str, ...]
"""Label values in the order of the family's label names."""


def clean(value: str) -> str:
    """The value as a label may hold it: bounded, and encodable (half of a surrogate pair becomes `?`).

    A cut one ends with a hash of the whole: one series that is there twice would make the whole page unreadable.
    """
    if len(value) > MAX_VALUE_LENGTH:
        whole = blake2s(value.encode("utf-8", "surrogatepass"), digest_size=4).hexdigest()
        value = f"{value[: MAX_VALUE_LENGTH - 1 - len(whole)]}…{whole}"
    return value.encode("utf-8", "replace").decode("utf-8")


def escape(value: str) -> str:
    """The value between the quotes of a label."""
    return value.replace("\\", "\\\\").replace("\n", "\\n").replace('"', '\\"')


class Bound:
    """Lets the first `limit` distinct values through and turns all later ones into `OTHER`."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._admitted: dict[str, str] = {}

    @property
    def is_full(self) -> bool:
        """Whether no place is left."""
        return len(self._admitted) >= self._limit

    def keep(self, alive: Collection[str]) -> set[str]:
        """Take their places from values that are not alive any more; their labels are returned."""
        gone = {value: label for value, label in self._admitted.items() if value not in alive}
        for value in gone:
            del self._admitted[value]
        return set(gone.values()) - set(self._admitted.values())

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

    def series_with(self, label: str, values: Collection[str], series: Iterable[Labels]) -> list[Labels]:
        """Those of the series whose label of that name has one of the values; none without such a label."""
        if label not in self.labels:
            return []
        at = self.labels.index(label)
        return [labels for labels in series if labels[at] in values]


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

    def inc_made(self, values: Labels = ()) -> None:
        """Add 1 to one of the series given as `made`; raises `KeyError` for any other."""
        self._counts[values] += 1

    @property
    def counts(self) -> Mapping[Labels, int]:
        """Every series that exists."""
        return self._counts

    def value(self, *values: str) -> int | None:
        """The count of one series; `None` when it does not exist."""
        return self._counts.get(values)

    def forget(self, label: str, values: Collection[str]) -> None:
        """Drop every series that has one of these values of a label."""
        for labels in self.series_with(label, values, self._counts):
            del self._counts[labels], self._prefixes[labels]

    def pieces(self) -> Iterator[bytes]:
        """The family as text. It may be counted on between two pieces: all of them tell of one moment."""
        prefixes, counts = list(self._prefixes.values()), list(self._counts.values())
        yield self.head().encode()
        for start in range(0, len(counts), SLICE):
            some = zip(prefixes[start : start + SLICE], counts[start : start + SLICE], strict=True)
            yield "".join([f"{prefix}{count}\n" for prefix, count in some]).encode()


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

    def forget(self, label: str, values: Collection[str]) -> None:
        """Drop every series that has one of these values of a label."""
        for labels in self.series_with(label, values, self._series):
            del self._series[labels]

    def pieces(self) -> Iterator[bytes]:
        """The family as text. It may be counted on between two pieces: each series tells of one moment."""
        all_series = list(self._series.values())
        yield self.head().encode()
        step = SLICE // (len(self._bounds) + 3)
        for start in range(0, len(all_series), step):
            yield "".join([_histogram_text(series) for series in all_series[start : start + step]]).encode()

    def _make(self, values: Labels) -> _Series:
        bounds = [*(f"{bound:g}" for bound in self._bounds), "+Inf"]
        buckets = [self.prefix(values, "_bucket", le=bound) for bound in bounds]
        prefixes = (*buckets, self.prefix(values, "_sum"), self.prefix(values, "_count"))
        series = self._series[values] = _Series(prefixes, len(bounds))
        return series


def _histogram_text(series: _Series) -> str:
    total = 0
    texts: list[int | str] = []
    for count in series.counts:
        total += count
        texts.append(total)
    texts += (f"{series.sum:.9g}", total)
    return "".join([f"{prefix}{text}\n" for prefix, text in zip(series.prefixes, texts, strict=True)])


class Gauge(Family):
    """Values read at each scrape; keeps only the prefixes of the series it showed last."""

    kind = "gauge"

    def __init__(self, name: str, meaning: str, labels: Labels = ()) -> None:
        super().__init__(name, meaning, labels)
        self._prefixes: dict[Labels, str] = {}

    def piece(self, values: Mapping[Labels, float]) -> bytes:
        """The family as text, with exactly these series; unknown is a series left out."""
        old = self._prefixes
        self._prefixes = {labels: old[labels] if labels in old else self.prefix(labels) for labels in values}
        series = zip(self._prefixes.values(), values.values(), strict=True)
        return (self.head() + "".join([f"{prefix}{value:.15g}\n" for prefix, value in series])).encode()


class Tally(Gauge):
    """A count that is kept elsewhere and read at each scrape."""

    kind = "counter"
