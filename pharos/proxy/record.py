"""What one JSON record of a reply means in its protocol: a token, an error, an end, usage that Pharos asked for.

Forbidden here: bytes and framing (`sse.py`, `ndjson.py`); changing a record.
"""

import enum
from collections.abc import Mapping
from typing import Final

Record = Mapping[str, object]
Begun = Mapping[str, object]
"""What the first record of a reply said about it, as far as its last one must repeat it."""


class Ending(enum.StrEnum):
    """How a reply ended, as far as its protocol tells."""

    OPEN = "open"
    """No end was seen: the reply is still running, or it was cut."""
    COMPLETED = "completed"
    """The protocol's own end was seen."""
    ERROR = "error"
    """An error object was seen, whatever came after it."""


DELTAS: Final = (
    "content",
    "reasoning",
    "reasoning_content",
    "reasoning_details",
    "tool_calls",
    "function_call",
    "refusal",
    "audio",
)
"""Parts of a chat delta that carry output of the model. `role` is none: engines send it before they compute."""
DONE_TEXTS: Final = ("text", "arguments", "refusal", "input", "code", "transcript")
"""Members in which a `….done` event of `/v1/responses` repeats what its deltas held; some engines send only that."""
ITEM_PARTS: Final = ("name", "arguments", "input", "encrypted_content")
"""Members of an output item of `/v1/responses` that carry output besides its texts: a tool's name is the model's."""
BLOCK_PARTS: Final = ("text", "thinking", "partial_json", "signature", "name", "data", "citation")
"""Members of an Anthropic content block or delta that carry output. `name` is a tool's, `data` of hidden thinking."""
MESSAGE_PARTS: Final = ("content", "thinking", "tool_calls", "images")
GENERATE_PARTS: Final = ("response", "thinking", "tool_calls", "image")
"""Members of Ollama's records (of the message in a chat) that carry output."""

_RESPONSE_ENDS: Final = ("response.completed", "response.incomplete")
_RESPONSE_ERRORS: Final = ("response.failed", "error")
_LOADING: Final = {"choices"}, {"delta"}, {"reasoning_content"}
"""All the names, level by level, in a chunk with which llama-swap shows that a model loads. Engines name it too."""


def chat_has_token(record: Record) -> bool:
    """Whether a chunk of a chat carries output: content, reasoning or a tool call that is not empty."""
    for choice in _dicts(record.get("choices")):
        delta = choice.get("delta")
        if isinstance(delta, dict) and _any(delta, DELTAS):
            return (set(record), set(choice), set(delta)) != _LOADING
    return False


def completion_has_token(record: Record) -> bool:
    """Whether a chunk of a text completion carries output."""
    return any(choice.get("text") for choice in _dicts(record.get("choices")))


def response_has_token(record: Record) -> bool:
    """Whether an event of `/v1/responses` carries output; those that begin a part of it are empty."""
    kind = record.get("type")
    if not isinstance(kind, str):
        return False
    if kind.endswith(".delta"):
        return bool(record.get("delta"))
    if "item" in record:
        return _item_has_output(record["item"])
    return kind.endswith(".done") and _any(record, DONE_TEXTS)


def message_has_token(record: Record) -> bool:
    """Whether an event of an Anthropic stream carries output. `message_start` and `ping` do not."""
    return any(_any(part, BLOCK_PARTS) for part in _dicts([record.get("delta"), record.get("content_block")]))


def ollama_chat_has_token(record: Record) -> bool:
    """Whether a line of Ollama's `/api/chat` carries output."""
    message = record.get("message")
    return isinstance(message, dict) and _any(message, MESSAGE_PARTS)


def ollama_generate_has_token(record: Record) -> bool:
    """Whether a line of Ollama's `/api/generate` carries output."""
    return _any(record, GENERATE_PARTS)


def other_has_token(record: Record) -> bool:
    """Whether an event of a stream on a route that is not known to stream carries output: a transcription does."""
    return response_has_token(record) or chat_has_token(record) or completion_has_token(record)


def is_error(record: Record) -> bool:
    """Whether the record reports a failure; engines do so on status 200 too. `"error": null` is none."""
    return record.get("error") not in (None, False, "") or record.get("object") == "error"


def openai_ending(record: Record) -> Ending | None:
    """Tell whether a chunk ends its stream: only an error does, else `[DONE]`, which is no record."""
    return Ending.ERROR if is_error(record) else None


def response_ending(record: Record) -> Ending | None:
    """Tell whether an event ends a stream of `/v1/responses`."""
    kind = record.get("type")
    if is_error(record) or kind in _RESPONSE_ERRORS:
        return Ending.ERROR
    return Ending.COMPLETED if kind in _RESPONSE_ENDS else None


def message_ending(record: Record) -> Ending | None:
    """Tell whether an event ends an Anthropic stream."""
    kind = record.get("type")
    if is_error(record) or kind == "error":
        return Ending.ERROR
    return Ending.COMPLETED if kind == "message_stop" else None


def ollama_ending(record: Record) -> Ending | None:
    """Tell whether a line ends one of Ollama's own streams."""
    if is_error(record):
        return Ending.ERROR
    return Ending.COMPLETED if record.get("done") is True else None


def other_ending(record: Record) -> Ending | None:
    """Tell whether an event ends a stream on a route that is not known to stream."""
    if is_error(record):
        return Ending.ERROR
    return Ending.COMPLETED if record.get("type") == "transcript.text.done" else None


def is_usage_only(record: Record) -> bool:
    """Whether the record is the chunk an engine adds for `include_usage`: no choice, a usage object, no error."""
    return record.get("choices") == [] and isinstance(record.get("usage"), dict) and not is_error(record)


def chat_is_over(record: Record) -> bool:
    """Whether a chunk shows that all is said: its choices tell why they finished, or it is the one behind them."""
    choices = _dicts(record.get("choices"))
    return is_usage_only(record) or (bool(choices) and all(choice.get("finish_reason") for choice in choices))


def _item_has_output(item: object) -> bool:
    if not isinstance(item, dict):
        return False
    parts = (part for name in ("content", "summary") for part in _dicts(item.get(name)))
    return _any(item, ITEM_PARTS) or any(_any(part, DONE_TEXTS) for part in parts)


def _any(record: Record, names: tuple[str, ...]) -> bool:
    return any(record.get(name) for name in names)


def _dicts(value: object) -> list[dict[str, object]]:
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []
