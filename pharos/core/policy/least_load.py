"""The least-load policy: the least occupied target wins, whatever the estimates say.

The way out on a fleet where the estimates mislead. It still never loads a model where that would evict a busy one, and
of equally occupied ones it takes one that has the model.
"""

import math
from collections.abc import Sequence

from pharos.core.policy.choose import break_tie, grant
from pharos.core.policy.crowd import Crowd, crowd_of
from pharos.core.policy.decision import Decision
from pharos.core.policy.types import Candidate, Params, RouteRequest


def pick(req: RouteRequest, candidates: Sequence[Candidate] | Crowd, params: Params) -> Decision:
    """Choose the least occupied target, or wait when none has a free slot."""
    crowd = crowd_of(candidates, params)
    totals = crowd.totals(req)
    standings = crowd.standings
    never = math.inf
    calm = [
        its.occupancy if its.free and total_s < never else never for its, total_s in zip(standings, totals, strict=True)
    ]
    least = min(calm, default=never)
    if least < never:
        pool = [i for i, occupancy in enumerate(calm) if occupancy == least]
        return grant(req, crowd, totals, sorted(totals), break_tie(pool, crowd, req))
    feasible = [i for i, total_s in enumerate(totals) if total_s < never]
    if not feasible:
        return Decision(req, crowd, totals)
    return Decision(req, crowd, totals, awaited=break_tie(feasible, crowd, req))
