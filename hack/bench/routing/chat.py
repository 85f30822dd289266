"""One streamed chat as a client meets it: when its first token came, what the engine counted, how it ended.

Forbidden here: choosing what is asked, and judging what came.
"""

import time
from typing import Any, Final

import aiohttp
import msgspec

HEADERS: Final = {"Content-Type": "application/json"}
TOKENS: Final = (b'"content":"', b'"reasoning_content":"', b'"content": "')


class Chat(msgspec.Struct):
    """What came. Times in seconds from the question on; `None`: it did not come."""

    first_s: float | None = None
    """The first token."""
    whole_s: float = 0.0
    """The end, whatever it was."""
    error: str | None = None
    prompt_tokens: int | None = None
    """As the engine counted them."""
    cached_tokens: int | None = None
    """Of those, what its cache held."""
    reply_tokens: int | None = None
    prefill_s: float | None = None
    """The engine's own time for the prompt."""
    text: str = ""
    """The reply, if it was to be kept."""
    target: str | None = None
    """Where it went, if that was told."""
    reason: str | None = None


async def chat(
    session: aiohttp.ClientSession,
    url: str,
    body: bytes,
    found: Chat,
    *,
    key: str | None = None,
    keep: bool = False,
) -> Chat:
    """Ask `url`, read to the end, fill `found`. Raises nothing but `CancelledError`; `keep`: the text is wanted."""
    began = time.perf_counter()
    headers = HEADERS if key is None else {**HEADERS, "Authorization": f"Bearer {key}"}
    try:
        async with session.post(f"{url}/v1/chat/completions", data=body, headers=headers) as reply:
            found.target, found.reason = (reply.headers.get(f"X-Pharos-{name}") for name in ("Target", "Reason"))
            if reply.status != 200:
                found.error = f"{reply.status} {(await reply.text())[:200]}"
            else:
                await _read(reply, found, began, keep=keep)
    except (aiohttp.ClientError, TimeoutError, OSError, ValueError) as fault:
        if found.error is None:  # an error in the stream says more than that it was cut then
            found.error = f"{type(fault).__name__}: {fault}"[:200]
    found.whole_s = time.perf_counter() - began
    return found


async def _read(reply: aiohttp.ClientResponse, found: Chat, began: float, *, keep: bool) -> None:
    said: list[str] = []
    is_done = False
    async for line in reply.content:
        if not line.startswith(b"data:"):
            continue
        data = line[5:].strip()
        if data == b"[DONE]":
            is_done = True
        elif keep or b'"timings"' in data or b'"usage"' in data or b'"error"' in data:
            said.append(_take(msgspec.json.decode(data), found))
        if found.first_s is None and any(sign in data and sign + b'"' not in data for sign in TOKENS):
            found.first_s = time.perf_counter() - began
    found.text = "".join(said)
    if not is_done and found.error is None:
        found.error = "the stream ended without [DONE]"


def _take(event: dict[str, Any], found: Chat) -> str:
    """Take counts and errors out of an event; returns its text."""
    if event.get("error"):
        found.error = f"in the stream: {event['error']}"[:200]
    usage, timings = event.get("usage"), event.get("timings")
    if isinstance(usage, dict):
        found.prompt_tokens, found.reply_tokens = usage.get("prompt_tokens"), usage.get("completion_tokens")
        details = usage.get("prompt_tokens_details")
        if isinstance(details, dict):
            found.cached_tokens = details.get("cached_tokens", found.cached_tokens)
    if isinstance(timings, dict):
        cached = timings.get("cache_n", 0)
        found.cached_tokens, found.prompt_tokens = cached, cached + timings["prompt_n"]
        found.reply_tokens, found.prefill_s = timings["predicted_n"], timings["prompt_ms"] / 1000
    choices = event.get("choices")
    delta = choices[0].get("delta") if choices else None
    return (delta or {}).get("content") or ""
