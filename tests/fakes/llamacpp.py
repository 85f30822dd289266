"""A llama.cpp engine double: recorded bodies, true slots and queue; only latency and cache are modelled.

async with FakeLlamaCpp(slots=2) as engine:
    engine.hold()                       # generations stop after their first event and keep their slot
    ...                                 # requests to engine.url
    await engine.until(lambda: engine.running == 2)
    engine.release()
"""

import asyncio
import enum
import json
import re
from collections import deque
from typing import Any

from pharos.clock import Clock, monotonic
from tests.fakes import captures
from tests.fakes.generation import CHAT_ROUTES, Generation
from tests.fakes.http import Answer, Connection, HttpDouble, Reply, Seen
from tests.fakes.slots import Hold, Slots

JSON_HEADERS = {"Content-Type": "application/json; charset=utf-8", "Server": "llama.cpp"}
RECORDED_MODEL = "smollm2:135m"


class Phase(enum.StrEnum):
    LOADING = "loading"
    READY = "ready"
    SLEEPING = "sleeping"
    DEAD = "dead"


class FakeLlamaCpp(HttpDouble):
    """One llama.cpp process in single-model mode.

    `model`, `n_ctx`, `size` (bytes of the weights) and `build` replace what was recorded; `None` keeps it.
    `pace` is awaited with the modelled seconds of prefill and of each token; `None`: at once.
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
    ) -> None:
        super().__init__(port=port, clock=clock)
        self.model = model if model is not None else RECORDED_MODEL
        self.slots = slots
        self.size = size
        self.build = build
        self.version = version
        self.phase = phase
        self.pace = pace
        self.n_ctx = n_ctx if n_ctx is not None else self._recorded_n_ctx()
        self.woken = 0
        """Times a request woke it from sleep."""
        self.aborted = 0
        """Generations that ended because their client went away."""
        self.finished = 0
        """Generations whose last byte was sent."""
        self.refusals: deque[Answer] = deque()
        self.cached: list[str] = []
        """Prompts in the slots' caches, least recently used first: at most one per slot."""
        self._places = Slots(slots, self.changed)
        self._hold = Hold(self.changed)
        self._reported: tuple[int, int] | None = None

    # What a test reads and sets.

    @property
    def running(self) -> int:
        """Requests in a slot, unless `report` said otherwise."""
        return self._places.taken if self._reported is None else self._reported[0]

    @property
    def deferred(self) -> int:
        """Requests without a slot yet, unless `report` said otherwise."""
        return self._places.waiting if self._reported is None else self._reported[1]

    @property
    def prompts(self) -> list[Seen]:
        """The generation requests among `seen`."""
        return [request for request in self.seen if request.method == "POST"]

    def report(self, running: int | None = None, deferred: int = 0) -> None:
        """Put numbers into `/metrics` and `/slots`; without arguments they are the truth again."""
        self._reported = None if running is None else (running, deferred)

    @property
    def held(self) -> int:
        """Generations that wait for `release`."""
        return self._hold.count

    def hold(self, after: int = 1) -> None:
        """From now on a generation keeps its slot after `after` events (a whole reply: before it) until `release`."""
        self._hold.close(after)

    def release(self, count: int | None = None) -> None:
        """Let the `count` longest held go on; without a number all of them, and later ones are not held."""
        if count is None:
            self._hold.close(None)
        self._hold.open(self._hold.count if count is None else count)

    def refuse(self, answer: Answer, times: int = 1) -> None:
        """Answer the next generation requests with this, before any slot is taken."""
        self.refusals.extend([answer] * times)

    def kill(self) -> None:
        self.phase = Phase.DEAD
        super().kill()

    async def restart(self, phase: Phase = Phase.READY) -> None:
        """A new process on the same port: empty slots, empty cache."""
        self.kill()
        await self.until(lambda: not self.connections and self._places.taken == 0)
        self.cached.clear()
        self._hold.close(None)
        await self.start()
        self.phase = phase

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
        elif request.method == "POST" and path == "/v1/embeddings":
            await connection.send(self.recorded("embeddings"))
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
        return Reply(recorded.status, body, recorded.headers)

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
        return re.sub(rb"(?m)^(llamacpp:requests_deferred) .*$", rb"\1 %d" % self.deferred, text)

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
        if self.phase is Phase.SLEEPING:
            self.phase = Phase.READY
            self.woken += 1
            self.cached.clear()

    @staticmethod
    def _json(status: int, body: bytes) -> Reply:
        return Reply(status, body, JSON_HEADERS)

    # Generations: slots, queue, holding.

    async def _generate(self, request: Seen, connection: Connection) -> None:
        if self.refusals:
            await connection.send(self.refusals.popleft())
            return
        generation = Generation.of(request, self)
        if isinstance(generation, Reply):
            await connection.send(generation)
            return
        self._wake()
        try:
            await self._in_a_slot(generation, connection)
            self.finished += 1
        except asyncio.CancelledError:
            self.aborted += self.phase is not Phase.DEAD
            raise

    async def _in_a_slot(self, generation: Generation, connection: Connection) -> None:
        """Run a generation when it has a slot: llama.cpp sends not even a head before."""
        await self._places.enter()
        try:
            await generation.run(connection)
        finally:
            self._places.leave()

    async def pause_if_held(self, events_sent: int | None) -> None:
        """Wait for `release` when a generation has come to the point where it is held; `None`: a whole reply has."""
        await self._hold.pass_by(events_sent)

    def cached_tokens(self, prompt: str, tokens: int) -> int:
        """Tokens of a prompt that a slot still holds, by the longest common beginning, without the last one."""
        best = max((_common(prompt, kept) for kept in self.cached), default=0)
        share = best / len(prompt) if prompt else 0.0
        return min(int(tokens * share), tokens - 1)

    def keep(self, prompt: str) -> None:
        """Hold a prompt in a slot's cache; the least recently used one makes room."""
        if prompt in self.cached:
            self.cached.remove(prompt)
        self.cached.append(prompt)
        del self.cached[: -self.slots]


def _common(one: str, other: str) -> int:
    length = 0
    for a, b in zip(one, other, strict=False):
        if a != b:
            break
        length += 1
    return length


def _dump(value: Any) -> bytes:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode()
