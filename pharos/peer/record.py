"""What people and metrics are told of peers. Records only."""

from typing import Literal

import msgspec

State = Literal["new", "up", "silent", "left", "refused", "protocol_differs"]
"""Not reached yet; all is well; not heard of or not to be reached; ended in good order; one of the two does not know
the other's secret; the two speak different protocols and share nothing."""


class PeerRecord(msgspec.Struct, frozen=True, kw_only=True):
    """One peer as of a moment. Counts are since this process began."""

    name: str
    """Its address, or its origin where nobody told its address."""
    origin: str | None
    """Which process it is; `None`: not known yet."""
    state: State
    up: bool
    """Whether it took our last delta."""
    heard_ago_s: float | None
    """Seconds since its last delta; `None`: none has come."""
    heard_at: float | None
    """The same in seconds since 1970."""
    config_differs: tuple[str, ...]
    """Parts of the configuration that are others there: `backends`, `keys`, `zone`."""
    protocol: int | None
    """The protocol that it speaks, where that is another one."""
    bytes_sent: int
    bytes_received: int
    entries_sent: int
    entries_received: int
    dropped: int
    """Entries that it was never sent, since it took them too slowly."""
    error: str
    """Why it is not up, for people; empty when it is."""
