"""What an instance has in flight and in its queue, told whole whenever it changes.

Entries: `[backend, model, requests]` in flight, `[model, requests]` waiting. Forbidden here: keeping what others told.
"""

from collections.abc import Callable
from typing import Any, ClassVar, Final

from pharos.core.sched import Elsewhere, Report
from pharos.peer.section import Section

REPEAT_S: Final = 0.75
"""Told anew after so long though nothing changed: others believe a report for two seconds."""
MOST: Final = 20_000
"""Entries of one report that are looked at."""
NONE: Final[list[Any]] = [[]]
"""Nothing at all is in hand; an empty list would say that nothing has changed."""


class Gauges(Section):
    """Requests in hand."""

    name: ClassVar[str] = "gauges"
    is_latest: ClassVar[bool] = True

    def __init__(
        self, elsewhere: Elsewhere, waiting: Callable[[], dict[str, int]], on_news: Callable[[], object]
    ) -> None:
        """`waiting`: this instance's queue, by model. `on_news`: a slot may have come free."""
        self._elsewhere = elsewhere
        self._waiting = waiting
        self._on_news = on_news
        self._told: Report | None = None
        self._told_at = 0.0
        self._heard: dict[str, Report] = {}

    def changes(self, now: float) -> list[Any]:
        """See `Section.changes`."""
        report = self._elsewhere.own(self._waiting())
        if report == self._told and now - self._told_at < REPEAT_S:
            return []
        self._told, self._told_at = report, now
        return _written(report)

    def again(self, now: float) -> list[Any]:
        """See `Section.again`."""
        del now
        return _written(self._elsewhere.own(self._waiting()))

    def take(self, origin: str, entries: list[Any], now: float, *, is_restored: bool) -> None:
        """See `Section.take`. What a snapshot says of the moment is over."""
        if is_restored:
            return
        inflight: dict[tuple[str, str], int] = {}
        waiting: dict[str, int] = {}
        for entry in entries[:MOST]:
            match entry:
                case [str(backend), str(model), int(count)]:
                    inflight[backend, model] = count
                case [str(model), int(count)]:
                    waiting[model] = count
                case _:
                    continue
        report = Report(inflight, waiting)
        self._elsewhere.take(origin, report, now)
        if self._heard.get(origin) != report:
            self._heard[origin] = report
            self._on_news()

    def forget(self, origin: str, now: float) -> None:
        """See `Section.forget`."""
        del now
        self._elsewhere.forget(origin)
        if self._heard.pop(origin, None) is not None:
            self._on_news()


def _written(report: Report) -> list[Any]:
    flying = [[backend, model, count] for (backend, model), count in report.inflight.items()]
    return [*flying, *([model, count] for model, count in report.waiting.items())] or NONE
