"""One attempt: sends a request to the engine that the ledger chose, until it is answered or has failed.

Forbidden here: judging how it went, and choosing another engine. Bytes of the reply never pass through here.
"""

import asyncio
from collections.abc import Callable

from pharos.clock import Clock
from pharos.core.assumptions import ASSUMPTIONS
from pharos.core.engine import recipes
from pharos.core.fleet import Fleet, Target
from pharos.core.fleet.names import canonical
from pharos.core.sched import Lease
from pharos.core.sched.caching import shares_cache
from pharos.proxy import head, inject, retry
from pharos.proxy.call import Call
from pharos.proxy.deadlines import watched
from pharos.proxy.dial import DialError
from pharos.proxy.feedback import SETTLED
from pharos.proxy.identity import Way, Ways
from pharos.proxy.inject import Pieces
from pharos.proxy.opening import OK, WANTED
from pharos.proxy.relay import End, Relay
from pharos.proxy.renaming import renaming
from pharos.proxy.responses import Responses, finding_id
from pharos.proxy.settings import ProxySettings
from pharos.proxy.tap import Tap, make_tap
from pharos.proxy.upstream import Connection, Pool
from pharos.proxy.verdict import FIRST_ERROR

STALE_WITHIN_S = ASSUMPTIONS["stale_within_s"].value


class Attempts:
    """Makes them."""

    def __init__(
        self,
        fleet: Fleet,
        pool: Pool,
        ways: Ways,
        settings: ProxySettings,
        responses: Responses,
        clock: Clock,
        on_token: Callable[[Lease], None],
    ) -> None:
        """`on_token`: told of the first token of a stream, where the engine lets others use its prompt from then on."""
        self._fleet = fleet
        self._on_token = on_token
        self._pool = pool
        self._ways = ways
        self._responses = responses
        self._clock = clock
        self.adopt(settings)

    def adopt(self, settings: ProxySettings) -> None:
        """Go by these from the next attempt on."""
        self._settings = settings
        deadlines = (settings.first_byte_warm_s, settings.first_byte_cold_s, settings.reply_idle_s)
        self._has_deadlines = any(limit is not None for limit in deadlines)

    def __repr__(self) -> str:
        return f"<Attempts {self._pool!r}>"

    async def exchange(self, call: Call, lease: Lease, *, may_retry: bool) -> tuple[Relay, Connection | None]:
        """Send the request until it is answered or failed: a stale connection and a refused field are sent again.

        Cancelled when the client leaves.
        """
        way = self._ways.to(lease.target.backend.spec)
        call.answer.extra = _labels(call, self._settings)
        asks = _asks_for_usage(call, lease)
        was_field_refused = False
        while True:
            relay = self._relay(call, lease, asks=asks, may_retry=may_retry)
            up = self._pool.take(way.key) if _may_reuse(call) else None
            is_reused = up is not None
            if up is None:
                try:
                    up = await self._pool.fresh(way.spec.url, way.key, way.tls)
                except DialError as error:
                    relay.not_connected(str(error), self._clock())
                    return relay, None
            self._begin(call, lease, relay, up, way, asks=asks)
            try:
                await relay.ended
            except asyncio.CancelledError:
                if relay.end not in SETTLED:
                    relay.client_left()
                    raise
                # The reply ended in the same turn of the loop: it counts as it ended, nothing is awaited any more.
            if relay.end is End.DIED_BEFORE and is_reused and _was_stale(relay, up, self._clock()):
                call.note("upstream", "stale_connection")
                call.was_stale = True
            elif (
                relay.end is End.HELD
                and asks
                and _may_refuse_field(call, relay.status)
                and retry.names_usage_field(relay.held)
            ):
                call.note("usage", "refused_by_engine")
                was_field_refused, asks = True, False
            else:
                if was_field_refused and relay.end is End.WHOLE and relay.status < FIRST_ERROR:
                    lease.target.refuse_usage()  # else the refusal was about what the client sent
                return relay, up

    def _relay(self, call: Call, lease: Lease, *, asks: bool, may_retry: bool) -> Relay:
        target, backend = lease.target, lease.target.backend

        def may_hold(status: int) -> bool:
            if status < FIRST_ERROR:
                return False
            if call.answer.is_opened or status in retry.NEVER_AS_IT_IS or (asks and _may_refuse_field(call, status)):
                return True
            return may_retry and (retry.is_retriable(status) or retry.may_refuse_model(status, target))

        def tap(stream: bool, content_type: str) -> Tap:  # noqa: FBT001 - the shape of TapMaker
            made = make_tap(
                call.route.protocol,
                streamed=stream,
                content_type=content_type,
                strip_usage=asks and stream,
                dialect=backend.dialect,
                counts_cached=backend.counts_cached,
                says_done=target.says_done,
            )
            if self._settings.rewrite_reply_model and target.served != call.named:
                made = renaming(made, call.route.protocol, call.named)
            return self._finding_id(call, target, made) if call.route.stateful else made

        def heard(now: float) -> None:
            self._fleet.heard(backend, now)
            if self._has_deadlines:
                relay = call.client.relay  # not one that this refers to: each would keep the other in memory
                if relay is not None and relay.watch is not None:
                    relay.watch.heard(now)

        wanted = WANTED.get(call.route.protocol) if call.parsed.stream else None
        relay = Relay(
            call.client, call.answer, make_tap=tap, may_hold=may_hold, heard=heard, clock=self._clock, wanted=wanted
        )
        if lease.chain is not None and shares_cache(target):
            relay.on_token = lambda: self._on_token(lease)
        return relay

    def _finding_id(self, call: Call, target: Target, tap: Tap) -> Tap:
        relay = call.client.relay
        if relay is None or relay.status not in OK:
            return tap  # an error may repeat any id that the client has sent
        return finding_id(tap, lambda response_id: self._responses.note(response_id, target, call.key.name))

    def _begin(self, call: Call, lease: Lease, relay: Relay, up: Connection, way: Way, *, asks: bool) -> None:
        path = way.where.path + call.path.encode()
        if call.query:
            path += b"?" + call.query.encode("utf-8", "surrogateescape")  # the bytes that came
        top = head.request_head(
            path, way.where.host, call.headers, call.done.request_id.encode(), way.own, call.method.encode()
        )
        body = upstream_body(call, lease.target, asks=asks)

        def first() -> None:
            if up.is_sent:
                call.let_body_go()

        relay.attach(up, first, self._clock())
        done = call.done
        if done.overhead_s is None:
            done.overhead_s = relay.begun_at - call.arrived_at - call.upload_s - done.queue_wait_s
        up.begin(relay, head.with_length(top, sum(map(len, body))), *body)
        if self._has_deadlines and relay.end is End.OPEN:
            relay.watch = watched(relay, call.client, lease, self._settings, self._clock)


def _may_reuse(call: Call) -> bool:
    """Whether a kept connection may carry it.

    Not what one engine must not get twice: if the connection turns out closed, nobody can tell whether the engine has
    read it, and a turn of a conversation that is kept there would be taken twice. A GET changes nothing.
    """
    return not call.was_stale and (not call.is_bound or call.method == "GET")


def _was_stale(relay: Relay, up: Connection, now: float) -> bool:
    """Whether a kept connection had been closed before it was used.

    One that ends later, without a byte too, may have carried the request to an engine that worked on it, and died of
    it: then another try is a retry like any other.
    """
    return up.was_silent and (up.was_refused or now - relay.begun_at <= STALE_WITHIN_S)


def _may_refuse_field(call: Call, status: int) -> bool:
    """Whether a status may be about the field that Pharos added, where the client had sent nothing of its name."""
    return status in retry.FIELD_REFUSED and not call.parsed.has_stream_options


def upstream_body(call: Call, target: Target, *, asks: bool) -> Pieces:
    """The body as this target's engine gets it, in pieces. `asks`: with the field that asks a stream for usage."""
    if target.served != call.named and _must_rename(call, target):
        return inject.rewritten(call.body, call.parsed, call.route, target.served, asks=asks)
    return inject.inject_usage(call.body, call.parsed) if asks else (call.body,)


def _must_rename(call: Call, target: Target) -> bool:
    """Whether an engine would not know the model by the name in the body, which is not spelled as the engine does."""
    if call.route.body == "none":
        return False
    plan = target.backend.plan
    is_known = plan is not None and recipes.by_kind(plan.kind).takes_bare_names
    return not is_known or canonical(call.named) != canonical(target.served)


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
