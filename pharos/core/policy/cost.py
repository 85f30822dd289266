"""The cost policy: the lowest estimated time to first token wins.

Affinity to a cached prompt is prefill time saved, a reload is load time paid, imbalance is waiting time: one unit
for all, so a busy target that holds the prompt loses once waiting there costs more than prefilling elsewhere.
"""

import math
from collections.abc import Sequence

from pharos.core.policy.choose import break_tie, grant
from pharos.core.policy.crowd import Crowd, crowd_of
from pharos.core.policy.decision import Decision
from pharos.core.policy.types import Candidate, Params, RouteRequest


def pick(req: RouteRequest, candidates: Sequence[Candidate] | Crowd, params: Params) -> Decision:
    """Choose a target, or say that waiting for a busy one is better."""
    crowd = crowd_of(candidates, params)
    if not crowd.standings:
        return Decision(req, crowd, ())
    totals = crowd.totals(req)
    ranked = sorted(totals)  # sooner done than finding the least, those close to it and the runner-up one by one
    least = ranked[0]
    if least == math.inf:
        return Decision(req, crowd, totals)
    most = least + params.tie_s
    best = totals.index(least)
    if len(ranked) > 1 and ranked[1] <= most:
        best = break_tie([i for i, total_s in enumerate(totals) if total_s <= most], crowd, req)
    if not crowd.standings[best].free:
        # Waiting on a presumption alone would leave an engine idle that just does not tell how busy it is: one whose
        # slots are ours to fill gets the request, if it is the better choice once the presumed wait is left out.
        most = totals[best]
        spare = {i: cost_s for i in crowd.open if (cost_s := totals[i] - crowd.standings[i].at(req.now)[0]) <= most}
        if not spare:
            return Decision(req, crowd, totals, awaited=best)
        most = min(spare.values()) + params.tie_s
        best = break_tie([i for i, cost_s in spare.items() if cost_s <= most], crowd, req)
    return grant(req, crowd, totals, ranked, best)
