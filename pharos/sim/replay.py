"""Decisions of a log made again, by the same policy or by another one.

Forbidden here: running time. Each decision stands alone: what another choice would have changed for the next ones, only
the simulator can tell (`pharos sim --trace LOG`).
"""

import math
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Final

import msgspec
from msgspec import Struct

from pharos.core.policy import POLICIES, Crowd, Params, Policy, RouteRequest
from pharos.obs.decision_record import DecisionRow, decode
from pharos.sim.result import quantile
from pharos.sim.trace import TraceError, lines_of, refuse

ANY: Final = "any"
"""A target by chance, for comparison."""


class Rank(Struct, frozen=True):
    """What a policy's choices would cost, by the estimates of the log. Seconds."""

    policy: str
    mean_s: float
    p50_s: float
    p95_s: float
    same: int
    """Choices that are those of the log."""


class Replay(Struct, frozen=True):
    """What a log shows."""

    policy: str
    decisions: int
    same: int
    differs: dict[str, int]
    """Why others are not the same, and how many each."""
    ranks: tuple[Rank, ...]
    """The least mean first."""
    without: int
    """Requests of the log that were refused before there was a choice."""
    skipped: int
    """Broken lines."""


def rows(path: Path) -> Iterator[tuple[int, DecisionRow | str | None]]:
    """Number and content of each line; a string says what is wrong with it. Raises `TraceError`."""
    for number, line in lines_of(path):
        try:
            yield number, decode(line)
        except (msgspec.MsgspecError, ValueError, RecursionError) as fault:
            yield number, str(fault)


def read(path: Path, *, skip_bad: bool) -> tuple[list[DecisionRow], int]:
    """The requests of a log, and how many broken lines were left out. Raises `TraceError`."""
    found: list[DecisionRow] = []
    bad: list[tuple[int, str]] = []
    for number, row in rows(path):
        if isinstance(row, str):
            bad.append((number, row))
        elif row is not None:
            found.append(row)
    if bad and not found:
        raise TraceError(f"{path}: it is no decision log (line {bad[0][0]}: {bad[0][1]})")
    if bad and not skip_bad:
        raise refuse(path, bad)
    if not found:
        raise TraceError(f"{path}: there is no decision in it")
    return found, len(bad)


def replay(found: Sequence[DecisionRow], policy: str, skipped: int = 0) -> Replay:
    """Decide all of it again by a policy, and compare all policies by what they would have chosen."""
    made = [row for row in found if row.request is not None and row.candidates and row.chosen is not None]
    crowds = [Crowd([one.state for one in row.candidates], Params()) for row in made]
    same, differs = 0, Counter[str]()
    for row, crowd in zip(made, crowds, strict=True):
        why = _difference(row, crowd, policy)
        if why:
            differs[why] += 1
        else:
            same += 1
    ranks = [_rank(name, pick, made, crowds) for name, pick in _POLICIES.items()]
    ranks.sort(key=lambda rank: rank.mean_s)
    return Replay(policy, len(made), same, dict(differs.most_common()), tuple(ranks), len(found) - len(made), skipped)


def _difference(row: DecisionRow, crowd: Crowd, policy: str) -> str:
    """Why a policy decides differently, for people; empty: it does not."""
    request = row.request
    if request is None:
        return "there is no request in the line"
    decision = POLICIES[policy](request, crowd, Params())
    if decision.chosen == row.chosen:
        return ""
    if row.policy != policy:
        return f"{row.policy} chose for it"
    for name, other in POLICIES.items():  # it is noted when a request ends, and may have changed since it was sent
        if name != policy and other(request, crowd, Params()).chosen == row.chosen:
            return f"{name} would have chosen so, and may have"
    if decision.chosen is None:
        return "it would wait: such a request takes no slot, or another change came with it"
    return f"{crowd.candidates[decision.chosen].name} and not {row.target or 'the one of the log'}"


# --- ranking

_Pick = Callable[[RouteRequest, Crowd], int | None]


def _as_pick(policy: Policy) -> _Pick:
    def pick(request: RouteRequest, crowd: Crowd) -> int | None:
        decision = policy(request, crowd, Params())
        return decision.chosen if decision.chosen is not None else decision.awaited

    return pick


def _any(request: RouteRequest, crowd: Crowd) -> int | None:
    totals = crowd.totals(request)
    feasible = [place for place, total in enumerate(totals) if total < math.inf]
    return feasible[request.seed % len(feasible)] if feasible else None


_POLICIES: Final[dict[str, _Pick]] = {**{name: _as_pick(policy) for name, policy in POLICIES.items()}, ANY: _any}


def _rank(name: str, pick: _Pick, made: Sequence[DecisionRow], crowds: Sequence[Crowd]) -> Rank:
    costs, same = [], 0
    for row, crowd in zip(made, crowds, strict=True):
        if row.request is None:
            continue
        place = pick(row.request, crowd)
        same += place == row.chosen
        if place is not None:
            costs.append(crowd.totals(row.request)[place])
    costs.sort()
    if not costs:
        return Rank(name, math.inf, math.inf, math.inf, same)
    return Rank(name, sum(costs) / len(costs), quantile(costs, 0.5), quantile(costs, 0.95), same)
