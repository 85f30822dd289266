"""The backends that the configuration lists: they are there from the start, and all that is left is to look at names.

A host name with several addresses may hide several engines behind one backend, whose numbers would then be those of
whichever engine answered last. Pharos does not split such a name; it says so.

Forbidden here: dropping a backend. A name that cannot be resolved now may be there later: the scraper goes on trying.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Final
from urllib.parse import urlsplit

from pharos import names
from pharos.core.fleet.backend import BackendSpec
from pharos.core.fleet.events import Event

LOOKUP_TIMEOUT_S: Final = 5.0
"""The most seconds to wait for a name; it is only for a remark."""

Lookup = Callable[[str], Awaitable[Sequence[str]]]
"""Host name to its addresses. Raises `OSError` or `UnicodeError` when there are none."""


async def addresses_of(host: str) -> Sequence[str]:
    """Every address of a host name, as the system resolves it."""
    return [str(sockaddr[0]) for *_, sockaddr in await names.lookup(host)]


async def remarks(specs: Sequence[BackendSpec], lookup: Lookup = addresses_of) -> list[Event]:
    """One event for each backend whose host name has several addresses of one family. Never raises for a bad name."""
    found = await asyncio.gather(*(_remark(spec, lookup) for spec in specs))
    return [event for event in found if event is not None]


async def _remark(spec: BackendSpec, lookup: Lookup) -> Event | None:
    host = urlsplit(spec.url).hostname
    if host is None or names.is_address(host):
        return None
    try:
        async with asyncio.timeout(LOOKUP_TIMEOUT_S):
            addresses = dict.fromkeys(await lookup(host))
    except (OSError, UnicodeError):
        return None  # the scraper will say that it cannot be reached
    families = [[a for a in addresses if (":" in a) is is_v6] for is_v6 in (False, True)]
    if all(len(family) <= 1 for family in families):  # one of each is one machine with two stacks
        return None
    text = (
        f"{spec.name}: {host} has {len(addresses)} addresses ({', '.join(addresses)}). If these are several engines, "
        "their numbers get mixed up: list each address as a backend of its own"
    )
    return Event("scrape", "", spec.name, "warning", text)
