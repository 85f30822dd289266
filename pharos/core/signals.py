"""The fixed vocabulary of engine state that Pharos routes on, and what one reading of it is.

Unknown is the absence of a reading (`None`), never 0.
"""

import enum
from collections.abc import Mapping

import msgspec

STALE_AFTER_INTERVALS = 3
"""A reading older than this many of its own actual intervals counts as unknown."""


class Signal(enum.StrEnum):
    """One fact about an engine."""

    VERSION = "version"
    """Engine version, per backend, `str`."""
    MODELS = "models"
    """Names the backend serves, per backend, `tuple[str, ...]` in the engine's order."""
    RESIDENCY = "residency"
    """`Residency`, per model."""
    SIZE_BYTES = "size_bytes"
    """Bytes of the weights, per model, `int`."""
    VRAM_BYTES = "vram_bytes"
    """Bytes the loaded model holds in GPU memory, per model, `int`."""
    RUNNING = "running"
    """Requests the engine works on now, per model or whole backend, `int`."""
    WAITING = "waiting"
    """Requests queued inside the engine, per model or whole backend, `int`."""
    CAPACITY = "capacity"
    """Requests the engine runs at once (slots), per model or whole backend, `int`."""
    KV_USAGE = "kv_usage"
    """Share of the engine's cache in use, 0..1, per model or whole backend, `float`."""
    CONTEXT_LENGTH = "context_length"
    """Tokens one request may use, prompt and reply together, per model or whole backend, `int`."""
    CAPABILITIES = "capabilities"
    """What a model can do, per model, `tuple[str, ...]` of the words in `ABILITIES`, sorted."""
    PHYSICAL_GROUP = "physical_group"
    """Which queue a model's requests join, per model, `str`: names with the same value share slots."""
    GPU_TOTAL_BYTES = "gpu_total_bytes"
    """Memory of all GPUs that the engine sees, per backend, `int`."""
    GPU_USED_BYTES = "gpu_used_bytes"
    """How much of it is in use, by whomever, per backend, `int`."""
    MODELS_AT_ONCE = "models_at_once"
    """Models that are in memory at once at most, per backend, `int`: one more pushes another one out."""
    PROCESS = "process"
    """Which process answers, per model or whole backend, `str`: another value means that it was started again."""
    WORK_DONE = "work_done"
    """Work since the process began, in the engine's own unit, per model or whole backend: a number that only grows."""
    CACHED_TOKENS = "cached_tokens"
    """Tokens that the engine's prompt caches hold, per model or whole backend, `int`."""


LOAD_SIGNALS = frozenset({Signal.RUNNING, Signal.WAITING, Signal.KV_USAGE, Signal.WORK_DONE})
"""Signals that change with every request: read every second, the others every five."""

MARKS = frozenset({Signal.PROCESS, Signal.WORK_DONE, Signal.CACHED_TOKENS})
"""Signals that only show that something was lost: a process, a cache, or the truth of gauges that stand still. Nobody
misses one that is unknown."""

ABILITIES = frozenset(
    {
        "audio",
        "completion",
        "embedding",
        "insert",
        "rerank",
        "thinking",
        "tools",
        "transcription",
        "vision",
    }
)
"""What a model can be said to do. Engines' other words are left out, not passed on."""


class Residency(enum.StrEnum):
    """Whether a model is in memory. Unknown is `None`, not a member."""

    LOADED = "loaded"
    LOADING = "loading"
    COLD = "cold"


Value = str | int | float | Residency | tuple[str, ...]
"""What a reading holds; which type belongs to which signal is said at `Signal`."""

BACKEND = ""
"""The model part of a key that speaks of the whole backend."""

Key = tuple[Signal, str]
"""A signal and the engine's model name it speaks of, or `BACKEND`."""

Found = Mapping[str, Value]
"""What one probe read: engine's model name (or `BACKEND`) to value. Only known values are in it."""


class Reading(msgspec.Struct, frozen=True, gc=False):
    """One value of one signal, with the time it was read and the probe that read it."""

    value: Value
    at: float
    """When its feed was asked, in seconds on the caller's clock: the value is at least that fresh."""
    probe: str
    interval_s: float | None
    """Seconds between two reads of its feed as scheduled; `None` when time alone never makes it stale (log lines)."""
    rank: int = 0
    """Trust of its probe: a fresh reading of a lower rank is never replaced by one of a higher."""

    def is_fresh(self, now: float) -> bool:
        """Whether the value may still be believed at `now`."""
        return self.interval_s is None or now - self.at <= STALE_AFTER_INTERVALS * self.interval_s
