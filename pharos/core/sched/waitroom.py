"""Who waits and until when: the queue with its limits, deadlines, and the clock of models whose backends are gone.

# ops: enter, leave, review · goal: a look at what changed; deadlines forget lazily
# plan: waiters in the fair queue; those that give up at once when nobody else is left are known by id
# warning: an expiry takes its waiter out of the queue: the caller must pass it on

Forbidden here: choosing targets and granting slots (the ledger does).
"""

from collections.abc import Sequence

from pharos.core.fleet import Fleet, Target
from pharos.core.policy import Params
from pharos.core.sched import refusals
from pharos.core.sched.charging import work_s
from pharos.core.sched.deadlines import Deadlines
from pharos.core.sched.fairqueue import FairQueue
from pharos.core.sched.lease import RETRY_WAIT_S, Expiry, Refusal, Submit, Ticket
from pharos.core.sched.line import Waiter
from pharos.core.sched.outlook import outlook, too_late
from pharos.core.sched.places import Place, eta_s, retry_after_s


class WaitRoom:
    """The queue and its clocks."""

    def __init__(
        self, fleet: Fleet, params: Params, *, size: int, max_wait_s: float | None, absent_wait_s: float
    ) -> None:
        """`max_wait_s`: `None` for no limit."""
        self._fleet = fleet
        self._params = params
        self.limit(size, max_wait_s, absent_wait_s)
        self.queue = FairQueue()
        self.deadlines = Deadlines(self._until)
        self.absent: set[str] = set()
        """Models whose waiters wait for a backend to come back."""
        self._picky: set[int] = set()
        """Waiters that give up at once when nobody is left who has not refused them."""

    def limit(self, size: int, max_wait_s: float | None, absent_wait_s: float) -> None:
        """Let in so many, who wait so long, from now on; who waits already waits as it was."""
        self._size, self._max_wait_s, self.absent_wait_s = size, max_wait_s, absent_wait_s

    def __repr__(self) -> str:
        return f"<WaitRoom {len(self.queue)} waiting>"

    def enter(self, waiter_id: int, sub: Submit, target: Target | None, now: float) -> Ticket | Refusal:
        """Give a request a place in the queue. `target`: where it would go; `None`: its model has no backend now."""
        queue = self.queue
        # A retry was let in once: it may pass the limit, by at most as many as were in flight.
        if len(queue) >= self._size and not sub.retry:
            return refusals.queue_full(len(queue), self._retry_after(sub.model, now))
        limits = [self._max_wait_s, RETRY_WAIT_S if not sub.absent_ok else None]
        limit = min([s for s in limits if s is not None], default=None)
        waiter = Waiter(
            waiter_id,
            sub,
            now,
            now + limit if limit is not None else None,
            now + self.absent_wait_s if target is None else None,
            work_s(sub, target, self._params),
        )
        if target is None:
            self.absent.add(sub.model)
        if sub.exclude or sub.only is not None or not sub.absent_ok:
            self._picky.add(waiter.id)
        queue.add(waiter)
        self.deadlines.set(waiter.id, len(queue))
        return Ticket(waiter.id, waiter.until, queue.count(sub.model))

    def forget(self, waiter_id: int) -> None:
        """It got a slot: the queue has dropped it, or will."""
        self._picky.discard(waiter_id)

    def leave(self, waiter_id: int) -> Waiter | None:
        """Take a waiter out; `None` when it is not there (any more)."""
        self._picky.discard(waiter_id)
        return self.queue.remove(waiter_id)

    def expire(self, waiter_id: int, refusal: Refusal) -> Expiry:
        """Take one out that is told why."""
        self.leave(waiter_id)
        return Expiry(waiter_id, refusal)

    def review(self, now: float) -> list[Expiry]:
        """End the wait of those for whom it is over, as backends and time go."""
        news: list[Expiry] = []
        self.absent.intersection_update(self.queue.models())
        for model in self.queue.models():
            news += self._mark_absent(model, now)
        for waiter_id in sorted(self._picky):
            waiter = self.queue.get(waiter_id)
            if waiter is not None and _is_hopeless(waiter.submit, self._fleet.targets_for(waiter.submit.model, now)):
                news.append(self.expire(waiter.id, refusals.nowhere_else(waiter.submit.model)))
        late = [waiter for waiter in map(self.queue.get, self.deadlines.due(now)) if waiter is not None]
        for waiter in late:
            refusal = too_late(waiter, now, self._retry_after(waiter.submit.model, now))
            news.append(self.expire(waiter.id, refusal))
        return news

    def place(self, waiter_id: int, now: float) -> Place | None:
        """Where a waiter stands; `None`: it waits no longer."""
        waiter = self.queue.get(waiter_id)
        if waiter is None:
            return None
        ahead = self.queue.ahead_of(waiter, now)
        targets = open_to(waiter.submit, self._fleet.targets_for(waiter.submit.model, now))
        return Place(len(ahead) + 1, eta_s(targets, sum([one.work_s for one in ahead]), now, self._params))

    def _retry_after(self, model: str, now: float) -> int:
        targets = self._fleet.targets_for(model, now)
        return retry_after_s(targets, self.queue.work_s(model), now, self._params)

    def _mark_absent(self, model: str, now: float) -> list[Expiry]:
        """Start or stop the clock for a model's waiters, as its backends go and come."""
        if self._fleet.targets_for(model, now):
            if model in self.absent:
                self.absent.discard(model)
                self._set_absent(model, None)
            return []
        self.absent.add(model)
        waiters = self.queue.of_model(model)
        refusal = outlook(self._fleet, model, now)
        if refusal is not None and refusal.outcome == "unknown_model":
            return [self.expire(waiter.id, refusal) for waiter in waiters]
        self._set_absent(model, now + self.absent_wait_s)
        return []

    def _set_absent(self, model: str, until: float | None) -> None:
        for waiter in self.queue.of_model(model):
            if until is None or waiter.absent_until is None:
                waiter.absent_until = until
                self.deadlines.set(waiter.id, len(self.queue))

    def _until(self, waiter_id: int) -> float | None:
        waiter = self.queue.get(waiter_id)
        return waiter.until if waiter is not None else None


def open_to(sub: Submit, targets: Sequence[Target]) -> list[Target]:
    """Those of the targets that a request may go to."""
    only = sub.only
    return [t for t in targets if t.id not in sub.exclude and (only is None or t.id in only)]


def _is_hopeless(sub: Submit, up: list[Target]) -> bool:
    """Whether to stop waiting: nobody is left who may serve it, while others are up or when it waits for no return."""
    return not open_to(sub, up) and (bool(up) or not sub.absent_ok)
