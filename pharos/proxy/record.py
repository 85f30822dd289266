"""What one JSON record of an OpenAI reply means: a token, an error, usage that Pharos asked for.

Forbidden here: bytes and framing (`sse.py`); changing a record.
"""

import enum
from collections.abc import Callable, Mapping
from typing import Final

Record = Mapping[str, object]


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


def chat_has_token(record: Record) -> bool:
    """Whether a chunk of a chat carries output: content, reasoning or a tool call that is not empty."""
    for choice in _choices(record):
        delta = choice.get("delta")
        if isinstance(delta, dict):
            for name in DELTAS:
                if delta.get(name):
                    return True
    return False


def completion_has_token(record: Record) -> bool:
    """Whether a chunk of a text completion carries output."""
    return any(choice.get("text") for choice in _choices(record))


HAS_TOKEN: Final[Mapping[str, Callable[[Record], bool]]] = {
    "openai_chat": chat_has_token,
    "openai_completion": completion_has_token,
}
"""Protocol -> whether one of its records carries output of the model."""


def is_error(record: Record) -> bool:
    """Whether the record reports a failure; engines do so on status 200 too. `"error": null` is none."""
    return record.get("error") not in (None, False, "")


def is_usage_only(record: Record) -> bool:
    """Whether the record is the chunk an engine adds for `include_usage`: no choice, a usage object, no error."""
    return record.get("choices") == [] and isinstance(record.get("usage"), dict) and not is_error(record)


def _choices(record: Record) -> list[dict[str, object]]:
    choices = record.get("choices")
    return [choice for choice in choices if isinstance(choice, dict)] if isinstance(choices, list) else []
