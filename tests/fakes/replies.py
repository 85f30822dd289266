"""Recorded exchanges of an engine: which one answers a request, and that reply with a double's numbers put in.

Everything but the model's name, lengths and timings is sent as it was recorded.
"""

import functools
import json
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import msgspec

from tests.fakes import captures
from tests.fakes.captures import TESTDATA, Recorded
from tests.fakes.http import Reply

_PLAIN = re.compile(r"(api_)?(chat|generate|completion|messages|responses)_(full|stream(_plain|_usage)?)")
"""Names of exchanges in which nothing special was asked for."""
_LIMITS = ("max_completion_tokens", "max_tokens", "max_output_tokens", "n_predict")


class Exchange(msgspec.Struct, frozen=True):
    """One recorded request and its reply."""

    name: str
    method: str
    path: str
    headers: Mapping[str, str]
    """That the request had beside the usual ones."""
    body: Any
    """As JSON; `None`: there was none."""
    reply: Recorded

    @property
    def is_stream(self) -> bool:
        return is_stream(self.reply)

    @property
    def whole(self) -> Reply:
        """As it was recorded."""
        return Reply(self.reply.status, self.reply.body, self.reply.headers)


def is_stream(reply: Recorded) -> bool:
    """Whether a reply comes in events or lines."""
    return content_type(reply).startswith(("text/event-stream", "application/x-ndjson"))


def content_type(reply: Recorded) -> str:
    """What a reply says it is; engines write the header's name in every way."""
    return next((value for name, value in reply.headers.items() if name.lower() == "content-type"), "")


class Book:
    """All exchanges of an engine's recordings; those of later versions only add what the first one lacks."""

    def __init__(self, exchanges: Iterable[Exchange]) -> None:
        self._all: dict[str, Exchange] = {}
        for exchange in exchanges:
            self._all.setdefault(exchange.name, exchange)

    @property
    def exchanges(self) -> list[Exchange]:
        return list(self._all.values())

    def __contains__(self, name: str) -> bool:
        return name in self._all

    def named(self, name: str) -> Exchange:
        return self._all[name]

    def exact(self, method: str, path: str, body: Any) -> Exchange | None:
        """The exchange in which exactly this was asked."""
        for one in self._all.values():
            if (one.method, one.path, one.body) == (method, path, body) and not one.headers:
                return one
        return None

    def same(self, asked: Exchange) -> list[Exchange]:
        """The exchanges in which the same was asked, once or more often."""
        question = (asked.method, asked.path, asked.body, asked.headers)
        return [one for one in self._all.values() if (one.method, one.path, one.body, one.headers) == question]

    def like(self, path: str, asked: Mapping[str, Any], *, streams: bool) -> Exchange | None:
        """The exchange of the same route and form in which nothing special was asked for."""
        wants_usage = asks_usage(asked)
        fitting = [
            one
            for one in self._all.values()
            if one.path == path and one.reply.status < 300 and one.is_stream == streams and _PLAIN.fullmatch(one.name)
        ]
        fitting.sort(key=lambda one: asks_usage(one.body) != wants_usage)
        return fitting[0] if fitting else None


def asks_usage(asked: Mapping[str, Any]) -> bool:
    """Whether a stream is asked for usage."""
    options = asked.get("stream_options")
    return isinstance(options, dict) and options.get("include_usage") is True


def limit_of(asked: Mapping[str, Any]) -> int | None:
    """Most tokens that a request asks for; `None`: it leaves that to the engine."""
    options = asked.get("options")
    held = [*(asked.get(name) for name in _LIMITS), options.get("num_predict") if isinstance(options, dict) else None]
    return next((one for one in held if isinstance(one, int) and one >= 0), None)


@functools.cache
def book(engine: str, *versions: str) -> Book:
    """The exchanges of some versions' recordings, which are second ones of the same engine but for the first."""
    return Book(_exchange(engine, version, name) for version in versions for name in captures.streams(engine, version))


def _exchange(engine: str, version: str, name: str) -> Exchange:
    asked = json.loads((TESTDATA / engine / version / "streams" / f"{name}.request.json").read_bytes())
    return Exchange(
        name=name,
        method=asked.get("method", "POST"),
        path=asked["path"],
        headers=asked.get("headers", {}),
        body=asked.get("body"),
        reply=captures.exchange(engine, version, name),
    )


# Putting numbers in.


class Counts(msgspec.Struct, frozen=True):
    """The modelled numbers of one request."""

    prompt: int
    cached: int
    tokens: int
    prefill_s: float = 0.0
    decode_s: float = 0.0
    load_s: float = 0.0


class Style(msgspec.Struct, frozen=True):
    """What an engine's token counts mean."""

    tells_cached: bool = True
    """It tells how much of a prompt was cached; otherwise what stands there stays."""
    leaves_out_cached: bool = False
    """Where it tells what was read from the cache, its input tokens are only the others."""
    estimates_start: bool = False
    """What a stream's first event says of the prompt is a guess, which stays."""


def put(record: dict[str, Any], counts: Counts, style: Style) -> None:
    """Put the numbers of a request into one JSON record of its reply, wherever the record has such numbers."""
    for place in ("", "message", "response"):
        holder = record.get(place) if place else record
        is_guess = place == "message" and style.estimates_start
        if isinstance(holder, dict) and isinstance(holder.get("usage"), dict) and not is_guess:
            _put_usage(holder["usage"], counts, style)
    if isinstance(record.get("timings"), dict):
        _put_timings(record["timings"], counts)
    if "prompt_eval_count" in record:
        _put_durations(record, counts)
    if "tokens_evaluated" in record:
        record.update(tokens_evaluated=counts.prompt, tokens_predicted=counts.tokens)


def _put_usage(usage: dict[str, Any], counts: Counts, style: Style) -> None:
    if usage.get("total_tokens") == 0:  # a place for numbers that the last event fills
        return
    if style.tells_cached:
        for details in ("prompt_tokens_details", "input_tokens_details"):
            if isinstance(usage.get(details), dict) and "cached_tokens" in usage[details]:
                usage[details]["cached_tokens"] = counts.cached
    told: dict[str, int] = {"prompt_tokens": counts.prompt, "input_tokens": counts.prompt}
    if "cache_read_input_tokens" in usage and style.tells_cached:
        told["cache_read_input_tokens"] = counts.cached
        if style.leaves_out_cached:
            told["input_tokens"] = counts.prompt - counts.cached
    for name in ("completion_tokens", "output_tokens"):
        if usage.get(name):
            told[name] = counts.tokens
    usage.update({name: number for name, number in told.items() if name in usage})
    if "total_tokens" in usage:
        usage["total_tokens"] = counts.prompt + (told.get("completion_tokens") or told.get("output_tokens") or 0)


def _put_timings(timings: dict[str, Any], counts: Counts) -> None:
    uncached = counts.prompt - counts.cached
    timings.update(
        cache_n=counts.cached,
        prompt_n=uncached,
        prompt_ms=counts.prefill_s * 1000,
        prompt_per_token_ms=counts.prefill_s * 1000 / uncached,
        prompt_per_second=uncached / counts.prefill_s,
        predicted_n=counts.tokens,
        predicted_ms=counts.decode_s * 1000,
        predicted_per_token_ms=counts.decode_s * 1000 / max(1, counts.tokens),
        predicted_per_second=counts.tokens / counts.decode_s if counts.decode_s else 0.0,
    )


def _put_durations(record: dict[str, Any], counts: Counts) -> None:
    seconds = {
        "load_duration": counts.load_s,
        "prompt_eval_duration": counts.prefill_s,
        "eval_duration": counts.decode_s,
        "total_duration": counts.load_s + counts.prefill_s + counts.decode_s,
    }
    if counts.load_s == 0:  # then it is what a model that is there costs, as recorded
        del seconds["load_duration"]
    record.update({name: round(value * 1e9) for name, value in seconds.items() if name in record})
    record["prompt_eval_count"] = counts.prompt
    if "eval_count" in record:
        record["eval_count"] = counts.tokens


def rename(record: dict[str, Any], model: str) -> None:
    """Put the model's name in wherever the record has one."""
    for holder in (record, record.get("message"), record.get("response")):
        if isinstance(holder, dict) and isinstance(holder.get("model"), str):
            holder["model"] = model


def changed(event: bytes, change: Callable[[dict[str, Any]], None]) -> bytes:
    """An event, a line or a whole body with its JSON record changed, in the way it was written; what is none stays."""
    before, found, rest = event.partition(b"data: ") if not event.lstrip().startswith(b"{") else (b"", b"", event)
    text = rest.rstrip()
    try:
        record = json.loads(text)
        kept = json.dumps(record)
    except ValueError:
        return event
    if not isinstance(record, dict):
        return event
    change(record)
    if json.dumps(record) == kept:
        return event
    spaced = b'": ' in text[:80]
    written = json.dumps(record, separators=(", ", ": ") if spaced else (",", ":"), ensure_ascii=b"\\u" in text).encode(
        "utf-8", "surrogatepass"
    )
    return before + found + written + rest[len(text) :]


def events_of(reply: Recorded) -> list[bytes]:
    """A streamed reply taken apart into its events or lines, each with what ends it."""
    end = b"\n" if content_type(reply).startswith("application/x-ndjson") else b"\n\n"
    return [part + end for part in reply.body.split(end) if part.strip()]


def is_token(event: bytes) -> bool:
    """Whether an event carries text of the reply."""
    text = event.partition(b"data: ")[2] if not event.startswith(b"{") else event
    try:
        record = json.loads(text)
    except ValueError:
        return False
    if not isinstance(record, dict):
        return False
    choices = record.get("choices")
    if choices:
        delta = choices[0].get("delta") or {}
        return bool(choices[0].get("text") or delta.get("content"))
    if record.get("type") == "content_block_delta":
        return bool(record["delta"].get("text"))
    if record.get("done") is False:
        message = record.get("message")
        return bool(record.get("response") or (isinstance(message, dict) and message.get("content")))
    return False


def stretched(events: list[bytes], count: int) -> list[bytes]:
    """The events with `count` tokens between their beginning and their end; those that carry none stay as they are."""
    tokens = [event for event in events if is_token(event)]
    if not tokens:
        return events
    first = events.index(tokens[0])
    last = len(events) - 1 - events[::-1].index(tokens[-1])
    return [*events[:first], *(tokens[number % len(tokens)] for number in range(count)), *events[last + 1 :]]
