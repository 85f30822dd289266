"""Waiting for a slot: the async face of the ledger, and the only place where a request waits for its turn.

It decides nothing. Grants are handed over synchronously; a waiter cancelled in the same turn of the loop passes its
slot on at once.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Iterable

from pharos.clock import Clock
from pharos.core.fleet import Feedback
from pharos.core.sched import Expiry, Grant, Lease, Ledger, Place, Refusal, Submit, Ticket


class RefusedError(Exception):
    """The ledger will not grant a slot; `refusal` says why."""

    def __init__(self, refusal: Refusal) -> None:
        super().__init__(refusal.text)
        self.refusal = refusal


class Gate:
    """Futures by ticket, and one timer for the ledger's next deadline."""

    def __init__(self, ledger: Ledger, clock: Clock, seeds: Callable[[], int]) -> None:
        self._ledger = ledger
        self._clock = clock
        self._seeds = seeds
        self._waiting: dict[int, asyncio.Future[Lease | Refusal]] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = 0.0
        self._ended: Refusal | None = None

    def __repr__(self) -> str:
        return f"<Gate {len(self._waiting)} waiting>"

    async def acquire(self, submit: Submit) -> Lease:
        """A slot for this request, now or when its turn comes. Raises RefusedError. Safe to cancel at any time."""
        got = self.enter(submit)
        return got if isinstance(got, Lease) else await self.wait(got)

    def enter(self, submit: Submit) -> Lease | Ticket:
        """A slot at once, or a place in the queue, which must be waited for at once. Raises RefusedError."""
        if self._ended is not None:
            raise RefusedError(self._ended)
        got = self._ledger.submit(submit, self._clock(), self._seeds())
        if isinstance(got, Refusal):
            raise RefusedError(got)
        return got

    async def wait(self, ticket: Ticket) -> Lease:
        """The slot, when its turn comes. Raises RefusedError. Safe to cancel at any time."""
        turn: asyncio.Future[Lease | Refusal] = asyncio.get_running_loop().create_future()
        self._waiting[ticket.id] = turn
        self._arm()
        try:
            outcome = await turn
        except asyncio.CancelledError:
            self._leave(ticket.id, turn)
            raise
        if isinstance(outcome, Refusal):
            raise RefusedError(outcome)
        return outcome

    def place(self, ticket: Ticket) -> Place | None:
        """Where a request stands in the queue; `None`: it waits no longer."""
        return self._ledger.place(ticket.id, self._clock())

    def visit(self, submit: Submit) -> Lease:
        """The way to an engine without a slot, at once: see `Ledger.visit`. Raises RefusedError."""
        if self._ended is not None:
            raise RefusedError(self._ended)
        got = self._ledger.visit(submit, self._clock(), self._seeds())
        if isinstance(got, Refusal):
            raise RefusedError(got)
        return got

    def release(self, lease: Lease, feedback: Feedback | None = None) -> None:
        """Give a slot back, with what was learned. A second release does nothing."""
        news = self._ledger.release(lease, self._clock(), self._seeds(), feedback)
        if news or self._waiting or self._timer is not None:  # else there is no deadline either
            self._deliver(news)

    def kick(self) -> None:
        """Something changed (a scrape round, an ejection, a deadline): look again at who waits."""
        self._deliver(self._ledger.kick(self._clock(), self._seeds()))

    def end(self, refusal: Refusal) -> None:
        """Refuse everyone who waits and everyone who comes: nobody is granted a slot any more."""
        self._ended = refusal
        waiting = dict(self._waiting)
        self._waiting.clear()  # first: what the cancellations below grant must find nobody
        for turn in waiting.values():
            if not turn.done():
                turn.set_result(refusal)
        for ticket in waiting:
            self._deliver(self._ledger.cancel(ticket, self._clock(), self._seeds()))

    def close(self) -> None:
        """Stop the timer; nobody is waiting any more."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _leave(self, ticket: int, turn: "asyncio.Future[Lease | Refusal]") -> None:
        self._waiting.pop(ticket, None)
        if turn.done() and not turn.cancelled():
            outcome = turn.result()
            if isinstance(outcome, Lease):
                self.release(outcome)
            return
        self._deliver(self._ledger.cancel(ticket, self._clock(), self._seeds()))

    def _deliver(self, news: Iterable[Grant | Expiry]) -> None:
        todo: deque[Grant | Expiry] = deque(news)
        while todo:
            item = todo.popleft()
            turn = self._waiting.pop(item.ticket, None)
            outcome = item.lease if isinstance(item, Grant) else item.refusal
            if turn is not None and not turn.done():
                turn.set_result(outcome)
            elif isinstance(outcome, Lease):  # nobody waits for it any more
                todo.extend(self._ledger.release(outcome, self._clock(), self._seeds()))
        self._arm()

    def _arm(self) -> None:
        """Set the timer for the ledger's next deadline, by differences of our own clock."""
        deadline = self._ledger.next_deadline()
        if self._timer is not None:
            if deadline == self._timer_at:
                return
            self._timer.cancel()
            self._timer = None
        if deadline is not None:
            self._timer_at = deadline
            self._timer = asyncio.get_running_loop().call_later(max(0.0, deadline - self._clock()), self._due)

    def _due(self) -> None:
        self._timer = None
        self.kick()
