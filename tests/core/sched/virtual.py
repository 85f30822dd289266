"""Engines and clients in virtual time: what happens when the real ledger hands out the slots of scripted engines.

Engines read prompts and make tokens at fixed speeds, load a model before they serve it, and abort what runs when a load
pushes it out. Everything is exact: no clock, no threads.
"""

import heapq
from collections.abc import Callable, Iterator

import msgspec

from pharos.core.engine import recipes
from pharos.core.engine.plan import Plan
from pharos.core.fleet import Feedback, Fleet
from pharos.core.sched import Grant, Lease, Ledger, Ticket
from pharos.core.sched.copies import why_loaded
from pharos.core.sched.lease import Submit
from pharos.core.signals import Key, Residency, Signal, Value
from tests.core.fleet.given import fleet_of, publish, spec

SWAP = Plan("llama-swap", "config", None, recipes.by_kind("llama-swap").probes, ())
ROUTER = Plan("llamacpp-router", "config", None, recipes.by_kind("llamacpp-router").probes, ())
OLLAMA = Plan("ollama", "config", None, recipes.by_kind("ollama").probes, ())


class Engine(msgspec.Struct, eq=False):
    """One engine. Speeds in seconds."""

    name: str
    models: tuple[str, ...]
    plan: Plan = SWAP
    slots: int = 1
    at_once: int = 1
    prefill_s: float = 0.001
    decode_s: float = 0.01
    load_s: float = 10.0
    tells: dict[Signal | Key, Value] = {}
    loaded: dict[str, int | None] = {}
    """Models in memory and the context that each was loaded for, the latest used last."""
    ready_at: dict[str, float] = {}
    loads: int = 0

    def values(self, now: float) -> dict[Signal | Key, Value]:
        """What a scrape finds."""
        said: dict[Signal | Key, Value] = dict(self.tells)
        for model in self.models:
            state = Residency.LOADED if model in self.loaded else Residency.COLD
            if self.ready_at.get(model, 0.0) > now:
                state = Residency.LOADING
            said[Signal.RESIDENCY, model] = state
            said[Signal.CAPACITY, model] = self.slots
            context = self.loaded.get(model)
            if context is not None:
                said[Signal.CONTEXT_LENGTH, model] = context
        return said


class Job(msgspec.Struct, eq=False):
    """One request, and what became of it."""

    sub: Submit
    tokens: int
    """Of its reply."""
    came_at: float = 0.0
    began_at: float | None = None
    first_at: float | None = None
    ended_at: float | None = None
    engine: str = ""
    aborted: bool = False

    @property
    def ttft_s(self) -> float:
        """Seconds from its coming to its first token."""
        assert self.first_at is not None
        return self.first_at - self.came_at


class World:
    """Plays events in the order of their times."""

    def __init__(self, *engines: Engine, settled: bool = True, **options: object) -> None:
        """`settled`: the engines' speeds are learned already."""
        self.now = 0.0
        self.engines = {engine.name: engine for engine in engines}
        self.fleet: Fleet = fleet_of(*[spec(engine.name) for engine in engines])
        self.ledger = Ledger(self.fleet, **options)  # type: ignore[arg-type]
        self.jobs: list[Job] = []
        self.reasons: list[str] = []
        """Why each load was sent."""
        self._waiting: dict[int, Job] = {}
        self._running: dict[int, tuple[Lease, Job, Engine]] = {}
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._count = 0
        self._then: dict[int, Callable[[], None]] = {}
        self._kick_at: float | None = None
        self._scrape()
        if settled:
            for engine in engines:
                for target in self.fleet.backends[engine.name].targets.values():
                    target.stats.prefill_s_per_token.add(engine.prefill_s)
                    target.stats.decode_s_per_token.add(engine.decode_s)
                    target.stats.load_s.add(engine.load_s)
                    target.stats.base_s.add(0.0)

    # -- what a test does

    def at(self, when: float, what: Callable[[], None]) -> None:
        """Do something at a time."""
        self._count += 1
        heapq.heappush(self._events, (when, self._count, what))

    def send(self, sub: Submit, tokens: int, then: Callable[[], None] | None = None) -> Job:
        """A client sends a request now; `then`: what it does when the reply has ended."""
        job = Job(sub, tokens, self.now)
        self.jobs.append(job)
        if then is not None:
            self._then[id(job)] = then
        got = self.ledger.submit(sub, self.now, len(self.jobs))
        if isinstance(got, Lease):
            self._begin(got, job)
        else:
            assert isinstance(got, Ticket), got
            self._waiting[got.id] = job
        self._arm()
        return job

    def run(self, until: float = 1e6) -> None:
        """Let everything happen up to a time, or till nobody waits or runs and nothing is left to come."""
        while self._events and self._events[0][0] <= until:
            when, _, what = heapq.heappop(self._events)
            self.now = when
            what()
            if not self._waiting and not self._running and all(event[2] == self._scrape for event in self._events):
                return

    @property
    def loads(self) -> int:
        """Loads of all engines."""
        return sum(engine.loads for engine in self.engines.values())

    @property
    def aborted(self) -> int:
        """Requests that lost their model while they ran."""
        return sum(job.aborted for job in self.jobs)

    # -- what happens then

    def _begin(self, lease: Lease, job: Job) -> None:
        engine = self.engines[lease.backend]
        job.began_at, job.engine = self.now, engine.name
        loads = engine.loads
        ready = self._load(engine, lease.target.served, job.sub.context_tokens)
        if engine.at_once == 1:
            assert lease.cold == (engine.loads > loads), "a load is never met by surprise"
        if lease.cold:
            self.reasons.append(why_loaded(lease.decision))
        job.first_at = max(ready, self.now) + job.sub.prompt_tokens * engine.prefill_s
        end = job.first_at + job.tokens * engine.decode_s
        self._running[lease.id] = (lease, job, engine)
        assert sum(it[2] is engine and it[0].model == lease.model for it in self._running.values()) <= engine.slots
        self.at(end, lambda: self._end(lease, job, engine))

    def _load(self, engine: Engine, model: str, context: int | None) -> float:
        """When the model is ready there; what must go for it goes, with all that runs on it."""
        have = engine.loaded.get(model)
        if model in engine.loaded and (context is None or have is None or have == context):
            engine.loaded[model] = engine.loaded.pop(model)
            return engine.ready_at.get(model, 0.0)
        engine.loads += 1
        gone = {model} if model in engine.loaded else set()
        engine.loaded.pop(model, None)
        while len(engine.loaded) >= engine.at_once:
            oldest = next(iter(engine.loaded))
            del engine.loaded[oldest]
            gone.add(oldest)
        for other, job, where in self._running.values():
            job.aborted |= where is engine and other.target.served in gone
        engine.loaded[model] = context
        engine.ready_at[model] = self.now + engine.load_s
        return engine.ready_at[model]

    def _end(self, lease: Lease, job: Job, engine: Engine) -> None:
        del self._running[lease.id]
        job.ended_at = self.now
        assert job.first_at is not None
        feedback = Feedback(
            ok=True,
            cold=lease.cold,
            ttft_s=job.first_at - lease.at,
            duration_s=self.now - lease.at,
            load_s=engine.load_s if lease.cold else None,
        )
        self._take(self.ledger.release(lease, self.now, self._count, feedback))
        then = self._then.pop(id(job), None)
        if then is not None:
            then()

    def _take(self, news: list[Grant]) -> None:
        for grant in news:
            self._begin(grant.lease, self._waiting.pop(grant.ticket))
        self._arm()

    def _scrape(self) -> None:
        for engine in self.engines.values():
            publish(self.fleet, engine.name, self.now, engine.values(self.now), models=engine.models, plan=engine.plan)
        self._kick()
        self.at(self.now + 1.0, self._scrape)

    def _kick(self) -> None:
        news = self.ledger.kick(self.now, self._count)
        assert all(isinstance(item, Grant) for item in news), news
        self._take([item for item in news if isinstance(item, Grant)])

    def _arm(self) -> None:
        due = self.ledger.next_deadline()
        if due is None or due == self._kick_at:
            return
        self._kick_at = due

        def kick() -> None:
            if self._kick_at == due:
                self._kick_at = None
                self._kick()

        self.at(max(due, self.now), kick)


def percentile(values: list[float], share: float) -> float:
    """The value below which that share of them lies."""
    return sorted(values)[min(int(len(values) * share), len(values) - 1)]


def every(step: float, count: int, start: float = 0.0) -> Iterator[float]:
    """Times at a fixed distance."""
    return (start + number * step for number in range(count))
