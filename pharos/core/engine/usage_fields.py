"""Token counts and timings of a reply: which fields of which engine hold them, and how they are read.

Forbidden here: knowing how a reply is framed (SSE, JSON, pieces); guessing a count that the reply does not state.
"""

import json
import re
from typing import Final

import msgspec

MOST: Final = 2**53
"""Counts above it are no counts."""


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
    """Seconds spent on bringing the weights into memory. No recorded engine of this table states it yet."""
    predicted_s: float | None = None
    """Seconds spent on producing the completion."""


Path = tuple[str, ...]
Source = tuple[Path, ...]
"""Fields whose sum is the value; when one is missing, so is the value."""

COUNTS: Final[dict[str, tuple[Source, ...]]] = {
    "prompt_tokens": (
        (("usage", "prompt_tokens"),),
        (("timings", "cache_n"), ("timings", "prompt_n")),
    ),
    "cached_tokens": (
        (("usage", "prompt_tokens_details", "cached_tokens"),),
        (("timings", "cache_n"),),
    ),
    "completion_tokens": (
        (("usage", "completion_tokens"),),
        (("timings", "predicted_n"),),
    ),
}
"""Value -> where it may stand, the most trusted first. Recorded: llama.cpp b11434 and b11549 send all of them, the
`timings` also in streams that were not asked for usage. A new name goes ahead of an old one only once a recorded reply
shows it."""

MILLISECONDS: Final[dict[str, tuple[Path, ...]]] = {
    "prefill_s": (("timings", "prompt_ms"),),
    "load_s": (),
    "predicted_s": (("timings", "predicted_ms"),),
}
"""Value -> where it stands in milliseconds, as `COUNTS`."""

TOTAL: Final[Path] = ("usage", "total_tokens")

_ROOTS: Final = frozenset(path[0] for sources in COUNTS.values() for paths in sources for path in paths)
"""Members of a record one of which it must have to state any count."""


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


def usage_of(record: object) -> Usage | None:
    """Read the usage of a decoded reply or event; `None` when it states none.

    All zeros are a placeholder, not a measurement: Ollama puts them on every chunk of a completion before the real
    counts, LM Studio on embeddings. A null is unknown: vLLM writes it where it means "not told".
    """
    if not isinstance(record, dict) or _ROOTS.isdisjoint(record):
        return None
    prompt, cached, completion = [_count(record, sources) for sources in COUNTS.values()]
    if prompt is not None and completion is None and _as_count(_look(record, TOTAL)) == prompt:
        completion = 0  # an embedding produces no token, and the total says so
    if not prompt and not completion:
        return None
    if cached is not None and prompt is not None and cached > prompt:
        cached = None  # the two contradict each other
    return Usage(prompt, cached, completion, *[_seconds(record, paths) for paths in MILLISECONDS.values()])


def merge(old: Usage | None, new: Usage) -> Usage:
    """Join the usage of two events of one reply: the later one wins, field by field, where it knows a value."""
    if old is None:
        return new
    before, after = msgspec.structs.astuple(old), msgspec.structs.astuple(new)
    return Usage(*(a if a is not None else b for a, b in zip(after, before, strict=True)))


def parse_usage_ends(head: bytes, tail: bytes) -> Usage | None:
    """Read the usage of a reply too large to keep, from its first and its last bytes; `None` when neither holds it.

    Engines put usage behind the choices or ahead of the data. Only a member of the top-level object counts: from the
    start the members are read until the bytes run out; from the end, a walk must reach the closing brace to prove it.
    """
    found = usage_of(_from_start(head.decode("latin-1")))
    return found if found is not None else usage_of(_from_end(tail.decode("latin-1")))


def _look(record: object, path: Path) -> object:
    for name in path:
        if not isinstance(record, dict):
            return None
        record = record.get(name)
    return record


def _count(record: dict[str, object], sources: tuple[Source, ...]) -> int | None:
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


def _seconds(record: object, paths: tuple[Path, ...]) -> float | None:
    for path in paths:
        value = _look(record, path)
        if type(value) in (int, float) and 0 <= value <= MOST:  # type: ignore[operator]  # not NaN, not infinite
            return value / 1000  # type: ignore[operator]
    return None


_KEY = re.compile(r'(?<!\\)"(?:usage|timings)"')
_BLANKS = frozenset(" \t\r\n")
_TRIES = 8
"""Places in a tail from which a walk to the end is tried: nested objects may hold the same names."""
_READ = json.JSONDecoder()


def _from_start(text: str) -> dict[str, object]:
    """Members of the object that begins the text, up to where the text breaks off."""
    at = _skip(text, 0)
    if text[at : at + 1] != "{":
        return {}
    members, _ = _members(text, _skip(text, at + 1))
    return members


def _from_end(text: str) -> dict[str, object]:
    """Members of the object that ends the text, from the first name after which all is read to the closing brace."""
    for match in list(_KEY.finditer(text))[-_TRIES:]:
        members, complete = _members(text, match.start())
        if complete:
            return members
    return {}


def _members(text: str, at: int) -> tuple[dict[str, object], bool]:
    """Read `"name": value, ...` from `at`; also tells whether it ended with the object and the text."""
    members: dict[str, object] = {}
    try:
        while True:
            name, at = _READ.raw_decode(text, at)
            at = _skip(text, at)
            if text[at : at + 1] != ":":
                return members, False
            value, at = _READ.raw_decode(text, _skip(text, at + 1))
            members[str(name)] = value
            at = _skip(text, at)
            if text[at : at + 1] != ",":
                return members, text[at : at + 1] == "}" and _skip(text, at + 1) == len(text)
            at = _skip(text, at + 1)
    except (ValueError, RecursionError):
        return members, False


def _skip(text: str, at: int) -> int:
    while text[at : at + 1] in _BLANKS:
        at += 1
    return at
