"""Where the records of each protocol state token counts and timings, as data.

Forbidden here: reading a record (`usage_fields.py`); an engine's own meaning of a field (`Dialect`, in its recipe).
"""

from typing import Final

import msgspec

Path = tuple[str, ...]
Source = tuple[Path, ...]
"""Fields whose sum is the value; when one is missing, so is the value."""


class Shape(msgspec.Struct, frozen=True):
    """Where the records of one protocol state their cost. Of several sources the first that is whole wins."""

    prompt: tuple[Source, ...] = ()
    cached: tuple[Source, ...] = ()
    completion: tuple[Source, ...] = ()
    total: Path = ()
    """Prompt and completion together: what contradicts it is not believed."""
    beside: tuple[Path, ...] = ()
    """Parts of the prompt that `prompt` leaves out where they are stated. The first is the cached one."""
    prefill: Path = ()
    load: Path = ()
    predicted: Path = ()
    per_second: float = 1000.0
    """Unit of the durations."""


_READ: Final = "cache_read_input_tokens"
_CREATION: Final = "cache_creation_input_tokens"
_PROMPT_MS: Final = ("timings", "prompt_ms")
_PREDICTED_MS: Final = ("timings", "predicted_ms")

OPENAI: Final = Shape(
    prompt=((("usage", "prompt_tokens"),), (("timings", "cache_n"), ("timings", "prompt_n"))),
    cached=((("usage", "prompt_tokens_details", "cached_tokens"),), (("timings", "cache_n"),)),
    completion=((("usage", "completion_tokens"),), (("timings", "predicted_n"),)),
    total=("usage", "total_tokens"),
    prefill=_PROMPT_MS,
    predicted=_PREDICTED_MS,
)
"""Chat, completions, embeddings, rerank, and llama.cpp's own `/completion`. llama.cpp b11434 and b11549 send all of it,
the `timings` also in streams that were not asked for usage; Ollama and vLLM only `usage`. A new name goes ahead of an
old one only once a recorded reply shows it."""
INPUT: Final = Shape(
    prompt=((("usage", "input_tokens"),),),
    cached=((("usage", "input_tokens_details", "cached_tokens"),),),
    completion=((("usage", "output_tokens"),),),
    total=("usage", "total_tokens"),
)
"""A whole reply of `/v1/responses`, and transcriptions by models that count tokens. The input includes the cached."""
RESPONSE_EVENT: Final = Shape(
    prompt=((("response", "usage", "input_tokens"),), (("timings", "cache_n"), ("timings", "prompt_n"))),
    cached=((("response", "usage", "input_tokens_details", "cached_tokens"),), (("timings", "cache_n"),)),
    completion=((("response", "usage", "output_tokens"),), (("timings", "predicted_n"),)),
    total=("response", "usage", "total_tokens"),
    prefill=_PROMPT_MS,
    predicted=_PREDICTED_MS,
)
"""The last event of a stream of `/v1/responses`; llama.cpp puts `timings` beside the response."""
MESSAGE: Final = Shape(
    prompt=((("usage", "input_tokens"),),),
    cached=((("usage", _READ),),),
    completion=((("usage", "output_tokens"),),),
    beside=(("usage", _READ), ("usage", _CREATION)),
)
"""A whole Anthropic message, and `message_delta`, which in llama.cpp has the output only."""
MESSAGE_START: Final = Shape(
    prompt=((("message", "usage", "input_tokens"),),),
    cached=((("message", "usage", _READ),),),
    beside=(("message", "usage", _READ), ("message", "usage", _CREATION)),
)
"""The output that it states is none: the reply has not begun."""
NATIVE: Final = Shape(
    prompt=((("prompt_eval_count",),),),
    cached=((("prompt_eval_cached_count",),),),
    completion=((("eval_count",),),),
    prefill=("prompt_eval_duration",),
    load=("load_duration",),
    predicted=("eval_duration",),
    per_second=1e9,
)
"""The final record of Ollama's `/api/chat` and `/api/generate`, and `/api/embed`."""

BY_TYPE: Final = {
    "message": MESSAGE,
    "message_delta": MESSAGE,
    "message_start": MESSAGE_START,
    "response.completed": RESPONSE_EVENT,
    "response.incomplete": RESPONSE_EVENT,
    "transcript.text.done": INPUT,
}
"""`type` of a record -> its shape; others are told apart by what they hold."""
ROOTS: Final = frozenset({"usage", "timings", "response", "message", "prompt_eval_count"})
"""Members of a record one of which it must have to state any count."""
