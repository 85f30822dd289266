"""The candidates for each model, kept from one request to the next: only what happened to in between is seen anew.

# ops: of · goal: a look at each target's counts, and the rest costs what changed
# plan: per model its targets that were up, what was counted of each then, and the crowd; anew when other targets are
#   up, when a reading ages out, when a request takes longer than expected, or when so much changed that it is cheaper
# warning: whatever a candidate is made from must count in `Backend.stamp` or `Slots.turns` when it changes; a load
#   that must fit beside other models depends on more, so such candidates are seen anew each time

Forbidden here: anything about one request; those that wait ahead of it or were refused see candidates of their own.
"""

from collections.abc import Sequence
from itertools import compress
from operator import ne

import msgspec

from pharos.core.fleet import Target
from pharos.core.policy import Candidate, Crowd, Params
from pharos.core.sched.candidates import gather, is_limited

KEPT_MODELS = 64
"""So many models are remembered; the next one takes the place of the one that was seen anew longest ago."""
FEW = 8
"""One changed candidate of so many is cheaper to exchange than to see all anew; fewer are not worth remembering."""


class Kept(msgspec.Struct):
    """The crowd of one model as last seen."""

    targets: list[Target]
    limited: list[int]
    """Places of those whose backend has a known limit of memory."""
    counts: list[int]
    """What was counted of each target when it was seen."""
    crowd: Crowd
    seen_at: float
    until: float
    """When the first of the readings ages out, or of the requests is overdue, seconds on the caller's clock."""

    @property
    def loads(self) -> list[int]:
        """Places of those whose load must fit beside other models."""
        candidates = self.crowd.candidates
        return [i for i in self.limited if not candidates[i].warm and not candidates[i].loading]


class Crowds:
    """What each model's targets look like to a request that nobody is ahead of."""

    def __init__(self, params: Params) -> None:
        self._params = params
        self._kept: dict[str, Kept] = {}

    def of(self, model: str, targets: list[Target], now: float) -> Crowd:
        """The crowd of these targets, the same as one made of all of them now. `targets`: all of the model's."""
        if len(targets) < FEW:
            return Crowd(gather(targets, 0, now), self._params)
        kept = self._kept.get(model)
        counts = [target.backend.stamp + target.slots.turns for target in targets]
        if kept is None or not kept.seen_at <= now < kept.until or kept.targets != targets:
            return self._see(model, targets, counts, now)
        stale = list(compress(range(len(counts)), map(ne, counts, kept.counts)))
        if kept.limited:
            stale = list({*stale, *kept.loads})
        if len(stale) * FEW > len(targets):
            return self._see(model, targets, counts, now)
        if stale:
            some = [targets[i] for i in stale]
            fresh = gather(some, 0, now, targets)
            kept.crowd = kept.crowd.changed(dict(zip(stale, fresh, strict=True)))
            kept.counts, kept.seen_at = counts, now
            kept.until = min(kept.until, _until(some, fresh))
            limited = [i for i in stale if i not in kept.limited and is_limited(targets[i].backend, now)]
            kept.limited += limited
        return kept.crowd

    def _see(self, model: str, targets: list[Target], counts: list[int], now: float) -> Crowd:
        crowd = Crowd(gather(targets, 0, now), self._params)
        until = _until(targets, crowd.candidates)
        limited = [i for i, target in enumerate(targets) if is_limited(target.backend, now)]
        self._kept.pop(model, None)
        if len(self._kept) >= KEPT_MODELS:
            del self._kept[next(iter(self._kept))]
        self._kept[model] = Kept(targets, limited, counts, crowd, now, until)
        return crowd


def _until(targets: Sequence[Target], candidates: Sequence[Candidate]) -> float:
    """Until when these look as they do if nothing happens."""
    until = min([target.view_until for target in targets])
    return min([until, *[c.frees_at for c in candidates if c.frees_at is not None]])
