"""The ledger: who holds which slot, who waits. Picking a target and taking its slot is one step, so nothing races.

# ops: submit, release, cancel, kick · goal: a pass over the queue costs O(models x candidates + waiters)
# plan: leases count on the target's physical queue; waiters in a fair queue; every change returns the grants it made
# warning: whoever changes the fleet (a round, an ejection) must call `kick`, or waiters stay where they are

Forbidden here: futures, timers and fetching (the gate and the scraper do those), and judging costs (the policy does).
"""

import msgspec

from pharos.core.fleet import Feedback, Fleet, Target
from pharos.core.policy import POLICIES, Decision, Params, RouteRequest
from pharos.core.sched import refusals
from pharos.core.sched.candidates import gather
from pharos.core.sched.crowds import Crowds
from pharos.core.sched.deadlines import Deadlines
from pharos.core.sched.fairqueue import Answer, FairQueue, Waiter
from pharos.core.sched.lease import RETRY_WAIT_S, Expiry, Grant, Lease, Refusal, Submit, Ticket
from pharos.core.sched.outlook import outlook, too_late


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
    ) -> None:
        """`max_wait_s`: `None` for no limit; `absent_wait_s`: 0 to refuse at once while no backend is up."""
        self._fleet = fleet
        self._pick = POLICIES[policy]
        self._params = params if params is not None else Params()
        self._crowds = Crowds(self._params)
        self._queue_size = queue_size
        self._max_wait_s = max_wait_s
        self._absent_wait_s = absent_wait_s
        self._queue = FairQueue()
        self._deadlines = Deadlines(self._until)
        self._leases: dict[int, Lease] = {}
        self._last_id = 0
        self._absent: set[str] = set()
        """Models whose waiters wait for a backend to come back."""
        self._picky: set[int] = set()
        """Waiters that give up at once when nobody is left who has not refused them."""
        self._look_at: float | None = None
        """When a slot may be free that a waiter could have: the next kick is due."""

    # -- what happens

    def submit(self, sub: Submit, now: float, seed: int) -> Lease | Ticket | Refusal:
        """Ask for a slot: one now, a place in the queue, or neither. Never passes a waiter of the same model."""
        up = self._fleet.targets_for(sub.model, now)
        targets = up if sub.only is None and not sub.exclude else _open_to(sub, up)
        if not targets:
            if up or not sub.absent_ok:
                return refusals.nowhere_else(sub.model)
            refusal = outlook(self._fleet, sub.model, now)
            if refusal is None and self._absent_wait_s <= 0:
                refusal = refusals.unavailable(sub.model)
            return refusal if refusal is not None else self._enqueue(sub, now, absent=True)
        # Behind others it only matters whether a slot is free, which they do not change.
        decision = self._decide(sub, targets, 0, now, seed)
        if decision.chosen is not None and not self._queue.count(sub.model):
            return self._take(sub, targets, decision, decision.chosen, now, 0.0)
        got = self._enqueue(sub, now, absent=False)
        if decision.any_free and isinstance(got, Ticket):
            self._look_at = now
        return got

    def visit(self, sub: Submit, now: float, seed: int) -> Lease | Refusal:
        """Choose a target for what an engine answers beside its slots.

        Such a lease holds none: it never waits, is not counted, and releasing it does nothing.
        """
        up = self._fleet.targets_for(sub.model, now)
        targets = _open_to(sub, up)
        if not targets:
            refusal = None if up else outlook(self._fleet, sub.model, now)
            return refusal or (refusals.nowhere_else if up else refusals.unavailable)(sub.model)
        decision = self._decide(sub, targets, 0, now, seed)
        place = decision.chosen
        if place is None:
            place = decision.awaited if decision.awaited is not None else seed % len(targets)
            decision = msgspec.structs.replace(decision, chosen=place, awaited=None, enqueue=False)
        return self._take(sub, targets, decision, place, now, 0.0, is_visit=True)

    def release(self, lease: Lease, now: float, seed: int, feedback: Feedback | None = None) -> list[Grant]:
        """Give a slot back, with what the request showed. A second release of a lease does nothing."""
        if lease.released:
            return []
        lease.released = True
        del self._leases[lease.id]
        self._fleet.ended(lease.target, lease.slots, now)
        if feedback is not None and feedback.ok:
            self._fleet.replied(lease.target, now)
            if not lease.is_speed_sample:
                feedback = msgspec.structs.replace(feedback, ttft_s=None, duration_s=None)
            self._fleet.learn(lease.target, feedback)
        return self._serve(now, seed) if self._queue.by_model else []

    def cancel(self, ticket_id: int, now: float, seed: int) -> list[Grant]:
        """Leave the queue; those behind may go ahead. Nothing happens when it no longer waits."""
        return self._serve(now, seed) if self._remove(ticket_id) else []

    def kick(self, now: float, seed: int) -> list[Grant | Expiry]:
        """Look at all waiters again: something changed in the fleet, or a deadline has come."""
        news: list[Grant | Expiry] = [*self._serve(now, seed)]
        self._absent.intersection_update(self._queue.models())
        for model in self._queue.models():
            news += self._mark_absent(model, now)
        for waiter_id in sorted(self._picky):
            waiter = self._queue.get(waiter_id)
            if waiter is not None and _is_hopeless(waiter.submit, self._fleet.targets_for(waiter.submit.model, now)):
                news.append(self._expire(waiter, refusals.nowhere_else(waiter.submit.model)))
        late = [waiter for waiter in map(self._queue.get, self._deadlines.due(now)) if waiter is not None]
        for waiter in late:
            news.append(self._expire(waiter, too_late(waiter, now, self._retry_after(waiter.submit.model, now))))
        return news

    # -- questions

    def next_deadline(self) -> float | None:
        """When to call `kick` at the latest, in seconds on the caller's clock; may be past. `None`: no need."""
        at, due = self._look_at, self._deadlines.next()
        if at is None or due is None:
            return due if at is None else at
        return min(at, due)

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

    def _targets(self, sub: Submit, now: float) -> list[Target]:
        return _open_to(sub, self._fleet.targets_for(sub.model, now))

    def _decide(self, sub: Submit, targets: list[Target], ahead: int, now: float, seed: int) -> Decision:
        alone = not ahead and not sub.exclude and sub.only is None
        crowd = self._crowds.of(sub.model, targets, now) if alone else gather(targets, ahead, now)
        return self._pick(RouteRequest(sub.prompt_tokens, seed), crowd, self._params)

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
        target, it = targets[place], decision.candidates[place]
        is_cold = it.warm is False and not it.loading
        is_speed_sample = not it.loading and (it.warm is not None or not it.reports_residency)
        lease_id = self._last_id = self._last_id + 1
        lease = Lease(
            lease_id, target, target.slots, it.name, sub.key, sub.model, decision, now, is_cold, is_speed_sample,
            waited_s, is_visit,
        )  # fmt: skip
        if not is_visit:
            self._leases[lease_id] = lease
            self._fleet.dispatched(target)
        return lease

    def _serve(self, now: float, seed: int) -> list[Grant]:
        """Give free slots to waiters, in fair order."""
        self._look_at = None
        grants: list[Grant] = []
        declined: dict[str, int] = {}

        def offer(waiter: Waiter) -> Answer:
            sub = waiter.submit
            targets = self._targets(sub, now)
            ahead = declined.get(sub.model, 0)
            decision = self._decide(sub, targets, ahead, now, seed + waiter.id)
            last = self._queue.count(sub.model) - 1
            if decision.chosen is None and last > ahead and decision.any_free:
                # The first would rather wait, but if the last in line would not, a slot that stays empty costs more
                # than it saves: the first takes it, as lines stay in order.
                decision = self._decide(sub, targets, last, now, seed + waiter.id)
            if decision.chosen is None:
                declined[sub.model] = ahead + 1
                return Answer.WAITS if decision.any_free else Answer.BLOCKED
            lease = self._take(sub, targets, decision, decision.chosen, now, max(now - waiter.at, 0.0))
            self._picky.discard(waiter.id)
            grants.append(Grant(waiter.id, lease))
            return Answer.GRANTED

        self._queue.serve(offer)
        return grants

    # -- waiting

    def _enqueue(self, sub: Submit, now: float, *, absent: bool) -> Ticket | Refusal:
        # A retry was let in once: it may pass the limit, by at most as many as were in flight.
        if self.waiting >= self._queue_size and not sub.retry:
            return refusals.queue_full(self.waiting, self._retry_after(sub.model, now))
        limits = [self._max_wait_s, RETRY_WAIT_S if not sub.absent_ok else None]
        limit = min([s for s in limits if s is not None], default=None)
        waiter = Waiter(self._new_id(), sub, now, now + limit if limit is not None else None)
        if absent:
            self._absent.add(sub.model)
            waiter.absent_until = now + self._absent_wait_s
        if sub.exclude or sub.only is not None or not sub.absent_ok:
            self._picky.add(waiter.id)
        self._queue.add(waiter)
        self._deadlines.set(waiter.id, self.waiting)
        return Ticket(waiter.id, waiter.until, self._queue.count(sub.model))

    def _remove(self, waiter_id: int) -> Waiter | None:
        self._picky.discard(waiter_id)
        return self._queue.remove(waiter_id)

    def _mark_absent(self, model: str, now: float) -> list[Expiry]:
        """Start or stop the clock for a model's waiters, as its backends go and come."""
        if self._fleet.targets_for(model, now):
            if model in self._absent:
                self._absent.discard(model)
                self._set_absent(model, None)
            return []
        self._absent.add(model)
        waiters = self._queue.of_model(model)
        refusal = outlook(self._fleet, model, now)
        if refusal is not None and refusal.outcome == "unknown_model":
            return [self._expire(waiter, refusal) for waiter in waiters]
        self._set_absent(model, now + self._absent_wait_s)
        return []

    def _set_absent(self, model: str, until: float | None) -> None:
        for waiter in self._queue.of_model(model):
            if until is None or waiter.absent_until is None:
                waiter.absent_until = until
                self._deadlines.set(waiter.id, self.waiting)

    def _expire(self, waiter: Waiter, refusal: Refusal) -> Expiry:
        self._remove(waiter.id)
        return Expiry(waiter.id, refusal)

    def _retry_after(self, model: str, now: float) -> int:
        ahead = self._queue.count(model)
        return refusals.retry_after(
            self._fleet.targets_for(model, now), ahead, now, self._params.service_s, self._params.capacity
        )

    def _until(self, waiter_id: int) -> float | None:
        waiter = self._queue.get(waiter_id)
        return waiter.until if waiter is not None else None

    def _new_id(self) -> int:
        self._last_id += 1
        return self._last_id


def _is_hopeless(sub: Submit, up: list[Target]) -> bool:
    """Whether to stop waiting: nobody is left who may serve it, while others are up or when it waits for no return."""
    return not _open_to(sub, up) and (bool(up) or not sub.absent_ok)


def _open_to(sub: Submit, targets: list[Target]) -> list[Target]:
    """Those of the targets that a request may go to."""
    only = sub.only
    return [t for t in targets if t.id not in sub.exclude and (only is None or t.id in only)]
