"""What a llama.cpp double sends for one generation: the recorded reply of its route, with lengths and timings put in.

Prefill, decode and cached tokens are modelled with the numbers of `core/assumptions`; all around them is recorded.
"""

import json
from typing import TYPE_CHECKING, Any, Self

from tests.fakes import captures
from tests.fakes.caches import tokens_of
from tests.fakes.http import Connection, Reply, Seen

if TYPE_CHECKING:
    from tests.fakes.llamacpp import FakeLlamaCpp

CHAT_ROUTES = {
    "/v1/chat/completions": ("chat_full", "chat_stream_plain", "chat_stream_usage"),
    "/v1/completions": ("completion_full", "completion_stream", "completion_stream_usage"),
    "/v1/messages": ("messages_full", "messages_stream", "messages_stream"),
    "/v1/responses": ("responses_full", "responses_stream", "responses_stream"),
}
"""Route to the recorded exchanges: whole reply, stream, stream with usage asked for."""
COUNTED = frozenset({"/v1/chat/completions", "/v1/completions"})
"""Routes whose lengths and usage are put in; the others are sent as recorded."""


class Generation:
    """One accepted generation request. Made by `of`, sent by `run`."""

    def __init__(self, engine: "FakeLlamaCpp", path: str, asked: dict[str, Any]) -> None:
        self._engine = engine
        self._path = path
        self._asked = asked
        self._prompt = prompt_of(asked)
        self.prompt_tokens = tokens_of(self._prompt)
        self._cached = 0
        self._prefill_s = self._token_s = 0.0

    @classmethod
    def of(cls, request: Seen, engine: "FakeLlamaCpp") -> Self | Reply:
        """The generation a request asks for, or the engine's refusal."""
        try:
            asked = json.loads(request.body)
            made = cls(engine, request.path.partition("?")[0], asked)
        except (ValueError, TypeError, AttributeError, KeyError, RecursionError):
            return engine.recorded("err_bad_json_field")
        if made.prompt_tokens <= engine.n_ctx:
            return made
        refusal = engine.recorded("err_too_long")
        told = json.loads(refusal.body)
        told["error"].update(n_prompt_tokens=made.prompt_tokens, n_ctx=engine.n_ctx)
        told["error"]["message"] = (
            f"request ({made.prompt_tokens} tokens) exceeds the available context size ({engine.n_ctx} tokens), "
            "try increasing it"
        )
        return Reply(refusal.status, _dump(told), refusal.headers)

    async def run(self, connection: Connection) -> None:
        """Prefill, then send the reply; cancelled when the client goes away."""
        self._cached = self._engine.cache.begin(self._prompt, self.prompt_tokens)
        self._prefill_s = self._engine.begin(self.prompt_tokens, self._cached)
        is_whole = False
        try:
            await self._spend(self._prefill_s)
            self._token_s = self._engine.token_s
            await self._reply(connection)
            is_whole = True
        finally:
            self._engine.working -= 1
            self._engine.cache.end(self._prompt, is_whole=is_whole)

    async def _reply(self, connection: Connection) -> None:
        full, plain, with_usage = CHAT_ROUTES[self._path]
        wants_usage = (self._asked.get("stream_options") or {}).get("include_usage") is True
        if not self._asked.get("stream"):
            await self._run_whole(captures.exchange("llamacpp", "b11434", full), connection)
        else:
            name = with_usage if wants_usage else plain
            await self._run_stream(captures.exchange("llamacpp", "b11434", name), connection)

    async def _run_whole(self, recorded: captures.Recorded, connection: Connection) -> None:
        body = self._engine.renamed(recorded.body)
        if self._path in COUNTED:
            reply = json.loads(body)
            tokens = self._tokens(reply["usage"]["completion_tokens"])
            self._put_numbers(reply, tokens)
            body = _dump(reply)
            self._engine.decoded += tokens
            await self._spend(tokens * self._token_s)
        await self._engine.pause_if_held(None)
        await connection.send(Reply(recorded.status, body, recorded.headers))

    async def _run_stream(self, recorded: captures.Recorded, connection: Connection) -> None:
        events = [event + b"\n\n" for event in self._engine.renamed(recorded.body).split(b"\n\n") if event]
        if self._path in COUNTED:
            events = self._stretched(events)
        await connection.head(recorded.status, {**recorded.headers, "Transfer-Encoding": "chunked"})
        for sent, event in enumerate(events):
            await self._engine.pause_if_held(sent)
            await connection.chunk(event)
            self._engine.decoded += 1
            await self._spend(self._token_s)
        await connection.chunk(b"")

    def _stretched(self, events: list[bytes]) -> list[bytes]:
        """The recorded events with as many tokens as asked for, and the numbers of this request in the last ones."""
        tokens = [event for event in events if _is_token(event)]
        first, last = events.index(tokens[0]), events.index(tokens[-1])
        count = self._tokens(len(tokens))
        ending = []
        for event in events[last + 1 :]:
            if b'"timings"' in event or b'"usage"' in event:
                told = json.loads(event.removeprefix(b"data: "))
                self._put_numbers(told, count)
                ending.append(b"data: " + _dump(told) + b"\n\n")
            else:
                ending.append(event)
        return [*events[:first], *(tokens[number % len(tokens)] for number in range(count)), *ending]

    def _tokens(self, recorded: int) -> int:
        for name in ("max_completion_tokens", "max_tokens", "n_predict"):
            asked = self._asked.get(name)
            if isinstance(asked, int) and asked >= 0:
                return asked
        return recorded

    def _put_numbers(self, told: dict[str, Any], tokens: int) -> None:
        uncached = self.prompt_tokens - self._cached
        if "usage" in told:
            told["usage"].update(
                completion_tokens=tokens, prompt_tokens=self.prompt_tokens, total_tokens=tokens + self.prompt_tokens
            )
            told["usage"]["prompt_tokens_details"]["cached_tokens"] = self._cached
        per_token_ms = self._prefill_s / max(uncached, 1) * 1000
        told["timings"].update(
            cache_n=self._cached,
            prompt_n=uncached,
            prompt_ms=self._prefill_s * 1000,
            prompt_per_token_ms=per_token_ms,
            prompt_per_second=uncached / self._prefill_s if self._prefill_s else 0.0,
            predicted_n=tokens,
            predicted_ms=tokens * self._token_s * 1000,
            predicted_per_token_ms=self._token_s * 1000,
            predicted_per_second=1 / self._token_s,
        )

    async def _spend(self, seconds: float) -> None:
        await self._engine.spend(seconds)


def prompt_of(asked: dict[str, Any]) -> str:
    """The text that a prompt's length and cache are judged by. Raises `TypeError` where llama.cpp answers 400."""
    for name in ("prompt", "input"):
        if name in asked:
            return asked[name] if isinstance(asked[name], str) else json.dumps(asked[name])
    messages = asked["messages"]
    if not isinstance(messages, list):
        raise TypeError("messages must be an array")
    return "".join(f"{m.get('role')}\n{_text(m.get('content'))}\n" for m in messages)


def _text(content: Any) -> str:
    return content if isinstance(content, str) else json.dumps(content, ensure_ascii=False)


def _is_token(event: bytes) -> bool:
    """Whether a streamed chat or completion event carries text."""
    if not event.startswith(b"data: {"):
        return False
    choices = json.loads(event.removeprefix(b"data: "))["choices"]
    if not choices:
        return False
    return bool(choices[0].get("text") or choices[0].get("delta", {}).get("content"))


def _dump(value: Any) -> bytes:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode()
