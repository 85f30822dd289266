"""The fleets that results are shown for, and fleets from a file. Forbidden here: numbers without a source."""

from collections.abc import Mapping
from pathlib import Path
from typing import Final

import msgspec
import yaml

from pharos.sim.spec import EngineSpec, FleetSpec, ModelSpec, assumed

_QWEN, _LLAMA, _GEMMA = (ModelSpec(name) for name in ("qwen2.5:7b", "llama3.1:8b", "gemma2:9b"))


def _ollama(name: str, models: tuple[ModelSpec, ...]) -> EngineSpec:
    return EngineSpec(name=name, kind="ollama", models=models, memory_gb=10.0, slots=2, load_s=assumed("sim_load_s"))


FLEETS: Final = {
    fleet.name: fleet
    for fleet in (
        FleetSpec(
            "mixed",
            (
                EngineSpec(name="fast-1", kind="llamacpp", models=(_QWEN,)),
                EngineSpec(name="fast-2", kind="llamacpp", models=(_QWEN,)),
                EngineSpec(
                    name="slow",
                    kind="llamacpp",
                    models=(_QWEN,),
                    prefill_s_per_token=assumed("sim_slow_prefill_s_per_token"),
                    decode_s_per_token=assumed("sim_slow_decode_s_per_token"),
                ),
            ),
            (10, 20, 32),
            "two fast machines and a slow one with the same model",
        ),
        FleetSpec(
            "cold",
            (
                _ollama("host-1", (_QWEN, _LLAMA, _GEMMA)),
                _ollama("host-2", (_QWEN, _LLAMA, _GEMMA)),
                _ollama("host-3", (_QWEN, _LLAMA, _GEMMA)),
            ),
            (8, 16, 24),
            "three Ollama hosts that have three models on disk and hold two of them in memory",
        ),
        FleetSpec(
            "single",
            tuple(
                EngineSpec(name=f"swap-{number}", kind="llamacpp-router", models=(_QWEN, _LLAMA, _GEMMA), memory_gb=5.0)
                for number in (1, 2)
            ),
            (3, 6, 10),
            "two hosts that hold one of three models at a time",
        ),
    )
}
"""By name."""


def changed(fleet: FleetSpec, fields: Mapping[str, str]) -> FleetSpec:
    """The fleet with other values of some fields, as YAML, in all of its engines. Raises `FleetError`."""
    try:
        values = {field: yaml.safe_load(value) for field, value in fields.items()}
        engines = [msgspec.convert(msgspec.to_builtins(one) | values, EngineSpec) for one in fleet.engines]
    except (yaml.YAMLError, msgspec.ValidationError) as fault:
        raise FleetError(f"{fleet.name}: {fault}") from None
    return _checked(msgspec.structs.replace(fleet, engines=tuple(engines)), fleet.name)


class FleetError(ValueError):
    """A fleet that cannot be used; the message says why, for people."""


def find(name: str) -> FleetSpec:
    """A fleet by its name, or by the name of a YAML file that describes one. Raises `FleetError`."""
    if name in FLEETS:
        return FLEETS[name]
    path = Path(name)
    if not path.is_file():
        raise FleetError(f"there is no fleet {name}, and no such file; known are {', '.join(FLEETS)}")
    try:
        fleet = msgspec.convert(yaml.safe_load(path.read_text(encoding="utf-8")), FleetSpec)
    except (OSError, UnicodeDecodeError, yaml.YAMLError, msgspec.ValidationError) as fault:
        raise FleetError(f"{name}: {fault}") from None
    return _checked(fleet, name)


def _checked(fleet: FleetSpec, name: str) -> FleetSpec:
    """Raises `FleetError` when it cannot be used."""
    names = [engine.name for engine in fleet.engines]
    if not names or len(set(names)) < len(names) or any(not engine.models for engine in fleet.engines):
        raise FleetError(f"{name}: it takes engines, each with a name of its own and at least one model")
    for engine in fleet.engines:
        numbers = (engine.slots, engine.prefill_s_per_token, engine.decode_s_per_token, engine.load_s + 1)
        if min(numbers) <= 0 or min(engine.base_s, engine.slowdown, engine.scrape_s, engine.host_cache_tokens) < 0:
            raise FleetError(f"{name}: {engine.name}: slots and seconds per token are above 0, and nothing is negative")
        if engine.shared_cache_tokens is not None and engine.shared_cache_tokens <= 0:
            raise FleetError(f"{name}: {engine.name}: shared_cache_tokens is above 0")
    return fleet
