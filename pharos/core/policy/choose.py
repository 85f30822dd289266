"""From estimates to a decision: the part that both policies share. Candidates go by their place in the list."""

import math
from collections.abc import Sequence

from pharos.core.policy.crowd import Crowd
from pharos.core.policy.decision import Decision
from pharos.core.policy.types import RouteRequest


def break_tie(places: Sequence[int], crowd: Crowd, req: RouteRequest) -> int:
    """Of equally good ones: a free one, then the one with the least to load, the least occupied, then one by chance.

    Joining a load that just began takes as long as another one beside it, which would only take another model's place;
    and one that is loaded for another context is better left to those who ask for that.
    """
    if len(places) == 1:
        return places[0]
    fits, standings = crowd.fits(req), crowd.standings
    pool: list[int] = []
    is_free, is_ready, least = False, -1, math.inf
    for i in places:
        its = standings[i]
        free, occupancy = its.free, its.occupancy
        ready = 0 if i in fits else 2 if its.loading or not its.load_s else 1
        if free is not is_free:
            is_better = free
        elif ready != is_ready:
            is_better = ready > is_ready
        elif occupancy == least:
            pool.append(i)
            continue
        else:
            is_better = occupancy < least
        if is_better:
            pool, is_free, is_ready, least = [i], free, ready, occupancy
    return pool[req.seed % len(pool)]


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
