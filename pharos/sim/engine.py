"""One modelled engine at work: slots, queue, memory, caches and times.

# ops: submit · plan: a line of requests in front of the host, a lane per loaded model, two events per request
# warning: what happens in front of the host is what makes swaps dear, see `_advance`

Forbidden here: knowing of Pharos. Whoever sends a request gets two calls: first token, end.
"""

from collections import deque
from collections.abc import Callable

from msgspec import Struct, field

from pharos.sim.asks import Ask
from pharos.sim.caches import Cache, SharedCache, SlotCache
from pharos.sim.spec import EngineSpec
from pharos.sim.timeline import Timeline


class Job(Struct, eq=False):
    """A request on an engine. Times in seconds; `None` until that happened."""

    ask: Ask
    on_first: "Callable[[Job], None]"
    on_end: "Callable[[Job], None]"
    sent_at: float
    loaded_s: float = 0.0
    """Seconds of loading that it waited for and that began for it."""
    started_at: float | None = None
    """When its prompt began to be processed."""
    first_at: float | None = None
    ended_at: float | None = None
    cached_tokens: int = 0
    prefill_s: float = 0.0
    slot: int = 0


class Lane(Struct, eq=False):
    """One model in memory, or on its way there."""

    model: str
    cache: Cache
    ready: bool
    used_at: float
    running: int = 0
    queue: deque[Job] = field(default_factory=deque)

    @property
    def is_idle(self) -> bool:
        """Whether nobody uses or waits for it."""
        return self.ready and not self.running and not self.queue


class Engine:
    """One host."""

    def __init__(self, spec: EngineSpec, timeline: Timeline) -> None:
        self.spec = spec
        self.loads = 0
        """Models brought into memory so far."""
        self.lanes: dict[str, Lane] = {}
        """Models in memory or being loaded."""
        self.on_change: list[Callable[[str], None]] = []
        """Who is told of each model that is loaded, ready or evicted."""
        self._pending: deque[Job] = deque()
        self._timeline = timeline
        self._sizes = {model.name: model.size_gb for model in spec.models}
        if spec.memory_gb is None:
            self.lanes = {name: self._lane(name, ready=True) for name in self._sizes}

    def __repr__(self) -> str:
        running = sum(lane.running for lane in self.lanes.values())
        return f"<Engine {self.spec.name} {running} running, {len(self._pending)} in front of it>"

    def serves(self, model: str) -> bool:
        """Whether it has the model on its disk."""
        return model in self._sizes

    def submit(self, ask: Ask, on_first: Callable[[Job], None], on_end: Callable[[Job], None]) -> Job:
        """Send it a request."""
        job = Job(ask, on_first, on_end, self._timeline.now)
        self._pending.append(job)
        self._advance()
        return job

    def running(self, model: str) -> int:
        """Requests of a model that are being worked on."""
        lane = self.lanes.get(model)
        return lane.running if lane is not None else 0

    def waiting(self, model: str) -> int:
        """Requests that wait for a slot of a model that is in memory."""
        lane = self.lanes.get(model)
        return len(lane.queue) if lane is not None else 0

    # --- inside

    def _advance(self) -> None:
        """Let requests in, in their order: one whose model needs room holds up all behind it until there is room.

        As Ollama's scheduler does, which works on one pending request after the other; models in use are not evicted.
        """
        while self._pending:
            job = self._pending[0]
            lane = self.lanes.get(job.ask.model)
            if lane is None:
                if not self._make_room(job.ask.model):
                    return
                lane = self._load(job)
            self._pending.popleft()
            lane.queue.append(job)
            self._fill(lane)

    def _make_room(self, model: str) -> bool:
        """Evict idle models, the least recently used first, until one more fits; false when they do not suffice."""
        if self.spec.memory_gb is None:
            return True
        room = self.spec.memory_gb - sum(self._sizes[name] for name in self.lanes) - self._sizes[model]
        evicted = []
        for lane in sorted(self.lanes.values(), key=lambda lane: lane.used_at):
            if room >= 0:
                break
            if lane.is_idle:
                evicted.append(lane.model)
                room += self._sizes[lane.model]
        if room < 0 and len(evicted) < len(self.lanes):  # a model that is too big for an empty host is loaded anyway
            return False
        for name in evicted:
            del self.lanes[name]
            self._changed(name)
        return True

    def _load(self, job: Job) -> Lane:
        lane = self.lanes[job.ask.model] = self._lane(job.ask.model, ready=False)
        self.loads += 1
        job.loaded_s = self.spec.load_s

        def loaded() -> None:
            lane.ready = True
            self._changed(lane.model)
            self._fill(lane)

        self._changed(lane.model)

        self._timeline.after(self.spec.load_s, loaded)
        return lane

    def _lane(self, model: str, *, ready: bool) -> Lane:
        spec = self.spec
        cache: Cache
        if spec.shared_cache_tokens is None:
            cache = SlotCache(spec.slots, spec.host_cache_tokens)
        else:
            cache = SharedCache(spec.shared_cache_tokens)
        return Lane(model, cache, ready, self._timeline.now)

    def _fill(self, lane: Lane) -> None:
        while lane.ready and lane.queue and lane.running < self.spec.slots:
            self._start(lane, lane.queue.popleft())

    def _start(self, lane: Lane, job: Job) -> None:
        now, ask, spec = self._timeline.now, job.ask, self.spec
        lane.running += 1
        lane.used_at = job.started_at = now
        job.slot, cached = lane.cache.begin(ask)
        job.cached_tokens = min(cached, ask.prompt_tokens - 1)  # the last token is always processed
        uncached = ask.prompt_tokens - job.cached_tokens
        job.prefill_s = spec.base_s + uncached * spec.prefill_s_per_token * self._pace()

        def first() -> None:
            job.first_at = self._timeline.now
            lane.cache.read(job.slot, ask)
            job.on_first(job)
            self._timeline.after(max(ask.output_tokens - 1, 0) * spec.decode_s_per_token * self._pace(), end)

        def end() -> None:
            job.ended_at = lane.used_at = self._timeline.now
            lane.running -= 1
            lane.cache.end(job.slot, ask)
            self._fill(lane)
            self._advance()
            job.on_end(job)

        self._timeline.after(job.prefill_s, first)

    def _changed(self, model: str) -> None:
        for tell in self.on_change:
            tell(model)

    def _pace(self) -> float:
        """How many times slower than alone it works now."""
        running = sum(lane.running for lane in self.lanes.values())
        return 1 + self.spec.slowdown * (running - 1)
