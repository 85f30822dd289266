"""What runs show, in numbers. Forbidden here: running anything, and text for people (`report.py`)."""

from collections.abc import Sequence
from typing import Final

import msgspec

from hack.bench.routing.clients import Sample
from hack.bench.routing.fleets import Counted
from pharos.sim import result
from pharos.sim.result import Range, bootstrap, quantile


class Measures(msgspec.Struct, frozen=True):
    """One run."""

    requests: int
    errors: int
    unfinished: int
    """That had not come to their end when the run was over."""
    ttft_p50_s: float
    ttft_p95_s: float
    ttft_p99_s: float
    hits: float | None
    """Share of prompt tokens that the engines took from a cache; `None`: they told nothing."""
    loads: int
    first_error: str = ""
    by_engine: dict[str, int] = {}
    by_kind_p95_s: dict[str, float] = {}


class Found(msgspec.Struct, frozen=True):
    """One run of a router before a fleet."""

    fleet: str
    router: str
    seed: int
    measures: Measures


COLUMNS: Final = (
    ("requests", "requests", 0),
    ("ttft_p50_s", "TTFT p50 s", 2),
    ("ttft_p95_s", "p95 s", 2),
    ("ttft_p99_s", "p99 s", 2),
    ("hits", "hits", 3),
    ("loads", "loads", 1),
    ("errors", "errors", 1),
    ("unfinished", "unfinished", 1),
)
"""Field of `Measures`, its title, digits: what the table shows."""


def measure(samples: Sequence[Sample], counted: Counted) -> Measures:
    """What a run shows. Raises `ValueError` when nobody got a token.

    A request that was called off before its first token counts with the time until then: it took longer.
    """
    failed = [sample for sample in samples if sample.is_whole and sample.chat.error is not None]
    ttfts = {id(one): ttft for one in samples if (ttft := ttft_of(one)) is not None}
    if not ttfts:
        raise ValueError(f"no request got a token: {failed[0].chat.error if failed else 'none was made'}")
    kinds = sorted({sample.kind for sample in samples})
    ordered = sorted(ttfts.values())
    return Measures(
        requests=len(samples),
        errors=len(failed),
        unfinished=sum(not sample.is_whole for sample in samples),
        ttft_p50_s=quantile(ordered, 0.5),
        ttft_p95_s=quantile(ordered, 0.95),
        ttft_p99_s=quantile(ordered, 0.99),
        hits=hits(samples, counted),
        loads=counted.loads,
        first_error=(failed[0].chat.error or "") if failed else "",
        by_engine=counted.by_engine,
        by_kind_p95_s={
            kind: quantile(of_kind, 0.95)
            for kind in kinds
            if (of_kind := sorted(ttfts[id(one)] for one in samples if one.kind == kind and id(one) in ttfts))
        },
    )


def ttft_of(sample: Sample) -> float | None:
    """Seconds to the first token, or so far; `None`: it failed without one."""
    if sample.chat.first_s is not None:
        return sample.chat.first_s
    return None if sample.is_whole else sample.chat.whole_s


def hits(samples: Sequence[Sample], counted: Counted) -> float | None:
    """Share of prompt tokens out of caches: by the engines' own counters, else as their replies told."""
    if counted.prompted:
        return counted.found / counted.prompted
    told = [
        (sample.chat.prompt_tokens, sample.chat.cached_tokens)
        for sample in samples
        if sample.chat.prompt_tokens is not None and sample.chat.cached_tokens is not None
    ]
    prompted = sum(prompt for prompt, _ in told)
    return sum(cached for _, cached in told) / prompted if prompted else None


def group(found: Sequence[Found]) -> dict[str, dict[str, list[Measures]]]:
    """By fleet, by router: the runs in the order of their seeds."""
    grouped: dict[str, dict[str, list[Measures]]] = {}
    for one in sorted(found, key=lambda one: one.seed):
        grouped.setdefault(one.fleet, {}).setdefault(one.router, []).append(one.measures)
    return grouped


def summary(runs: Sequence[Measures]) -> dict[str, Range | None]:
    """Field of `COLUMNS` to its mean over seeds with its interval; `None` where no run has it."""
    return result.summary(runs, COLUMNS)


def difference(ours: Sequence[Measures], theirs: Sequence[Measures], field: str) -> Range | None:
    """How much more a field is in our runs than in theirs, seed by seed; `None`: it is not known of all."""
    pairs = [(getattr(a, field), getattr(b, field)) for a, b in zip(ours, theirs, strict=False)]
    if not pairs or any(value is None for pair in pairs for value in pair):
        return None
    return bootstrap([a - b for a, b in pairs])
