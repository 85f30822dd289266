"""The slots of an engine double, the queue before them, and the hold that keeps requests there without sleeping."""

import asyncio
from collections import deque
from collections.abc import Callable


class Slots:
    """`count` places; who finds none waits in order of arrival."""

    def __init__(self, count: int, changed: Callable[[], None]) -> None:
        self.count = count
        self.taken = 0
        self._changed = changed
        self._queue: deque[asyncio.Future[None]] = deque()

    @property
    def waiting(self) -> int:
        return len(self._queue)

    async def enter(self) -> None:
        """Take a place, waiting for one if need be; cancel-safe."""
        if self.taken < self.count:
            self.taken += 1
            self._changed()
            return
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._queue.append(turn)
        self._changed()
        try:
            await turn
        except asyncio.CancelledError:
            if turn in self._queue:
                self._queue.remove(turn)
                self._changed()
            else:  # the place came in the same moment as the hang-up
                self.leave()
            raise

    def leave(self) -> None:
        """Give the place to the longest waiting request, if any."""
        turn = next((turn for turn in self._queue if not turn.done()), None)
        if turn is None:
            self.taken -= 1
        else:
            self._queue.remove(turn)
            turn.set_result(None)
        self._changed()


class Hold:
    """A gate that generations pass, or stop at until they are let go."""

    def __init__(self, changed: Callable[[], None]) -> None:
        self._changed = changed
        self._after: int | None = None
        self._held: deque[asyncio.Future[None]] = deque()

    @property
    def count(self) -> int:
        return len(self._held)

    def close(self, after: int | None) -> None:
        """Stop generations once they have sent `after` events; `None`: no longer."""
        self._after = after

    def open(self, count: int) -> None:
        """Let the `count` longest held go on."""
        for _ in range(min(count, len(self._held))):
            held = self._held.popleft()
            if not held.done():
                held.set_result(None)

    async def pass_by(self, events_sent: int | None) -> None:
        """Wait here if held; `None` stands for a whole reply, which is held wherever a stream would be."""
        if self._after is None or events_sent not in {None, self._after}:
            return
        held: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._held.append(held)
        self._changed()
        try:
            await held
        finally:
            if held in self._held:
                self._held.remove(held)
            self._changed()
