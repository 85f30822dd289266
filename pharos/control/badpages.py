"""Pages of one backend that cannot be had while others can: what is said of them, once.

Forbidden here: fetching, and any time but the one that is passed in.
"""

from collections.abc import Mapping
from typing import Final

from pharos.core.engine.probe import FetchFault, Page

WELL_AFTER_S: Final = 60.0
"""A page that was bad is well again when it was not for so long: one that is bad now and then is told once."""
STARTING_STATUS: Final = 503
FAILING_FROM: Final = 500
LENGTH_TOLD: Final = 60
"""Characters of a path that are told: it may hold the name of a model."""


class BadPages:
    """What was told, and until when it holds."""

    def __init__(self) -> None:
        self._bad_at: dict[str, float] = {}
        """Request -> when it last gave no page."""
        self._again: set[str] = set()
        """Of the last round those that were bad before."""

    def held(self, now: float) -> list[str]:
        """Requests that gave no page in the round of `now`, and did not before."""
        return [ask for ask, at in self._bad_at.items() if at == now and ask in self._again]

    def __repr__(self) -> str:
        return f"<BadPages {len(self._bad_at)}>"

    def note(self, pages: Mapping[str, Page], now: float) -> dict[str, str]:
        """Take in a round in which the engine answered something; return the pages that are newly bad, and why."""
        self._again = self._bad_at.keys() & pages.keys()
        news: dict[str, str] = {}
        for ask, page in pages.items():
            why = _why_bad(page)
            if why:
                if ask not in self._bad_at:
                    news[ask] = why
                self._bad_at[ask] = now
            elif ask in self._bad_at and now - self._bad_at[ask] >= WELL_AFTER_S:
                del self._bad_at[ask]
        return news


def _why_bad(page: Page) -> str:
    """What is wrong with a page, if the plan does not find that out by itself: empty if nothing, or if only late."""
    if page.fault is not None:
        return page.fault.value if page.fault is not FetchFault.TIMEOUT else ""
    return f"status {page.status}" if page.status is not None and page.status >= FAILING_FROM else ""


def news_text(name: str, news: Mapping[str, str]) -> str:
    """One line for people about pages that cannot be had."""
    ask, why = next(iter(news.items()))
    short = ask if len(ask) <= LENGTH_TOLD else ask[: LENGTH_TOLD - 1] + "…"
    more = f" and {len(news) - 1} more" if len(news) > 1 else ""
    return f"{name}: {short}{more} cannot be read ({why}); what only it tells is unknown"


def is_answer(page: Page) -> bool:
    """Whether this shows an engine that is there and ready."""
    return page.status is not None and page.status != STARTING_STATUS
