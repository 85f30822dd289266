"""What a policy answers. What only people ask is worked out when they do: a pass over the queue asks for none of it.

Forbidden here: deciding.
"""

from collections.abc import Callable, Sequence

import msgspec

from pharos.core.policy.crowd import Crowd
from pharos.core.policy.reason import seconds, sentence, why_it_won
from pharos.core.policy.types import Candidate, Params, RouteRequest, Score, Why


class Decision(msgspec.Struct, frozen=True):
    """Where a request goes, or that it waits."""

    req: RouteRequest
    crowd: Crowd
    """The candidates; reasons and scores are made from it later."""
    totals: Sequence[float]
    """Estimated seconds to the first token at each candidate, in their order; infinite for those not feasible."""
    chosen: int | None = None
    """Place among them of the one the request goes to; `None`: nowhere now."""
    other: int | None = None
    """Place of the best other one that is feasible, when one was chosen."""
    awaited: int | None = None
    """Place of the one it waits for; `None`: none was chosen because none is feasible, or it does not wait."""

    @property
    def enqueue(self) -> bool:
        """Whether it waits: there is somebody to wait for, and nobody takes it now."""
        return self.chosen is None and bool(self.totals)

    @property
    def candidates(self) -> Sequence[Candidate]:
        """Those it chose from."""
        return self.crowd.candidates

    @property
    def target_id(self) -> int | None:
        """Where it goes; `None`: nowhere now."""
        return self.candidates[self.chosen].target_id if self.chosen is not None else None

    @property
    def predicted_s(self) -> float | None:
        """Estimated seconds to the first token at the chosen target, or at the one it waits for."""
        place = self.chosen if self.chosen is not None else self.awaited
        return self.totals[place] if place is not None else None

    @property
    def predicted_start_s(self) -> float | None:
        """The same without the wait: what dispatch to first token is held against."""
        place = self.chosen if self.chosen is not None else self.awaited
        if place is None:
            return None
        its = self._score(place)
        return its.total_s - its.wait_s

    @property
    def reloads(self) -> bool:
        """Whether the chosen target must load its model anew for the context that the request asks for."""
        fit = self.crowd.fits(self.req).get(self.chosen) if self.chosen is not None else None
        return fit is not None and fit.reloads

    @property
    def any_free(self) -> bool:
        """Whether a candidate that some request fits has a free slot: if not, no other one for the model could go."""
        return bool(self.crowd.open)

    @property
    def never(self) -> str | None:
        """Why no candidate can ever take the request, for people; `None`: one can, or may later."""
        fits = self.crowd.fits(self.req)
        if not fits or len(fits) < len(self.crowd) or not all(fit.lasts for fit in fits.values()):
            return None
        reasons = {fit.why_not for fit in fits.values()}
        if len(reasons) == 1:
            return reasons.pop()
        limits = [c.context_tokens for c in self.candidates if c.context_tokens is not None]
        if self.req.needs or not limits:
            return "; ".join(sorted(reasons))
        return f"the largest context holds {max(limits)} tokens"

    @property
    def matched_tokens(self) -> int:
        """Tokens of the prompt that the cache of the chosen target probably holds."""
        return self._matched(self.chosen) if self.chosen is not None else 0

    @property
    def scores(self) -> tuple[Score, ...]:
        """One per candidate, in their order."""
        return self.crowd.scores(self.req)

    @property
    def why(self) -> Why:
        """What made the difference."""
        if self.chosen is None or self.other is None:
            return "only_choice" if self.chosen is not None or len(self.crowd) <= 1 else "least_loaded"
        return why_it_won(self._score(self.chosen), self._score(self.other), self._matched(self.chosen))

    @property
    def reason(self) -> str:
        """For people."""
        if self.awaited is not None:
            best = self._score(self.awaited)
            return f"waits for {best.name}: est {seconds(best.total_s)} there is the least"
        if self.chosen is None:
            return f"waits: {self._score(0).why_not}" if len(self.crowd) else "no candidate"
        best, mine, cached = self._score(self.chosen), self.candidates[self.chosen], self._matched(self.chosen)
        if self.other is None:
            return sentence(best, mine, cached, None, None)
        return sentence(best, mine, cached, self._score(self.other), self.candidates[self.other])

    def _matched(self, place: int) -> int:
        """Prompt tokens that its cache probably holds when it takes the request, and that the request has."""
        if not self.req.matched:
            return 0
        fit = self.crowd.fits(self.req).get(place)
        if fit is not None and fit.reloads:
            return 0
        return min(dict(self.req.matched).get(place, 0), self.req.prompt_tokens)

    def _score(self, place: int) -> Score:
        return self.crowd.score(place, self.req)


Policy = Callable[[RouteRequest, Sequence[Candidate] | Crowd, Params], Decision]
