"""What a policy answers. What only people ask is worked out when they do: a pass over the queue asks for none of it.

Forbidden here: deciding.
"""

from collections.abc import Callable, Sequence

import msgspec

from pharos.core.policy.crowd import Crowd
from pharos.core.policy.estimate import score
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
    enqueue: bool = False
    """It waits in the queue."""

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
    def any_free(self) -> bool:
        """Whether any feasible candidate has a free slot: if not, no other request for the model could go either."""
        return bool(self.crowd.open)

    @property
    def scores(self) -> tuple[Score, ...]:
        """One per candidate, in their order."""
        return self.crowd.scores(self.req.prompt_tokens)

    @property
    def why(self) -> Why:
        """What made the difference."""
        if self.chosen is None or self.other is None:
            return "only_choice" if self.chosen is not None or len(self.crowd) <= 1 else "least_loaded"
        matched = self.candidates[self.chosen].matched_tokens
        return why_it_won(self._score(self.chosen), self._score(self.other), matched)

    @property
    def reason(self) -> str:
        """For people."""
        if self.awaited is not None:
            best = self._score(self.awaited)
            return f"waits for {best.name}: est {seconds(best.total_s)} there is the least"
        if self.chosen is None:
            return f"waits: {self._score(0).why_not}" if len(self.crowd) else "no candidate"
        best, mine = self._score(self.chosen), self.candidates[self.chosen]
        if self.other is None:
            return sentence(self.req, best, mine, None, None)
        return sentence(self.req, best, mine, self._score(self.other), self.candidates[self.other])

    def _score(self, place: int) -> Score:
        return score(self.crowd.candidates[place], self.crowd.standings[place], self.req.prompt_tokens)


Policy = Callable[[RouteRequest, Sequence[Candidate] | Crowd, Params], Decision]
