"""What a modelled engine is: numbers, each with its source in `core/assumptions.py`. Records only."""

from typing import Literal

from msgspec import Struct

from pharos.core.assumptions import ASSUMPTIONS


def assumed(name: str) -> float:
    """One of the assumptions that stand in for a measurement."""
    return ASSUMPTIONS[name].value


Kind = Literal["llamacpp", "llamacpp-router", "ollama", "vllm", "openai"]
"""Kinds that can be modelled; what each tells of itself is in `scrape.py`."""


class ModelSpec(Struct, frozen=True):
    """One model on one engine."""

    name: str
    size_gb: float = assumed("sim_model_gb")


class EngineSpec(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """One engine."""

    name: str
    kind: Kind
    models: tuple[ModelSpec, ...]
    slots: int = int(assumed("sim_slots"))
    """Requests that a loaded model runs at once."""
    prefill_s_per_token: float = assumed("sim_prefill_s_per_token")
    decode_s_per_token: float = assumed("sim_decode_s_per_token")
    base_s: float = assumed("base_s")
    """Seconds to the first token that do not grow with the prompt."""
    slowdown: float = assumed("sim_slowdown")
    """How much slower each further request makes all, as a share: 0 for none, 1 for slots that only take turns."""
    load_s: float = assumed("sim_load_s")
    """Seconds to bring a model into memory."""
    memory_gb: float | None = None
    """Memory for models; `None`: all fit, and are loaded from the start."""
    shared_cache_tokens: int | None = None
    """Tokens of a cache that all slots share; `None`: each slot keeps its last prompt."""
    host_cache_tokens: int = int(assumed("sim_host_cache_tokens"))
    """Tokens of prompts that slots gave up and that the host's memory keeps, for each model."""
    scrape_s: float = assumed("sim_scrape_s")
    """Seconds between the question of a scrape and its answer."""
    sends_events: bool = True
    """Whether it tells at once when a model comes or goes; of kinds that do."""
    told_capacity: bool = True
    """Whether Pharos is told its slots, by the engine or in the configuration."""
    claimed_slots: int | None = None
    """What the configuration says instead; `None`: the truth."""


class FleetSpec(Struct, frozen=True, forbid_unknown_fields=True):
    """Engines, and what people do with them."""

    name: str
    engines: tuple[EngineSpec, ...]
    loads: tuple[int, ...] = (8, 16, 32)
    """Users: light, middle, heavy."""
    what: str = ""
    """In a sentence, for people."""

    @property
    def models(self) -> tuple[str, ...]:
        """Names of all models, each once."""
        return tuple(dict.fromkeys(model.name for engine in self.engines for model in engine.models))
