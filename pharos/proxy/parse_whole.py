"""Reads a body and its prompt in one step of decoding: what `parse_body` says of it, and its decoded members.

# ops: guess_model, parse_whole · goal: of a chat of 32 KiB half of what it takes to read it twice
# plan: whatever is not plain, or is a fault, is left to `parse_body` and its words
# warning: what both read must be the same; a test holds one against the other

Forbidden here: refusing what `parse_body` does not, and reading more than it does.
"""

import re
from collections.abc import Mapping
from typing import Any, Final

import msgspec

from pharos.proxy.parse import (
    LIMITS,
    MOST_MEMBERS,
    PREVIOUS,
    THREAD_BYTES,
    UNCOUNTED,
    AnyName,
    ChatRequest,
    Name,
    as_limit,
    check_named_once,
    counted,
    model_in_light,
)
from pharos.proxy.table import Route

LONGEST_MODEL: Final = 80
"""Characters of a name that is no longer than `parse.LONGEST_MODEL` however it is escaped."""
LONGEST_PREVIOUS: Final = 300
"""Characters of an id that `parse_body` decodes however it is escaped."""
MOST_OPTIONS: Final = 32
"""Of Ollama's options, as `parse_body` reads them however they are written."""

_HEAD: Final = 256
_TAIL: Final = 2048
_MODEL: Final = b'"model"'
_NAMED: Final = re.compile(rb'[ \t\r\n]*:[ \t\r\n]*"([^"\\]{1,80})"')
_STREAM_OPTIONS: Final = frozenset({"include_usage", "include_obfuscation", "continuous_usage_stats"})
_COMMON: Final = frozenset({
    "model", "messages", "stream", "stream_options", "max_tokens", "max_completion_tokens", "temperature", "top_p",
    "tools", "tool_choice", "user", "stop", "seed", "response_format", "system", "input", "instructions", "prompt",
    "max_output_tokens", "options", "keep_alive", "metadata",
})  # fmt: skip
"""Names that are never another one in another case."""
_Values = dict[AnyName, Any]
_WHOLE: Final = msgspec.json.Decoder(_Values, dec_hook=Name)


def guess_model(body: bytes) -> str | None:
    """The model that a body probably names: what stands near either end of it. `None`: no guess."""
    at = body.find(_MODEL, 0, _HEAD)
    if at < 0:
        at = body.rfind(_MODEL, max(len(body) - _TAIL, 0))
        if at < 0:
            return None
    found = _NAMED.match(body, at + len(_MODEL))
    return None if found is None else found[1].decode("utf-8", "replace")


def parse_whole(body: bytes, route: Route) -> tuple[ChatRequest, Mapping[str, Any]] | None:
    """Read a body that is plain: what routing needs of it, but for `prompt_bytes`, and its members.

    `None`: ask `parse_body`. Raises the `ClientFault` that it raises.
    """
    try:
        values = _WHOLE.decode(body) if len(body) <= UNCOUNTED else counted(body, _Values)
    except (msgspec.DecodeError, RecursionError):
        return None
    names = [name.text for name in values]  # type: ignore[union-attr]  # all are `Name`
    members: dict[str, Any] = dict(zip(names, values.values(), strict=True))
    if len(members) != len(names) or len(names) > MOST_MEMBERS:
        return None
    if not _COMMON.issuperset(members):
        check_named_once(names, route)
    model, options = members.get("model"), members.get("stream_options")
    if not isinstance(model, str) or not 0 < len(model) <= LONGEST_MODEL or len(route.model_names) > 1:
        return None
    if route.needs_messages and not isinstance(members.get("messages"), list):
        return None
    if options is not None and not (isinstance(options, dict) and _STREAM_OPTIONS.issuperset(options)):
        return None
    ollama, previous = members.get("options"), members.get(PREVIOUS) if route.stateful else None
    if ollama is not None and not _is_plain(ollama):
        return None
    if previous is not None and not (isinstance(previous, str) and len(previous) <= LONGEST_PREVIOUS):
        return None
    said = members.get("stream")
    stream = said is True if route.streams == "asked" else route.streams == "unless_refused" and said is not False
    include = options.get("include_usage") if options is not None else None
    is_large = len(body) > THREAD_BYTES
    is_editable = options is None or not is_large
    parsed = ChatRequest(
        model=model,
        stream=stream,
        include_usage=include if isinstance(include, bool) else None,
        has_stream_options="stream_options" in members,
        wants_injection=route.takes_usage_option and stream and include is not True and is_editable,
        prompt_bytes=0,
        max_tokens=_most_tokens(members, ollama),
        context_tokens=as_limit(ollama.get("num_ctx")) if ollama is not None and route.kinds is not None else None,
        teaches=not (route.empty_loads and _is_empty(members)),
        previous_response=previous,
        model_span=model_in_light(body) if is_large else None,
    )
    return parsed, members


def _most_tokens(members: Mapping[str, Any], ollama: Mapping[str, Any] | None) -> int | None:
    for name in LIMITS:
        if name in members:
            limit = as_limit(members[name])
            if limit is not None:
                return limit
    return as_limit(ollama.get("num_predict")) if ollama is not None else None


def _is_plain(options: object) -> bool:
    """Whether options are few and small, so that `parse_body` would read them too."""
    return (
        isinstance(options, dict)
        and len(options) <= MOST_OPTIONS
        and all(len(name) <= LONGEST_MODEL // 4 for name in options)
        and all(isinstance(value, int | float | None) for value in options.values())
    )


def _is_empty(members: Mapping[str, Any]) -> bool:
    """Whether there is no prompt. A list or a text that is empty however it is written."""
    return all(members[name] in (None, [], "") for name in ("messages", "prompt") if name in members)
