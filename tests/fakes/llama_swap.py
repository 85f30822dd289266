"""A llama-swap double: recorded bodies; models that take turns, their time to live and their limits are modelled.

Every request for a model counts against its limit, loads it and renews its time to live, those under /upstream too.
"""

import json
from collections.abc import Sequence
from typing import Any

from pharos.clock import Clock, monotonic
from pharos.core.assumptions import ASSUMPTIONS
from tests.fakes import captures
from tests.fakes.broadcast import Broadcast
from tests.fakes.caches import tokens_of
from tests.fakes.engine import EngineDouble, Pace
from tests.fakes.http import Connection, Reply, Seen
from tests.fakes.llama_swap_loading import Loading
from tests.fakes.llama_swap_models import (
    VERSION,
    Model,
    State,
    Swapped,
    cards,
    first_events,
    models_of,
    running,
    status_event,
)
from tests.fakes.llama_swap_models import begin as begin_event
from tests.fakes.llama_swap_models import event as event_of
from tests.fakes.llamacpp_child import template, too_long
from tests.fakes.replies import book
from tests.fakes.sending import prompt_text

LOAD_S = ASSUMPTIONS["load_s"].value
EVENT_STREAM = {"Content-Type": "text/event-stream"}
PROXIED = frozenset(
    {"/v1/chat/completions", "/v1/completions", "/v1/messages", "/v1/messages/count_tokens", "/v1/responses",
     "/v1/embeddings", "/v1/rerank", "/completion"}
)  # fmt: skip
"""Routes that a model's server answers."""


class FakeLlamaSwap(EngineDouble):
    """One llama-swap; `models` are the recorded ones unless given. One of them is in memory at a time.

    `loading_state`: it tells chats that stream, and wait for their model, how that goes.
    """

    def __init__(
        self,
        *,
        models: Sequence[Swapped] | None = None,
        loading_state: bool = False,
        port: int = 0,
        clock: Clock = monotonic,
        pace: Pace | None = None,
    ) -> None:
        super().__init__(port=port, clock=clock, pace=pace)
        self.models = models_of(models)
        self.loading_state = loading_state
        self.loads: list[tuple[str, str]] = []
        """Every load: the model, and the path whose request caused it."""
        self.unloads: list[str] = []
        self.renewed: list[str] = []
        """Paths of GETs that renewed a model's time to live, or took a place of its limit."""
        self.events = Broadcast()
        self._swaps: list[object] = []
        """Requests that wait for their model, in order: the first one's is being loaded, or waits for the old one."""
        self._last_id = 0
        self._book = book("llama-swap", VERSION)

    # What a test reads.

    @property
    def prompts(self) -> list[Seen]:
        return [request for request in self.seen if request.path in PROXIED]

    def inside(self, model: str) -> int:
        """Requests of a model that were let in and take a slot or want one."""
        return sum(record["method"] == "POST" for record in self.models[model].inside.values())

    def running(self, model: str) -> int:
        """Requests in a slot of a model's server."""
        child = self.models[model].child
        return child.running if child is not None else 0

    def deferred(self, model: str) -> int:
        """Requests that wait for a slot of a model's server."""
        child = self.models[model].child
        return child.deferred if child is not None else 0

    @property
    def states(self) -> dict[str, State]:
        self.tick()
        return {name: model.state for name, model in self.models.items()}

    @property
    def is_idle(self) -> bool:
        return not self._swaps and all(not model.inside for model in self.models.values())

    def reset(self) -> None:
        for model in self.models.values():
            model.state, model.child = State.STOPPED, None

    def tick(self) -> None:
        now = self.clock()
        for model in self.models.values():
            if model.is_over(now):
                self._stop(model)

    # How it answers.

    async def respond(self, request: Seen, connection: Connection) -> None:
        path = request.path.partition("?")[0]
        if request.method == "GET" and path == "/api/events":
            await self.events.follow(connection, first_events(self.models.values()), EVENT_STREAM)
        elif path.startswith("/upstream/"):
            await self._upstream(path, connection)
        elif request.method == "POST" and path in PROXIED:
            await self._proxied(request, path, connection)
        else:
            await connection.send(self._page(request.method, path))

    def _page(self, method: str, path: str) -> Reply:
        exact = self._book.exact(method, path, None)
        if path == "/unload":
            for model in [model for model in self.models.values() if model.state is State.READY]:
                self._stop(model)
        if exact is not None:
            return exact.whole
        recorded = captures.state("llama-swap", VERSION, "idle").get(path)
        if method != "GET" or recorded is None:
            return self._book.named("err_unknown_route").whole
        body = recorded.body
        if path == "/v1/models":
            body = cards(self.models.values())
        elif path == "/running":
            body = running(self.models.values())
        return Reply(recorded.status, body, recorded.headers)

    def _find(self, name: object) -> Model | None:
        """The model of a name or an alias."""
        return next((model for model in self.models.values() if name in (model.name, *model.aliases)), None)

    async def _upstream(self, path: str, connection: Connection) -> None:
        name, _, rest = path.removeprefix("/upstream/").partition("/")
        model = self._find(name)
        if model is None:
            await connection.send(self._book.named("upstream_unknown").whole)
            return
        self.renewed.append(path)

        async def answer() -> None:
            assert model.child is not None
            page = model.child.page(f"/{rest}")
            await connection.send(page if page is not None else self._book.named("err_unknown_route").whole)

        await self._let_in(model, "GET", f"/{rest}", connection, answer)

    async def _proxied(self, request: Seen, path: str, connection: Connection) -> None:
        is_json = request.headers.get("content-type", "").startswith("application/json")
        try:
            asked = json.loads(request.body) if is_json else None
        except (ValueError, RecursionError):
            asked = None
        if not isinstance(asked, dict) or not asked.get("model"):
            await connection.send(self._book.named("err_no_model").whole)
            return
        model = self._find(asked["model"])
        if model is None:
            await connection.send(self._book.named("err_unknown_model").whole)
        elif self.refusals:
            await connection.send(self.refusals.popleft())
        else:
            tells = self.loading_state and path == "/v1/chat/completions" and asked.get("stream") is True
            loading = Loading(asked, connection) if tells and model.state is not State.READY else None

            async def answer() -> None:
                if loading is None:
                    await self._answer(model, path, asked, connection)
                else:
                    assert model.child is not None
                    await model.child.run(self, await loading.end(), asked, connection, has_head=True)

            before = loading.begin if loading is not None else None
            await self.counted(self._let_in(model, "POST", path, connection, answer, before))

    async def _answer(self, model: Model, path: str, asked: dict[str, Any], connection: Connection) -> None:
        """What a model's server makes of a request."""
        assert model.child is not None
        exact = self._book.exact("POST", path, asked)
        refusal = self._refusal(model, path, asked)
        exchange = template(self._book, path, asked, exact)
        if exact is not None and exact.reply.status >= 400:
            await connection.send(exact.whole)
        elif refusal is not None:
            await connection.send(refusal)
        elif path in {"/v1/embeddings", "/v1/messages/count_tokens"}:
            name = "embeddings" if path == "/v1/embeddings" else "messages_count"
            await connection.send(self._book.named(name).whole)
        elif exchange is None:
            await connection.send(self._book.named("err_unknown_route").whole)
        else:
            await model.child.run(self, exchange, asked, connection)

    def _refusal(self, model: Model, path: str, asked: dict[str, Any]) -> Reply | None:
        if not isinstance(asked.get("messages", []), list):
            return self._book.named("err_bad_json_field").whole
        if path == "/v1/embeddings":
            return None if model.is_embedding else self._book.named("embeddings_on_chat_model").whole
        return too_long(self._book, asked, tokens_of(prompt_text(asked)), model.n_ctx)

    # Limits, swaps and events.

    async def _let_in(
        self, model: Model, method: str, path: str, connection: Connection, work: Any, before: Any = None
    ) -> None:
        """Take a place of the model's limit, bring the model into memory, and let its server answer."""
        if len(model.inside) >= model.limit:
            limited = captures.state("llama-swap", VERSION, "saturated")["/upstream/tiny/props"]
            await connection.send(Reply(limited.status, limited.body, limited.headers))
            return
        self._last_id += 1
        request_id = str(self._last_id)
        model.inside[request_id] = begin_event(request_id, model.name, method, path)
        self.events.tell(event_of("inflight", {"operation": "upsert", "request": model.inside[request_id]}))
        self.changed()
        try:
            if before is not None:
                await before()
            await self._bring(model, path)
            model.serving += 1
            try:
                await work()
            finally:
                model.serving -= 1
        finally:
            del model.inside[request_id]
            model.last_end = self.clock()
            self.events.tell(event_of("inflight", {"operation": "remove", "id": request_id}))
            self.changed()

    async def _bring(self, model: Model, path: str) -> None:
        """Wait for the model: what runs on the one in memory ends first."""
        if model.state is State.READY:
            return
        turn = object()
        self._swaps.append(turn)
        try:
            await self.until(lambda: self._swaps[0] is turn)
            if model.state is not State.READY:
                others = [one for one in self.models.values() if one is not model and one.state is State.READY]
                await self.until(lambda: all(one.serving == 0 for one in others))
                for other in others:
                    self._stop(other)
                await self._start(model, path)
        finally:
            self._swaps.remove(turn)
            self.changed()

    async def _start(self, model: Model, path: str) -> None:
        self.loads.append((model.name, path))
        self._move(model, State.STARTING)
        try:
            await self.load_time(LOAD_S)
        finally:  # a client that goes away does not stop the start
            model.child = model.new_child(self.changed)
            model.last_end = self.clock()
            self._move(model, State.READY)

    def _stop(self, model: Model) -> None:
        model.child = None
        self.unloads.append(model.name)
        self._move(model, State.STOPPED)

    def _move(self, model: Model, state: State) -> None:
        model.state = state
        self.events.tell(status_event(self.models.values()))
        self.changed()
