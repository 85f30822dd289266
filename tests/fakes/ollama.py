"""An Ollama double: recorded bodies; the scheduler, the memory and the keep-alive are modelled after what was seen.

A request for a model that is not in memory, or is there with another context length, waits in a queue that has an end;
one for a loaded model waits for a slot, without end. Nothing tells what runs: `running` and `waiting` are for tests.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pharos.clock import Clock, monotonic
from tests.fakes.caches import tokens_of
from tests.fakes.engine import EngineDouble, Pace
from tests.fakes.http import Connection, Seen
from tests.fakes.ollama_log import LogFile
from tests.fakes.ollama_models import Model, Runner, asked_context, asked_keep_alive, models_of
from tests.fakes.ollama_pages import EMBEDDING, GENERATING, NATIVE, OLD, Pages, book_of
from tests.fakes.ollama_scheduler import LOAD_S, Scheduler
from tests.fakes.replies import Exchange, Style
from tests.fakes.sending import Sending, prompt_text

STYLE = Style(tells_cached=False, estimates_start=True)
LOCAL = ("localhost", "127.0.0.1", "[::1]")
KEEP_ALIVE_S = 300.0
MAX_QUEUE = 512
"""Both as in its recorded settings."""
EMBED_EXCHANGES = {
    "/api/embed": "api_embed",
    "/api/embeddings": "api_embeddings",
    "/v1/embeddings": "embeddings",
}


class FakeOllama(EngineDouble):
    """One `ollama serve`.

    `models`: names to bytes of memory that each takes (`None`: as recorded); by default the recorded ones. `parallel`:
    slots of a model. `memory`: bytes for all loaded models together. `log`: file that its log lines go to.
    """

    def __init__(
        self,
        *,
        version: str = "0.33.0-rc2",
        models: Mapping[str, int | None] | None = None,
        parallel: int = 2,
        max_queue: int = MAX_QUEUE,
        memory: int | None = None,
        keep_alive_s: float = KEEP_ALIVE_S,
        log: Path | None = None,
        port: int = 0,
        clock: Clock = monotonic,
        pace: Pace | None = None,
    ) -> None:
        super().__init__(port=port, clock=clock, pace=pace)
        self.version = version
        self.parallel = parallel
        self.keep_alive_s = keep_alive_s
        self.models = models_of(version, models)
        self.log = LogFile(log, version) if log is not None else None
        self.scheduler = Scheduler(
            self, parallel=parallel, max_queue=max_queue, memory=memory, keep_alive_s=keep_alive_s, log=self.log
        )
        self.pages = Pages(version, self.models, self.scheduler)
        self._book = book_of(version)

    # What a test reads.

    @property
    def prompts(self) -> list[Seen]:
        return [request for request in self.seen if request.path in GENERATING | EMBEDDING and request.method == "POST"]

    @property
    def running(self) -> int:
        """Requests in a slot of any model."""
        return sum(runner.slots.taken for runner in self.scheduler.runners.values())

    @property
    def waiting(self) -> int:
        """Requests that wait: for a slot, or for the scheduler."""
        return sum(runner.slots.waiting for runner in self.scheduler.runners.values()) + len(self.scheduler.pending)

    @property
    def loaded(self) -> list[str]:
        """Models in memory now, in the order of their loads."""
        self.tick()
        return [name for name, runner in self.scheduler.runners.items() if runner.is_ready]

    @property
    def loads(self) -> list[str]:
        """Every load there was, by the model's name."""
        return self.scheduler.loads

    @property
    def unloads(self) -> list[str]:
        return self.scheduler.unloads

    @property
    def is_idle(self) -> bool:
        return not self.scheduler.pending and all(runner.users == 0 for runner in self.scheduler.runners.values())

    def reset(self) -> None:
        self.scheduler.runners.clear()

    async def start(self) -> None:
        await super().start()
        if self.log is not None:
            self.log.settings(self.parallel)

    def tick(self) -> None:
        self.scheduler.expire(self.clock())

    # How it answers.

    async def respond(self, request: Seen, connection: Connection) -> None:
        path = request.path.partition("?")[0]
        if self._is_foreign(request):
            await connection.send(self._book.named("err_foreign_host").whole)
        elif request.method == "POST":
            await self._post(request, path, connection)
        else:
            await connection.send(self.pages.page(request.method, path))

    def _is_foreign(self, request: Seen) -> bool:
        """Whether it was called by a name that is none of this machine's, or from a web page: 0.17.4 was not asked."""
        host = request.headers.get("host", "").rpartition(":")[0]
        origin = request.headers.get("origin", "")
        is_ours = not origin or origin.partition("://")[2].rpartition(":")[0] in LOCAL
        return "err_foreign_host" in self._book and (host not in LOCAL or not is_ours)

    # Requests.

    async def _post(self, request: Seen, path: str, connection: Connection) -> None:
        try:
            asked = json.loads(request.body)
        except (ValueError, RecursionError):
            asked = None
        exact = self._book.exact("POST", path, asked)
        if path == "/api/show":
            await connection.send(self.pages.show(asked))
        elif path not in GENERATING | EMBEDDING:
            await connection.send((exact or self._book.named("err_unknown_route")).whole)
        elif self.refusals:
            await connection.send(self.refusals.popleft())
        else:
            model = self.pages.find(asked.get("model")) if isinstance(asked, dict) else None
            refusal = self.pages.refusal(path, asked, model)
            if refusal is not None:
                await connection.send(refusal)
            elif model is not None:
                await self.counted(self._serve(path, asked, model, exact, connection))

    async def _serve(
        self, path: str, asked: dict[str, Any], model: Model, exact: Exchange | None, connection: Connection
    ) -> None:
        keep_alive = asked_keep_alive(asked, self.keep_alive_s)
        if path in NATIVE and not prompt_text(asked):
            await self._load_only(path, asked, model, keep_alive, connection)
            return
        context = asked_context(asked, model) if path.startswith("/api/") else model.context
        is_warm = self.scheduler.has(model, context)
        runner = await self.scheduler.runner_of(model, context)
        if runner is None:
            await connection.send(self.pages.busy(path))
            return
        try:
            await runner.slots.enter()
            try:
                await self._in_a_slot(path, asked, runner, exact, connection, load_s=0.0 if is_warm else LOAD_S)
            finally:
                runner.slots.leave()
        finally:
            runner.ended(self.clock(), keep_alive)
            self.tick()
            self.changed()

    async def _load_only(
        self, path: str, asked: dict[str, Any], model: Model, keep_alive: float | None, connection: Connection
    ) -> None:
        """An empty prompt loads a model, and with a keep-alive of 0 unloads it."""
        is_unload = keep_alive == 0
        if not is_unload:
            runner = await self.scheduler.runner_of(model, asked_context(asked, model))
            if runner is None:
                await connection.send(self.pages.busy(path))
                return
            runner.ended(self.clock(), keep_alive)
        else:
            await self.scheduler.unload(model.name)
        await connection.send(self._book.named("api_chat_unload" if is_unload else "api_chat_load_only").whole)

    async def _in_a_slot(
        self,
        path: str,
        asked: dict[str, Any],
        runner: Runner,
        exact: Exchange | None,
        connection: Connection,
        *,
        load_s: float,
    ) -> None:
        tokens = tokens_of(prompt_text(asked))
        if tokens > runner.context and asked.get("truncate") is False:
            await connection.send(exact.whole if exact is not None else self.pages.too_long(tokens, runner.context))
            return
        sending = Sending(
            self,
            self._template(path, asked, exact),
            asked,
            model=asked["model"],
            cache=runner.cache,
            style=STYLE,
            prompt_tokens=runner.kept_of(tokens, halves=self.version != OLD),
            load_s=load_s,
        )
        await sending.run(connection)

    def _template(self, path: str, asked: dict[str, Any], exact: Exchange | None) -> Exchange:
        """The recorded exchange that a reply is made from."""
        if exact is not None and exact.reply.status < 300:
            return exact
        if path in EMBEDDING:
            return self._book.named(EMBED_EXCHANGES[path])
        found = self._book.like(path, asked, streams=asked.get("stream", path in NATIVE) is True)
        assert found is not None, path
        return found
