"""One run in numbers, and two runs beside each other. Forbidden here: running."""

import statistics
from collections.abc import Sequence
from typing import Final

import msgspec

from hack.scenario.people import Asked
from hack.scenario.views import Clients, Engines, Pharos
from pharos.sim.result import Range, bootstrap, quantile

LEAST_UNCACHED: Final = 64
"""Tokens: the speed of a shorter prompt is that of the fixed part."""
BUSY: Final = (0, 1, 2, 4)
"""Requests beside one, from so many on: TTFT is shown by company."""


class EngineFigures(msgspec.Struct, frozen=True):
    """What a run shows of one engine: numbers for a model of it."""

    requests: int
    prefill_s_per_token: float | None
    """Median over prompts with enough tokens that were not cached; `None`: there was none."""
    ttft_s_by_company: dict[str, float]
    """Requests beside it when it began to the median TTFT, as clients saw it."""


class Summary(msgspec.Struct, frozen=True):
    """One run of a preset."""

    preset: str
    way: str
    """Through what: Pharos with its policy, or a baseline."""
    seed: int
    figures: dict[str, float]
    """What is compared."""
    clients: Clients
    pharos: Pharos | None
    engines: Engines
    disagreements: list[str]
    calibration: dict[str, EngineFigures]


def figures(asked: Sequence[Asked], loads: int | None) -> dict[str, float]:
    """The numbers that runs are compared by. Keys with several people each get their own."""
    found = {"requests": float(len(asked)), "errors": float(sum(one.chat.error is not None for one in asked))}
    found |= _ttfts("", asked)
    keys = sorted({one.key for one in asked})
    for key in keys if len(keys) > 1 else ():
        found |= _ttfts(f" of {key}", [one for one in asked if one.key == key])
    told = [
        (one.chat.prompt_tokens, one.chat.cached_tokens)
        for one in asked
        if one.chat.prompt_tokens is not None and one.chat.cached_tokens is not None
    ]
    prompt = sum(prompt for prompt, _ in told)
    if prompt:
        found["cached share"] = sum(cached for _, cached in told) / prompt
    if loads is not None:
        found["loads"] = float(loads)
    return found


def _ttfts(of: str, asked: Sequence[Asked]) -> dict[str, float]:
    firsts = sorted(one.chat.first_s for one in asked if one.chat.first_s is not None)
    if not firsts:
        return {}
    return {f"TTFT p50 s{of}": quantile(firsts, 0.5), f"TTFT p95 s{of}": quantile(firsts, 0.95)}


def calibration(asked: Sequence[Asked]) -> dict[str, EngineFigures]:
    """Engine to what the run shows of it."""
    found = {}
    for name in sorted({one.engine for one in asked if one.engine is not None}):
        mine = [one for one in asked if one.engine == name]
        speeds = [speed for one in mine if (speed := _speed(one)) is not None]
        found[name] = EngineFigures(len(mine), statistics.median(speeds) if speeds else None, _by_company(mine))
    return found


def _speed(one: Asked) -> float | None:
    """Seconds per token of a prompt by the engine's own time; `None`: it was too short, or that was not told."""
    chat = one.chat
    if chat.prefill_s is None or chat.prompt_tokens is None or chat.cached_tokens is None:
        return None
    uncached = chat.prompt_tokens - chat.cached_tokens
    return chat.prefill_s / uncached if uncached >= LEAST_UNCACHED else None


def _by_company(mine: Sequence[Asked]) -> dict[str, float]:
    found = {}
    company = [beside(one, mine) for one in mine]
    for least, most in zip(BUSY, (*BUSY[1:], None), strict=True):
        firsts = [
            one.chat.first_s
            for one, count in zip(mine, company, strict=True)
            if one.chat.first_s is not None and count >= least and (most is None or count < most)
        ]
        if firsts:
            last = None if most is None else most - 1
            name = f"{least}+" if last is None else f"{least}" if last == least else f"{least}-{last}"
            found[name] = statistics.median(firsts)
    return found


def beside(one: Asked, there: Sequence[Asked]) -> int:
    """How many of the requests there were under way when one began."""
    return sum(
        other is not one and other.at_s <= one.at_s < other.at_s + other.chat.whole_s for other in there
    )  # fmt: skip


class Compared(msgspec.Struct, frozen=True):
    """One figure of two sets of runs."""

    preset: str
    figure: str
    one: Range
    other: Range
    by: Range | None
    """The other less the one, seed by seed; `None`: they have no seed in common."""


def compare(one: Sequence[Summary], other: Sequence[Summary]) -> list[Compared]:
    """Every figure that both have, by preset."""
    found = []
    for preset in dict.fromkeys(run.preset for run in one):
        ours = {run.seed: run.figures for run in one if run.preset == preset}
        theirs = {run.seed: run.figures for run in other if run.preset == preset}
        names = [name for name in next(iter(ours.values())) if any(name in run for run in theirs.values())]
        for name in names:
            a = {seed: run[name] for seed, run in ours.items() if name in run}
            b = {seed: run[name] for seed, run in theirs.items() if name in run}
            both = [b[seed] - a[seed] for seed in a if seed in b]
            found.append(
                Compared(
                    preset, name, bootstrap(list(a.values())), bootstrap(list(b.values())),
                    bootstrap(both) if both else None,
                )
            )  # fmt: skip
    return found
