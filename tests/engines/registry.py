"""Which engines are tested, in which order, and which of them this run asks for."""

import os
from collections.abc import Callable

from tests.engines.llamacpp_stands import Compiled, Embeds, Keyed, LlamaCpp, NoMetrics, Router, Sleeps
from tests.engines.ollama_stand import NewerOllama, Ollama
from tests.engines.other_stands import LlamaSwap, MlxLm, Vllm
from tests.engines.stand import Stand

STANDS: tuple[type[Stand], ...] = (
    LlamaCpp,
    NoMetrics,
    Sleeps,
    Embeds,
    Keyed,
    Compiled,
    Router,
    Ollama,
    NewerOllama,
    MlxLm,
    Vllm,
    LlamaSwap,
)
BY_NAME = {stand.name: stand for stand in STANDS}
ORDER = {stand.name: place for place, stand in enumerate(STANDS)}


def chosen() -> tuple[type[Stand], ...]:
    """The stands of this run. Raises `ValueError` for a family that there is none of."""
    wanted = {word for word in os.environ.get("PHAROS_LIVE_ENGINES", "").replace(",", " ").split() if word}
    unknown = wanted - {stand.family for stand in STANDS}
    if unknown:
        known = ", ".join(dict.fromkeys(stand.family for stand in STANDS))
        raise ValueError(f"ENGINES names {', '.join(sorted(unknown))}; known: {known}")
    return tuple(stand for stand in STANDS if not wanted or stand.family in wanted)


def names(fits: Callable[[type[Stand]], bool] = lambda _: True) -> list[str]:
    """Names of the stands of this run for which a check makes sense."""
    return [stand.name for stand in chosen() if fits(stand)]
