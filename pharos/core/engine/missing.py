"""Whether an engine's refusal says that it does not serve the route at all, or is about what was asked on it.

Facts: captured bodies of unknown routes and unknown models of each engine. Forbidden here: guessing from a status that
engines use for both.
"""

from typing import Final

from pharos.core.engine.usage_fields import read_json

NOT_FOUND: Final = 404
SURELY: Final = frozenset({405, 501})
"""No such method there, or no such ability: both are about the route as this engine was started."""
PLAINLY: Final = frozenset({"404 page not found", "not found"})
"""Texts of web frameworks that answer a missing route so: Go's (Ollama, llama-swap) and mlx-lm's."""
FILE: Final = "file not found"
"""What llama.cpp says of a missing route, and of nothing else."""
WORDS: Final = frozenset({"not found", FILE, "method not allowed"})
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
    return not isinstance(record, dict) or _said(record) in WORDS


def is_surely_missing(status: int, body: bytes) -> bool:
    """Whether a refusal can be about nothing but the route: an engine's own words for one that it does not know.

    FastAPI's `Not Found` is also what a handler says that found something else missing; 405 and 501 may be about one
    ability that one request asked for, and a text of other words about anything.
    """
    if status != NOT_FOUND:
        return False
    record = read_json(body)
    if isinstance(record, dict):
        return _said(record) == FILE
    return body.decode("utf-8", "replace").strip().lower() in PLAINLY


def _said(record: dict[str, object]) -> str | None:
    error = record.get("error", record.get("detail"))
    text = error.get("message") if isinstance(error, dict) else error
    return text.strip().lower() if isinstance(text, str) else None
