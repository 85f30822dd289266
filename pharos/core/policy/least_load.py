"""The least-load policy: the least occupied target wins, whatever the estimates say.

The way out on a fleet where the estimates mislead. It still never loads a model where that would evict a busy one.
"""

from collections.abc import Sequence

from pharos.core.policy.choose import break_tie, grant
from pharos.core.policy.decision import Decision
from pharos.core.policy.estimate import FEASIBLE, FREE, estimate
from pharos.core.policy.types import Candidate, Params, RouteRequest


def pick(req: RouteRequest, candidates: Sequence[Candidate], params: Params) -> Decision:
    """Choose the least occupied target, or wait when none has a free slot."""
    if not candidates:
        return Decision(req, candidates, ())
    rows, totals = estimate(req, candidates, params)
    feasible = [i for i, row in enumerate(rows) if row[FEASIBLE]]
    if not feasible:
        return Decision(req, candidates, rows, enqueue=True)
    best = break_tie(feasible, rows, req.seed)
    if not rows[best][FREE]:
        return Decision(req, candidates, rows, awaited=best, enqueue=True)
    return grant(req, candidates, rows, totals, sorted(totals), best)
