"""The ledger: who holds which slot, who waits. Picking a target and taking its slot is one step, so nothing races.

# ops: submit, release, cancel, kick · goal: a pass over the queue costs O(models x candidates + waiters)
# plan: leases count on the target's physical queue; waiters in a fair queue; every change returns the grants it made
# warning: whoever changes the fleet (a round, an ejection) must call `kick`, or waiters stay where they are

Where a request would go is asked of the `choosing`, what keys owe of `charging`, who waits how long of the `waitroom`.
Forbidden here: futures, timers and fetching (the gate and the scraper do those), and judging costs (the
policy does).
"""

import math
from functools import partial

import msgspec

from pharos.core.fleet import Feedback, Fleet, Target
from pharos.core.policy import Decision, Params
from pharos.core.sched import refusals
from pharos.core.sched.arbiter import Kind, kind_of
from pharos.core.sched.caching import Caches
from pharos.core.sched.charging import actual_s, charge_running, work_s
from pharos.core.sched.choosing import Chooser, loads
from pharos.core.sched.copies import holders
from pharos.core.sched.elsewhere import Elsewhere
from pharos.core.sched.fairqueue import Answer
from pharos.core.sched.lease import Expiry, Grant, Lease, Refusal, Submit, Ticket
from pharos.core.sched.line import Waiter
from pharos.core.sched.outlook import absent, misfit, outlook
from pharos.core.sched.places import Place
from pharos.core.sched.progress import begin
from pharos.core.sched.waitroom import WaitRoom, open_to


class Ledger:
    """Leases and waiters of this process. Every method is atomic and returns what it granted."""

    def __init__(
        self,
        fleet: Fleet,
        *,
        policy: str = "cost",
        params: Params | None = None,
        queue_size: int = 1000,
        max_wait_s: float | None = None,
        absent_wait_s: float = 30.0,
        caches: Caches | None = None,
    ) -> None:
        """`max_wait_s`: `None` for no limit; `absent_wait_s`: 0 to refuse at once while no backend is up."""
        self._fleet = fleet
        self.caches = caches if caches is not None else Caches(fleet)
        self._params = params if params is not None else Params()
        self._room = WaitRoom(fleet, self._params, size=queue_size, max_wait_s=max_wait_s, absent_wait_s=absent_wait_s)
        self._queue, self.limit_queue = self._room.queue, self._room.limit
        self.elsewhere = Elsewhere(fleet)
        """What other instances tell; who lets it take a report in kicks this ledger."""
        self._chooser = Chooser(fleet, policy, self._params, self._queue, self.elsewhere)
        self._arbiter = self._chooser.arbiter
        self._decide = self._chooser.decide
        self._leases: dict[int, Lease] = {}
        self._last_id = 0
        self._look_at: float | None = None
        """When a slot may be free that a waiter could have, or a load be due: the next kick."""
        self._starved: set[Kind] = set()
        """What the last pass found no engine for that has it."""
        self._unfit: set[str] = set()
        """Models of which the last pass found a waiter that fits nowhere any more."""

    # -- what happens

    def submit(self, sub: Submit, now: float, seed: int) -> Lease | Ticket | Refusal:
        """Ask for a slot: one now, a place in the queue, or neither. Never passes a waiter of the same model."""
        up = self._fleet.targets_for(sub.model, now)
        targets = up if sub.only is None and not sub.exclude else open_to(sub, up)
        if not targets:
            if up or not sub.absent_ok:
                return refusals.nowhere_else(sub.model)
            refusal = outlook(self._fleet, sub.model, now)
            if refusal is None and self._room.absent_wait_s <= 0:
                refusal = absent(self._fleet, sub.model)
            return refusal if refusal is not None else self._enter(sub, None, now)
        sub = self.caches.known(sub)
        # Behind others it only matters whether a slot is free, which they do not change.
        decision = self._decide(sub, targets, 0, now, seed)
        if decision.chosen is None:
            refused = misfit(self._fleet, sub, decision, up)
            if refused is not None:
                return refused
        elif sub.model not in self._queue.by_model:
            is_warm = decision.crowd.candidates[decision.chosen].warm and sub.context_tokens is None  # nearly always
            if not self._arbiter.claims and (is_warm or not loads(sub, decision)):
                return self._take(sub, targets, decision, decision.chosen, now, 0.0)
            due = self._chooser.put_off(sub, targets, decision, now, seed)
            if due.decision.chosen is not None:
                return self._take(sub, due.targets, due.decision, due.decision.chosen, now, 0.0)
        place = decision.chosen if decision.chosen is not None else decision.awaited
        got = self._enter(sub, targets[place if place is not None else 0], now)
        if isinstance(got, Ticket) and (decision.any_free or decision.awaited is None):
            self._look_at = now
        return got

    def visit(self, sub: Submit, now: float, seed: int) -> Lease | Refusal:
        """Choose a target for what an engine answers beside its slots.

        Such a lease holds none: it never waits, is not counted, and releasing it does nothing.
        """
        up = self._fleet.targets_for(sub.model, now)
        targets = open_to(sub, up)
        if not targets:
            if up:
                return refusals.nowhere_else(sub.model)
            return outlook(self._fleet, sub.model, now) or absent(self._fleet, sub.model)
        decision = self._decide(sub, targets, 0, now, seed)
        place = decision.chosen
        if place is None:
            place = decision.awaited if decision.awaited is not None else seed % len(targets)
            decision = msgspec.structs.replace(decision, chosen=place, awaited=None)
        return self._take(sub, targets, decision, place, now, 0.0, is_visit=True)

    def release(self, lease: Lease, now: float, seed: int, feedback: Feedback | None = None) -> list[Grant]:
        """Give a slot back, with what the request showed. A second release of a lease does nothing."""
        if lease.released:
            return []
        lease.released = True
        del self._leases[lease.id]
        lease.slots.progress.pop(lease.id, None)
        self._fleet.ended(lease.target, lease.slots, now)
        if lease.chain is not None:
            self.caches.released(lease, lease.chain, feedback, now)
        if lease.charged_s:
            self._queue.settle(lease.key, lease.charged_s, actual_s(lease, feedback, now))
        if feedback is not None and feedback.ok:
            self._fleet.replied(lease.target, now)
            if not lease.is_speed_sample:
                feedback = msgspec.structs.replace(feedback, ttft_s=None, duration_s=None)
            self._fleet.learn(lease.target, feedback)
        return self._serve(now, seed) if self._queue.by_model else []

    def cancel(self, ticket_id: int, now: float, seed: int) -> list[Grant]:
        """Leave the queue; those behind may go ahead. Nothing happens when it no longer waits."""
        return self._serve(now, seed) if self._room.leave(ticket_id) else []

    def kick(self, now: float, seed: int) -> list[Grant | Expiry]:
        """Look at all waiters again: something changed in the fleet, or a deadline has come."""
        self.elsewhere.expire(now)
        news: list[Grant | Expiry] = [*self._serve(now, seed)]
        if self._unfit:
            unfit = self._chooser.misfits(self._unfit, now, seed)
            news += [self._room.expire(waiter_id, refusal) for waiter_id, refusal in unfit]
            news += self._serve(now, seed)
        return news + self._room.review(now)

    # -- questions

    def next_deadline(self) -> float | None:
        """When to call `kick` at the latest, in seconds on the caller's clock; may be past. `None`: no need."""
        at, due = self._look_at, self._room.deadlines.next()
        if at is None or due is None:
            return due if at is None else at
        return min(at, due)

    def place(self, ticket_id: int, now: float) -> Place | None:
        """Where a request stands in the queue, and how long it probably waits; `None`: it waits no longer."""
        return self._room.place(ticket_id, now)

    @property
    def waiting(self) -> int:
        """Requests in the queue."""
        return len(self._queue)

    @property
    def leased(self) -> int:
        """Slots held."""
        return len(self._leases)

    def waiting_by_model(self) -> dict[str, int]:
        """Requests in the queue, by model; models without any are not in it."""
        return {model: self._queue.count(model) for model in self._queue.models()}

    def __repr__(self) -> str:
        return f"<Ledger {self.leased} leased, {self.waiting} waiting>"

    # -- granting

    def _enter(self, sub: Submit, target: Target | None, now: float) -> Ticket | Refusal:
        self._last_id += 1
        waits = self._queue.has(sub.key)
        got = self._room.enter(self._last_id, sub, target, now)
        if not waits and isinstance(got, Ticket):
            charge_running(self._queue.accounts, self._leases.values(), sub.key, now, self._params)
        return got

    def _take(
        self,
        sub: Submit,
        targets: list[Target],
        decision: Decision,
        place: int,
        now: float,
        waited_s: float,
        is_visit: bool = False,  # noqa: FBT001, FBT002 - asked with every request: a name would cost
    ) -> Lease:
        target, it = targets[place], decision.crowd.candidates[place]
        is_cold = (it.warm is False and not it.loading) or (sub.context_tokens is not None and decision.reloads)
        is_speed_sample = not it.loading and (it.warm is not None or not it.reports_residency)
        lease_id = self._last_id = self._last_id + 1
        lease = Lease(
            lease_id, target, target.slots, it.name, sub.key, sub.model, decision, now, is_cold, is_speed_sample,
            waited_s, is_visit,
        )  # fmt: skip
        if sub.chain is not None:
            self.caches.dispatched(lease, sub)
        if not is_visit:
            if is_cold or self._arbiter.claims:
                self._chooser.granted(target, sub, now, is_load=is_cold)
            self._leases[lease_id] = lease
            begin(lease_id, target, decision, place, now)
            self._fleet.dispatched(target, now, sub.context_tokens)
        return lease

    def _serve(self, now: float, seed: int) -> list[Grant]:
        """Give free slots to waiters, in fair order."""
        self._look_at = None
        if self._arbiter.claims:
            self._arbiter.drop_idle(now)
        grants = self._pass(now, seed)
        if self._starved:
            is_new, look_at = self._chooser.claim(self._starved, self._queue, now)
            if is_new:  # an engine may be idle that was left to others till now
                grants += self._pass(now, seed)
            self._look(look_at)
        return grants

    def _pass(self, now: float, seed: int) -> list[Grant]:
        grants: list[Grant] = []
        declined: dict[str, int] = {}
        self._starved.clear()
        self._unfit.clear()
        is_last = False

        def offer(waiter: Waiter, *, is_behind: bool = False) -> Answer:
            sub = waiter.submit
            targets = self._arbiter.open_to(kind_of(sub), open_to(sub, self._fleet.targets_for(sub.model, now)))
            if not targets:
                return Answer.BLOCKED
            sub = self.caches.known(sub)
            ahead = self._queue.count(sub.model) - 1 if is_last else declined.get(sub.model, 0)
            decision = self._decide(sub, targets, ahead, now, seed + waiter.id)
            if is_behind and (decision.matched_tokens == 0 or loads(sub, decision)):
                return Answer.WAITS
            if decision.chosen is None and decision.never is not None:
                self._unfit.add(sub.model)
            if decision.chosen is None:
                decision = self._chooser.invest(sub, targets, decision, now)
            first = decision
            if loads(sub, decision):
                due = self._chooser.put_off(sub, targets, decision, now, seed + waiter.id)
                decision, targets = due.decision, due.targets
                self._look(due.look_at)
            if decision.chosen is None:
                declined[sub.model] = declined.get(sub.model, 0) + 1
                if not holders(first):
                    self._starved.add(kind_of(sub))
                if targets and decision.any_free:
                    return Answer.WAITS
                is_plain = not sub.exclude and sub.only is None and not self._arbiter.claims
                return Answer.FULL if is_plain and not first.any_free else Answer.BLOCKED
            lease = self._take(sub, targets, decision, decision.chosen, now, max(now - waiter.at, 0.0))
            lease.charged_s = work_s(sub, lease.target, self._params)
            self._queue.accounts.charge(sub.key, lease.charged_s)
            self._room.forget(waiter.id)
            self._chooser.served(lease, waiter.at, now)
            grants.append(Grant(waiter.id, lease))
            return Answer.GRANTED

        self._queue.serve(offer, now, partial(offer, is_behind=True))
        if declined:
            is_last = True  # if the last in line would take what is free, leaving it empty costs more: the first has it
            self._queue.serve(offer, now)
        return grants

    def _look(self, at: float) -> None:
        if at < math.inf:
            self._look_at = at if self._look_at is None else min(self._look_at, at)
