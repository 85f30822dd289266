"""What an Ollama double answers without a model's work: its pages and its refusals, as recorded."""

import json
from collections.abc import Mapping
from typing import Any

from pharos.core.assumptions import ASSUMPTIONS
from tests.fakes import captures
from tests.fakes.http import Reply
from tests.fakes.ollama_models import Model
from tests.fakes.ollama_scheduler import LOAD_S, Scheduler
from tests.fakes.replies import Book, book

EMBEDDING = frozenset({"/api/embed", "/api/embeddings", "/v1/embeddings"})
NATIVE = frozenset({"/api/chat", "/api/generate"})
GENERATING = frozenset({*NATIVE, "/v1/chat/completions", "/v1/completions", "/v1/messages", "/v1/responses"})
OLD = "0.17.4"
"""The version that lists a model before it is ready."""


def book_of(version: str) -> Book:
    """What was recorded of a version."""
    return book("ollama", *((version,) if version == OLD else (version, f"{version}-queue2")))


class Pages:
    """The pages of one double."""

    def __init__(self, version: str, models: Mapping[str, Model], scheduler: Scheduler) -> None:
        self._version = version
        self._models = models
        self._scheduler = scheduler
        self._book = book_of(version)

    def page(self, method: str, path: str) -> Reply:
        if method == "GET" and path == "/api/ps":
            return self._json(_dump({"models": self._listed()}))
        if method == "GET" and path == "/api/tags":
            return self._json(_dump({"models": [model.tags for model in self._models.values()]}))
        if method == "GET" and path == "/v1/models":
            cards = {"object": "list", "data": [model.card for model in self._models.values()]}
            return Reply(
                200, json.dumps(cards, separators=(",", ":")).encode() + b"\n", {"Content-Type": "application/json"}
            )
        if method == "GET" and path.startswith("/v1/models/"):
            return self._one_card(path.removeprefix("/v1/models/"))
        if path in GENERATING:
            return self._book.named("err_wrong_method" if path.startswith("/v1") else "err_api_wrong_method").whole
        recorded = captures.state("ollama", self._version, "idle").get(path)
        if recorded is None:
            return self._book.named("err_unknown_route").whole
        return Reply(recorded.status, recorded.body, recorded.headers)

    def _json(self, body: bytes, status: int = 200) -> Reply:
        return Reply(status, body, {"Content-Type": "application/json; charset=utf-8"})

    def _one_card(self, name: str) -> Reply:
        model = self.find(name)
        if model is None:
            return self._naming("models_one_unknown", "nope", name)
        recorded = self._book.named("models_one").whole
        return Reply(recorded.status, _dump({**model.card, "id": name}) + b"\n", recorded.headers)

    def _naming(self, exchange: str, recorded: str, name: object) -> Reply:
        """A recorded refusal that names a model, with another name."""
        reply = self._book.named(exchange).reply
        return Reply(reply.status, reply.body.replace(f"'{recorded}".encode(), f"'{name}".encode()), reply.headers)

    def _listed(self) -> list[dict[str, Any]]:
        """What /api/ps says: the one that stays longest comes first; old versions list a model before it is ready."""
        now = self._scheduler.now()
        share = ASSUMPTIONS["listed_from"].value
        shown = [
            runner
            for runner in self._scheduler.runners.values()
            if runner.is_ready or (self._version == OLD and now - runner.began_at >= share * LOAD_S)
        ]
        shown.sort(key=lambda runner: runner.stays_until(now), reverse=True)
        return [runner.entry(now) for runner in shown]

    def find(self, name: object) -> Model | None:
        """The model of a name; a bare one means its `:latest`."""
        if not isinstance(name, str):
            return None
        return self._models.get(name) or self._models.get(f"{name}:latest")

    def show(self, asked: Any) -> Reply:
        name = asked.get("model") or asked.get("name") if isinstance(asked, dict) else None
        model = self.find(name)
        if model is not None:
            return Reply(200, model.shown, self._book.named("api_show").whole.headers)
        return self._naming("api_show_unknown", "nope", name)

    def refusal(self, path: str, asked: Any, model: Model | None) -> Reply | None:
        """What is refused before anything is loaded; `None`: nothing."""
        is_native = path.startswith("/api/")
        is_complete = isinstance(asked, dict) and asked.get("model") and isinstance(asked.get("messages", []), list)
        if not is_complete:
            return self._book.named("err_api_bad_field" if is_native else "err_bad_json_field").whole
        if model is None:
            return self._unknown(path, asked)
        if path in EMBEDDING:
            on_chat = "api_embed_on_chat_model" if is_native else "embeddings_on_chat_model"
            is_refused = not model.is_embedding and self._book.named(on_chat).reply.status >= 400
            return self._book.named(on_chat).whole if is_refused else None
        if model.is_embedding:
            refused = self._book.named("chat_on_embedding_model").whole
            if is_native:
                text = f'{{"error":"\\"{asked["model"]}\\" does not support chat"}}'
                return self._json(text.encode(), refused.status)
            return refused
        if asked.get("tools"):
            return self._book.named("api_chat_tools_unsupported" if is_native else "tools_stream").whole
        return None

    def _unknown(self, path: str, asked: Mapping[str, Any]) -> Reply:
        name = {"/v1/messages": "err_unknown_model_messages", "/v1/responses": "err_unknown_model_responses"}.get(
            path, "err_api_unknown_model" if path.startswith("/api/") else "err_unknown_model"
        )
        return self._naming(name, self._book.named(name).body["model"], asked.get("model"))

    def busy(self, path: str) -> Reply:
        """The refusal of a full queue. It was recorded with 0.33 only; 0.17.4 has the same words."""
        names = {
            "/api/chat": "api_chat", "/api/generate": "api_chat", "/api/embed": "api_embed",
            "/api/embeddings": "api_embed", "/v1/messages": "messages", "/v1/responses": "responses",
        }  # fmt: skip
        return book("ollama", "0.33.0-rc2-queue2").named(f"err_server_busy_{names.get(path, 'chat')}").whole

    def too_long(self, tokens: int, context: int) -> Reply:
        recorded = self._book.named("api_generate_too_long_no_truncate").whole
        body = recorded.body.replace(b"9032", b"%d" % tokens).replace(b"4096", b"%d" % context)
        return Reply(recorded.status, body, recorded.headers)


def _dump(value: Any) -> bytes:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode()
