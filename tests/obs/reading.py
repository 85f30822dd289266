"""Reads pages that are made in steps; a scrape by the client library's own parser."""

from collections.abc import Generator
from typing import TypeVar

from prometheus_client.parser import text_string_to_metric_families

from pharos.core.fleet.registry import Fleet
from pharos.core.prefix.buster import Busted
from pharos.obs.metrics import Metrics

Samples = dict[tuple[str, tuple[str, ...]], float]
T = TypeVar("T")


def whole(steps: Generator[None, None, T]) -> T:
    """What it is in the end."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            made: T = end.value
            return made


def text(metrics: Metrics, fleet: Fleet, now: float, waiting: int = 0, busted: tuple[Busted, ...] = ()) -> str:
    """The page as it is sent."""
    return whole(metrics.render(metrics.moment(fleet, now, waiting, busted))).decode()


def samples(page: str) -> Samples:
    """Name and label values to number."""
    families = text_string_to_metric_families(page)
    return {(one.name, tuple(one.labels.values())): one.value for family in families for one in family.samples}
