"""The end of a process: still accepting while load balancers notice, then finishing what runs, then closing.

No request is refused here and no stream is broken before the timeout.
"""

import asyncio
from collections.abc import Sequence
from typing import Protocol

from pharos.proxy.relay import End, Relay

LOOK_EVERY_S = 0.02
CUT_FLUSH_S = 1.0
HALF_SENT_S = 1.0
"""Seconds a client has to finish a head that it had begun when the grace ended."""
ENDING = "this instance is ending"
RETRY_AFTER_S = 1
"""Seconds after which a client that was sent away will find another instance."""


class Client(Protocol):
    """A client's connection, as far as its end matters."""

    relay: Relay | None

    @property
    def is_idle(self) -> bool:
        """Whether it has no request, whole or in part."""

    @property
    def is_half_sent(self) -> bool:
        """Whether all it has is the beginning of a request's head."""

    @property
    def kept_at(self) -> float:
        """When its last reply promised that it may carry another request, else when it came, on the loop's clock."""

    @property
    def is_flushed(self) -> bool:
        """Whether everything written has left."""

    def force_close(self) -> None:
        """Close it."""


class Draining(Protocol):
    """The proxy, as far as its end matters."""

    draining: bool
    inflight: int

    @property
    def connections(self) -> Sequence[Client]:
        """The clients connected now."""

    async def stop_accepting(self) -> None:
        """Close the listening sockets."""

    def refuse_waiting(self) -> None:
        """Refuse everyone who waits for a slot or comes for one."""

    async def close(self) -> None:
        """Close everything."""


async def drain(proxy: Draining, grace_s: float, timeout_s: float) -> None:
    """Fail health checks for `grace_s`, stop accepting, wait up to `timeout_s` for replies to end, cut, close.

    A reply that began before promised that its connection is kept, and its client may ask again at once: as long as the
    grace it is still answered, with the word that this was the last time. Closing between the two is a reset to it.
    """
    loop = asyncio.get_running_loop()
    proxy.draining = True
    await asyncio.sleep(grace_s)
    await proxy.stop_accepting()
    ended = loop.time()
    # The end of many things at once has no one event to wait for.
    while (now := loop.time()) < ended + timeout_s and not _is_done(  # noqa: ASYNC110 - nothing tells of it
        proxy, kept_before=now - grace_s, patient=now < ended + HALF_SENT_S
    ):
        await asyncio.sleep(LOOK_EVERY_S)
    proxy.refuse_waiting()
    _cut(proxy)
    ended = loop.time()
    while loop.time() < ended + CUT_FLUSH_S and not _is_done(proxy, kept_before=loop.time(), patient=False):
        await asyncio.sleep(LOOK_EVERY_S)
        _cut(proxy)  # one that was just connecting to its engine
    await proxy.close()


def _cut(proxy: Draining) -> None:
    for connection in proxy.connections:
        if connection.relay is not None:
            connection.relay.cut(End.SHUTDOWN, ENDING, "shutting_down")


def _is_done(proxy: Draining, *, kept_before: float, patient: bool) -> bool:
    """Whether nothing is left but idle connections, which are closed on the way.

    `kept_before`: those that promised it later stay open for another request. `patient`: half a head is waited for.
    """
    for connection in proxy.connections:
        if connection.is_idle and connection.is_flushed and connection.kept_at <= kept_before:
            connection.force_close()
    left = proxy.connections
    return proxy.inflight == 0 and all(c.is_flushed and (c.is_half_sent and not patient) for c in left)
