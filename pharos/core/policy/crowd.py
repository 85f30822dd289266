"""The candidates of a request, with all of their estimate that the next request shares.

# ops: changed, totals, score · goal: a pick costs what depends on the request, a change what depends on the change
# plan: a standing per candidate, and what is presumed where one does not tell; a change makes anew the standings that
#   it touches, and those that presume a value which it moved
# warning: decisions keep their crowd to be explained later, so a change makes another one and leaves this as it is

Forbidden here: choosing, and remembering a request.
"""

from collections.abc import Mapping, Sequence

from pharos.core.policy.estimate import Presumptions, score, stand
from pharos.core.policy.types import Candidate, Params, Score


class Crowd:
    """Candidates, by their place in the list, and what each of them costs before the prompt is known."""

    __slots__ = ("candidates", "matched", "params", "presumed", "standings")

    def __init__(self, candidates: Sequence[Candidate], params: Params) -> None:
        self.candidates = candidates
        """Not to be changed any more."""
        self.params = params
        self.presumed = Presumptions(candidates, params)
        self.standings = stand(candidates, self.presumed, params.kv_pressure_from)
        self.matched = [i for i, c in enumerate(candidates) if c.matched_tokens]
        """Places of those that probably hold some of the prompt."""

    def __len__(self) -> int:
        return len(self.standings)

    def __repr__(self) -> str:
        return f"<Crowd {len(self)} candidates, {len(self.open)} open>"

    @property
    def open(self) -> list[int]:
        """Places of those that are feasible and have a free slot, whoever else waits."""
        return [i for i, its in enumerate(self.standings) if its.free and its.feasible]

    def changed(self, fresh: Mapping[int, Candidate]) -> "Crowd":
        """The crowd with other candidates at some places; equal to one made anew of all of them."""
        after = Crowd.__new__(Crowd)
        after.candidates = candidates = list(self.candidates)
        for i, candidate in fresh.items():
            candidates[i] = candidate
        after.params = self.params
        after.presumed = self.presumed.changed(candidates, fresh)
        stale = set(fresh)
        for field, value in after.presumed.items():
            if value != self.presumed[field]:
                stale.update([i for i, c in enumerate(candidates) if getattr(c, field) is None])
        after.standings = self.standings.copy()
        anew = stand([candidates[i] for i in stale], after.presumed, self.params.kv_pressure_from)
        for i, its in zip(stale, anew, strict=True):
            after.standings[i] = its
        after.matched = [i for i in self.matched if i not in fresh]
        after.matched += [i for i, c in fresh.items() if c.matched_tokens]
        return after

    def totals(self, prompt: int) -> list[float]:
        """Seconds to the first token of a prompt of so many tokens, each; infinite where it is not feasible."""
        whole = float(prompt)  # products of two floats are the fast ones
        standings, candidates = self.standings, self.candidates
        totals = [its.ready_s + whole * its.s_per_token for its in standings]
        for i in self.matched:  # as `score` does: a call for each would be a fifth of the pick
            its, matched = standings[i], candidates[i].matched_tokens
            s_per_token = its.s_per_token
            if matched > prompt:  # noqa: PLR1730 - same
                matched = prompt
            totals[i] = its.ready_s + (prompt - matched) * s_per_token + matched * s_per_token * its.evicted
        return totals

    def scores(self, prompt: int) -> tuple[Score, ...]:
        """The whole estimate of each, in their order."""
        return tuple([score(c, its, prompt) for c, its in zip(self.candidates, self.standings, strict=True)])


def crowd_of(candidates: Sequence[Candidate] | Crowd, params: Params) -> Crowd:
    """Candidates as a crowd; one that was kept from the last request is taken as it is."""
    return candidates if isinstance(candidates, Crowd) else Crowd(candidates, params)
