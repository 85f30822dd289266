"""A double of any recorded engine: it answers what the recording of one state has, and models nothing.

It serves the kinds whose bodies were made by hand, and is what the doubles that model something are compared with.
"""

import json
from typing import Any

from pharos.clock import Clock, monotonic
from tests.fakes import captures
from tests.fakes.captures import TESTDATA
from tests.fakes.engine import EngineDouble, Pace
from tests.fakes.http import Connection, Reply, Seen
from tests.fakes.replies import Book, Exchange, book, events_of

NOT_FOUND = Reply(404, b"not found", {"Content-Type": "text/plain"})


class Replayed(EngineDouble):
    """One recording; `state` may be changed at any time. Its streams are held like those of other doubles."""

    def __init__(
        self,
        engine: str,
        version: str,
        state: str,
        *,
        port: int = 0,
        clock: Clock = monotonic,
        pace: Pace | None = None,
    ) -> None:
        super().__init__(port=port, clock=clock, pace=pace)
        self.engine = engine
        self.version = version
        self.state = state
        self.running = 0
        """Generations inside."""
        has_streams = (TESTDATA / engine / version / "streams").is_dir()
        self.book: Book = book(engine, version) if has_streams else Book(())

    @property
    def is_idle(self) -> bool:
        return self.running == 0

    async def respond(self, request: Seen, connection: Connection) -> None:
        exchange = self._exchange(request)
        if exchange is not None:
            await self._send(exchange, connection)
        elif request.method == "GET":
            await connection.send(self._page(request.path))
        else:
            await connection.send(self._unknown())

    def _page(self, path: str) -> Reply:
        pages = captures.state(self.engine, self.version, self.state)
        recorded = pages.get(path) or pages.get(path.partition("?")[0])
        if recorded is None:
            return self._unknown()
        return Reply(recorded.status, recorded.body, recorded.headers)

    def _unknown(self) -> Reply:
        return self.book.named("err_unknown_route").whole if "err_unknown_route" in self.book else NOT_FOUND

    def _exchange(self, request: Seen) -> Exchange | None:
        """The exchange in which this was asked, by the model's full name or its short one."""
        try:
            asked = json.loads(request.body) if request.body else None
        except (ValueError, RecursionError):
            return None
        found = self.book.exact(request.method, request.path, asked)
        if found is None and isinstance(asked, dict) and str(asked.get("model")).endswith(":latest"):
            found = self.book.exact(request.method, request.path, _short(asked))
        return found

    async def _send(self, exchange: Exchange, connection: Connection) -> None:
        if self.refusals:
            await connection.send(self.refusals.popleft())
        elif exchange.is_stream:
            await self.counted(self._stream(exchange, connection))
        else:
            await connection.send(exchange.whole)

    async def _stream(self, exchange: Exchange, connection: Connection) -> None:
        self.running += 1
        try:
            reply = exchange.reply
            await connection.head(reply.status, {**reply.headers, "Transfer-Encoding": "chunked"})
            for sent, event in enumerate(events_of(reply)):
                await self.pause_if_held(sent)
                await connection.chunk(event)
            await connection.chunk(b"")
        finally:
            self.running -= 1


def _short(asked: dict[str, Any]) -> dict[str, Any]:
    return {**asked, "model": asked["model"].removesuffix(":latest")}
