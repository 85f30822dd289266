"""The least-load policy: the least occupied target wins, whatever the estimates say.

The way out on a fleet where the estimates mislead. It still never loads a model where that would evict a busy one.
"""

from collections.abc import Sequence

from pharos.core.policy.choose import NOBODY, break_tie, grant, wait
from pharos.core.policy.estimate import estimate
from pharos.core.policy.types import Candidate, Decision, Params, RouteRequest


def pick(req: RouteRequest, candidates: Sequence[Candidate], params: Params) -> Decision:
    """Choose the least occupied target, or wait when none has a free slot."""
    if not candidates:
        return NOBODY
    scores = estimate(req, candidates, params)
    feasible = [s for s in scores if s.feasible]
    if not feasible:
        return wait(None, scores)
    winner = break_tie(feasible, req.seed)
    return grant(req, winner, scores, candidates) if winner.free else wait(winner, scores)
