"""The cost policy: the lowest estimated time to first token wins.

Affinity to a cached prompt is prefill time saved, a reload is load time paid, imbalance is waiting time: one unit
for all, so a busy target that holds the prompt loses once waiting there costs more than prefilling elsewhere.
"""

from collections.abc import Sequence

from pharos.core.policy.choose import NOBODY, break_tie, grant, wait
from pharos.core.policy.estimate import estimate
from pharos.core.policy.types import Candidate, Decision, Params, RouteRequest


def pick(req: RouteRequest, candidates: Sequence[Candidate], params: Params) -> Decision:
    """Choose a target, or say that waiting for a busy one is better."""
    if not candidates:
        return NOBODY
    scores = estimate(req, candidates, params)
    feasible = [s for s in scores if s.feasible]
    if not feasible:
        return wait(None, scores)
    least = min([s.total_s for s in feasible]) + params.tie_s
    winner = break_tie([s for s in feasible if s.total_s <= least], req.seed)
    if not winner.free:
        # Waiting on a presumption alone would leave an engine idle that just does not tell how busy it is: one whose
        # slots are ours to fill gets the request, if it is the better choice once the presumed wait is left out.
        spare = [s for s in feasible if s.free and s.total_s - s.wait_s <= winner.total_s]
        if not spare:
            return wait(winner, scores)
        least = min([s.total_s - s.wait_s for s in spare]) + params.tie_s
        winner = break_tie([s for s in spare if s.total_s - s.wait_s <= least], req.seed)
    return grant(req, winner, scores, candidates)
