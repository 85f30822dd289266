"""Sends one request to the engine the ledger chose, once more elsewhere when that may help, and settles the lease.

Holds no slot longer than the engine works. Bytes of the reply never pass through here: see relay.py.
"""

import asyncio
import logging
from collections.abc import Callable

from msgspec import structs

from pharos.clock import Clock
from pharos.core.engine import recipes
from pharos.core.fleet import Event, Feedback, Fleet
from pharos.core.sched import Lease, Submit
from pharos.proxy import drain, head, retry
from pharos.proxy import feedback as feedbacks
from pharos.proxy.call import Call
from pharos.proxy.dial import DialError, endpoint
from pharos.proxy.done import CLIENT_LEFT_STATUS, Scores
from pharos.proxy.errors import engine_failed, unavailable
from pharos.proxy.feedback import EJECTS, FAILED, SETTLED
from pharos.proxy.gate import Gate, RefusedError
from pharos.proxy.inject import Pieces, inject_usage
from pharos.proxy.relay import End, Relay
from pharos.proxy.settings import ProxySettings
from pharos.proxy.tap import ReplyProtocol, Tap, make_tap
from pharos.proxy.upstream import Connection, Pool

log = logging.getLogger(__name__)

PROTOCOLS: dict[str, ReplyProtocol] = {"/v1/chat/completions": "openai_chat", "/v1/completions": "openai_completion"}


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
    ) -> None:
        self._gate = gate
        self._fleet = fleet
        self._pool = pool
        self._settings = settings
        self._on_event = on_event
        self._clock = clock
        self._budget = retry.RetryBudget(settings.retry_budget)
        self._standing = retry.Standing()

    def __repr__(self) -> str:
        return f"<Forwarder {self._pool!r} {self._budget!r}>"

    async def run(self, call: Call) -> None:
        """Answer the call. Raises RefusedError or EngineFault if nothing was sent; cancelled when its client leaves."""
        self._budget.seen(self._clock())
        lease = await self._first_lease(call)
        retries_left = self._settings.retry_attempts
        while True:
            learned: Feedback | None = None
            try:
                relay, up = await self._exchange(call, lease, may_retry=retries_left > 0)
                outcome = feedbacks.outcome(relay)
                again = self._judge(call, lease, relay, up, outcome, may_retry=retries_left > 0)
                learned = _learned(call, lease, relay, outcome, self._clock())
            finally:
                self._gate.release(lease, learned)
            if again is None:
                self._give_up(call, relay)
                return
            retries_left -= 1
            next_lease = await self._next_lease(call, relay, again)
            if next_lease is None:
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
            retry=again,
            absent_ok=absent_ok,
        )

    def _avoided(self, call: Call, *, may_try: bool) -> frozenset[int]:
        """Targets that this request should not go to: those that refused it, those to leave alone if others are up."""
        if self._standing.is_clear(call.path):
            return call.excluded
        now = self._clock()
        here = frozenset(t.id for t in self._fleet.targets_for(call.parsed.model, now)) - call.excluded
        avoided = self._standing.among(here, call.path, now, may_try=may_try)
        return call.excluded | avoided if avoided < here else call.excluded

    async def _first_lease(self, call: Call) -> Lease:
        avoided = self._avoided(call, may_try=True)
        if avoided:
            began = self._clock()
            try:
                return _granted(call, await self._gate.acquire(self._submit(call, avoided)))
            except RefusedError as refused:
                if refused.refusal.outcome != "nowhere_else":
                    raise
                call.done.queue_wait_s += self._clock() - began
        return _granted(call, await self._gate.acquire(self._submit(call, frozenset())))

    async def _next_lease(self, call: Call, relay: Relay, again: Submit) -> Lease | None:
        """A slot for the retry; `None` when nobody takes it and the client got the answer held back for that case."""
        try:
            return _granted(call, await self._gate.acquire(again))
        except RefusedError as refused:
            if relay.end is not End.HELD:
                if refused.refusal.outcome != "nowhere_else" or again.exclude == call.excluded:
                    raise
                return await self._next_lease(call, relay, structs.replace(again, exclude=call.excluded))
            call.note("upstream", "retry_refused")
            self._give_up(call, relay)
            return None

    # --- one attempt

    async def _exchange(self, call: Call, lease: Lease, *, may_retry: bool) -> tuple[Relay, Connection | None]:
        """Send the request until it is answered or failed: a stale connection and a refused field are sent again."""
        url = lease.target.backend.spec.url
        call.answer.extra = _labels(call, self._settings)
        asks = _asks_for_usage(call, lease)
        may_reuse = True
        while True:
            relay = self._relay(call, lease, asks=asks, may_retry=may_retry)
            up = self._pool.take(url) if may_reuse else None
            is_reused = up is not None
            if up is None:
                try:
                    up = await self._pool.fresh(url)
                except DialError as error:
                    relay.not_connected(str(error), self._clock())
                    return relay, None
            self._begin(call, relay, up, url, asks=asks)
            try:
                await relay.ended
            except asyncio.CancelledError:
                if relay.end not in SETTLED:
                    relay.client_left()
                    raise
                # The reply ended in the same turn of the loop: it counts as it ended, nothing is awaited any more.
            if relay.end is End.DIED_BEFORE and is_reused:
                call.note("upstream", "stale_connection")
                may_reuse = False
            elif (
                relay.end is End.HELD
                and asks
                and relay.status in retry.FIELD_REFUSED
                and retry.names_usage_field(relay.held)
            ):
                call.note("usage", "refused_by_engine")
                lease.target.refuse_usage()
                asks = False
            else:
                return relay, up

    def _relay(self, call: Call, lease: Lease, *, asks: bool, may_retry: bool) -> Relay:
        def may_hold(status: int) -> bool:
            return (may_retry and retry.is_retriable(status)) or (asks and status in retry.FIELD_REFUSED)

        def tap(stream: bool, content_type: str) -> Tap:  # noqa: FBT001 - the shape of TapMaker
            return make_tap(
                PROTOCOLS[call.path], streamed=stream, content_type=content_type, strip_usage=asks and stream
            )

        def heard(now: float) -> None:
            self._fleet.heard(lease.target.backend, now)

        return Relay(call.client, call.answer, make_tap=tap, may_hold=may_hold, heard=heard, clock=self._clock)

    def _begin(self, call: Call, relay: Relay, up: Connection, url: str, *, asks: bool) -> None:
        where = endpoint(url)
        path = where.path + call.path.encode()
        if call.query:
            path += b"?" + call.query.encode("utf-8", "surrogateescape")  # the bytes that came
        top = head.request_head(path, where.host, call.headers, call.done.request_id.encode())
        body: Pieces = inject_usage(call.body, call.parsed) if asks else (call.body,)

        def first() -> None:
            if up.is_sent:
                call.let_body_go()

        relay.attach(up, first, self._clock())
        done = call.done
        if done.overhead_s is None:
            done.overhead_s = relay.begun_at - call.arrived_at - call.upload_s - done.queue_wait_s
        up.begin(relay, head.with_length(top, sum(map(len, body))), *body)

    # --- after an attempt

    def _judge(
        self, call: Call, lease: Lease, relay: Relay, up: Connection | None, outcome: str, *, may_retry: bool
    ) -> Submit | None:
        """Count how it ended, eject a dead engine. The retry to ask for; `None` when this was the last attempt."""
        now = self._clock()
        if relay.first_byte_at is not None:
            self._fleet.heard(lease.target.backend, now)
        if outcome == "ok":
            self._standing.served(lease.target.id, call.path)
            call.note("upstream", outcome)
            return None
        is_ours = self._blame(call, lease, relay, up, outcome)
        again: Submit | None = None
        if relay.end is End.HELD and retry.is_retriable(relay.status):
            call.excluded |= {lease.target.id}
            if may_retry and self._budget.take(now):
                outcome = "busy_retried" if relay.status in retry.BUSY else "error_retried"
                again = self._submit(call, self._avoided(call, may_try=False), again=True, absent_ok=False)
            elif may_retry:
                call.note("upstream", "retry_refused")
        elif relay.end in FAILED and not call.answer.is_started and may_retry and not is_ours:
            if relay.end is End.BAD_REPLY:
                call.excluded |= {lease.target.id}
            if self._budget.take(now):
                again = self._submit(call, self._avoided(call, may_try=False), again=True)
            else:
                call.note("upstream", "retry_refused")
        call.note("upstream", outcome)
        return again

    def _blame(self, call: Call, lease: Lease, relay: Relay, up: Connection | None, outcome: str) -> bool:
        """Eject a dead engine, pass over one that fails. Whether the request is the likelier cause: nobody is blamed.

        Engines close without a word on a body that they find too large, and some on a request that they cannot bear:
        one that did so twice would otherwise take engine after engine from everybody.
        """
        if relay.end is End.DIED_BEFORE:
            call.was_refused = up is not None and up.was_refused
            if call.was_fatal or call.was_refused:
                return True
            call.was_fatal = True
        now = self._clock()
        target_id = lease.target.id
        if relay.end in EJECTS:
            self._eject(lease, relay, up, now)
        if feedbacks.counts_against(relay, outcome):
            self._standing.failed(target_id, call.path, relay.status, now)
        if relay.status in retry.BUSY:
            seconds = retry.retry_after_s(head.find(relay.headers, b"retry-after"))
            if seconds is not None:
                self._standing.asked(target_id, now + seconds)
        return False

    def _eject(self, lease: Lease, relay: Relay, up: Connection | None, now: float) -> None:
        backend = lease.target.backend
        why = relay.why or FAILED[relay.end][1]
        connected_at = relay.begun_at if up is None else up.connected_at
        for event in self._fleet.eject(backend, why, now, connected_at=connected_at):
            self._on_event(event)
        self._gate.kick()
        self._pool.close_idle(backend.spec.url)

    def _give_up(self, call: Call, relay: Relay) -> None:
        """The last attempt is over: what the client has not got yet, it gets now."""
        if relay.end is End.HELD:
            call.answer.passed_on(relay.status, relay.headers, relay.held)
        elif relay.end is End.CLIENT_LEFT:
            call.done.status = CLIENT_LEFT_STATUS
        elif relay.end is End.SHUTDOWN and not call.answer.is_started:
            raise unavailable(drain.ENDING, drain.RETRY_AFTER_S)
        elif relay.end is not End.WHOLE and not call.answer.is_started:
            name = call.done.backend
            why = FAILED[relay.end][1] if relay.end in FAILED else "see the log"
            if call.was_refused:
                why = "it closed before it had taken the whole request"
            raise engine_failed(f"The backend {name} failed: {why}.")


def _granted(call: Call, lease: Lease) -> Lease:
    """Write down where the request goes, and why."""
    done = call.done
    decision = lease.decision
    call.note("route", decision.why)
    call.note("queue", "waited" if lease.waited_s > 0 else "immediate")
    if lease.cold:
        call.note("load", "cold_start")
    done.backend = lease.target.backend.spec.name
    done.target = f"{call.parsed.model}@{done.backend}"
    done.reason = decision.reason
    done.scores = Scores(decision)
    done.predicted_s = decision.predicted_s
    done.queue_wait_s += lease.waited_s
    return lease


def _learned(call: Call, lease: Lease, relay: Relay, outcome: str, now: float) -> Feedback | None:
    """Write down what the attempt showed, and give what the fleet learns from it."""
    done = call.done
    if relay.first_byte_at is not None:
        done.first_byte_s = relay.first_byte_at - relay.begun_at
    done.ttft_s = None if relay.token_at is None else relay.token_at - relay.begun_at
    if relay.tap is not None and outcome == "ok":
        done.usage = relay.tap.usage
    prompt = call.parsed.prompt_bytes
    return feedbacks.feedback(relay, outcome, cold=lease.cold, bytes_prompt=prompt, now=now)


def _asks_for_usage(call: Call, lease: Lease) -> bool:
    """Whether to add the field that asks a stream for usage; counts why."""
    parsed = call.parsed
    if not parsed.stream:
        return False
    if parsed.include_usage:
        call.note("usage", "client_asked")
        return False
    plan = lease.target.backend.plan
    if plan is not None and recipes.by_kind(plan.kind).usage_in_last_chunk:
        call.note("usage", "not_needed")
        return False
    if not parsed.wants_injection or not lease.target.may_ask_usage():
        return False
    call.note("usage", "pharos_asked")
    return True


def _labels(call: Call, settings: ProxySettings) -> list[bytes]:
    """The header lines that tell where the request went."""
    lines = []
    if settings.show_target and call.done.backend is not None:
        lines.append(_line(b"X-Pharos-Target", call.done.backend))
    if settings.show_reason:
        lines.append(_line(b"X-Pharos-Reason", call.done.reason))
    return lines


def _line(name: bytes, value: str) -> bytes:
    """A header line of text that may hold anything."""
    safe = "".join(char if char.isprintable() else " " for char in value)
    return b"%b: %b\r\n" % (name, safe.encode("ascii", "replace"))
