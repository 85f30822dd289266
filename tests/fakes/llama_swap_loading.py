"""What a llama-swap with `sendLoadingState` tells a client while a model loads: recorded text before the reply."""

from collections.abc import Mapping
from typing import Any

import msgspec

from tests.fakes.captures import Recorded
from tests.fakes.http import Connection
from tests.fakes.llama_swap_models import VERSION
from tests.fakes.replies import Book, Exchange, asks_usage, book, events_of

LOADING: Book = book("llama-swap", f"{VERSION}-loading-state")
DONE = b'"Done!"'
"""In the first event that comes when the model is there."""
OF_THE_MODEL = b'"finish_reason"'
"""In all events of the model's server, and in none of llama-swap's own."""


class Loading:
    """One stream that began before its model was there."""

    def __init__(self, asked: Mapping[str, Any], connection: Connection) -> None:
        usage = asks_usage(asked)
        self._exchange = LOADING.named("chat_stream_loading_state_swap" if usage else "chat_stream_loading_state")
        self._connection = connection
        events = events_of(self._exchange.reply)
        own = [event for event in events if b'"reasoning_content"' in event and OF_THE_MODEL not in event]
        done = next(number for number, event in enumerate(own) if DONE in event)
        self._while_loading, self._once_there = own[:done], own[done:]
        self._rest = events[len(own) :]

    async def begin(self) -> None:
        """Send the head, and the text for who waits."""
        headers = {**self._exchange.reply.headers, "Transfer-Encoding": "chunked"}
        await self._connection.head(self._exchange.reply.status, headers)
        await self._send(self._while_loading)

    async def end(self) -> Exchange:
        """Say that the model is there; return what its server sends then."""
        await self._send(self._once_there)
        reply = self._exchange.reply
        rest = Recorded(reply.status, reply.headers, b"".join(self._rest))
        return msgspec.structs.replace(self._exchange, reply=rest)

    async def _send(self, events: list[bytes]) -> None:
        for event in events:
            await self._connection.chunk(event)
