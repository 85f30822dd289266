"""What an unknown signal costs and how to get it, for people: shown by doctor and the status page.

Forbidden here: anything about one engine; a recipe brings its own hints.
"""

from collections.abc import Mapping

import msgspec

from pharos.core.signals import Signal


class Hint(msgspec.Struct, frozen=True):
    """What to tell about a signal that is unknown."""

    cost: str
    """What routing does without it."""
    fix: str
    """What a person can do."""


HINTS: Mapping[Signal, Hint] = {
    Signal.VERSION: Hint(
        cost="an upgrade is not noticed: learned speeds stay, and probes that depend on the version are left out",
        fix="none: this engine does not tell its version",
    ),
    Signal.MODELS: Hint(
        cost="no request is sent to this backend",
        fix="open its /v1/models: it must answer with a list of models",
    ),
    Signal.RESIDENCY: Hint(
        cost="a cold start cannot be told from a warm one",
        fix="none: this engine does not tell which models are in memory",
    ),
    Signal.SIZE_BYTES: Hint(
        cost="whether a cold model fits into memory is not checked",
        fix="none: this engine does not tell the size of its models",
    ),
    Signal.VRAM_BYTES: Hint(
        cost="whether a cold model fits beside the loaded ones is judged by size alone",
        fix="none: this engine does not tell the memory that its models hold",
    ),
    Signal.RUNNING: Hint(
        cost="requests that others send to the engine are not seen: only those sent through Pharos count",
        fix="turn the engine's metrics on, or send all its traffic through Pharos",
    ),
    Signal.WAITING: Hint(
        cost="a queue inside the engine is not seen",
        fix="turn the engine's metrics on",
    ),
    Signal.CAPACITY: Hint(
        cost="an assumed number of slots is used, which may be too few or too many",
        fix="give the backend's capacity in the configuration",
    ),
    Signal.KV_USAGE: Hint(
        cost="a full cache is not seen: prompts that it dropped may still count as cached",
        fix="none: this engine does not tell how full its cache is",
    ),
    Signal.CONTEXT_LENGTH: Hint(
        cost="a request that is too long for the model is sent and refused by the engine",
        fix="none: this engine does not tell its context length",
    ),
    Signal.CAPABILITIES: Hint(
        cost="a request for what the model cannot do (images, tools, embeddings) is sent and refused by the engine",
        fix="none: this engine does not tell what its models can do",
    ),
    Signal.PHYSICAL_GROUP: Hint(
        cost="names that share one queue are each taken to have slots of their own",
        fix="none: this engine does not tell which names are one model",
    ),
    Signal.GPU_TOTAL_BYTES: Hint(
        cost="whether a cold model fits is judged by the backend's memory_gb, if given",
        fix="give the backend's memory_gb in the configuration",
    ),
    Signal.GPU_USED_BYTES: Hint(
        cost="memory that other programs hold is not seen",
        fix="none: this engine does not tell how much of its GPU memory is in use",
    ),
    Signal.MODELS_AT_ONCE: Hint(
        cost="whether one more model pushes another one out is judged by memory alone, if that is known",
        fix="none: this engine does not tell how many models it holds at once",
    ),
    Signal.PROCESS: Hint(cost="a quick restart is noticed later", fix="none: this engine does not tell"),
    Signal.WORK_DONE: Hint(cost="gauges that stand still are believed", fix="none: this engine does not tell"),
    Signal.CACHED_TOKENS: Hint(cost="an emptied cache is noticed later", fix="none: this engine does not tell"),
}
"""For every signal."""


def hint_for(signal: Signal, own: Mapping[Signal, Hint]) -> Hint:
    """Return the recipe's own hint where it has one, else the general one."""
    return own.get(signal, HINTS[signal])


def locked(credential: str | None) -> str:
    """Return what to do about an engine that answers 401 or 403. `credential`: the name of the one that it is sent."""
    if credential is None:
        return "it asks for a key: set `credential` of this backend to the name of an entry under `credentials`"
    return f"it refuses {credential}, the `credential` of this backend: give it a key that this engine knows"
