"""Whether an engine's refusal says that it does not serve the route at all, or is about what was asked on it.

Facts: captured bodies of unknown routes and unknown models of each engine. Forbidden here: guessing from a status that
engines use for both.
"""

from typing import Final

from pharos.core.engine.usage_fields import read_json

NOT_FOUND: Final = 404
SURELY: Final = frozenset({405, 501})
"""No such method there, or no such ability: both are about the route as this engine was started."""
WORDS: Final = frozenset({"not found", "file not found", "method not allowed"})
"""What an error object says of a missing route: vLLM and other FastAPI servers under `detail`, llama.cpp as `message`.
One about a model names it."""


def is_route_missing(status: int, body: bytes) -> bool:
    """Tell by a refusal.

    A 404 that is no JSON object is the web framework's: Go's `404 page not found` (Ollama, llama-swap), mlx-lm's
    `Not Found`; engines speak of models in JSON.
    """
    if status != NOT_FOUND:
        return status in SURELY
    record = read_json(body)
    if not isinstance(record, dict):
        return True
    error = record.get("error", record.get("detail"))
    text = error.get("message") if isinstance(error, dict) else error
    return isinstance(text, str) and text.strip().lower() in WORDS
