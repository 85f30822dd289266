"""What the gauges are read from at one scrape. Forbidden here: text, and anything that changes what it shows."""

from collections.abc import Sequence

import msgspec

from pharos.core.fleet import Fleet
from pharos.core.prefix.buster import Busted
from pharos.obs.exposition import Bound


class Moment(msgspec.Struct, frozen=True, eq=False):
    """One scrape's view of the instance."""

    fleet: Fleet
    now: float
    """Seconds on the clock of the readings."""
    models: Bound
    keys: Bound
    waiting: int = 0
    """Requests in the queue."""
    busted: Sequence[Busted] = ()
    """Whose prompts no cache ever holds."""
    beginnings: int = 0
    """Of prompts in the prefix index."""

    def __repr__(self) -> str:
        return f"<Moment {self.now} {self.fleet!r}>"
