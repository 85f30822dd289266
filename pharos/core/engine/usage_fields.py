"""Token counts and timings of a reply: how they are read out of its records, and what engines mean by them.

Forbidden here: knowing how a reply is framed (SSE, JSON, pieces); guessing a count that the reply does not state.
"""

import enum
import json
from typing import Final

import msgspec

from pharos.core.engine.usage_shapes import (
    BY_TYPE,
    INPUT,
    MESSAGE_START,
    NATIVE,
    OPENAI,
    RESPONSE_EVENT,
    ROOTS,
    Path,
    Shape,
    Source,
)

MOST: Final = 1_000_000_000
"""No reply costs more tokens: a count above it is none. (An engine's limit on a context is held to the same number.)"""
MOST_S: Final = 86_400.0
"""Seconds that no part of a reply takes: a duration above it is none."""


class Usage(msgspec.Struct, frozen=True, gc=False):
    """What a finished reply says about its own cost. `None` is unknown, 0 is a measurement."""

    prompt_tokens: int | None = None
    """Tokens of the prompt, those found in the engine's cache included."""
    cached_tokens: int | None = None
    """Prompt tokens that the engine did not have to process."""
    completion_tokens: int | None = None
    prefill_s: float | None = None
    """Seconds spent on the uncached part of the prompt."""
    load_s: float | None = None
    """Seconds until the model was ready: bringing its weights into memory, or a few milliseconds when it was there."""
    predicted_s: float | None = None
    """Seconds spent on producing the completion."""


class Zero(enum.Enum):
    """What a `cached_tokens: 0` means where an engine may write it without having counted."""

    SILENCE = enum.auto()
    """Nothing: the engine always writes it."""
    COUNT = enum.auto()
    """No token was cached."""
    COUNT_ONCE_SEEN = enum.auto()
    """As `COUNT` from an engine that has stated cached tokens in another reply, else nothing."""


class Dialect(msgspec.Struct, frozen=True):
    """What one kind of engine means where replies of the same shape mean different things. The default is doubt."""

    responses_zero: Zero = Zero.SILENCE
    """Of `input_tokens_details.cached_tokens` in a reply of `/v1/responses`."""
    whole_input: bool = False
    """Anthropic replies without a cache field beside `input_tokens` count the whole prompt in it."""
    estimates_start: bool = False
    """`input_tokens` of Anthropic's `message_start` without a cache field is no count but an estimate."""
    is_ollama: bool = False
    """Replies of `/api/*` are Ollama's own. Then durations are measured, and what a final record leaves out is 0."""
    leaves_out_cached: bool = False
    """Prompt tokens found in the cache are missing from every count of the prompt."""
    says_done: bool = False
    """Each of its streams of chunks that is whole ends with `[DONE]`."""


PLAIN: Final = Dialect()

OMITTED: Final = ("eval_count", "prompt_eval_cached_count")
"""Counts whose absence from a whole record may mean 0."""
_ABSENT: Final = object()


def read_json(data: bytes) -> object:
    """Read a JSON value, also one with unpaired surrogate escapes or broken UTF-8.

    `None` when it is no JSON or nested too deep.
    """
    try:
        return msgspec.json.decode(data)
    except (msgspec.DecodeError, RecursionError):
        pass
    try:
        return json.loads(data.decode("utf-8", "replace"))
    except (ValueError, RecursionError):
        return None


def usage_of(record: object, dialect: Dialect = PLAIN, *, counts_cached: bool = False) -> Usage | None:
    """Read the usage of a decoded reply or event; `None` when it states none.

    `counts_cached`: another reply of the same engine process has stated cached tokens; ask anew after a restart, which
    may have changed its settings. All zeros are a placeholder, not a measurement: Ollama puts them on every chunk of a
    completion before the real counts, LM Studio on embeddings. A null is unknown: vLLM writes it where it means "not
    told". Counts that contradict one another are unknown.
    """
    if not isinstance(record, dict) or ROOTS.isdisjoint(record):
        return None
    shape = _shape_of(record)
    prompt = _prompt(record, shape, dialect)
    completion = _completion(record, shape, dialect, prompt)
    if shape.total:
        prompt, completion = _held_to_total(record, prompt, completion, _as_count(_look(record, shape.total)))
    if not prompt:
        prompt = None  # nothing runs without one: 0 is what an engine writes that lost count
    if prompt is None and not completion:
        return None
    cached = _cached(record, shape, dialect, counts_cached=counts_cached)
    if cached is not None and prompt is not None and cached > prompt:
        cached = None  # the two contradict each other
    return Usage(
        None if dialect.leaves_out_cached else prompt,
        cached,
        completion,
        *(_seconds(record, shape, path, dialect) for path in (shape.prefill, shape.load, shape.predicted)),
    )


def merge(old: Usage | None, new: Usage) -> Usage:
    """Join the usage of two events of one reply: the later one wins, field by field, where it knows a value.

    What only the earlier one knows is kept as far as it fits: cached tokens to the same prompt, and output only where
    the later event counts nothing at all, since output grows.
    """
    if old is None:
        return new
    prompt = new.prompt_tokens if new.prompt_tokens is not None else old.prompt_tokens
    cached, completion = new.cached_tokens, new.completion_tokens
    if cached is None and old.cached_tokens is not None and prompt == old.prompt_tokens:
        cached = old.cached_tokens
    if completion is None and new.prompt_tokens is None:
        completion = old.completion_tokens
    return Usage(
        prompt,
        cached if cached is None or prompt is None or cached <= prompt else None,
        completion,
        new.prefill_s if new.prefill_s is not None else old.prefill_s,
        new.load_s if new.load_s is not None else old.load_s,
        new.predicted_s if new.predicted_s is not None else old.predicted_s,
    )


def _shape_of(record: dict[str, object]) -> Shape:
    kind = record.get("type")
    if isinstance(kind, str) and kind in BY_TYPE:
        return BY_TYPE[kind]
    if record.get("object") == "response":
        return INPUT
    if _is_native(record):
        return NATIVE
    return INPUT if _look(record, ("usage", "type")) == "tokens" else OPENAI


def _is_native(record: dict[str, object]) -> bool:
    """Whether it is the last record of one of Ollama's own replies.

    One that was too large to keep may lack `done`; durations stand in last records only.
    """
    done = record.get("done", _ABSENT)
    return done is True or (done is _ABSENT and ("total_duration" in record or "embeddings" in record))


def _held_to_total(
    record: dict[str, object], prompt: int | None, completion: int | None, total: int | None
) -> tuple[int | None, int | None]:
    """Prompt and completion as the total allows. A total of 0 is not told."""
    if not total:
        return prompt, completion
    if prompt is None:
        # A ranking produces no token: some engines state the total only.
        is_ranking = isinstance(record.get("results"), list) and not _names_prompt(record)
        return (total, 0) if completion is None and is_ranking else (None, completion)
    if completion is None:
        if prompt > total:
            return None, None
        return prompt, 0 if prompt == total else None  # an embedding produces none, and the total says so
    return (prompt, completion) if prompt + completion == total else (None, None)


def _names_prompt(record: dict[str, object]) -> bool:
    return _look(record, ("usage", "prompt_tokens"), _ABSENT) is not _ABSENT


def _prompt(record: dict[str, object], shape: Shape, dialect: Dialect) -> int | None:
    prompt = _sum(record, shape.prompt)
    if prompt is None or not shape.beside:
        return prompt
    stated = [value for value in (_look(record, path, _ABSENT) for path in shape.beside) if value is not _ABSENT]
    if not stated:
        is_count = dialect.whole_input and not (shape is MESSAGE_START and dialect.estimates_start)
        return prompt if is_count else None
    parts = [_as_count(value) for value in stated]
    if _look(record, shape.beside[0], _ABSENT) is _ABSENT or None in parts:
        return None
    return prompt + sum(part for part in parts if part is not None)


def _completion(record: dict[str, object], shape: Shape, dialect: Dialect, prompt: int | None) -> int | None:
    completion = _sum(record, shape.completion)
    if completion is not None or shape is not NATIVE or prompt is None:
        return completion
    if "embeddings" in record:
        return 0
    # A duration without a count is no zero: the count is what is missing.
    return 0 if "eval_duration" not in record and _leaves_out(record, "eval_count", dialect) else None


def _cached(record: dict[str, object], shape: Shape, dialect: Dialect, *, counts_cached: bool) -> int | None:
    if shape is NATIVE and counts_cached and _leaves_out(record, "prompt_eval_cached_count", dialect):
        return 0
    cached = _sum(record, shape.cached)
    if cached != 0 or shape not in (INPUT, RESPONSE_EVENT):
        return cached
    zero = dialect.responses_zero
    if zero is Zero.COUNT or (zero is Zero.COUNT_ONCE_SEEN and counts_cached):
        return 0
    return _sum(record, shape.cached[1:])


def _leaves_out(record: dict[str, object], name: str, dialect: Dialect) -> bool:
    """Whether a final record lacks a count because it is 0, which Ollama does not write."""
    return dialect.is_ollama and record.get("done") is True and name not in record


def _look(record: object, path: Path, default: object = None) -> object:
    for name in path:
        if not isinstance(record, dict):
            return default
        record = record.get(name, default)
    return record


def _sum(record: dict[str, object], sources: tuple[Source, ...]) -> int | None:
    for paths in sources:
        total = 0
        for path in paths:
            count = _as_count(_look(record, path))
            if count is None:
                break
            total += count
        else:
            return total
    return None


def _as_count(value: object) -> int | None:
    """Take only what cannot be anything but a count: no fraction, no sign, no truth value."""
    return value if type(value) is int and 0 <= value <= MOST else None


def _seconds(record: dict[str, object], shape: Shape, path: Path, dialect: Dialect) -> float | None:
    if not path or (shape is NATIVE and not dialect.is_ollama):
        return None
    value = _look(record, path)
    if type(value) in (int, float) and 0 <= value <= MOST_S * shape.per_second:  # type: ignore[operator]  # no NaN
        return value / shape.per_second  # type: ignore[operator]
    return None
