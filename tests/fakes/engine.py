"""What all engine doubles share: how a test holds, refuses, kills and watches them. They model nothing here.

`pace` is awaited with the modelled seconds of loads, prefill and of each token; `None`: at once.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

import msgspec

from pharos.clock import Clock, monotonic
from pharos.core.assumptions import ASSUMPTIONS
from tests.fakes.http import Answer, Connection, HttpDouble, Seen
from tests.fakes.slots import Hold

Pace = Callable[[float], Awaitable[object]]


class Costs(msgspec.Struct, frozen=True):
    """What work takes. The numbers are those of the assumptions; benchmarks have faster and slower engines."""

    prefill_s_per_token: float = ASSUMPTIONS["prefill_s_per_token"].value
    decode_s_per_token: float = ASSUMPTIONS["decode_s_per_token"].value
    load_s: float = ASSUMPTIONS["load_s"].value
    base_s: float = 0.0
    """To the first token, whatever the prompt."""
    slowdown: float = 0.0
    """How much slower each further request makes all, as a share."""


class EngineDouble(HttpDouble):
    """An engine whose generations can be held where they are, without sleeping."""

    def __init__(self, *, port: int = 0, clock: Clock = monotonic, pace: Pace | None = None) -> None:
        super().__init__(port=port, clock=clock)
        self.pace = pace
        self.aborted = 0
        """Generations that ended because their client went away."""
        self.finished = 0
        """Generations whose last byte was sent."""
        self.refusals: deque[Answer] = deque()
        self.costs = Costs()
        self.working = 0
        """Generations that are worked on."""
        self.prompted = 0
        """Tokens of all prompts that were worked on."""
        self.found = 0
        """Of those, tokens that a cache held."""
        self.is_dead = False
        self._hold = Hold(self.changed)
        self._loads = Hold(self.changed)

    # What a test reads and sets.

    @property
    def prompts(self) -> list[Seen]:
        """The generation requests among `seen`."""
        return [request for request in self.seen if request.method == "POST"]

    @property
    def held(self) -> int:
        """Generations that wait for `release`."""
        return self._hold.count

    def hold(self, after: int = 1) -> None:
        """From now on a generation keeps its slot after `after` events (a whole reply: before it) until `release`."""
        self._hold.close(after)

    def release(self, count: int | None = None) -> None:
        """Let the `count` longest held go on; without a number all of them, and later ones are not held."""
        if count is None:
            self._hold.close(None)
        self._hold.open(self._hold.count if count is None else count)

    def hold_loads(self) -> None:
        """From now on a load of a model does not end until `release_loads`."""
        self._loads.close(0)

    def release_loads(self) -> None:
        """Let all loads end, and later ones at once."""
        self._loads.close(None)
        self._loads.open(self._loads.count)

    @property
    def loading(self) -> int:
        """Loads that wait for `release_loads`."""
        return self._loads.count

    def refuse(self, answer: Answer, times: int = 1) -> None:
        """Answer the next generation requests with this, before any slot is taken."""
        self.refusals.extend([answer] * times)

    def kill(self) -> None:
        self.is_dead = True
        super().kill()

    async def restart(self) -> None:
        """A new process on the same port, which knows nothing of the old one."""
        self.kill()
        await self.until(lambda: not self.connections and self.is_idle)
        self._hold.close(None)
        self.release_loads()
        self.reset()
        await self.start()

    async def start(self) -> None:
        await super().start()
        self.is_dead = False

    # What a subclass says.

    @property
    def is_idle(self) -> bool:
        """Whether no request is inside."""
        return True

    def reset(self) -> None:
        """Forget what dies with a process."""

    def tick(self) -> None:
        """Do what came due since the last request: what is idle falls asleep or is unloaded."""

    async def serve(self, request: Seen, connection: Connection) -> None:
        self.tick()
        await super().serve(request, connection)

    # What a subclass uses.

    async def pause_if_held(self, events_sent: int | None) -> None:
        """Wait for `release` when a generation has come to the point where it is held; `None`: a whole reply has."""
        await self._hold.pass_by(events_sent)

    async def spend(self, seconds: float) -> None:
        """Let modelled time pass."""
        if self.pace is not None:
            await self.pace(seconds)

    def begin(self, prompt: int, cached: int) -> float:
        """Count a generation whose prompt is worked on from now on; returns the seconds that its prefill takes.

        `working` has to be counted down at its end.
        """
        self.working += 1
        self.prompted += prompt
        self.found += cached
        return self.costs.base_s + (prompt - cached) * self.costs.prefill_s_per_token * self._slowed

    @property
    def token_s(self) -> float:
        """Seconds that a token takes to decode in the company of now."""
        return self.costs.decode_s_per_token * self._slowed

    @property
    def _slowed(self) -> float:
        return 1 + self.costs.slowdown * max(self.working - 1, 0)

    async def load_time(self, seconds: float) -> None:
        """Let a load take its time, and wait for `release_loads` where loads are held."""
        await self._loads.pass_by(None)
        await self.spend(seconds)

    async def counted(self, work: Coroutine[Any, Any, object]) -> None:
        """Run a generation to its end and count how it ended."""
        try:
            await work
        except asyncio.CancelledError:
            self.aborted += not self.is_dead
            raise
        self.finished += 1
