"""Engines on this machine: what answers on the ports that engines use by default.

Only for `pharos serve` without URLs and without a file. Forbidden here: any address but this machine's own.
"""

import asyncio
from typing import Final

import msgspec

from pharos.control import inspect
from pharos.control.fetch import Fetcher, new_session
from pharos.control.inspect import Contact, Inspection
from pharos.core.fleet.backend import BackendSpec

PORTS: Final = (8080, 11434, 8000, 30000, 1234, 5001, 9931)
"""llama.cpp (also mlx-lm, llama-swap, LocalAI), Ollama, vLLM, SGLang, LM Studio, koboldcpp, llama.cpp's coming one."""


class Found(msgspec.Struct, frozen=True):
    """One engine that answers on this machine."""

    url: str
    kind: str | None
    """`None`: it is still starting, so its kind cannot be told yet."""
    evidence: str
    """What shows that it is one, for people."""


async def find(ports: tuple[int, ...] = PORTS, *, fetcher: Fetcher | None = None) -> list[Found]:
    """Look at each port, side by side; what answers but is no engine is left out. Takes two seconds at most."""
    if fetcher is not None:
        return await _find(ports, fetcher)
    async with new_session() as session:
        return await _find(ports, Fetcher(session))


async def _find(ports: tuple[int, ...], fetcher: Fetcher) -> list[Found]:
    specs = [BackendSpec(name=f"127.0.0.1:{port}", url=f"http://127.0.0.1:{port}") for port in ports]
    visits = await asyncio.gather(*(inspect.resolve(fetcher, spec) for spec in specs))
    return [found for spec, visit in zip(specs, visits, strict=True) if (found := _judge(spec, visit)) is not None]


def _judge(spec: BackendSpec, visit: Inspection) -> Found | None:
    if visit.plan is not None:
        return Found(spec.url, visit.plan.kind, visit.detection.evidence)
    if visit.contact is Contact.STARTING:
        return Found(spec.url, None, "it answers 503: it is still starting")
    return None
