"""Host names to addresses, in threads of our own, so that a name server that does not answer holds up nobody else.

The event loop's own lookups share very few threads, and none can be called off: a few of them for one dead name would
stop those for all others. Here each name is looked up once at a time, and who asks meanwhile waits for the same answer.

Forbidden here: connecting, and keeping an address: a name may mean another machine the next time.
"""

import asyncio
import ipaddress
import socket
import threading
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, Final

import msgspec

from pharos.clock import Clock, monotonic

THREADS: Final = 16
"""The most names that are looked up at a time."""
REMEMBER_S: Final = 2.0
"""A name that could not be resolved is not looked up again for so long."""
SLOW_S: Final = 2.0
"""A lookup that takes longer counts as one that fails, until it comes to something."""
DOUBTED_WAIT_S: Final = 0.3
"""How long one waits for a name whose last lookup failed, or is slow."""

Address = tuple[int, int, int, str, tuple[Any, ...]]
"""Family, type, protocol, name, socket address, as `socket.getaddrinfo` gives them."""
Find = Callable[[str], Sequence[Address]]
"""Blocks; raises `OSError` or `UnicodeError` for a name without addresses."""


def _system(host: str) -> Sequence[Address]:
    return socket.getaddrinfo(host, None, type=socket.SOCK_STREAM, proto=socket.IPPROTO_TCP, flags=socket.AI_ADDRCONFIG)


class _Waiter(msgspec.Struct, frozen=True, eq=False):
    """Somebody who asked, on whichever loop."""

    loop: asyncio.AbstractEventLoop
    future: "asyncio.Future[Sequence[Address]]"

    def tell(self, found: Sequence[Address] | Exception) -> None:
        """From the thread that looked: a loop that has ended meanwhile is told nothing."""
        if not self.loop.is_closed():
            try:
                self.loop.call_soon_threadsafe(self._take, found)
            except RuntimeError:  # it was closed this very moment
                return

    def _take(self, found: Sequence[Address] | Exception) -> None:
        if self.future.done():
            return
        if isinstance(found, Exception):
            self.future.set_exception(found)
        else:
            self.future.set_result(found)


class _Lookup(msgspec.Struct, eq=False):
    """One lookup that runs, or waits for a thread."""

    host: str
    began: float
    waiters: list[_Waiter]


class Names:
    """Looks names up. Its threads never hold up the end of the program."""

    def __init__(self, find: Find = _system, *, threads: int = THREADS, clock: Clock = monotonic) -> None:
        self._find = find
        self._most = threads
        self._clock = clock
        self._lock = threading.Lock()
        self._running: dict[str, _Lookup] = {}
        self._queue: deque[_Lookup] = deque()
        self._threads = 0
        self._failed: dict[str, tuple[float, Exception]] = {}
        """Names whose last lookup failed, with when and how."""

    def __repr__(self) -> str:
        return f"<Names {len(self._running)} looked up by {self._threads} threads, {len(self._failed)} failed>"

    async def addresses(self, host: str) -> Sequence[Address]:
        """The addresses of a name, without a port. Raises `OSError` or `UnicodeError` for one that has none.

        Who stops waiting stops nothing: the lookup goes on for the others, and for what it tells of the name.
        """
        loop = asyncio.get_running_loop()
        if is_address(host):  # no server is asked
            return await loop.getaddrinfo(host, None, type=socket.SOCK_STREAM, proto=socket.IPPROTO_TCP)
        now = self._clock()
        with self._lock:
            failed = self._failed.get(host)
            if failed is not None and now - failed[0] < REMEMBER_S:
                raise _again(failed[1])
            lookup = self._running.get(host)
            if lookup is None:
                lookup = self._start(host, now)
            is_doubted = failed is not None or now - lookup.began >= SLOW_S
            waiter = _Waiter(loop, loop.create_future())
            lookup.waiters.append(waiter)
        try:
            async with asyncio.timeout(DOUBTED_WAIT_S if is_doubted else None):
                return await waiter.future
        except TimeoutError:
            raise socket.gaierror(socket.EAI_AGAIN, "the name server does not answer") from None
        finally:
            with self._lock:
                if waiter in lookup.waiters:
                    lookup.waiters.remove(waiter)

    def _start(self, host: str, now: float) -> _Lookup:
        lookup = self._running[host] = _Lookup(host, now, [])
        if self._threads < self._most:
            self._threads += 1
            threading.Thread(target=self._work, args=(lookup,), name="pharos-names", daemon=True).start()
        else:
            self._queue.append(lookup)
        return lookup

    def _work(self, lookup: _Lookup | None) -> None:
        """In a thread of its own: look names up until none is left."""
        while lookup is not None:
            found: Sequence[Address] | Exception
            try:
                found = self._find(lookup.host)
            except (OSError, UnicodeError) as error:
                found = error
            except Exception as error:  # noqa: BLE001 (the thread must tell those who wait, whatever it is)
                found = OSError(f"looking the name up failed: {type(error).__name__}")
            lookup = self._end(lookup, found)

    def _end(self, lookup: _Lookup, found: Sequence[Address] | Exception) -> _Lookup | None:
        """Tell what a lookup gave; return the next one for this thread."""
        with self._lock:
            del self._running[lookup.host]
            self._failed.pop(lookup.host, None)
            if isinstance(found, Exception):
                now = self._clock()
                self._failed = {host: one for host, one in self._failed.items() if now - one[0] < 60 * REMEMBER_S}
                self._failed[lookup.host] = (now, found)
            waiters = tuple(lookup.waiters)
            following = self._queue.popleft() if self._queue else None
            if following is None:
                self._threads -= 1
        for waiter in waiters:
            waiter.tell(_again(found) if isinstance(found, Exception) else found)
        return following


def _again(error: Exception) -> Exception:
    """A like error of one's own for each who asks: one that is raised twice would gather tracebacks."""
    if isinstance(error, UnicodeError):
        return UnicodeError(*error.args[:1]) if type(error) is UnicodeError else UnicodeError("no host name")
    return type(error)(*error.args)


def is_address(host: str) -> bool:
    """Whether this is an address already, IPv6 with or without a zone."""
    try:
        ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return False
    return True


names: Final = Names()
"""The program's only one: that a name is dead is true for all who ask."""


async def lookup(host: str) -> Sequence[Address]:
    """The addresses of a name; see `Names.addresses`."""
    return await names.addresses(host)


def with_port(address: Address, port: int) -> Address:
    """The same address with a port."""
    family, kind, proto, name, where = address
    return family, kind, proto, name, (where[0], port, *where[2:])
