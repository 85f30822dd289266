"""Which addresses peers have: a list, or a name that is resolved again and again.

# ops: look · goal: a pod that comes is a peer within ten seconds
# plan: an answer is used as long as its TTL says, at least a second and at most ten
# warning: a failing name server changes nothing: the addresses of before stay

Which of them is this very instance is found out by asking (`node.py`). Forbidden here: connecting.
"""

import asyncio
import ipaddress
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final, Protocol

from pharos import names

SOONEST_S: Final = 1.0
LATEST_S: Final = 10.0
"""Seconds between two looks at a name, whatever its TTL."""
RETRY_S: Final = 2.0
"""Seconds until a name that could not be resolved is looked up again."""
MOST: Final = 64
"""Addresses; a full mesh of more would be a mistake."""
LOOKUP_S: Final = 3.0

Answered = tuple[list[tuple[str, int | None]], float]
"""Hosts with the port that a record names, and the TTL in seconds."""
Ask = Callable[[str, str], Awaitable[Answered]]
"""Asks for the records of a name and a type. Raises `LookupFault`; no such records are an empty list."""


class LookupFault(Exception):  # noqa: N818 - what a name server did, not what went wrong here
    """A name could not be resolved now; the text says why."""


class Members(Protocol):
    """Where other instances are."""

    async def look(self) -> tuple[tuple[str, ...], float]:
        """Addresses as `host:port`, and in how many seconds to look again. Raises `LookupFault`."""


class Listed:
    """A list out of the configuration. Names in it are resolved whenever one is connected to."""

    def __init__(self, members: Sequence[str]) -> None:
        self._members = tuple(dict.fromkeys(members))

    def __repr__(self) -> str:
        return f"<Listed {', '.join(self._members)}>"

    async def look(self) -> tuple[tuple[str, ...], float]:
        """See `Members.look`."""
        return self._members, LATEST_S


class Named:
    """A name with a record for each instance: A and AAAA, or SRV where it begins with `_`."""

    def __init__(self, name: str, port: int, ask: Ask | None = None) -> None:
        """`port`: where the name has none, and no SRV record tells."""
        self._name = name
        self._port = port
        self._ask = ask

    def __repr__(self) -> str:
        return f"<Named {self._name} port {self._port}>"

    async def look(self) -> tuple[tuple[str, ...], float]:
        """See `Members.look`."""
        if self._ask is None:
            self._ask = await asyncio.to_thread(system_resolver)  # what it loads takes a moment
        if self._name.startswith("_"):
            services, ttl = await self._ask(self._name, "SRV")
            found = [(host, port) for host, port in services if port]
            hosts, least = await self._addresses([host for host, _ in found])
            ports: dict[str, list[int | None]] = {}
            for host, port in found:
                ports.setdefault(host, []).append(port)
            both = [(address, port) for host, some in hosts.items() for address in some for port in ports[host]]
            ttl = min(ttl, least)
        else:
            hosts, ttl = await self._addresses([self._name])
            both = [(address, None) for address in hosts[self._name]]
        told = {endpoint(host, port if port is not None else self._port) for host, port in both}
        return tuple(sorted(told)[:MOST]), min(max(ttl, SOONEST_S), LATEST_S)

    async def _addresses(self, hosts: Sequence[str]) -> tuple[dict[str, list[str]], float]:
        if self._ask is None:
            raise LookupFault("there is nobody to ask")
        found: dict[str, list[str]] = {}
        least = LATEST_S
        for host in list(dict.fromkeys(hosts))[:MOST]:
            some = found[host] = []
            for kind in ("A", "AAAA"):
                answers, ttl = await self._ask(host, kind)
                some += [address for address, _ in answers]
                least = min(least, ttl) if answers else least
            if not some:
                some += await _known_here(host)
        return found, least


def endpoint(host: str, port: int) -> str:
    """An address as it is written with its port: one of IPv6 in brackets."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


async def _known_here(host: str) -> list[str]:
    """Addresses that the machine itself knows, as in its file of hosts."""
    try:
        ipaddress.ip_address(host)
    except ValueError:
        pass
    else:
        return [host]
    try:
        found = await names.lookup(host)
    except (OSError, UnicodeError):
        return []
    return [str(where[0]) for _, _, _, _, where in found]


def system_resolver(resolver: Any = None) -> Ask:  # noqa: ANN401 - of a library that is loaded late
    """Asks the machine's name servers. `resolver`: a resolver of dnspython instead of the machine's."""
    import dns.asyncresolver
    import dns.exception
    import dns.resolver

    async def ask(name: str, kind: str) -> Answered:
        nonlocal resolver
        try:
            if resolver is None:
                resolver = dns.asyncresolver.Resolver()
            answer = await resolver.resolve(name, kind, search=True, lifetime=LOOKUP_S)
        except (dns.resolver.NXDOMAIN, dns.resolver.NoAnswer):
            return [], LATEST_S
        except (dns.exception.DNSException, OSError) as fault:
            raise LookupFault(type(fault).__name__) from None
        ttl = float(answer.rrset.ttl) if answer.rrset is not None else SOONEST_S
        if kind == "SRV":
            return [(str(record.target).removesuffix("."), int(record.port)) for record in answer], ttl
        return [(str(record.address), None) for record in answer], ttl

    return ask
