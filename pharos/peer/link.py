"""How an instance reaches another one, as far as the rest of the plane knows: two calls that may fail in few ways.

Forbidden here: sockets (`http.py` has them, and tests have links of their own).
"""

from collections.abc import AsyncIterator
from typing import Literal, Protocol

Kind = Literal["unreachable", "refused", "protocol", "broken"]
"""Nobody answers there; they do not know our secret; they speak another protocol; they answer nonsense."""


class LinkFault(Exception):  # noqa: N818 - what the other side did, not what went wrong here
    """A call did not come to its end."""

    def __init__(self, kind: Kind, text: str, theirs: int | None = None) -> None:
        """`text`: for people. `theirs`: the protocol that they speak, if that is known."""
        super().__init__(text)
        self.kind = kind
        self.theirs = theirs


class Link(Protocol):
    """Calls to peers by address. Each raises `LinkFault`, and ends within a time of its own."""

    async def tell(self, address: str, delta: bytes) -> bytes:
        """Send a delta; the answer's bytes."""

    def pull(self, address: str) -> AsyncIterator[bytes]:
        """Ask for a snapshot; its bytes as they come."""
