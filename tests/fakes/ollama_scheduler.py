"""Which models of an Ollama double are in memory: one load after the other, the oldest idle one makes room.

A request for a loaded model never waits here. The queue of all others has an end.
"""

from pharos.core.assumptions import ASSUMPTIONS
from tests.fakes.engine import EngineDouble
from tests.fakes.ollama_log import LogFile
from tests.fakes.ollama_models import Model, Runner

LOAD_S = ASSUMPTIONS["load_s"].value


class Scheduler:
    """The memory of one double."""

    def __init__(
        self,
        engine: EngineDouble,
        *,
        parallel: int,
        max_queue: int,
        memory: int | None,
        keep_alive_s: float,
        log: LogFile | None,
    ) -> None:
        self.runners: dict[str, Runner] = {}
        """By the model's name, in the order of their loads."""
        self.loads: list[str] = []
        self.unloads: list[str] = []
        self.pending: list[object] = []
        """Requests that wait, in order; the first one's model is being loaded."""
        self.memory = memory
        self._engine = engine
        self._parallel = parallel
        self._max_queue = max_queue
        self._keep_alive_s = keep_alive_s
        self._log = log

    def expire(self, now: float) -> None:
        """Unload what was idle for its keep-alive."""
        for name in [name for name, runner in self.runners.items() if runner.is_over(now)]:
            self._unload(name)

    def now(self) -> float:
        """Seconds on the double's clock."""
        return self._engine.clock()

    def has(self, model: Model, context: int) -> bool:
        """Whether a model is ready with this context length."""
        runner = self.runners.get(model.name)
        return runner is not None and runner.is_ready and runner.context == context

    async def runner_of(self, model: Model, context: int) -> Runner | None:
        """The model in memory with this context length, taken into use; `None`: the queue is full."""
        if not self.has(model, context):
            if len(self.pending) > self._max_queue:
                return None
            await self._in_turn(model, context)
        runner = self.runners[model.name]
        runner.users += 1
        return runner

    async def unload(self, name: str) -> None:
        """Unload a model once nothing uses it."""
        await self._until_idle(name)
        if name in self.runners:
            self._unload(name)

    async def _in_turn(self, model: Model, context: int) -> None:
        turn = object()
        self.pending.append(turn)
        self._engine.changed()
        try:
            await self._engine.until(lambda: self.pending[0] is turn)
            if not self.has(model, context):
                await self._load(model, context)
        finally:
            self.pending.remove(turn)
            self._engine.changed()

    async def _load(self, model: Model, context: int) -> None:
        await self.unload(model.name)
        await self._make_room(model.memory_at(context))
        engine = self._engine
        runner = Runner(model, context, self._parallel, engine.clock(), self._keep_alive_s, engine.changed)
        self.runners[model.name] = runner
        self.loads.append(model.name)
        if self._log is not None:
            self._log.starting(runner)
        engine.changed()
        try:
            await engine.load_time(LOAD_S)
        finally:  # a client that goes away does not stop the load
            runner.is_ready = True
            if self._log is not None:
                self._log.started(LOAD_S, len(self.runners))

    async def _make_room(self, size: int) -> None:
        """Unload what was used least recently until so many bytes are free; what is in use is waited for."""
        while self.memory is not None and self.runners and self._used() + size > self.memory:
            await self._engine.until(lambda: any(runner.users == 0 for runner in self.runners.values()))
            idle = [runner for runner in self.runners.values() if runner.users == 0]
            self._unload(min(idle, key=lambda runner: runner.used_at).model.name)

    async def _until_idle(self, name: str) -> None:
        await self._engine.until(lambda: name not in self.runners or self.runners[name].users == 0)

    def _used(self) -> int:
        return sum(runner.model.memory_at(runner.context) for runner in self.runners.values())

    def _unload(self, name: str) -> None:
        del self.runners[name]
        self.unloads.append(name)
        self._engine.changed()
