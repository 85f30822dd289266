"""What runs show, in numbers: quantiles, hits, loads, fairness, and how far they would differ by chance.

Forbidden here: running anything, and text for people (`report.py`).
"""

import math
import random
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from msgspec import Struct

from pharos.sim.run import Outcome, Sample

RESAMPLES: Final = 1000
CONFIDENCE: Final = 0.95


class Measures(Struct, frozen=True):
    """One run."""

    requests: int
    refused: int
    ttft_p50_s: float
    ttft_p95_s: float
    ttft_p99_s: float
    hits: float
    """Share of prompt tokens that came from a cache."""
    loads: int
    """Models brought into memory."""
    wait_s: float
    """Mean, until the prompt began to be processed."""
    jain: float
    """Jain's index over keys of the share of their time in which they were served; 1: all alike."""
    min_share: float
    """The least such share as a part of the greatest; 1: all alike."""
    error: float | None
    """Median of |log(predicted/actual)| of load and prefill; `None`: nothing was predicted."""
    fell_back: int
    by_kind_p95_s: Mapping[str, float]
    """TTFT p95 by sort of client."""
    wrong: float | None = None
    """Share of the predictions of cached prompts that were wrong by half; `None`: none was made."""


Columns = Sequence[tuple[str, str, int]]
COLUMNS: Final[Columns] = (
    ("requests", "requests", 0),
    ("ttft_p50_s", "TTFT p50 s", 2),
    ("ttft_p95_s", "p95 s", 2),
    ("ttft_p99_s", "p99 s", 2),
    ("hits", "hits", 2),
    ("loads", "loads", 1),
    ("wait_s", "wait s", 2),
    ("jain", "Jain", 3),
    ("min_share", "min/max share", 2),
    ("error", "error of estimate", 2),
    ("wrong", "wrong predictions", 2),
)
"""Field of `Measures`, its title, digits: what tables show."""


class Range(Struct, frozen=True):
    """A mean over seeds, and where it would lie by chance with others."""

    mean: float
    low: float
    high: float


def measure(outcome: Outcome) -> Measures:
    """What one run shows. Raises `ValueError` when it served nobody."""
    samples = outcome.samples
    if not samples:
        raise ValueError("no request was served")
    ttfts = sorted(sample.ttft_s for sample in samples)
    shares = [share for share in _shares(samples).values() if share > 0]
    kinds = sorted({sample.kind for sample in samples})
    return Measures(
        requests=len(samples),
        refused=outcome.refused,
        ttft_p50_s=quantile(ttfts, 0.5),
        ttft_p95_s=quantile(ttfts, 0.95),
        ttft_p99_s=quantile(ttfts, 0.99),
        hits=sum(sample.cached_tokens for sample in samples) / sum(sample.prompt_tokens for sample in samples),
        loads=outcome.loads,
        wait_s=sum(sample.wait_s for sample in samples) / len(samples),
        jain=jain(shares),
        min_share=min(shares) / max(shares) if shares else 1.0,
        error=median_error(samples),
        fell_back=outcome.fell_back,
        by_kind_p95_s={
            kind: quantile(sorted(sample.ttft_s for sample in samples if sample.kind == kind), 0.95) for kind in kinds
        },
        wrong=outcome.wrong,
    )


def quantile(ordered: Sequence[float], share: float) -> float:
    """The value below which such a share of the ordered values lies, between the two nearest ones."""
    place = (len(ordered) - 1) * share
    low = math.floor(place)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (place - low)


def jain(values: Sequence[float]) -> float:
    """Jain's index: 1 when all are equal, 1/n when one has all; 1 for none."""
    squares = sum(value * value for value in values)
    return sum(values) ** 2 / (len(values) * squares) if squares > 0 else 1.0


def median_error(samples: Iterable[Sample]) -> float | None:
    """Median of |log(predicted/actual)|; `None` when nothing was predicted."""
    errors = sorted(
        abs(math.log(sample.predicted_s / sample.start_s))
        for sample in samples
        if sample.predicted_s is not None and sample.start_s is not None and min(sample.predicted_s, sample.start_s) > 0
    )
    return quantile(errors, 0.5) if errors else None


def bootstrap(values: Sequence[float], seed: int = 1) -> Range:
    """The mean of runs with several seeds, and the interval that holds it with `CONFIDENCE`, by resampling."""
    mean = sum(values) / len(values)
    if len(values) == 1:
        return Range(mean, mean, mean)
    chance = random.Random(seed)
    means = sorted(sum(chance.choices(values, k=len(values))) / len(values) for _ in range(RESAMPLES))
    edge = (1 - CONFIDENCE) / 2
    return Range(mean, quantile(means, edge), quantile(means, 1 - edge))


def summary(runs: Sequence[object], columns: Columns = COLUMNS) -> dict[str, Range | None]:
    """Field of the columns to its mean over runs with several seeds; `None` where no run has it."""
    found: dict[str, Range | None] = {}
    for field, _, _ in columns:
        values = [value for run in runs if (value := getattr(run, field)) is not None]
        found[field] = bootstrap(values) if values else None
    return found


def difference(ours: Sequence[Measures], theirs: Sequence[Measures], field: str) -> Range:
    """How much more a field is in our runs than in theirs, seed by seed: the sessions of a seed are the same."""
    return bootstrap([getattr(a, field) - getattr(b, field) for a, b in zip(ours, theirs, strict=True)])


def _shares(samples: Iterable[Sample]) -> dict[str, float]:
    """Key to the share of its requests' time in which they were served and did not wait."""
    work: dict[str, float] = {}
    wait: dict[str, float] = {}
    for sample in samples:
        work[sample.key] = work.get(sample.key, 0.0) + sample.work_s
        wait[sample.key] = wait.get(sample.key, 0.0) + sample.wait_s
    return {key: done / (done + wait[key]) if done + wait[key] > 0 else 1.0 for key, done in work.items()}
