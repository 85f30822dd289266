"""Who chooses an engine for a request: one instance of Pharos, over its own view of the engines.

Forbidden here: choosing. The core decides; this stands for what gate, scraper and relay are in the product.
"""

import math
import random
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Final, Protocol

from msgspec import Struct

from pharos.core.fleet import Backend, Feedback, Fleet
from pharos.core.policy import Params
from pharos.core.prefix import PendingOps, PrefixIndex, PrefixOp
from pharos.core.sched import Caches, Expiry, Grant, Lease, Ledger, Refusal, Report, Submit, Ticket
from pharos.core.sched.compare import compare
from pharos.core.signals import LOAD_SIGNALS
from pharos.sim import scrape
from pharos.sim.asks import CHAT_ROUTE, Ask
from pharos.sim.engine import Engine, Job
from pharos.sim.timeline import Timeline

PARTS: Final = {
    "slots": "what slots hold: all that an engine was ever asked is taken for cached",
    "copies": "waits of the last minutes: only those who wait now pay for one more copy of a model",
    "gauges": "what peers have in flight and in their queues",
    "lengths": "expected lengths of replies: one mean time per target, and no short request before long ones",
}
"""What a run may leave out, and what Pharos does then."""
QUEUE = 100_000
"""Requests that may wait: nobody is refused, so that all policies answer the same ones."""
FULL_EVERY = 5
"""Of so many rounds one reads everything."""
ROUND_S = 1.0
SEED_BITS = 63
SOONEST_S = 0.001
"""A look at the waiters that is due now comes so much later: the product's timer is no faster."""
REPORTS_CACHED = frozenset({"llamacpp", "llamacpp-router", "ollama", "vllm"})
"""Kinds whose replies tell how much of the prompt came from the cache."""
REPORTS_TIMES = frozenset({"llamacpp", "llamacpp-router", "ollama"})
"""Kinds whose replies tell their own times of prompt and reply."""


class Ended(Struct, frozen=True):
    """What became of a request at a router."""

    job: Job | None
    """`None`: it was refused."""
    backend: str
    waited_s: float
    """In the router's queue."""
    predicted_s: float | None = None
    """Load and prefill as foreseen when it was sent."""


OnEnded = Callable[[Ended], None]


class Router(Protocol):
    """One instance that takes requests."""

    def submit(self, ask: Ask, on_ended: OnEnded) -> None:
        """Take a request; `on_ended` is called once."""
        ...

    @property
    def held(self) -> int:
        """Requests that wait in it, and slots that it holds."""
        ...


class Waiting(Struct, frozen=True, eq=False):
    """A request in the ledger's queue."""

    ask: Ask
    on_ended: OnEnded


class Instance:
    """One Pharos."""

    def __init__(
        self,
        engines: Mapping[str, Engine],
        timeline: Timeline,
        policy: str,
        chance: random.Random,
        *,
        has_peers: bool = False,
        without: frozenset[str] = frozenset(),
    ) -> None:
        self.fleet = Fleet()
        self.index = PrefixIndex(pending=PendingOps() if has_peers else None)
        caches = Caches(self.fleet, self.index, by_slot="slots" not in without)
        params = Params(regret_share=0.0 if "copies" in without else 1.0)
        self.ledger = Ledger(self.fleet, policy=policy, params=params, queue_size=QUEUE, caches=caches)
        self._knows_lengths = "lengths" not in without
        self.fell_back = 0
        """Times that the calibration took the choice from the cost policy."""
        self.refused = 0
        self.outcomes: Counter[str] = Counter()
        """How predictions of cached prompts turned out."""
        self.errors: dict[tuple[str, str], list[float]] = {}
        """By backend and model, how far each estimate of load and prefill was off: |log(predicted/actual)|."""
        self._engines = engines
        self._timeline = timeline
        self._chance = chance
        self._waiting: dict[int, Waiting] = {}
        self._armed_at: float | None = None
        self.fleet.set_backends([scrape.backend_spec(engine.spec) for engine in engines.values()], 0.0)
        self._plans = {
            name: scrape.plan_of(engine.spec.kind, follows=engine.spec.sends_events) for name, engine in engines.items()
        }
        for backend in self.fleet.backends.values():
            # The first round ends before anybody is let in; the others are spread, as the scraper spreads them.
            self._publish(backend, full=True)
            self._engines[backend.name].on_change.append(lambda model, it=backend: self._follow(it, model))  # type: ignore[misc]
            self._timeline.after(chance.uniform(0.0, ROUND_S), lambda it=backend: self._round(it, 0))  # type: ignore[misc]

    def __repr__(self) -> str:
        return f"<Instance {self.ledger!r}>"

    @property
    def held(self) -> int:
        """See `Router.held`."""
        return self.ledger.waiting + self.ledger.leased + len(self._waiting)

    # --- requests

    def submit(self, ask: Ask, on_ended: OnEnded) -> None:
        """See `Router.submit`."""
        got = self.ledger.submit(self._submit_of(ask), self._timeline.now, self._seed())
        if isinstance(got, Lease):
            self._send(got, ask, on_ended)
        elif isinstance(got, Ticket):
            self._waiting[got.id] = Waiting(ask, on_ended)
            self._arm()
        else:
            self._refuse(got, on_ended)

    def _submit_of(self, ask: Ask) -> Submit:
        fleet = self.fleet
        return Submit(
            ask.key,
            1,
            ask.model,
            fleet.prompt_tokens(ask.model, ask.prompt_bytes),
            max_tokens=ask.max_tokens,
            expected_tokens=(
                fleet.lengths.expected(ask.key, ask.model, CHAT_ROUTE, ask.max_tokens) if self._knows_lengths else None
            ),
            chain=ask.chain,
        )

    def _send(self, lease: Lease, ask: Ask, on_ended: OnEnded) -> None:
        engine, caches = self._engines[lease.backend], self.ledger.caches

        def first(_: Job) -> None:
            self.fleet.heard(lease.target.backend, self._timeline.now)
            caches.token_came(lease, self._timeline.now)

        def end(job: Job) -> None:
            told = _feedback(job, lease, engine)
            said = caches.ended(lease, told, self._timeline.now, streamed=True)
            self.outcomes[said if said is not None else "unknown"] += 1
            predicted_s = lease.decision.predicted_start_s if lease.is_speed_sample else None
            if predicted_s and told.ttft_s:
                off = abs(math.log(predicted_s / told.ttft_s))
                self.errors.setdefault((lease.backend, ask.model), []).append(off)
            self.fell_back += sum(event.outcome == "fell_back" for event in compare(self.fleet, lease, told))
            self.fleet.lengths.add(ask.key, ask.model, CHAT_ROUTE, ask.max_tokens, ask.output_tokens)
            grants = self.ledger.release(lease, self._timeline.now, self._seed(), told)
            on_ended(Ended(job, lease.backend, lease.waited_s, predicted_s))
            self._deliver(grants)

        engine.submit(ask, first, end)

    def _refuse(self, refusal: Refusal, on_ended: OnEnded) -> None:
        del refusal
        self.refused += 1
        on_ended(Ended(None, "", 0.0))

    def _deliver(self, news: Sequence[Grant | Expiry]) -> None:
        for item in news:
            waiting = self._waiting.pop(item.ticket)
            if isinstance(item, Grant):
                self._send(item.lease, waiting.ask, waiting.on_ended)
            else:
                self._refuse(item.refusal, waiting.on_ended)
        self._arm()

    def _arm(self) -> None:
        """Plan a look at the waiters for when the ledger wants one."""
        due = self.ledger.next_deadline()
        if due is None:
            return
        due = max(due, self._timeline.now + SOONEST_S)
        if self._armed_at is not None and self._armed_at <= due:
            return
        self._armed_at = due
        self._timeline.at(due, self._kick)

    def _kick(self) -> None:
        if self._armed_at is not None and self._armed_at <= self._timeline.now:
            self._armed_at = None
        self._deliver(self.ledger.kick(self._timeline.now, self._seed()))

    # --- peers

    def report(self) -> Report:
        """What is in hand here now."""
        return self.ledger.elsewhere.own(self.ledger.waiting_by_model())

    def hear(self, origin: str, report: Report) -> None:
        """Take in what a peer has in hand: a slot may have come free."""
        self.ledger.elsewhere.take(origin, report, self._timeline.now)
        if self.ledger.waiting:
            self._deliver(self.ledger.kick(self._timeline.now, self._seed()))

    def told(self) -> list[tuple[str, str, PrefixOp]]:
        """What peers shall know, with the names by which they know the targets: backend and model."""
        pending = self.index.pending
        if pending is None:
            return []
        names = {
            target.id: (backend.name, target.model)
            for backend in self.fleet.backends.values()
            for target in backend.targets.values()
        }
        return [(*names[op.target_id], op) for op in pending.take_all() if op.target_id in names]

    def take(self, news: Sequence[tuple[str, str, PrefixOp]]) -> None:
        """Take in what a peer told."""
        for backend, model, op in news:
            target = self.fleet.backends[backend].targets.get(model)
            if target is not None:
                self.index.take(op, target.id, target.generation, self._timeline.now, "peer")

    # --- the scraper

    def _round(self, backend: Backend, number: int) -> None:
        full = number % FULL_EVERY == 0
        if full or any(p.signal in LOAD_SIGNALS for p in self._plans[backend.name].active):
            self._publish(backend, full=full)
        self._timeline.after(ROUND_S, lambda: self._round(backend, number + 1))

    def _publish(self, backend: Backend, *, full: bool) -> None:
        """Ask the engine now; the answer is here a moment later."""
        engine, plan, asked_at = self._engines[backend.name], self._plans[backend.name], self._timeline.now
        found = scrape.read(engine, plan, asked_at, full=full)

        def answered() -> None:
            now = self._timeline.now
            self.fleet.publish(backend, plan, found, now, full=full, started_at=asked_at)
            if self.ledger.waiting:
                self._deliver(self.ledger.kick(now, self._seed()))

        if backend.heard_at is None:
            self.fleet.publish(backend, plan, found, asked_at, full=full, started_at=asked_at)
        else:
            self._timeline.after(engine.spec.scrape_s, answered)

    def _follow(self, backend: Backend, model: str) -> None:
        """The engine says that a model came or went, if it says so at all."""
        engine = self._engines[backend.name]
        told = scrape.event_of(engine, self._plans[backend.name], model, self._timeline.now)
        if told is None:
            return

        def arrived() -> None:
            self.fleet.followed(backend, told, self._timeline.now)
            if self.ledger.waiting:
                self._deliver(self.ledger.kick(self._timeline.now, self._seed()))

        self._timeline.after(engine.spec.scrape_s, arrived)

    def _seed(self) -> int:
        return self._chance.getrandbits(SEED_BITS)


def _feedback(job: Job, lease: Lease, engine: Engine) -> Feedback:
    """What the relay would have learned from the reply, by the kind of engine."""
    kind, ask = engine.spec.kind, job.ask
    if job.started_at is None or job.first_at is None or job.ended_at is None:
        raise ValueError(f"{job!r} has not ended")
    tells_times = kind in REPORTS_TIMES
    return Feedback(
        ok=True,
        cold=lease.cold,
        ttft_s=job.first_at - job.sent_at,
        duration_s=job.ended_at - job.sent_at,
        prefill_s=job.prefill_s if tells_times else None,
        load_s=(job.loaded_s if kind == "ollama" else None),
        prompt_tokens=ask.prompt_tokens,
        cached_tokens=job.cached_tokens if kind in REPORTS_CACHED else None,
        completion_tokens=ask.output_tokens,
        bytes_prompt=ask.prompt_bytes,
        decode_s=job.ended_at - job.first_at if tells_times else None,
    )
