"""Clients that stream without end, and judge each reply: whole, honestly cut, or a short one that looks whole.

Forbidden here: trying again. A request that fails has failed.
"""

import asyncio
import json
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, NamedTuple

import aiohttp

from e2e.objects import MODEL


class Reply(NamedTuple):
    """What became of one request."""

    outcome: str
    """`whole`, `cut` (told so), `short` (looks whole and is not), `refused` (a status) or `failed` (no answer)."""
    tokens: int
    """Events with content that came."""
    asked: int
    ttft_s: float | None
    began_at: float
    """On the loop's clock."""
    detail: str
    lasted_s: float = 0.0
    backend: str = ""
    """Who answered, where Pharos tells."""
    usage: dict[str, int] | None = None
    """What the stream itself told: `prompt_tokens`, `completion_tokens`, and `cached_tokens` where the engine knows."""
    connected_s: float | None = None
    """Until its connection was there; None on one that was kept."""
    head_s: float | None = None
    """Until the head of the reply was there."""
    reason: str = ""
    """Why Pharos chose as it did, where it tells."""


class Load:
    """Several clients at once, each with requests one after the other."""

    def __init__(self, url: str, *, key: str | None = None) -> None:
        self._url = url
        self._headers = {"Authorization": f"Bearer {key}"} if key is not None else {}
        self.replies: list[Reply] = []
        self._ending = False
        self._running = 0

    def end(self) -> None:
        """Begin no further request; those that run finish."""
        self._ending = True

    @property
    def bad(self) -> list[Reply]:
        """Everything that is not a whole reply."""
        return [reply for reply in self.replies if reply.outcome != "whole"]

    @property
    def running(self) -> int:
        """Requests under way now."""
        return self._running

    async def client(self, seed: int, shortest: int, longest: int, *, keep_alive: bool = True) -> None:
        """Ask again and again, for a number of tokens drawn anew each time."""
        rng = random.Random(seed)
        keeping = {"keepalive_timeout": 120} if keep_alive else {"force_close": True}
        connector = aiohttp.TCPConnector(**keeping)
        timeout = aiohttp.ClientTimeout(total=None)
        async with aiohttp.ClientSession(
            connector=connector, timeout=timeout, headers=self._headers, trace_configs=[_connecting()]
        ) as session:
            while not self._ending:
                self._running += 1
                try:
                    self.replies.append(await self._one(session, seed, rng.randint(shortest, longest)))
                finally:
                    self._running -= 1

    async def _one(self, session: aiohttp.ClientSession, seed: int, tokens: int) -> Reply:
        loop = asyncio.get_running_loop()
        began = loop.time()
        body = {
            "model": MODEL, "stream": True, "max_tokens": tokens, "ignore_eos": True,
            "stream_options": {"include_usage": True},
            "messages": [
                {"role": "system", "content": f"You are the helper of client {seed}. " * 12},
                {"role": "user", "content": f"Number {tokens}, please."},
            ],
        }  # fmt: skip
        seen, first, ended, finished, usage, backend, reason = 0, None, False, False, None, "", ""
        connected: list[float] = []
        head_s: float | None = None

        def cut(why: str) -> Reply:
            return Reply("cut", seen, tokens, first, began, why[:200], loop.time() - began, backend)

        try:
            url = f"{self._url}/v1/chat/completions"
            async with session.post(url, json=body, trace_request_ctx=connected) as response:
                head_s = loop.time() - began
                backend, reason = (response.headers.get(f"X-Pharos-{name}", "") for name in ("Target", "Reason"))
                if response.status != 200:
                    text = (await response.text())[:200]
                    return Reply("refused", 0, tokens, None, began, f"{response.status} {text}")
                async for line in response.content:
                    if line.startswith(b"data: [DONE]"):
                        ended = True
                    elif line.startswith(b"data: "):
                        event = json.loads(line[6:])
                        if "error" in event:
                            return cut(str(event["error"]))
                        usage = _usage(event["usage"]) if event.get("usage") else usage
                        for choice in event.get("choices", ()):
                            finished = finished or choice.get("finish_reason") is not None
                            if choice.get("delta", {}).get("content"):
                                seen += 1
                                first = first if first is not None else loop.time() - began
        except aiohttp.ClientPayloadError as error:
            return cut(repr(error))
        except (aiohttp.ClientError, OSError) as error:
            return Reply("failed", seen, tokens, first, began, repr(error)[:200])
        is_whole = ended and finished and usage is not None and usage["completion_tokens"] == tokens
        outcome = "whole" if is_whole else "short"
        lasted_s, connected_s = loop.time() - began, connected[-1] - began if connected else None
        return Reply(outcome, seen, tokens, first, began, "", lasted_s, backend, usage, connected_s, head_s, reason)


def _connecting() -> aiohttp.TraceConfig:
    """Notes in a request's own list when its connection was made."""

    async def note(session: aiohttp.ClientSession, context: Any, _: aiohttp.TraceConnectionCreateEndParams) -> None:
        del session
        context.trace_request_ctx.append(asyncio.get_running_loop().time())

    config = aiohttp.TraceConfig()
    config.on_connection_create_end.append(note)
    return config


def _usage(told: dict[str, Any]) -> dict[str, int]:
    cached = (told.get("prompt_tokens_details") or {}).get("cached_tokens")
    return {
        "prompt_tokens": told["prompt_tokens"],
        "completion_tokens": told["completion_tokens"],
        "cached_tokens": cached if cached is not None else 0,
    }


@asynccontextmanager
async def load(url: str, *, clients: int, shortest: int, longest: int, key: str | None = None) -> AsyncIterator[Load]:
    """Clients that run while the block does; all their requests have ended after it. Each third has no keep-alive."""
    made = Load(url, key=key)
    async with asyncio.TaskGroup() as group:
        for seed in range(clients):
            group.create_task(made.client(seed, shortest, longest, keep_alive=seed % 3 != 0))
        try:
            yield made
        finally:
            made.end()
