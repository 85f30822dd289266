"""How a double answers a generation: prefill, then the recorded reply, token by token, with this request's numbers."""

import json
from collections.abc import Callable, Mapping
from typing import Any

from tests.fakes.caches import BlockCache, SlotCache, tokens_of
from tests.fakes.engine import EngineDouble
from tests.fakes.http import Connection, Reply
from tests.fakes.replies import Counts, Exchange, Style, changed, events_of, limit_of, put, rename, stretched


def prompt_text(asked: Mapping[str, Any]) -> str:
    """The text that a prompt's length and cache are judged by: tools and system first, as engines render them."""
    said = [json.dumps(asked["tools"])] if asked.get("tools") else []
    if asked.get("system"):
        said.append(_text(asked["system"]))
    for name in ("prompt", "input"):
        if name in asked:
            return "\n".join([*said, _text(asked[name])])
    messages = asked.get("messages") or []
    return "\n".join([*said, *(f"{one.get('role')}\n{_text(one.get('content'))}" for one in messages)])


def _text(content: Any) -> str:
    return content if isinstance(content, str) else json.dumps(content, ensure_ascii=False)


class Sending:
    """One accepted generation of a double, in a slot."""

    def __init__(
        self,
        engine: EngineDouble,
        exchange: Exchange,
        asked: Mapping[str, Any],
        *,
        model: str,
        cache: SlotCache | BlockCache,
        style: Style,
        prompt_tokens: int | None = None,
        load_s: float = 0.0,
        on_tokens: Callable[[int, int], None] = lambda _prompt, _decoded: None,
    ) -> None:
        """`on_tokens` is told of work as it is done: prompt tokens that were worked on, and tokens decoded."""
        self._engine = engine
        self._exchange = exchange
        self._model = model
        self._cache = cache
        self._style = style
        self._load_s = load_s
        self._on_tokens = on_tokens
        self._text = prompt_text(asked)
        self._limit = limit_of(asked)
        self.prompt_tokens = tokens_of(self._text) if prompt_tokens is None else prompt_tokens
        self.cached = 0
        self._prefill_s = self._token_s = 0.0

    async def run(self, connection: Connection, *, has_head: bool = False) -> None:
        """Prefill, then send the reply; cancelled when the client goes away. `has_head`: a stream's head was sent."""
        self.cached = min(self._cache.begin(self._text, self.prompt_tokens), self.prompt_tokens - 1)
        uncached = self.prompt_tokens - self.cached
        self._on_tokens(uncached, 0)
        self._prefill_s = self._engine.begin(self.prompt_tokens, self.cached)
        is_whole = False
        try:
            await self._engine.spend(self._prefill_s)
            self._token_s = self._engine.token_s
            if self._exchange.is_stream:
                await self._send_stream(connection, has_head=has_head)
            else:
                await self._send_whole(connection)
            is_whole = True
        finally:
            self._engine.working -= 1
            self._cache.end(self._text, is_whole=is_whole)

    async def _send_whole(self, connection: Connection) -> None:
        reply = self._exchange.reply
        tokens = _told_tokens([reply.body]) if self._is_limit_recorded() else self._limit
        tokens = tokens if tokens is not None else 0
        self._on_tokens(0, tokens)
        await self._engine.spend(tokens * self._token_s)
        await self._engine.pause_if_held(None)
        await connection.send(Reply(reply.status, changed(reply.body, self._writer(tokens)), reply.headers))

    async def _send_stream(self, connection: Connection, *, has_head: bool) -> None:
        reply = self._exchange.reply
        events = events_of(reply)
        tokens = _told_tokens(events) if self._is_limit_recorded() else None
        if self._limit is not None and not self._is_limit_recorded():
            events, tokens = stretched(events, self._limit), self._limit
        tokens = tokens if tokens is not None else len(events)
        write = self._writer(tokens)
        if not has_head:
            await connection.head(reply.status, {**reply.headers, "Transfer-Encoding": "chunked"})
        for sent, event in enumerate(events):
            await self._engine.pause_if_held(sent)
            await connection.chunk(changed(event, write))
            self._on_tokens(0, 1)
            await self._engine.spend(self._token_s)
        await connection.chunk(b"")

    def _is_limit_recorded(self) -> bool:
        """Whether as many tokens are asked for as in the recording, or none said: it is sent as long as it is."""
        return self._limit is None or self._limit == limit_of(self._exchange.body)

    def _writer(self, tokens: int) -> Callable[[dict[str, Any]], None]:
        counts = Counts(
            prompt=self.prompt_tokens,
            cached=self.cached,
            tokens=tokens,
            prefill_s=self._prefill_s,
            decode_s=tokens * self._token_s,
            load_s=self._load_s,
        )

        def write(record: dict[str, Any]) -> None:
            rename(record, self._model)
            put(record, counts, self._style)

        return write


def _told_tokens(events: list[bytes]) -> int | None:
    """Tokens of a recorded reply, as it tells them itself; `None` when it does not."""
    told: list[int] = []

    def look(record: dict[str, Any]) -> None:
        for holder in (record, record.get("response")):
            usage = holder.get("usage") if isinstance(holder, dict) else None
            for source in (usage, record.get("timings"), record):
                if isinstance(source, dict):
                    names = ("completion_tokens", "output_tokens", "predicted_n", "eval_count", "tokens_predicted")
                    told.extend(source[name] for name in names if isinstance(source.get(name), int))

    for event in events:
        changed(event, look)
    return max(told, default=None)
