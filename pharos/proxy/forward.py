"""Sends one request to the engine the ledger chose, once more elsewhere when that may help, and settles the lease.

Holds no slot longer than the engine works. How a request is sent: attempt.py; what its end means: judging.py.
"""

from collections.abc import Callable

from pharos.clock import Clock
from pharos.core.fleet import Event, Feedback, Fleet
from pharos.core.sched import Caches, Lease, Submit, Ticket
from pharos.core.sched.compare import compare
from pharos.core.sched.copies import why_loaded
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
from pharos.proxy.telling import Telling
from pharos.proxy.upstream import Pool

FORETOLD = frozenset({"predicted_hit", "wrong_prediction"})
"""How a prediction turns out where there was one, and the engine tells."""


class Forwarder:
    """Attempts, retries, and what they teach."""

    def __init__(  # noqa: PLR0913 - its collaborators
        self,
        *,
        gate: Gate,
        fleet: Fleet,
        caches: Caches,
        pool: Pool,
        settings: ProxySettings,
        on_event: Callable[[Event], None],
        clock: Clock,
        wall: Clock,
        ways: Ways,
        responses: Responses,
    ) -> None:
        self._gate = gate
        self._fleet = fleet
        self._caches = caches
        self._settings = settings
        self._on_event = on_event
        self._clock = clock
        self._wall = wall
        self._attempts = Attempts(fleet, pool, ways, settings, responses, clock, self._token_came)
        self._judge = Judge(gate, fleet, pool, ways, settings, on_event, clock)

    def adopt(self, settings: ProxySettings) -> None:
        """Go by these from the next request on."""
        self._settings = settings
        self._attempts.adopt(settings)
        self._judge.budget.ratio = settings.retry_budget

    def __repr__(self) -> str:
        return f"<Forwarder {self._judge!r}>"

    async def run(self, call: Call) -> None:
        """Answer the call. Raises RefusedError or PharosError if nothing was sent; cancelled when its client leaves."""
        judge = self._judge
        judge.budget.seen(self._clock())
        lease = await self._first_lease(call)
        if lease.chain is not None:
            self._caches.look_for_buster(lease, call.body)
        retries_left = self._settings.retry_attempts if not call.is_bound else 0
        while True:
            taught: Feedback | None = None
            try:
                relay, up = await self._attempts.exchange(call, lease, may_retry=retries_left > 0)
                outcome = feedbacks.outcome(relay)
                again = judge.judge(call, lease, relay, up, outcome, may_retry=retries_left > 0)
                taught = learned(call, lease, relay, outcome, self._clock())
                if taught is not None:
                    self._learn(call, lease, relay, taught)
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

    def _token_came(self, lease: Lease) -> None:
        self._caches.token_came(lease, self._wall())

    def _learn(self, call: Call, lease: Lease, relay: Relay, taught: Feedback) -> None:
        """What a request showed besides its target's speed: of caches, of lengths, and how good the estimate was."""
        if lease.chain is not None:
            said = self._caches.ended(lease, taught, self._wall(), streamed=relay.token_at is not None)
            if said is not None:
                call.note("prefix", said)
                if lease.match is not None and (said in FORETOLD or lease.decision.matched_tokens):
                    call.done.predicted_from = lease.match.source
        if not taught.ok or lease.released:  # an answer beside the slots tells nothing of these
            return
        if taught.completion_tokens is not None:
            limit, path = call.parsed.max_tokens, call.route.path
            self._fleet.lengths.add(lease.key, lease.model, path, limit, taught.completion_tokens)
        for event in compare(self._fleet, lease, taught):
            self._on_event(event)

    # --- leases

    def _submit(self, call: Call, exclude: frozenset[int], *, again: bool = False, absent_ok: bool = True) -> Submit:
        key, parsed = call.key, call.parsed
        model, limit = parsed.model, parsed.max_tokens
        return Submit(
            key=key.name,
            weight=key.weight,
            priority=key.priority,
            model=model,
            prompt_tokens=self._fleet.prompt_tokens(model, call.prompt_bytes),
            exclude=exclude,
            only=call.only,
            retry=again,
            absent_ok=absent_ok,
            max_tokens=limit,
            expected_tokens=self._fleet.lengths.expected(key.name, model, call.route.path, limit),
            needs=call.needs,
            context_tokens=parsed.context_tokens,
            chain=call.chain,
        )

    async def _take(self, call: Call, submit: Submit) -> Lease:
        """A slot, or the way to an engine for what takes none. Raises RefusedError."""
        got = self._gate.enter(submit) if call.route.takes_slot else self._gate.visit(submit)
        return _granted(call, got if isinstance(got, Lease) else await self._wait(call, got))

    async def _wait(self, call: Call, ticket: Ticket) -> Lease:
        """The slot, when its turn comes. Raises RefusedError."""
        place = self._gate.place(ticket)
        with Telling(call, lambda: self._gate.place(ticket), self._settings.queue_told_s):
            lease = await self._gate.wait(ticket)
        if place is not None and place.eta_s is not None:
            self._fleet.calibration.note_wait(lease.model, lease.backend, place.eta_s, lease.waited_s)
        return lease

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
            lease = got if isinstance(got, Lease) else await self._wait(call, got)  # nearly never waits
        except RefusedError as refused:
            if refused.refusal.outcome != "nowhere_else":
                raise
            raise (self._maker_is_gone(call) if call.is_bound else self._judge.not_served(call)) from None
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
        now = self._clock()
        up = self._fleet.targets_for(call.parsed.model, now)
        return call.excluded | {target.id for target in up if target.lacks(path, now)}

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


def _granted(call: Call, lease: Lease) -> Lease:
    """Write down where the request goes, and why."""
    done = call.done
    decision = lease.decision
    call.note("route", decision.why)
    if not lease.released:
        call.note("queue", "waited" if lease.waited_s > 0 else "immediate")
        done.predicted_s = decision.predicted_s
        if lease.cold:
            call.note("load", why_loaded(decision))
    done.backend = lease.target.backend.spec.name
    done.target = f"{call.parsed.model}@{done.backend}"
    done.choice = decision
    done.queue_wait_s += lease.waited_s
    return lease
