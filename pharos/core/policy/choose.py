"""From scores to a decision: the part that both policies share."""

import math
from collections.abc import Sequence

from pharos.core.policy.reason import sentence, why_it_won
from pharos.core.policy.types import Candidate, Decision, RouteRequest, Score

NOBODY = Decision(None, enqueue=False, reason="no candidate", why="only_choice", scores=(), predicted_s=None)


def break_tie(scores: Sequence[Score], seed: int) -> Score:
    """Of equally good ones: a free one, then the least occupied one, then one by chance."""
    if len(scores) == 1:
        return scores[0]
    pool = [s for s in scores if s.free] or scores
    least = min([s.occupancy for s in pool])
    pool = [s for s in pool if s.occupancy == least]
    return pool[seed % len(pool)]


def grant(req: RouteRequest, winner: Score, scores: Sequence[Score], candidates: Sequence[Candidate]) -> Decision:
    """The request goes to the winner now."""
    mine, theirs, other, least = candidates[0], None, None, math.inf
    for candidate, score in zip(candidates, scores, strict=True):
        if score is winner:
            mine = candidate
        elif score.total_s < least and score.feasible:
            theirs, other, least = candidate, score, score.total_s
    return Decision(
        winner.target_id,
        enqueue=False,
        reason=sentence(req, winner, mine, other, theirs),
        why=why_it_won(winner, other),
        scores=tuple(scores),
        predicted_s=winner.total_s,
        any_free=True,
    )


def wait(best: Score | None, scores: Sequence[Score]) -> Decision:
    """The request waits: for the best one's slot, or until one becomes feasible."""
    if best is not None:
        reason = f"waits for {best.name}: est {best.total_s:.1f} s there is the least"
    else:
        reason = f"waits: {scores[0].why_not}"
    return Decision(
        None,
        enqueue=True,
        reason=reason,
        why="only_choice" if len(scores) == 1 else "least_loaded",
        scores=tuple(scores),
        predicted_s=best.total_s if best is not None else None,
        any_free=any(s.free and s.feasible for s in scores),
    )
