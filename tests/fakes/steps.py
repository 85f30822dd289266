"""Virtual time for code that takes a clock and a `sleep`: nothing passes but what a test steps through."""

import asyncio
import random


class Steps:
    """A clock that stands still until every sleeper sleeps; then it jumps to the next one that wakes.

    Real sockets may be used meanwhile: between two jumps the code under test takes as long as it needs.
    """

    def __init__(self, now: float = 1000.0) -> None:
        self.now = now
        self.slept: list[float] = []
        """Every sleep asked for, in order."""
        self._sleeping: list[tuple[float, asyncio.Future[None]]] = []
        self._changed = asyncio.Event()

    def clock(self) -> float:
        return self.now

    async def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        waking: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        entry = (self.now + seconds, waking)
        self._sleeping.append(entry)
        self._changed.set()
        try:
            await waking
        finally:
            if entry in self._sleeping:
                self._sleeping.remove(entry)

    async def run_until(self, moment: float, *, sleepers: int = 1) -> None:
        """Let time pass up to and including `moment`, always waiting until `sleepers` tasks sleep."""
        while True:
            await self.settle(sleepers)
            at, waking = min(self._sleeping, key=lambda entry: entry[0])
            if at > moment:
                self.now = moment
                return
            self.now = at
            self._sleeping.remove((at, waking))
            waking.set_result(None)

    def wake(self) -> None:
        """Let the sleeper that is next wake at its time, without waiting for what it does then."""
        at, waking = min(self._sleeping, key=lambda entry: entry[0])
        self.now = at
        self._sleeping.remove((at, waking))
        waking.set_result(None)

    async def settle(self, sleepers: int = 1) -> None:
        """Wait until `sleepers` tasks sleep."""
        while len(asleep := [entry for entry in self._sleeping if not entry[1].done()]) < sleepers:
            self._changed.clear()
            await self._changed.wait()
        self._sleeping = asleep  # the cancelled ones do not count


class NoJitter(random.Random):
    """Chance that always falls in the middle."""

    def random(self) -> float:
        return 0.5
