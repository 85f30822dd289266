"""The steady state of a chunked stream of events: what one read costs once the first token has passed.

Every read of every stream comes this way. Between two events of one stream the processor has forgotten this code, so
what is felt is each function and each object more, not the number of steps: hence one function that does it all.
"""

import asyncio
import os
from collections.abc import Callable
from typing import Protocol

from pharos.clock import Clock
from pharos.proxy.chunks import LONGEST, STARTS, framed
from pharos.proxy.signs import matters
from pharos.proxy.tap import Tap

HEARD_EVERY_S = 1.0
"""How often a running reply tells the fleet that its engine lives."""

Flow = Callable[[bytes], None]
"""Takes what one read gave."""


class Reply(Protocol):
    """The reply that runs, as far as its steady state can end it."""

    def client_left(self) -> None:
        """The client is gone."""

    def fault(self, error: Exception) -> None:
        """Something here is wrong: such an exception must not look like the engine's death."""


def steady(
    reply: Reply,
    tap: Tap,
    wire: asyncio.WriteTransport,
    clock: Clock,
    heard: Callable[[float], None],
    parse: Flow,
    heard_next: float = 0.0,
) -> tuple[Flow, Flow]:
    """How reads of this reply go to the client's `wire` from now on: body bytes, and reads that may be a whole chunk.

    The latter stand where a chunk begins; those that are none, or that the tap must see, go to `parse`. `heard` is told
    now and then, first at `heard_next`.
    """
    feed, write, is_closing, waiting = tap.feed, wire.write, wire.is_closing, wire.get_write_buffer_size
    late, ends, send, place = tap.signs.late, tap.signs.chunk_ends, os.write, _place(wire)
    one, two, three, four = late

    def flow(body: bytes) -> None:
        nonlocal heard_next
        try:
            body = feed(body)
            if is_closing():
                reply.client_left()
            elif body:
                write(framed(body))
            now = clock()
            if now >= heard_next:
                heard_next = now + HEARD_EVERY_S
                heard(now)
        except Exception as error:  # noqa: BLE001 - see `Reply.fault`
            reply.fault(error)

    def take_chunk(chunk: bytes) -> None:
        nonlocal heard_next
        size, parted = len(chunk), chunk.partition  # asked of bytes, `in` makes and drops an exception each time
        if (
            size >= LONGEST
            or not tap.is_between
            or not chunk.startswith(STARTS[size])
            or not chunk.endswith(ends)
            or is_closing()
            or ((parted(one)[1] or parted(two)[1] or parted(three)[1] or parted(four)[1]) and matters(chunk, late))
        ):
            parse(chunk)
            return
        try:
            now = clock()
            if now >= heard_next:
                heard_next = now + HEARD_EVERY_S
                heard(now)
            sent = 0 if waiting() else send(place, chunk)  # past the transport, which keeps what does not fit now
            if sent < size:
                write(chunk[sent:])
        except OSError:
            write(chunk)  # it finds out what is wrong, or waits
        except Exception as error:  # noqa: BLE001 - as above
            reply.fault(error)

    return flow, take_chunk


def _place(wire: asyncio.WriteTransport) -> int:
    """The descriptor to which a transport writes; -1, on which every write fails, where it sends other bytes on."""
    sock = wire.get_extra_info("socket")
    return -1 if sock is None or wire.get_extra_info("sslcontext") is not None else int(sock.fileno())
