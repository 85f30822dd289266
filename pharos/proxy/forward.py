"""Sends one request to the engine the ledger chose, once more elsewhere when that may help, and settles the lease.

Holds no slot longer than the engine works. How a request is sent: attempt.py; what its end means: judging.py.
"""

from collections.abc import Callable

from pharos.clock import Clock
from pharos.core.fleet import Event, Feedback, Fleet
from pharos.core.sched import Lease, Submit
from pharos.proxy import feedback as feedbacks
from pharos.proxy.attempt import Attempts
from pharos.proxy.call import Call
from pharos.proxy.errors import PharosError, unavailable
from pharos.proxy.gate import Gate, RefusedError
from pharos.proxy.identity import Ways
from pharos.proxy.judging import Judge, learned
from pharos.proxy.relay import End, Relay
from pharos.proxy.responses import Responses
from pharos.proxy.settings import ProxySettings
from pharos.proxy.upstream import Pool


class Forwarder:
    """Attempts, retries, and what they teach."""

    def __init__(
        self,
        gate: Gate,
        fleet: Fleet,
        pool: Pool,
        settings: ProxySettings,
        on_event: Callable[[Event], None],
        clock: Clock,
        ways: Ways,
        responses: Responses,
    ) -> None:
        self._gate = gate
        self._fleet = fleet
        self._settings = settings
        self._clock = clock
        self._attempts = Attempts(fleet, pool, ways, settings, responses, clock)
        self._judge = Judge(gate, fleet, pool, ways, settings, on_event, clock)

    def __repr__(self) -> str:
        return f"<Forwarder {self._judge!r}>"

    async def run(self, call: Call) -> None:
        """Answer the call. Raises RefusedError or PharosError if nothing was sent; cancelled when its client leaves."""
        judge = self._judge
        judge.budget.seen(self._clock())
        lease = await self._first_lease(call)
        retries_left = self._settings.retry_attempts if call.only is None or not _is_bound(call) else 0
        while True:
            taught: Feedback | None = None
            try:
                relay, up = await self._attempts.exchange(call, lease, may_retry=retries_left > 0)
                outcome = feedbacks.outcome(relay)
                again = judge.judge(call, lease, relay, up, outcome, may_retry=retries_left > 0)
                taught = learned(call, lease, relay, outcome, self._clock())
            finally:
                self._gate.release(lease, taught)
            if not again:
                judge.give_up(call, lease, relay)
                return
            retries_left -= 1
            next_lease = await self._next_lease(call, relay)
            if next_lease is None:
                call.note("upstream", "retry_refused")
                judge.give_up(call, lease, relay)
                return
            lease = next_lease

    # --- leases

    def _submit(self, call: Call, exclude: frozenset[int], *, again: bool = False, absent_ok: bool = True) -> Submit:
        model = call.parsed.model
        return Submit(
            key=call.key.name,
            weight=call.key.weight,
            model=model,
            prompt_tokens=self._fleet.prompt_tokens(model, call.parsed.prompt_bytes),
            exclude=exclude,
            only=call.only,
            retry=again,
            absent_ok=absent_ok,
        )

    async def _take(self, call: Call, submit: Submit) -> Lease:
        """A slot, or the way to an engine for what takes none. Raises RefusedError."""
        lease = await self._gate.acquire(submit) if call.route.takes_slot else self._gate.visit(submit)
        return _granted(call, lease)

    async def _first_lease(self, call: Call) -> Lease:
        route, barred = call.route, call.excluded
        if route.path in self._judge.lacking or not self._judge.standing.is_clear(route.path):
            barred = self._barred(call)
            avoided = self._avoided(call, barred, may_try=True)
            if avoided != barred:
                began = self._clock()
                try:
                    return await self._take(call, self._submit(call, avoided))
                except RefusedError as refused:
                    if refused.refusal.outcome != "nowhere_else":
                        raise
                    call.done.queue_wait_s += self._clock() - began
        submit = self._submit(call, barred)
        try:
            got = self._gate.enter(submit) if route.takes_slot else self._gate.visit(submit)
            lease = got if isinstance(got, Lease) else await self._gate.wait(got)  # nearly never waits
        except RefusedError as refused:
            if refused.refusal.outcome != "nowhere_else":
                raise
            raise (self._maker_is_gone(call) if _is_bound(call) else self._judge.not_served(call)) from None
        return _granted(call, lease)

    def _maker_is_gone(self, call: Call) -> PharosError:
        """What to tell a client whose request only one engine can answer, which is not up."""
        call.note("route", "maker_gone")
        having = self._fleet.targets_listed(call.parsed.model)
        names = [target.backend.name for target in having if call.only is not None and target.id in call.only]
        return unavailable(f"The backend {' '.join(names)} that keeps what this request goes on from is not up.", 1)

    async def _next_lease(self, call: Call, relay: Relay) -> Lease | None:
        """A slot for the retry; `None` when nobody takes it. Raises RefusedError for what a first attempt is told, too.

        With a refusal in hand nobody is waited for who is not there, nor tried who is passed over.
        """
        is_held = relay.end is End.HELD
        barred = self._barred(call)
        avoided = self._avoided(call, barred, may_try=False)
        for exclude in (avoided,) if is_held or avoided == barred else (avoided, barred):
            try:
                return await self._take(call, self._submit(call, exclude, again=True, absent_ok=not is_held))
            except RefusedError as refused:
                if not is_held and refused.refusal.outcome != "nowhere_else":
                    raise
        return None

    def _barred(self, call: Call) -> frozenset[int]:
        """Targets that this request cannot go to: they refused it, or lack its route."""
        path = call.route.path
        if path not in self._judge.lacking:
            return call.excluded
        up = self._fleet.targets_for(call.parsed.model, self._clock())
        return call.excluded | {target.id for target in up if target.lacks(path)}

    def _avoided(self, call: Call, barred: frozenset[int], *, may_try: bool) -> frozenset[int]:
        """Those, and targets to leave alone as long as others are up."""
        path = call.route.path
        if self._judge.standing.is_clear(path):
            return barred
        now = self._clock()
        here = frozenset(t.id for t in self._fleet.targets_for(call.parsed.model, now)) - barred
        if call.only is not None:
            here &= call.only
        avoided = self._judge.standing.among(here, path, now, may_try=may_try)
        return barred | avoided if avoided < here else barred


def _is_bound(call: Call) -> bool:
    """Whether one engine alone can answer, because it remembers what the request goes on from: it is asked once."""
    return call.only is not None and call.route.kinds is None


def _granted(call: Call, lease: Lease) -> Lease:
    """Write down where the request goes, and why."""
    done = call.done
    decision = lease.decision
    call.note("route", decision.why)
    if not lease.released:
        call.note("queue", "waited" if lease.waited_s > 0 else "immediate")
        done.predicted_s = decision.predicted_s
        if lease.cold:
            call.note("load", "cold_start")
    done.backend = lease.target.backend.spec.name
    done.target = f"{call.parsed.model}@{done.backend}"
    done.choice = decision
    done.queue_wait_s += lease.waited_s
    return lease
