"""Small fleets, clients and requests for tests of the simulator."""

from collections.abc import Sequence
from typing import Any

from pharos.core.prefix import Chain
from pharos.sim.asks import Ask, Turn
from pharos.sim.engine import Engine, Job
from pharos.sim.spec import EngineSpec, FleetSpec, ModelSpec
from pharos.sim.timeline import Timeline

M = "qwen2.5:7b"
N = "llama3.1:8b"


def spec(name: str = "gpu-1", **more: Any) -> EngineSpec:
    """An engine whose times are easy to reckon with: 1 ms per prompt token, 10 ms per token, no fixed part."""
    plain: dict[str, Any] = {
        "kind": "llamacpp",
        "models": (ModelSpec(M, 4.0),),
        "slots": 2,
        "prefill_s_per_token": 0.001,
        "decode_s_per_token": 0.01,
        "base_s": 0.0,
        "slowdown": 0.0,
        "load_s": 10.0,
        "host_cache_tokens": 0,
    }
    return EngineSpec(name=name, **(plain | more))


def swapping(name: str = "gpu-1", **more: Any) -> EngineSpec:
    """One that holds one of two models at a time."""
    return spec(name, **({"kind": "ollama", "models": (ModelSpec(M, 4.0), ModelSpec(N, 4.0)), "memory_gb": 5.0} | more))


def fleet(*engines: EngineSpec) -> FleetSpec:
    return FleetSpec("test", engines)


def ask(*links: int, model: str = M, reply: int = 101, tokens: int = 100, key: str = "k", **more: Any) -> Ask:
    """A prompt of as many messages as numbers are given, each of so many tokens."""
    chain = Chain(links, tuple(tokens * 4 * (i + 1) for i in range(len(links))))
    after = Chain((*links, -links[-1]), (*chain.ends, chain.ends[-1] + reply * 4))
    plain: dict[str, Any] = {"kind": "chat", "key": key, "model": model, "max_tokens": None}
    return Ask(chain=chain, after=after, prompt_tokens=tokens * len(links), output_tokens=reply, **(plain | more))


def grown(before: Ask, *links: int, reply: int = 101, tokens: int = 100) -> Ask:
    """The next turn of a conversation."""
    hashes = (*before.after.hashes, *links)
    last = before.after.ends[-1]
    ends = (*before.after.ends, *(last + tokens * 4 * (i + 1) for i in range(len(links))))
    after = Chain((*hashes, -hashes[-1] - 1), (*ends, ends[-1] + reply * 4))
    return Ask("chat", before.key, before.model, Chain(hashes, ends), after, ends[-1] // 4, reply)


class Fixed:
    """A session whose turns are given."""

    def __init__(self, *turns: tuple[float, Ask]) -> None:
        self._turns = [Turn(pause, one) for pause, one in turns]

    def next(self) -> Turn | None:
        return self._turns.pop(0) if self._turns else None


class Stand:
    """One engine and the requests sent to it."""

    def __init__(self, engine: EngineSpec) -> None:
        self.timeline = Timeline()
        self.engine = Engine(engine, self.timeline)
        self.jobs: list[Job] = []

    def send(self, one: Ask, at: float = 0.0) -> None:
        self.timeline.at(at, lambda: self.jobs.append(self.engine.submit(one, lambda _: None, lambda _: None)))

    def run(self) -> Sequence[Job]:
        while self.timeline.step():
            pass
        return self.jobs
