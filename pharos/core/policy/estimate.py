"""What each candidate would cost, in seconds. Both policies read this.

Cost = wait + load + prefill + KV pressure. An unknown never helps: it becomes the median of the candidates that
know, then an assumption, and never 0. Forbidden here: choosing.
"""

import math
from bisect import bisect_left, insort
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, TypeVar

import msgspec

from pharos.core.assumptions import ASSUMPTIONS
from pharos.core.policy.fit import Fit
from pharos.core.policy.types import Candidate, Params, RouteRequest, Score

N = TypeVar("N", int, float)

OVERDUE_LOAD = ASSUMPTIONS["overdue_load"].value

NO_FREE_SLOT = "no free slot"
WOULD_EVICT = "loading it would evict a model that is in use"


class Standing(msgspec.Struct, frozen=True, gc=False):
    """The part of one candidate's estimate that is the same for every request."""

    wait_s: float
    """Seconds until a slot is free; of one that `moves`, only those after the first of ours there has ended."""
    load_s: float
    """Of a load under way the whole of it, as if it began now."""
    ready_s: float
    """Both together and what any request takes to its first token; infinite when it is not feasible. Of one that
    `moves`, without those two."""
    s_per_token: float
    """Seconds of prefill."""
    saved_per_token: float
    """Seconds that a cached token saves, of which some are probably gone."""
    base_s: float
    """Seconds to the first token that do not grow with the prompt."""
    feasible: bool
    free: bool
    occupancy: float
    """Requests there per slot."""
    moves: bool = False
    """What it costs grows less as time passes: `at` tells how much that is."""
    frees_at: float | None = None
    loading: bool = False
    loading_since: float | None = None
    others_s: float = math.inf
    """Seconds until one of the requests that are not ours has probably ended; infinite: none is known to be there."""

    def at(self, now: float) -> tuple[float, float]:
        """Seconds of waiting and of loading, as of `now`."""
        wait_s, load_s = self.wait_s, self.load_s
        if self.loading:
            since = self.loading_since
            if since is not None and since < now:
                load_s = max(load_s - now + since, load_s * OVERDUE_LOAD)
        if self.frees_at is not None:
            wait_s += min(max(self.frees_at - now, 0.0), self.others_s)
            if self.loading:  # those in front wait for it, too: it is over when the first of them ends
                load_s = max(load_s - wait_s, 0.0)
        return wait_s, load_s


def upper_median(values: Iterable[N | None]) -> N | None:
    """Median of the known values, the greater one of two; `None` when nothing is known."""
    known = sorted([value for value in values if value is not None])
    return known[len(known) // 2] if known else None


def presumed(known: list[N], count: int, otherwise: N) -> N:
    """What an unknown value is taken for, given the known ones of so many candidates. Sorts them."""
    known.sort()
    if not known or len(known) == count:
        return otherwise
    return known[len(known) // 2]


def presumed_capacity(known: list[int], assumed: int) -> int:
    """Slots of a candidate that does not tell: few, as more would make it look better. Sorts the known ones."""
    known.sort()
    return min(assumed, known[(len(known) - 1) // 2]) if known else assumed


Known = Callable[[Sequence[Candidate]], list[Any]]
# A loop of its own per field: one loop over `attrgetter` takes half as long again.
_KNOWN: Final[Mapping[str, Known]] = {
    "running": lambda crowd: [v for c in crowd if (v := c.running) is not None],
    "waiting": lambda crowd: [v for c in crowd if (v := c.waiting) is not None],
    "capacity": lambda crowd: [v for c in crowd if (v := c.capacity) is not None],
    "kv_usage": lambda crowd: [v for c in crowd if (v := c.kv_usage) is not None],
    "prefill_s_per_token": lambda crowd: [v for c in crowd if (v := c.prefill_s_per_token) is not None],
    "load_s": lambda crowd: [v for c in crowd if (v := c.load_s) is not None],
    "service_s": lambda crowd: [v for c in crowd if (v := c.service_s) is not None],
    "base_s": lambda crowd: [v for c in crowd if (v := c.base_s) is not None],
}


class Presumptions(dict[str, float]):
    """By field of `Candidate`, what is presumed where it is unknown. Each is worked out when first asked for.

    On most fleets nobody asks; asking is a look-up and not a call, as 64 candidates may ask for four fields each.
    """

    __slots__ = ("_candidates", "_known", "_params")

    def __init__(self, candidates: Sequence[Candidate], params: Params) -> None:
        self._candidates = candidates
        self._params = params
        self._known: dict[str, list[Any]] = {}
        """Of each field that was asked for, the known values, sorted."""

    def __missing__(self, field: str) -> float:
        # Of one candidate nothing is known once it does not tell; most models have only one.
        known = _KNOWN[field](self._candidates) if len(self._candidates) > 1 else []
        if known:
            return self._presume(field, known)
        self._known[field] = known  # of a small engine nobody tells most of it
        value = self[field] = getattr(self._params, field, 0)
        return value

    def changed(self, candidates: Sequence[Candidate], places: Iterable[int]) -> "Presumptions":
        """What is presumed once the candidates at these places are others; asked for are the same fields as here."""
        after = Presumptions(candidates, self._params)
        for field, known in self._known.items():
            kept = known.copy()
            for i in places:
                old, new = getattr(self._candidates[i], field), getattr(candidates[i], field)
                if old != new:
                    if old is not None:
                        del kept[bisect_left(kept, old)]
                    if new is not None:
                        insort(kept, new)
            after._presume(field, kept)
        return after

    def _presume(self, field: str, known: list[Any]) -> float:
        self._known[field] = known
        if field == "capacity":
            value: float = presumed_capacity(known, self._params.capacity)
        else:
            # Counts and shares have no assumption: where nobody tells, nobody is there.
            value = presumed(known, len(self._candidates), getattr(self._params, field, 0))
        self[field] = value
        return value


def stand(candidates: Iterable[Candidate], presume: Presumptions, kv_from: float) -> list[Standing]:
    """Estimate what does not depend on the request, each. A feasible candidate only lacks a slot at worst."""
    standings, never = [], math.inf
    for c in candidates:
        occupied: float | None = c.running
        if occupied is None:
            occupied = presume["running"]
        ours = c.ours
        if occupied < ours:  # noqa: PLR1730 - 64 calls of max() take long
            occupied = ours
        wait_s = load_s = 0.0
        free = feasible = True
        slots: float | None = c.capacity
        if slots is None or occupied >= slots:
            slots, wait_s, free = _queueing(c, occupied, presume)
        warm = c.warm
        loading = c.loading and not warm
        if loading or (not warm and (warm is not None or c.reports_residency)):
            load_s = c.load_s if c.load_s is not None else presume["load_s"]
            feasible = loading or c.fits_if_cold is not False
        rate = c.prefill_s_per_token
        if rate is None:
            rate = presume["prefill_s_per_token"]
        base_s = c.base_s
        if base_s is None:
            base_s = presume["base_s"]
        kv_usage = c.kv_usage
        if kv_usage is None:
            kv_usage = presume["kv_usage"]
        saved = rate
        if kv_usage > kv_from:
            saved *= max((1 - kv_usage) / (1 - kv_from), 0.0)
        ready_s = wait_s + load_s + base_s if feasible else never
        its = Standing(wait_s, load_s, ready_s, rate, saved, base_s, feasible, free, occupied / slots)
        standings.append(
            its if not loading and (c.frees_at is None or (free and not wait_s)) else _moving(c, its, slots, presume)
        )
    return standings


def _moving(c: Candidate, its: Standing, slots: float, presume: Presumptions) -> Standing:
    """See one whose cost grows less as time passes: it loads, or is full and some request there is expected to end."""
    wait_s, others_s, first = its.wait_s, math.inf, None
    if c.frees_at is not None and (wait_s or not its.free):  # full, or presumed to be
        first = c.frees_at
        queued: float = c.waiting if c.waiting is not None else presume["waiting"]
        service_s = c.service_s if c.service_s is not None else presume["service_s"]
        wait_s = (queued + c.router_ahead) / slots * service_s
        if c.peers or (c.running is not None and c.running > c.ours):
            others_s = service_s / slots  # one of theirs may end sooner
    return Standing(
        wait_s=wait_s,
        load_s=its.load_s,
        ready_s=its.base_s if its.feasible else math.inf,
        s_per_token=its.s_per_token,
        saved_per_token=its.saved_per_token,
        base_s=its.base_s,
        feasible=its.feasible,
        free=its.free,
        occupancy=its.occupancy,
        moves=True,
        frees_at=first,
        loading=c.loading and not c.warm,
        loading_since=c.loading_since,
        others_s=others_s,
    )


def _queueing(c: Candidate, occupied: float, presume: Presumptions) -> tuple[float, float, bool]:
    """Of a candidate that is, or may be, full: its slots, the seconds until one is free, whether one is free."""
    waiting, capacity = c.waiting, c.capacity
    slots: float = capacity if capacity is not None else presume["capacity"]
    queued: float = waiting if waiting is not None else presume["waiting"]
    divisor = slots if slots > 0 else 1
    if occupied < slots and (capacity is not None or queued <= 0):  # of unknown capacity: one that queues is full
        return divisor, 0.0, True
    # Presumed to be full is not known to be full: the policy may still fill the slots that are ours to fill.
    tells = (c.running is not None and occupied >= slots) or (capacity is None and waiting)
    service_s = c.service_s if c.service_s is not None else presume["service_s"]
    return divisor, (queued + c.router_ahead + 1) / divisor * service_s, not tells and c.ours < slots


def score(c: Candidate, its: Standing, req: RouteRequest, matched: int = 0) -> Score:
    """Make a record of one candidate's estimate for a request that fits. `matched`: prompt tokens it probably holds."""
    prompt = req.prompt_tokens
    prefill_s, kv_s = prompt * its.s_per_token + its.base_s, 0.0
    if matched:
        if matched > prompt:  # noqa: PLR1730 - same
            matched = prompt
        prefill_s = (prompt - matched) * its.s_per_token + its.base_s
        kv_s = matched * (its.s_per_token - its.saved_per_token)
    wait_s, load_s = its.at(req.now) if its.moves else (its.wait_s, its.load_s)
    feasible, free = its.feasible, its.free
    return Score(
        c.target_id,
        c.name,
        wait_s,
        load_s,
        prefill_s,
        kv_s,
        wait_s + load_s + prefill_s + kv_s,
        feasible,
        free,
        its.occupancy,
        ("" if free else NO_FREE_SLOT) if feasible else WOULD_EVICT,
    )


def score_unfit(c: Candidate, its: Standing, req: RouteRequest, fit: Fit, reload_s: float) -> Score:
    """The same for one that does not simply fit. `reload_s`: seconds of a load that only this request needs."""
    plain = score(c, its, req)
    if fit.reloads:  # what its cache holds goes with it
        return msgspec.structs.replace(plain, load_s=plain.load_s + reload_s, total_s=plain.total_s + reload_s)
    return msgspec.structs.replace(plain, feasible=False, why_not=fit.why_not)
