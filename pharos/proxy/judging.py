"""What an attempt means: whether to try elsewhere, whom to blame, what to remember, what the client gets in the end.

Forbidden here: waiting, and choosing the next target.
"""

from collections.abc import Callable

from pharos.clock import Clock
from pharos.core.engine import recipes
from pharos.core.engine.missing import is_route_missing, is_surely_missing
from pharos.core.fleet import Event, Feedback, Fleet, Target
from pharos.core.sched import Lease
from pharos.proxy import drain, head, retry, telling
from pharos.proxy import feedback as feedbacks
from pharos.proxy.call import Call
from pharos.proxy.done import CLIENT_LEFT_STATUS
from pharos.proxy.errors import PharosError, engine_failed, engine_late, route_not_served, unavailable
from pharos.proxy.feedback import EJECTS, FAILED
from pharos.proxy.gate import Gate
from pharos.proxy.identity import Ways
from pharos.proxy.relay import End, Relay
from pharos.proxy.settings import ProxySettings
from pharos.proxy.tap import Ending
from pharos.proxy.upstream import Connection, Pool

PRINTED = 4096
"""Bytes of each end of a body by which it is told from others."""


class Judge:
    """Counts how attempts ended, and keeps what that says of targets."""

    def __init__(
        self,
        gate: Gate,
        fleet: Fleet,
        pool: Pool,
        ways: Ways,
        settings: ProxySettings,
        on_event: Callable[[Event], None],
        clock: Clock,
    ) -> None:
        self._gate = gate
        self._fleet = fleet
        self._pool = pool
        self._ways = ways
        self._on_event = on_event
        self._clock = clock
        self.budget = retry.RetryBudget(settings.retry_budget)
        self.standing = retry.Standing()
        self.lacking: set[str] = set()
        """Routes that some target did not serve once: on these, targets are asked what they lack."""

    def __repr__(self) -> str:
        return f"<Judge {self.budget!r} {self.standing!r}>"

    def judge(
        self, call: Call, lease: Lease, relay: Relay, up: Connection | None, outcome: str, *, may_retry: bool
    ) -> bool:
        """Count how it ended. Whether to try again; if not, this was the last attempt. `outcome`: see feedback.py."""
        now, route, target = self._clock(), call.route.path, lease.target
        if relay.first_byte_at is not None:
            self._fleet.heard(target.backend, now)
        if outcome == "ok":
            self.standing.served(target.id, route)
            if route not in target.proven:
                target.proven.add(route)
            call.note("upstream", outcome)
            return False
        if _caches_are_lost(target, relay, outcome):
            self._tell(self._fleet.cache_lost(target))
        meaning = self._meaning(call, target, relay) if relay.end is End.HELD else None
        is_ours = self._blame(call, lease, relay, up, outcome)
        is_refusal = relay.end is End.HELD and (
            retry.is_retriable(relay.status) or retry.refuses_model(relay.status, relay.held, target)
        )
        if is_refusal or relay.end in (End.BAD_REPLY, End.LATE):
            call.excluded |= {target.id}
        # A blank reply had begun: the body is let go, and cannot be sent again.
        is_failure = relay.end in FAILED and relay.end is not End.EARLY and not call.answer.is_started and not is_ours
        again = False
        if may_retry and (is_refusal or is_failure):
            again = self.budget.take(now)
            if not again:
                call.note("upstream", "retry_refused")
            elif is_refusal:
                outcome = "busy_retried" if relay.status in retry.BUSY else "error_retried"
        call.note("upstream", meaning if meaning is not None else outcome)
        return again

    def _meaning(self, call: Call, target: Target, relay: Relay) -> str | None:
        """The outcome of a refusal that the client must not get as it is; `None`: it may. Remembers a missing route."""
        if relay.status in retry.REFUSES_US:
            return "credential_refused"
        if call.route.path not in target.proven and is_route_missing(relay.status, relay.held):
            self._learn_missing(call, target, relay)
            return "route_lacking"
        return None

    def _learn_missing(self, call: Call, target: Target, relay: Relay) -> None:
        route, now = call.route.path, self._clock()
        call.lacking |= {target.id}
        if target.lacks(route, now):
            return
        is_sure = is_surely_missing(relay.status, relay.held)
        is_new = target.note_lacking(route, now, None if is_sure else _print_of(call))
        if target.lacks(route, now):
            self.lacking.add(route)
        if is_new:
            text = f"{target.backend.name} does not serve {route} for {target.model}: not asked again for 10 minutes"
            self._on_event(Event("upstream", "", target.backend.name, "warning", text))

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
        now, target = self._clock(), lease.target
        if relay.end in EJECTS:
            self._eject(lease, relay, up, now)
        if feedbacks.counts_against(relay, outcome) and not target.lacks(call.route.path, now):
            self.standing.failed(target.id, call.route.path, relay.status, now)
        if relay.status in retry.BUSY:
            seconds = retry.retry_after_s(head.find(relay.headers, b"retry-after"))
            if seconds is not None:
                self.standing.asked(target.id, now + seconds)
        return False

    def _eject(self, lease: Lease, relay: Relay, up: Connection | None, now: float) -> None:
        backend = lease.target.backend
        why = relay.why or FAILED[relay.end][1]
        connected_at = relay.begun_at if up is None else up.connected_at
        self._tell(self._fleet.eject(backend, why, now, connected_at=connected_at))
        self._gate.kick()
        self._pool.close_idle(self._ways.to(backend.spec).key)

    def _tell(self, events: list[Event]) -> None:
        for event in events:
            self._on_event(event)

    # --- the last attempt is over

    def give_up(self, call: Call, lease: Lease, relay: Relay) -> None:
        """What the client has not got yet, it gets now. Raises the fault that it shall see."""
        end, is_started = relay.end, call.answer.is_started
        if end is End.HELD:
            if relay.status in retry.REFUSES_US:
                raise engine_failed(
                    f"The backend {lease.backend} refused Pharos's own credential ({relay.status}), not yours: "
                    "whoever runs this Pharos must set `credential` of that backend in its configuration."
                )
            if call.route.path not in lease.target.proven and is_route_missing(relay.status, relay.held):
                raise self.not_served(call, lease.target)
            if call.answer.is_opened:
                telling.pass_on(call.answer, relay.status, relay.held)
            else:
                call.answer.passed_on(relay.status, relay.headers, relay.held)
        elif end is End.CLIENT_LEFT:
            call.done.status = CLIENT_LEFT_STATUS
        elif end is End.SHUTDOWN and not is_started:
            raise unavailable(drain.ENDING, drain.RETRY_AFTER_S)
        elif end is not End.WHOLE and not is_started:
            why = FAILED[end][1] if end in FAILED else "see the log"
            if end is End.BAD_REPLY and relay.why:
                why = relay.why
            elif call.was_refused:
                why = "it closed before it had taken the whole request"
            text = f"The backend {lease.backend} failed: {why}."
            raise engine_late(text) if end is End.LATE else engine_failed(text)

    def not_served(self, call: Call, asked: Target | None = None) -> PharosError:
        """What to tell a client whose route is not served by whom it could go to. `asked`: who has just said so."""
        route, only, now = call.route.path, call.only, self._clock()
        having = self._fleet.targets_listed(call.parsed.model)
        if only is not None:
            having = [target for target in having if target.id in only]
        lacking = [target for target in having if target.id in call.lacking or target.lacks(route, now)]
        names = [target.backend.name for target in lacking or ((asked,) if asked is not None else ())]
        if names and len(lacking) == len(having):
            call.note("route", "route_not_served")
            return route_not_served(route, names)
        call.note("route", "unavailable")
        text = f"No other backend that has the model could take {route}"
        return unavailable(f"{text}; {', '.join(names)} cannot." if names else f"{text} now.", drain.RETRY_AFTER_S)


def _print_of(call: Call) -> int:
    """What tells a request from others; of one that is large its two ends do, which take no time."""
    return hash((call.path, len(call.body), call.body[:PRINTED], call.body[-PRINTED:]))


def _caches_are_lost(target: Target, relay: Relay, outcome: str) -> bool:
    """Whether the engine failed because memory for contexts was full: it has emptied all its caches then.

    What an error object in a stream says is not kept; taken for lost too often, caches cost less than prompts sent to
    where they are not.
    """
    plan = target.backend.plan
    mark = recipes.by_kind(plan.kind).caches_lost if plan is not None else b""
    return bool(mark) and (outcome == "error_in_stream" or mark in relay.held)


def learned(call: Call, lease: Lease, relay: Relay, outcome: str, now: float) -> Feedback | None:
    """Write down what the attempt showed, and give what the fleet learns from it."""
    done = call.done
    if relay.first_byte_at is not None:
        done.first_byte_s = relay.first_byte_at - relay.begun_at
    done.ttft_s = None if relay.token_at is None else relay.token_at - relay.begun_at
    if relay.tap is not None and outcome == "ok":
        done.usage = relay.tap.usage
        if call.route.takes_usage_option and relay.is_stream and relay.tap.ending is Ending.COMPLETED:
            lease.target.says_done = True  # these are the streams of chunks: nothing else completes them
    if not call.parsed.teaches:
        return None
    return feedbacks.feedback(relay, outcome, cold=lease.cold, bytes_prompt=call.prompt_bytes, now=now)
