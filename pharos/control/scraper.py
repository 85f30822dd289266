"""Keeps a watch on every backend of the fleet, one background task each, as the list of backends changes.

Forbidden here: reading engines (the watch does) and deciding which backends there are (discovery does).
"""

import asyncio
import random
from collections.abc import Callable, Sequence

from pharos.clock import Clock, monotonic
from pharos.control import inspect
from pharos.control.fetch import Fetcher
from pharos.control.tasks import Sleep, Tasks
from pharos.control.watch import Watch, Wiring, nobody
from pharos.core.fleet.backend import Backend, BackendSpec
from pharos.core.fleet.cordon import drained
from pharos.core.fleet.events import Event
from pharos.core.fleet.registry import Fleet
from pharos.core.fleet.roster import Changes


class Scraper:
    """The watches. Owns no task itself: `tasks` runs, restarts and ends them."""

    def __init__(  # noqa: PLR0913 (the composition root names them all)
        self,
        fleet: Fleet,
        fetcher: Fetcher,
        tasks: Tasks,
        *,
        rng: random.Random,
        on_event: Callable[[Event], None],
        on_round: Callable[[Backend], None],
        on_plan: Callable[[Backend], None] = nobody,
        clock: Clock = monotonic,
        sleep: Sleep = asyncio.sleep,
        get_timeout_s: float = inspect.GET_TIMEOUT_S,
    ) -> None:
        self._fleet = fleet
        self._tasks = tasks
        self._rng = rng
        self._clock = clock
        self._watches: dict[str, Watch] = {}
        self._wiring = Wiring(
            fleet=fleet,
            fetcher=fetcher,
            on_event=on_event,
            on_round=on_round,
            on_plan=on_plan,
            clock=clock,
            sleep=sleep,
            get_timeout_s=get_timeout_s,
        )

    def set_backends(self, specs: Sequence[BackendSpec]) -> Changes:
        """Make this the list of backends: watch the new ones from now on, the removed ones no longer.

        Raises `ValueError` when two specs have the same name; nothing has changed then.
        """
        changes = self._fleet.set_backends(tuple(specs), self._clock())
        for backend in changes.removed:
            self._tasks.stop(task_name(backend))
            del self._watches[backend.name]
            self._wiring.on_plan(backend)
        for backend in changes.added:
            watch = Watch(backend, self._wiring, random.Random(self._rng.random()))  # noqa: S311 (jitter is no secret)
            self._watches[backend.name] = watch
            self._tasks.start(task_name(backend), watch.run)
        for backend in changes.turned:
            self._wiring.on_event(drained(backend))
        return changes

    def wake(self, name: str) -> None:
        """A request found this backend dead: read it now, not when its next round is due. The rate limit holds."""
        watch = self._watches.get(name)
        if watch is not None:
            watch.wake()


def task_name(backend: Backend) -> str:
    """Name of the background task that watches a backend."""
    return f"scrape {backend.name}"
