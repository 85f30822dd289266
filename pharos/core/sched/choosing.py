"""Where a request would go as things stand: the policy's choice, and a load put off that is not due.

# ops: decide, put_off, claim · goal: a warm choice is asked nothing more
# plan: the policy chooses; a further copy must be paid for by those who wait, a load must push nobody out in its turn
# warning: a choice that was put off leaves targets out: what can never be is told by the first decision only

Forbidden here: slots and waiters (the ledger has them).
"""

import math
from collections.abc import Iterable

import msgspec

from pharos.core.fleet import Fleet, Target
from pharos.core.policy import POLICIES, Decision, Params, least_load
from pharos.core.sched.arbiter import Arbiter, Kind, kind_of
from pharos.core.sched.candidates import gather
from pharos.core.sched.charging import work_s
from pharos.core.sched.copies import holders, pays, spare
from pharos.core.sched.crowds import Crowds
from pharos.core.sched.elsewhere import Elsewhere
from pharos.core.sched.fairqueue import FairQueue
from pharos.core.sched.lease import Lease, Refusal, Submit
from pharos.core.sched.line import Waiter
from pharos.core.sched.outlook import misfit
from pharos.core.sched.regrets import Regrets
from pharos.core.sched.request import route_request
from pharos.core.sched.waitroom import open_to


class Choice(msgspec.Struct, frozen=True):
    """A decision that was looked at again."""

    decision: Decision
    targets: list[Target]
    """The candidates, in their order; none: those that there are must be left to others now."""
    look_at: float = math.inf
    """When it may be another one though nothing happens, seconds on the caller's clock."""


class Chooser:
    """The policy, with what it is told and what it may not do now."""

    def __init__(self, fleet: Fleet, policy: str, params: Params, queue: FairQueue, elsewhere: Elsewhere) -> None:
        self._fleet = fleet
        self._params = params
        self._queue = queue
        self._elsewhere = elsewhere
        self._pick = POLICIES[policy]
        self._is_cost = policy == "cost"
        fleet.calibration.steers = self._is_cost
        self._crowds = Crowds(params)
        self._regrets = Regrets()
        self.arbiter = Arbiter(lambda model: [waiter.submit for waiter in queue.of_model(model)], params)

    def __repr__(self) -> str:
        return f"<Chooser {self.arbiter!r}>"

    def decide(self, sub: Submit, targets: list[Target], ahead: int, now: float, seed: int) -> Decision:
        """Choose a target with a free slot, or say what to wait for. `ahead`: how many wait before it."""
        if self._elsewhere.waiting:
            ahead += self._elsewhere.waiting.get(sub.model, 0)
        alone = not ahead and not sub.exclude and sub.only is None
        crowd = self._crowds.of(sub.model, targets, now) if alone else gather(targets, ahead, now)
        pick = self._pick if sub.model not in self._fleet.calibration.fallen else least_load.pick
        return pick(route_request(sub, targets, seed, now), crowd, self._params)

    def put_off(self, sub: Submit, targets: list[Target], decision: Decision, now: float, seed: int) -> Choice:
        """Choose again while the choice is a load that is not due, or an engine that is kept for others."""
        waiting, its_s = self._queue.count(sub.model), self._queue.work_s(sub.model)
        if not waiting:
            waiting, its_s = 1, work_s(sub, targets[0], self._params)
        kind, look_at = kind_of(sub), math.inf
        open_ = self.arbiter.open_to(kind, targets)
        if open_ and len(open_) < len(targets):
            decision = self.decide(sub, open_, 0, now, seed)
        while open_ and decision.chosen is not None and loads(sub, decision):
            # While least-load stands in for estimates, too: it would load the model wherever nobody is.
            held = holders(decision) if self._is_cost else ()
            if held and not pays(decision, held, open_, waiting, its_s, now, self._regrets.of(sub.model, now)):
                open_ = [open_[i] for i in held]
            else:
                target = open_[decision.chosen]
                until = self.arbiter.may_load(target, kind, now)
                if until is None:
                    break
                look_at = min(look_at, until)
                open_ = [other for other in open_ if other is not target]
            if open_:
                decision = self.decide(sub, open_, 0, now, seed)
        if not open_:
            decision = msgspec.structs.replace(decision, chosen=None, other=None)
        return Choice(decision, open_, look_at)

    def invest(self, sub: Submit, targets: list[Target], decision: Decision, now: float) -> Decision:
        """Let a request that would wait load one more copy, if those before it have waited long enough for that."""
        regret_s = self._regrets.of(sub.model, now)
        if not regret_s or decision.awaited is None or not self._is_cost:
            return decision
        place = spare(decision, targets, regret_s, now)
        if place is None:
            return decision
        return msgspec.structs.replace(decision, chosen=place, other=decision.awaited, awaited=None)

    def served(self, lease: Lease, came_at: float, now: float) -> None:
        """Take in what a request that waited since `came_at` has waited while its model was in memory."""
        place, target = lease.decision.chosen, lease.target
        if place is None or lease.cold or lease.decision.candidates[place].loading:
            return
        sent_at, load_s = target.backend.load_sent_at, target.stats.load_s.value
        if sent_at is not None:  # for a load, and for what was there before
            came_at = max(came_at, sent_at + (load_s if load_s is not None else self._params.load_s))
        self._regrets.add(lease.model, (now - came_at) * self._params.regret_share, now)

    def granted(self, target: Target, sub: Submit, now: float, *, is_load: bool) -> None:
        """A request got a slot: one that loads its model has been paid for, and who claims an engine for it has one."""
        if is_load:
            self._regrets.spend(sub.model)
        self.arbiter.granted(target, kind_of(sub), now, is_load=is_load)

    def misfits(self, models: Iterable[str], now: float, seed: int) -> list[tuple[int, Refusal]]:
        """Those who wait for these models and fit nowhere any more, with what they would be told if they came now."""
        found = []
        for model in models:
            up = self._fleet.targets_for(model, now)
            for waiter in self._queue.of_model(model):
                targets = open_to(waiter.submit, up)
                decision = self.decide(waiter.submit, targets, 0, now, seed)
                refused = misfit(self._fleet, waiter.submit, decision, up) if targets else None
                if refused is not None:
                    found.append((waiter.id, refused))
        return found

    def claim(self, starved: set[Kind], waiters: Iterable[Waiter], now: float) -> tuple[bool, float]:
        """Keep engines for kinds that no engine has and that were waited for long; `waiters`: oldest first.

        Returns whether one is kept from now on, and when another one may be.
        """
        left, is_new, look_at = set(starved), False, math.inf
        for waiter in waiters:
            kind = kind_of(waiter.submit)
            if kind in left:
                left.discard(kind)
                targets = open_to(waiter.submit, self._fleet.targets_for(waiter.submit.model, now))
                at = self.arbiter.claim(kind, waiter.at, targets, now)
                is_new, look_at = is_new or at <= now, look_at if at <= now else min(look_at, at)
        return is_new, look_at


def loads(sub: Submit, decision: Decision) -> bool:
    """Whether the choice makes an engine load the model, as far as is known."""
    place = decision.chosen
    if place is None:
        return False
    it = decision.candidates[place]
    if not it.warm and not it.loading and it.reports_residency:
        return True
    return sub.context_tokens is not None and decision.reloads
