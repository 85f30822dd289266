"""The candidates of a request, with all of their estimate that the next request shares.

# ops: changed, totals, score · goal: a pick costs what depends on the request, a change what depends on the change
# plan: a standing per candidate, and what is presumed where one does not tell; a change makes anew the standings that
#   it touches, and those that presume a value which it moved
# warning: decisions keep their crowd to be explained later, so a change makes another one and leaves this as it is

Forbidden here: choosing, and remembering a request.
"""

import math
from collections.abc import Mapping, Sequence

from pharos.core.policy.estimate import Presumptions, score, score_unfit, stand
from pharos.core.policy.fit import Fit, fits_of, is_plain, longest_everywhere
from pharos.core.policy.types import Candidate, Params, RouteRequest, Score


class Crowd:
    """Candidates, by their place in the list, and what each of them costs before the prompt is known."""

    __slots__ = ("candidates", "longest", "moving", "params", "presumed", "standings")

    def __init__(self, candidates: Sequence[Candidate], params: Params) -> None:
        self.candidates = candidates
        """Not to be changed any more."""
        self.params = params
        self.presumed = Presumptions(candidates, params)
        self.standings = stand(candidates, self.presumed, params.kv_pressure_from)
        self.moving = [i for i, its in enumerate(self.standings) if its.moves]
        """Places of those that cost less as time passes."""
        self.longest = longest_everywhere(candidates)
        """Estimated tokens of the longest prompt that fits each of them."""

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
        after.moving = [i for i in self.moving if i not in stale]
        after.moving += [i for i in stale if after.standings[i].moves]
        is_as_long = all(c.context_tokens == self.candidates[i].context_tokens for i, c in fresh.items())
        after.longest = self.longest if is_as_long else longest_everywhere(candidates)
        return after

    def totals(self, req: RouteRequest) -> list[float]:
        """Seconds to the first token of a request, each; infinite where it is not feasible."""
        prompt = req.prompt_tokens
        whole = float(prompt)  # products of two floats are the fast ones
        standings = self.standings
        totals = [its.ready_s + whole * its.s_per_token for its in standings]
        for i, matched in req.matched:
            matched = min(matched, prompt)  # noqa: PLW2901 - min() is a call
            totals[i] -= matched * standings[i].saved_per_token
        if self.moving:
            now = req.now
            for i in self.moving:
                wait_s, load_s = standings[i].at(now)
                totals[i] += wait_s + load_s
        if not is_plain(req, self.longest):
            for i, fit in self.fits(req).items():
                totals[i] = math.inf
                if fit.reloads and standings[i].feasible:
                    totals[i] = self._unfit(i, req, fit).total_s
        return totals

    def fits(self, req: RouteRequest) -> dict[int, Fit]:
        """By place, what stands between the request and candidates that it does not simply fit."""
        return {} if is_plain(req, self.longest) else fits_of(req, self.candidates)

    def score(self, place: int, req: RouteRequest) -> Score:
        """The whole estimate of one."""
        if not is_plain(req, self.longest):
            fit = fits_of(req, self.candidates).get(place)
            if fit is not None:
                return self._unfit(place, req, fit)
        matched = dict(req.matched).get(place, 0) if req.matched else 0
        return score(self.candidates[place], self.standings[place], req, matched)

    def scores(self, req: RouteRequest) -> tuple[Score, ...]:
        """The whole estimate of each, in their order."""
        both = zip(self.candidates, self.standings, strict=True)
        if not req.matched:
            found = [score(c, its, req) for c, its in both]
        else:
            matched = dict(req.matched).get
            found = [score(c, its, req, matched(i, 0)) for i, (c, its) in enumerate(both)]
        for i, fit in self.fits(req).items():
            found[i] = self._unfit(i, req, fit)
        return tuple(found)

    def _unfit(self, place: int, req: RouteRequest, fit: Fit) -> Score:
        c = self.candidates[place]
        reload_s = c.load_s if c.load_s is not None else self.presumed["load_s"]
        return score_unfit(c, self.standings[place], req, fit, reload_s)


def crowd_of(candidates: Sequence[Candidate] | Crowd, params: Params) -> Crowd:
    """Candidates as a crowd; one that was kept from the last request is taken as it is."""
    return candidates if isinstance(candidates, Crowd) else Crowd(candidates, params)
