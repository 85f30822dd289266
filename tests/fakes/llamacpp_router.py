"""A double of llama.cpp's router: recorded bodies; loads, sleep and who makes room are modelled.

A GET of a model's /metrics, /slots or /props loads the model unless `autoload=false`, wakes it, and keeps it awake, as
its users report. All that is counted. That a model fell asleep was not recorded: its event is as the source has it.
"""

import enum
import json
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import parse_qs

from pharos.clock import Clock, monotonic
from tests.fakes import captures
from tests.fakes.broadcast import Broadcast
from tests.fakes.caches import tokens_of
from tests.fakes.engine import EngineDouble, Pace
from tests.fakes.http import Connection, Reply, Seen
from tests.fakes.llamacpp_child import Child, template, too_long
from tests.fakes.replies import book
from tests.fakes.sending import prompt_text

ENGINE, VERSION, SINGLE = "llamacpp-router", "b11434", "llamacpp"
N_CTX = 4096
"""Of each model, as recorded, unless given."""
GENERATING = frozenset({"/v1/chat/completions", "/v1/completions", "/v1/messages", "/v1/responses"})
WHOLE = {"/v1/embeddings": "embeddings", "/v1/messages/count_tokens": "messages_count"}
"""Routes that take no slot, and the exchange that answers them."""
RECORDED_MAX = 1
"""Models in memory at a time, as recorded."""
OF_A_MODEL = frozenset({"/metrics", "/slots", "/props"})
JSON = {"Content-Type": "application/json; charset=utf-8"}
TEMPLATE = "tiny"
"""The model whose pages were recorded."""


class State(enum.StrEnum):
    UNLOADED = "unloaded"
    LOADING = "loading"
    LOADED = "loaded"
    SLEEPING = "sleeping"


class Model:
    """One model and its server, if that runs."""

    def __init__(self, name: str, state: State, slots: int, n_ctx: int, host_bytes: int, double: EngineDouble) -> None:
        self.name = name
        self.state = state
        self.slots = slots
        self.n_ctx = n_ctx
        self.host_bytes = host_bytes
        self.used_at = double.clock()
        self._double = double
        self.child = self.new_child()

    def new_child(self) -> Child:
        recorded = captures.state(ENGINE, VERSION, "tiny_loaded")
        pages = {path: recorded[f"{path}?model={TEMPLATE}&autoload=false"] for path in OF_A_MODEL}
        return Child(
            self.name,
            pages,
            slots=self.slots,
            n_ctx=self.n_ctx,
            changed=self._double.changed,
            host_bytes=self.host_bytes,
        )

    @property
    def is_used(self) -> bool:
        return self.child.running > 0 or self.child.deferred > 0


class FakeRouter(EngineDouble):
    """One llama-server in router mode.

    `models`: their names, as recorded unless given. `states`: where some of them are at the start. `max_models`: so
    many are in memory at most. `sleep_idle_s`: a model falls asleep so long after its last task.
    """

    def __init__(
        self,
        *,
        models: Sequence[str] | None = None,
        states: Mapping[str, State] | None = None,
        max_models: int = 1,
        slots: int = 4,
        n_ctx: int = N_CTX,
        host_bytes: int = 0,
        sleep_idle_s: float | None = None,
        port: int = 0,
        clock: Clock = monotonic,
        pace: Pace | None = None,
    ) -> None:
        super().__init__(port=port, clock=clock, pace=pace)
        names = models if models is not None else [card["id"] for card in _recorded_cards("cold")]
        given = states if states is not None else {}
        self.models = {
            name: Model(name, given.get(name, State.UNLOADED), slots, n_ctx, host_bytes, self) for name in names
        }
        self.max_models = max_models
        self.n_ctx = n_ctx
        self.sleep_idle_s = sleep_idle_s
        self.loads: list[tuple[str, str]] = []
        """Every load: the model, and the path whose request caused it."""
        self.woken: list[tuple[str, str]] = []
        """Every waking, in the same way."""
        self.pinned: list[tuple[str, str]] = []
        """Every GET that reset a model's idle timer, in the same way."""
        self.events = Broadcast()
        self._turns: list[object] = []
        self._book = book(SINGLE, VERSION)

    # What a test reads.

    @property
    def prompts(self) -> list[Seen]:
        return [request for request in self.seen if request.path in GENERATING]

    def running(self, model: str) -> int:
        return self.models[model].child.running

    def deferred(self, model: str) -> int:
        return self.models[model].child.deferred

    @property
    def states(self) -> dict[str, State]:
        self.tick()
        return {name: model.state for name, model in self.models.items()}

    @property
    def is_idle(self) -> bool:
        return not self._turns and not any(model.is_used for model in self.models.values())

    def reset(self) -> None:
        for model in self.models.values():
            model.state, model.child = State.UNLOADED, model.new_child()

    def tick(self) -> None:
        for model in self.models.values():
            is_idle = model.state is State.LOADED and not model.is_used and self.sleep_idle_s is not None
            if is_idle and self.clock() - model.used_at >= (self.sleep_idle_s or 0.0):
                model.child.forget()
                self._move(model, State.SLEEPING, {"status": "sleeping"})

    # How it answers.

    async def respond(self, request: Seen, connection: Connection) -> None:
        path, _, query = request.path.partition("?")
        asked = {name: value for name, [value, *_] in parse_qs(query).items()}
        if request.method == "GET" and path == "/models/sse":
            await self.events.follow(connection, (), {"Content-Type": "text/event-stream"})
        elif request.method == "GET" and path in OF_A_MODEL and "model" in asked:
            await connection.send(await self._page_of_model(path, asked))
        elif request.method == "POST" and (path in GENERATING or path in WHOLE):
            await self._post(request, path, connection)
        else:
            await connection.send(self._page(request.method, path))

    def _page(self, method: str, path: str) -> Reply:
        recorded = captures.state(ENGINE, VERSION, "cold").get(path)
        if method != "GET" or recorded is None:
            return self._book.named("err_unknown_route").whole
        body = recorded.body
        if path == "/v1/models":
            body = self._cards()
        elif path == "/props" and self.max_models != RECORDED_MAX:
            body = _dump({**json.loads(body), "max_instances": self.max_models})
        return Reply(recorded.status, body, recorded.headers)

    def _cards(self) -> bytes:
        """The model list: a model's properties are there while its server runs."""
        cold = {card["id"]: card for card in _recorded_cards("cold")}
        loaded = {card["id"]: card for state in ("smollm_loaded", "tiny_loaded") for card in _loaded_cards(state)}
        cards = []
        for name, model in self.models.items():
            is_running = model.state in {State.LOADED, State.SLEEPING}
            card = (loaded if is_running else cold).get(name) or (loaded if is_running else cold)[TEMPLATE]
            cards.append(self._sized({**card, "id": name, "status": {**card["status"], "value": model.state.value}}))
        return _dump({"data": cards, "object": "list"})

    def _sized(self, card: dict[str, Any]) -> dict[str, Any]:
        """A card with this double's context size, in all its places."""
        if self.n_ctx == N_CTX:
            return card
        status, old, new = card["status"], str(N_CTX), str(self.n_ctx)
        meta = {"meta": {**card["meta"], "n_ctx": self.n_ctx}} if "meta" in card else {}
        told = {
            "args": [new if word == old else word for word in status["args"]],
            "preset": status["preset"].replace(f"ctx-size = {old}", f"ctx-size = {new}"),
        }
        return {**card, **meta, "status": {**status, **told}}

    async def _page_of_model(self, path: str, asked: Mapping[str, str]) -> Reply:
        """A page of a model's server, with all that asking for it does."""
        model = self.models.get(asked["model"])
        if model is None:
            return _unknown(asked["model"])
        if model.state in {State.UNLOADED, State.LOADING} and asked.get("autoload") == "false":
            recorded = captures.state(ENGINE, VERSION, "cold")[f"/metrics?model={TEMPLATE}&autoload=false"]
            return Reply(recorded.status, recorded.body, recorded.headers)
        await self._use(model, path)
        self.pinned.append((model.name, path))
        page = model.child.page(path)
        assert page is not None
        return page

    async def _post(self, request: Seen, path: str, connection: Connection) -> None:
        try:
            asked = json.loads(request.body)
        except (ValueError, RecursionError):
            asked = None
        if not isinstance(asked, dict):
            await connection.send(self._book.named("err_bad_json_field").whole)
        elif not asked.get("model"):
            recorded = captures.state(ENGINE, VERSION, "cold")["/metrics"]
            await connection.send(Reply(recorded.status, recorded.body, recorded.headers))
        elif asked["model"] not in self.models:
            await connection.send(_unknown(asked["model"]))
        elif self.refusals:
            await connection.send(self.refusals.popleft())
        else:
            await self.counted(self._answer(self.models[asked["model"]], path, asked, connection))

    async def _answer(self, model: Model, path: str, asked: dict[str, Any], connection: Connection) -> None:
        """What a model's server makes of a request."""
        await self._use(model, path)
        try:
            whole = self._whole(path, asked)
            if whole is not None:
                await connection.send(whole)
                return
            exchange = template(self._book, path, asked, self._book.exact("POST", path, asked))
            assert exchange is not None, path
            await model.child.run(self, exchange, asked, connection)
        finally:
            model.used_at = self.clock()

    def _whole(self, path: str, asked: dict[str, Any]) -> Reply | None:
        """What is answered without a slot: refusals, and what counts or embeds; `None`: nothing."""
        exact = self._book.exact("POST", path, asked)
        if exact is not None and exact.reply.status >= 400:
            return exact.whole
        if path in WHOLE:
            return self._book.named(WHOLE[path]).whole
        if not isinstance(asked.get("messages", []), list):
            return self._book.named("err_bad_json_field").whole
        return too_long(self._book, asked, tokens_of(prompt_text(asked)), self.n_ctx)

    # Loads and sleep.

    async def _use(self, model: Model, path: str) -> None:
        """Give a model's server a task: that loads the model, wakes it, and resets its idle timer."""
        if model.state is State.SLEEPING:
            self.woken.append((model.name, path))
            self._move(model, State.LOADED, {"status": "loaded"})
        elif model.state is not State.LOADED:
            await self._bring(model, path)
        model.used_at = self.clock()

    async def _bring(self, model: Model, path: str) -> None:
        turn = object()
        self._turns.append(turn)
        try:
            await self.until(lambda: self._turns[0] is turn)
            if model.state is State.UNLOADED:
                await self._make_room()
                await self._load(model, path)
        finally:
            self._turns.remove(turn)
            self.changed()

    async def _make_room(self) -> None:
        """Unload the model that was used least recently; what is in use is waited for."""
        inside = [model for model in self.models.values() if model.state in {State.LOADED, State.SLEEPING}]
        if len(inside) < self.max_models:
            return
        await self.until(lambda: any(not model.is_used for model in inside))
        oldest = min((model for model in inside if not model.is_used), key=lambda model: model.used_at)
        self._move(oldest, State.UNLOADED, {"status": "unloaded", "exit_code": 0})
        oldest.child = oldest.new_child()

    async def _load(self, model: Model, path: str) -> None:
        self.loads.append((model.name, path))
        self._move(model, State.LOADING, {"status": "loading"}, event="model_status")
        stages = {"stages": ["text_model"], "current": "text_model", "value": 0.0}
        self._tell(model, {"status": "loading", "progress": stages})
        try:
            await self.load_time(self.costs.load_s)
        finally:  # a client that goes away does not stop the load
            self._tell(model, {"status": "loading", "progress": {**stages, "value": 1.0}})
            model.used_at = self.clock()
            self._move(model, State.LOADED, {"status": "loaded", "info": {"id": model.name, "aliases": [model.name]}})

    def _move(self, model: Model, state: State, data: dict[str, Any], event: str = "status_change") -> None:
        model.state = state
        self._tell(model, data, event)
        self.changed()

    def _tell(self, model: Model, data: dict[str, Any], event: str = "status_change") -> None:
        self.events.tell(b"data: " + _dump({"model": model.name, "event": event, "data": data}) + b"\n\n")


def _recorded_cards(state: str) -> list[dict[str, Any]]:
    cards: list[dict[str, Any]] = json.loads(captures.state(ENGINE, VERSION, state)["/v1/models"].body)["data"]
    return cards


def _loaded_cards(state: str) -> list[dict[str, Any]]:
    return [card for card in _recorded_cards(state) if card["status"]["value"] == "loaded"]


def _unknown(name: object) -> Reply:
    """A model that it does not have: the words are as the source has them."""
    told = {"error": {"code": 400, "message": f"model '{name}' not found", "type": "invalid_request_error"}}
    return Reply(400, _dump(told), JSON)


def _dump(value: Any) -> bytes:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode()
