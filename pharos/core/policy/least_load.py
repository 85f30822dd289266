"""The least-load policy: the least occupied target wins, whatever the estimates say.

The way out on a fleet where the estimates mislead. It still never loads a model where that would evict a busy one.
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
    totals = crowd.totals(req.prompt_tokens)
    standings = crowd.standings
    calm = [its.occupancy if its.free and its.feasible else math.inf for its in standings]
    least = min(calm, default=math.inf)
    if least < math.inf:
        pool = [i for i, occupancy in enumerate(calm) if occupancy == least]
        return grant(req, crowd, totals, sorted(totals), pool[req.seed % len(pool)])
    feasible = [i for i, its in enumerate(standings) if its.feasible]
    if not feasible:
        return Decision(req, crowd, totals, enqueue=bool(totals))
    return Decision(req, crowd, totals, awaited=break_tie(feasible, crowd, req.seed), enqueue=True)
