"""A stream of events that any number of clients follow: each gets what is told from its connecting on."""

import asyncio
from collections.abc import Iterable

from tests.fakes.http import Connection


class Broadcast:
    """The followers of one stream."""

    def __init__(self) -> None:
        self._followers: list[asyncio.Queue[bytes]] = []

    @property
    def followers(self) -> int:
        return len(self._followers)

    def tell(self, event: bytes) -> None:
        """Send an event, as it stands on the wire, to everybody who follows."""
        for follower in self._followers:
            follower.put_nowait(event)

    async def follow(self, connection: Connection, first: Iterable[bytes], headers: dict[str, str]) -> None:
        """Send what there is, then what comes, until the client goes away."""
        queue: asyncio.Queue[bytes] = asyncio.Queue()
        for event in first:
            queue.put_nowait(event)
        self._followers.append(queue)
        try:
            await connection.head(200, {**headers, "Transfer-Encoding": "chunked"})
            while True:
                await connection.chunk(await queue.get())
        finally:
            self._followers.remove(queue)
