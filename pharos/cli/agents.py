"""Which routes of coding agents a backend serves, asked without a model so that nothing runs.

Forbidden here: engines on which such a question could load something, or whose answer to it means nothing.
"""

import asyncio
from typing import Final

from pharos.cli.finding import ROUTES
from pharos.control.fetch import Fetcher
from pharos.core.engine import recipes
from pharos.core.engine.probe import SideEffect
from pharos.core.fleet import BackendSpec

TIMEOUT_S: Final = 0.7
_ABSENT: Final = frozenset({404, 405, 501})
_THERE: Final = frozenset({200, 400, 422, 500})
"""A route that is there complains about what is missing, some with a fault of their own."""


async def routes(fetcher: Fetcher, spec: BackendSpec, kind: str, *, asleep: bool | None) -> dict[str, bool | None]:
    """Route -> whether the backend serves it; `None`: it cannot be told without a model, or not while one sleeps."""
    recipe = recipes.by_kind(kind)
    may_wake = asleep is not False and any(probe.feed.side_effect is SideEffect.WAKES for probe in recipe.probes)
    if may_wake or not recipe.empty_post_tells:
        return dict.fromkeys(ROUTES)
    statuses = await asyncio.gather(*(_status(fetcher, spec, route) for route in ROUTES))
    return dict(zip(ROUTES, map(_judge, statuses), strict=True))


async def _status(fetcher: Fetcher, spec: BackendSpec, route: str) -> int | None:
    page = await fetcher.send(spec, "POST", route, b"{}", TIMEOUT_S)
    return page.status


def _judge(status: int | None) -> bool | None:
    if status in _ABSENT:
        return False
    return True if status in _THERE else None
