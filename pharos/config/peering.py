"""What can be wrong with how other instances are found. Forbidden here: asking a name server, reading a secret."""

import re
from collections.abc import Iterator
from typing import Final

from pharos.config import units
from pharos.config.problems import Problem
from pharos.config.schema import Config

_NAME: Final = re.compile(r"[A-Za-z0-9_]([A-Za-z0-9_.-]{0,252}[A-Za-z0-9.])?")


def check(config: Config) -> Iterator[Problem]:
    """Everything wrong with `peers`."""
    peers = config.peers
    if peers is None:
        return
    if peers.members and peers.dns is not None:
        yield Problem("peers", "has members and dns: keep one, the list or the name that resolves to all instances")
    if not peers.members and peers.dns is None:
        yield Problem("peers", "names no other instance: write `members: [host:port, …]`, or `dns: name`")
    for index, member in enumerate(peers.members):
        fault = _fault(member)
        if fault is not None:
            yield Problem(f"peers.members[{index}]", fault)
    if peers.dns is not None:
        fault = _fault(peers.dns) if ":" in peers.dns else _name_fault(peers.dns)
        if fault is not None:
            yield Problem("peers.dns", fault)
    if peers.listen in (config.listen, config.metrics_listen, config.admin_listen):
        yield Problem("peers.listen", f"{peers.listen} is another listener's address too: choose another port")


def _fault(address: str) -> str | None:
    """What is wrong with the address of a member."""
    if "://" in address:
        return f"{address} is a URL, not an address: write it like pharos-b:8081"
    host, has_port, port = address.rpartition(":")
    if not has_port or not host:
        return f"{address} has no port or no host: write it like pharos-b:8081"
    if not port.isdecimal() or not 0 < int(port) <= units.LAST_PORT:
        return f"{address} has no port at its end: write it like pharos-b:8081 or [::1]:8081"
    if host.startswith("["):
        try:
            units.split_address(address)
        except ValueError as fault:
            return str(fault)
        return None
    if ":" in host:
        return f"{address} is an address of IPv6 without brackets: write it like [::1]:8081"
    return _name_fault(host)


def _name_fault(name: str) -> str | None:
    return None if _NAME.fullmatch(name) else f"{name} is no name of a host"
