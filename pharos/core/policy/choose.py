"""From estimates to a decision: the part that both policies share. Candidates go by their place in the list."""

import math
from collections.abc import Sequence

from pharos.core.policy.crowd import Crowd
from pharos.core.policy.decision import Decision
from pharos.core.policy.types import RouteRequest


def break_tie(places: Sequence[int], crowd: Crowd, seed: int) -> int:
    """Of equally good ones: a free one, then the least occupied one, then one by chance."""
    if len(places) == 1:
        return places[0]
    pool: list[int] = []
    is_free, least = False, math.inf
    for i in places:
        its = crowd.standings[i]
        free, occupancy = its.free, its.occupancy
        if free is is_free and occupancy == least:
            pool.append(i)
        elif occupancy < least if free is is_free else free:
            pool, is_free, least = [i], free, occupancy
    return pool[seed % len(pool)]


def grant(req: RouteRequest, crowd: Crowd, totals: list[float], ranked: Sequence[float], best: int) -> Decision:
    """The request goes to the best one now. `totals`: infinite for those that are not feasible; `ranked`: sorted."""
    other = None
    if len(ranked) > 1:
        least = ranked[0] if ranked[0] < totals[best] else ranked[1]
        if least < math.inf:
            other = totals.index(least)
            if other == best:  # it costs exactly as much
                other = totals.index(least, best + 1)
    return Decision(req, crowd, totals, best, other)
