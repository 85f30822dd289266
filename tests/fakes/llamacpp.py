"""A llama.cpp engine double: recorded bodies, true slots and queue; only latency and cache are modelled.

async with FakeLlamaCpp(slots=2) as engine:
    engine.hold()                       # generations stop after their first event and keep their slot
    ...                                 # requests to engine.url
    await engine.until(lambda: engine.running == 2)
    engine.release()
"""

import enum
import json
import re
from typing import Any

from pharos.clock import Clock, monotonic
from tests.fakes import captures
from tests.fakes.caches import SlotCache
from tests.fakes.engine import EngineDouble
from tests.fakes.generation import CHAT_ROUTES, Generation
from tests.fakes.http import Connection, Reply, Seen
from tests.fakes.llamacpp_child import STYLE
from tests.fakes.replies import book
from tests.fakes.sending import Sending
from tests.fakes.slots import Slots

JSON_HEADERS = {"Content-Type": "application/json; charset=utf-8", "Server": "llama.cpp"}
RECORDED_MODEL = "smollm2:135m"
WHOLE = {"/v1/embeddings": "embeddings", "/v1/messages/count_tokens": "messages_count"}
"""Routes that take no slot, and the exchange that answers them."""


class Phase(enum.StrEnum):
    LOADING = "loading"
    READY = "ready"
    SLEEPING = "sleeping"
    DEAD = "dead"


class FakeLlamaCpp(EngineDouble):
    """One llama.cpp process in single-model mode.

    `model`, `n_ctx`, `size` (bytes of the weights) and `build` replace what was recorded; `None` keeps it.
    `pace` is awaited with the modelled seconds of prefill and of each token; `None`: at once. `sleep_idle_s`: it falls
    asleep so long after the last task. `started`: what it says of when its process began; `None`: nothing, as recorded.
    """

    def __init__(
        self,
        *,
        model: str | None = None,
        slots: int = 2,
        n_ctx: int | None = None,
        size: int | None = None,
        build: str | None = None,
        version: str = "b11434",
        phase: Phase = Phase.READY,
        port: int = 0,
        clock: Clock = monotonic,
        pace: Any = None,
        sleep_idle_s: float | None = None,
        started: int | None = None,
        host_bytes: int = 0,
    ) -> None:
        super().__init__(port=port, clock=clock, pace=pace)
        self.model = model if model is not None else RECORDED_MODEL
        self.slots = slots
        self.size = size
        self.build = build
        self.version = version
        self.phase = phase
        self.sleep_idle_s = sleep_idle_s
        self.started = started
        self.n_ctx = n_ctx if n_ctx is not None else self._recorded_n_ctx()
        self.woken = 0
        """Times a request woke it from sleep."""
        self.decoded = 0
        """Decoding steps of this process, beside those that were recorded."""
        self._steps_told = 0
        self._cache = SlotCache(slots, host_bytes)
        self._places = Slots(slots, self.changed)
        self._last_task_at = clock()
        self._reported: tuple[int, int] | None = None

    # What a test reads and sets.

    @property
    def cache(self) -> SlotCache:
        """What its slots hold."""
        return self._cache

    @property
    def running(self) -> int:
        """Requests in a slot, unless `report` said otherwise."""
        return self._places.taken if self._reported is None else self._reported[0]

    @property
    def deferred(self) -> int:
        """Requests without a slot yet, unless `report` said otherwise."""
        return self._places.waiting if self._reported is None else self._reported[1]

    def report(self, running: int | None = None, deferred: int = 0) -> None:
        """Put numbers into `/metrics` and `/slots`; without arguments they are the truth again."""
        self._reported = None if running is None else (running, deferred)

    def kill(self) -> None:
        self.phase = Phase.DEAD
        super().kill()

    async def restart(self, phase: Phase = Phase.READY) -> None:
        """A new process on the same port: empty slots, empty cache, counters at their start."""
        await super().restart()
        self.phase = phase

    @property
    def is_idle(self) -> bool:
        return self._places.taken == 0

    def reset(self) -> None:
        self._cache.clear()
        self.decoded = self._steps_told = 0
        self._last_task_at = self.clock()
        if self.started is not None:
            self.started += 1

    def tick(self) -> None:
        since = self.clock() - self._last_task_at
        is_due = self.sleep_idle_s is not None and self._places.taken == 0 and since >= self.sleep_idle_s
        if is_due and self.phase is Phase.READY:
            self.phase = Phase.SLEEPING

    async def start(self) -> None:
        await super().start()
        if self.phase is Phase.DEAD:
            self.phase = Phase.READY

    # How it answers.

    async def respond(self, request: Seen, connection: Connection) -> None:
        path = request.path.partition("?")[0]
        if self.phase is Phase.LOADING:
            await connection.send(self._json(503, captures.state("llamacpp", "b11434", "loading")["/health"].body))
        elif request.method == "POST" and path in CHAT_ROUTES:
            await self._generate(request, connection)
        elif request.method == "POST" and path in WHOLE:
            await connection.send(self.recorded(WHOLE[path]))
        else:
            await connection.send(self._page(request, path))

    def recorded(self, name: str) -> Reply:
        """A recorded exchange as a whole reply, under this engine's model name."""
        reply = captures.exchange("llamacpp", "b11434", name)
        return Reply(reply.status, self.renamed(reply.body), reply.headers)

    def renamed(self, body: bytes) -> bytes:
        return body.replace(json.dumps(RECORDED_MODEL).encode(), json.dumps(self.model).encode())

    def _page(self, request: Seen, path: str) -> Reply:
        recorded = captures.state("llamacpp", self.version, "idle").get(path)
        if request.method != "GET" or recorded is None:
            return self.recorded("err_unknown_route")
        body = recorded.body
        if path == "/props":
            body = self._props(body)
        elif path == "/v1/models":
            body = self._models(body)
        elif path == "/metrics":
            body = self._metrics()
        elif path == "/slots":
            self._wake()
            body = self._slots()
        headers = dict(recorded.headers)
        if path == "/metrics" and self.started is not None:
            headers["Process-Start-Time-Unix"] = str(self.started)
        return Reply(recorded.status, body, headers)

    def _props(self, body: bytes) -> bytes:
        props = json.loads(body)
        props["total_slots"] = self.slots
        props["default_generation_settings"]["n_ctx"] = self.n_ctx
        props["is_sleeping"] = self.phase is Phase.SLEEPING
        props["model_alias"] = self.model
        if self.build is not None:
            props["build_info"] = self.build
        return _dump(props)

    def _models(self, body: bytes) -> bytes:
        listed = json.loads(self.renamed(body))
        entry = listed["data"][0]
        entry["meta"]["n_ctx"] = self.n_ctx
        if self.size is not None:
            entry["meta"]["size"] = self.size
        return _dump(listed)

    def _metrics(self) -> bytes:
        name = "saturated" if self.deferred else "busy" if self.running else "idle"
        name = name if self.version == "b11434" else "idle"
        text = captures.state("llamacpp", self.version, name)["/metrics"].body
        text = re.sub(rb"(?m)^(llamacpp:requests_processing) .*$", rb"\1 %d" % self.running, text)
        text = re.sub(rb"(?m)^(llamacpp:n_decode_total) (.*)$", lambda m: b"%s %d" % (m[1], self._steps(m[2])), text)
        return re.sub(rb"(?m)^(llamacpp:requests_deferred) .*$", rb"\1 %d" % self.deferred, text)

    def _steps(self, recorded: bytes) -> int:
        """Decoding steps so far: as recorded in this state and what came since, and never fewer than told before."""
        self._steps_told = max(self._steps_told, int(recorded) + self.decoded)
        return self._steps_told

    def _slots(self) -> bytes:
        idle = json.loads(captures.state("llamacpp", "b11434", "idle")["/slots"].body)[0]
        busy = json.loads(captures.state("llamacpp", "b11434", "saturated")["/slots"].body)[0]
        return _dump(
            [
                {**(busy if number < self.running else idle), "id": number, "n_ctx": self.n_ctx}
                for number in range(self.slots)
            ]
        )

    def _recorded_n_ctx(self) -> int:
        props = json.loads(captures.state("llamacpp", self.version, "idle")["/props"].body)
        return int(props["default_generation_settings"]["n_ctx"])

    def _wake(self) -> None:
        """Give the model a task: that resets its idle timer, and wakes it."""
        self._last_task_at = self.clock()
        if self.phase is Phase.SLEEPING:
            self.phase = Phase.READY
            self.woken += 1
            self._cache.clear()

    @staticmethod
    def _json(status: int, body: bytes) -> Reply:
        return Reply(status, body, JSON_HEADERS)

    # Generations: slots, queue, holding.

    async def _generate(self, request: Seen, connection: Connection) -> None:
        if self.refusals:
            await connection.send(self.refusals.popleft())
            return
        self._wake()  # whatever comes, what is refused too
        generation = self._asked_before(request)
        if generation is None:
            generation = Generation.of(request, self)
        if isinstance(generation, Reply):
            await connection.send(generation)
            return
        await self.counted(self._in_a_slot(generation, connection))

    def _asked_before(self, request: Seen) -> Sending | Reply | None:
        """What was recorded to exactly this question; `None`: it was not asked."""
        try:
            asked = json.loads(request.body)
        except (ValueError, RecursionError):
            return None
        exact = book("llamacpp", "b11434").exact("POST", request.path.partition("?")[0], asked)
        if exact is None or exact.reply.status >= 400:
            return self.recorded(exact.name) if exact is not None else None
        return Sending(self, exact, asked, model=self.model, cache=self._cache, style=STYLE, on_tokens=self._worked)

    def _worked(self, _prompt: int, decoded: int) -> None:
        self.decoded += decoded

    async def _in_a_slot(self, generation: Generation | Sending, connection: Connection) -> None:
        """Run a generation when it has a slot: llama.cpp sends not even a head before."""
        await self._places.enter()
        try:
            await generation.run(connection)
        finally:
            self._places.leave()
            self._last_task_at = self.clock()


def _dump(value: Any) -> bytes:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode()
