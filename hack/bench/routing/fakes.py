"""A fleet of engine doubles in real time, a program of its own: `python -m hack.bench.routing.fakes FLEET PORTS`.

PORTS is a list in JSON: the first one tells what the doubles counted, the others are theirs. Forbidden here: a model of
an engine; the doubles of `tests/fakes` have theirs, with the costs that the fleet says.
"""

import asyncio
import contextlib
import json
import sys

import msgspec

from hack.bench.routing.fleets import FLEETS, SLOTS, Counted, EngineSpec
from pharos.core.assumptions import ASSUMPTIONS
from pharos.sim.spec import assumed
from tests.fakes.engine import EngineDouble
from tests.fakes.http import Connection, HttpDouble, Reply, Seen
from tests.fakes.llamacpp import FakeLlamaCpp
from tests.fakes.llamacpp_router import FakeRouter, State

HOST_BYTES = round(assumed("sim_host_cache_tokens") * ASSUMPTIONS["bytes_per_token"].value)
"""Of prompts that slots gave up, for each model."""
CONTEXT = 65_536
"""Tokens that fit: enough for every prompt of the clients."""


class Control(HttpDouble):
    """Tells what the doubles counted."""

    def __init__(self, port: int, doubles: dict[str, EngineDouble]) -> None:
        super().__init__(port=port)
        self._doubles = doubles

    async def respond(self, request: Seen, connection: Connection) -> None:
        """Answer whatever is asked."""
        del request
        doubles = self._doubles
        counted = Counted(
            loads=sum(len(one.loads) for one in doubles.values() if isinstance(one, FakeRouter)),
            prompted=sum(one.prompted for one in doubles.values()),
            found=sum(one.found for one in doubles.values()),
            by_engine={name: one.finished for name, one in doubles.items()},
        )
        await connection.send(Reply(200, msgspec.json.encode(counted), {"Content-Type": "application/json"}))


def double_of(spec: EngineSpec, port: int) -> EngineDouble:
    """The double of an engine."""
    double: EngineDouble
    if spec.most_loaded is None:
        [model] = spec.models
        double = FakeLlamaCpp(
            model=model, slots=SLOTS, n_ctx=CONTEXT, port=port, pace=asyncio.sleep, host_bytes=HOST_BYTES
        )
    else:
        double = FakeRouter(
            models=spec.models,
            states=dict.fromkeys(spec.loaded, State.LOADED),
            max_models=spec.most_loaded,
            slots=SLOTS,
            n_ctx=CONTEXT,
            host_bytes=HOST_BYTES,
            port=port,
            pace=asyncio.sleep,
        )
    double.costs = spec.costs
    return double


async def serve(fleet: str, control: int, ports: list[int]) -> None:
    """Serve until the process ends."""
    specs = FLEETS[fleet].engines
    doubles = {spec.name: double_of(spec, port) for spec, port in zip(specs, ports, strict=True)}
    async with contextlib.AsyncExitStack() as held:
        for double in doubles.values():
            await held.enter_async_context(double)
        await held.enter_async_context(Control(control, doubles))
        while True:
            await asyncio.sleep(1)
            for double in doubles.values():
                double.seen.clear()  # bodies of prompts add up


if __name__ == "__main__":
    first, *others = json.loads(sys.argv[2])
    asyncio.run(serve(sys.argv[1], first, others))
