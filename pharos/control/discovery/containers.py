"""Docker's list of containers to backends: where each one listens, as seen from where Pharos is.

Facts: a container restarted or just started may be listed without an address; the networks of a container come in no
order; a container on the host's network has neither networks with addresses nor ports. Seen on Docker 20.10 and 29.1.

Forbidden here: asking anybody.
"""

from collections.abc import Mapping, Sequence
from typing import Final

import msgspec

from pharos.config.schema import Credential
from pharos.control.discovery import labels
from pharos.core.fleet.backend import BackendSpec

HOST: Final = "host"


class Port(msgspec.Struct, frozen=True, rename="pascal"):
    """One exposed port; published ones are listed once for each address."""

    private_port: int = 0
    type: str = ""


class Network(msgspec.Struct, frozen=True):
    """One network that a container is in."""

    ip_address: str = msgspec.field(name="IPAddress", default="")
    ip6_address: str = msgspec.field(name="GlobalIPv6Address", default="")

    @property
    def address(self) -> str:
        """Its address there as it stands in a URL; empty while it has none."""
        return self.ip_address or (f"[{self.ip6_address}]" if self.ip6_address else "")


class Networks(msgspec.Struct, frozen=True, rename="pascal"):
    """The networks by name."""

    networks: dict[str, Network | None] | None = None


class HostConfig(msgspec.Struct, frozen=True, rename="pascal"):
    """How it was started."""

    network_mode: str = ""


class Place(msgspec.Struct, frozen=True, rename="pascal"):
    """Where a container is, from the list as from its description."""

    network_settings: Networks | None = None
    host_config: HostConfig | None = None

    @property
    def networks(self) -> dict[str, str]:
        """The address in each network, empty while it has none there."""
        found = self.network_settings.networks if self.network_settings is not None else None
        return {name: it.address if it is not None else "" for name, it in (found or {}).items()}

    @property
    def is_on_host(self) -> bool:
        """Whether it has the host's network instead of one of its own."""
        return HOST in self.networks or (self.host_config is not None and self.host_config.network_mode == HOST)


class Container(Place, frozen=True, rename="pascal"):
    """The little that is read of a listed container."""

    id: str = ""
    names: tuple[str, ...] | None = ()
    labels: dict[str, str] | None = None
    ports: tuple[Port, ...] | None = ()

    @property
    def name(self) -> str:
        """What people call it."""
        own = [name.lstrip("/") for name in self.names or () if name.count("/") <= 1]  # others are links of old
        return min(own, default=self.id[:12])


class Found(msgspec.Struct):
    """What one list makes."""

    specs: list[BackendSpec] = []
    refused: dict[str, str] = {}
    """Name of a container to why it is left out and what to do."""
    doubts: dict[str, str] = {}
    """Name of a backend to what is odd about it."""
    unaddressed: list[str] = []
    """Containers that have no address yet: look again soon."""


def backends(found: Sequence[Container], own: Place | None, credentials: Mapping[str, Credential]) -> Found:
    """The backends among running containers. `own`: the one that Pharos runs in; `None`: it runs on the host."""
    made = Found()
    places: dict[str, str] = {}
    for container in sorted(found, key=lambda one: one.name):
        try:
            marks = labels.marks(container.labels or {})
            if marks is None:
                continue
            url = marks.url if marks.url is not None else _url(container, marks, own, made)
            if url is not None:
                logs = f"docker://{container.name}"
                spec = labels.spec(container.name, url, marks, credentials, logs)
                other = places.setdefault(spec.url, container.name)
                if other == container.name:
                    made.specs.append(spec)
                else:  # one engine that counts twice would get twice what it can do
                    made.refused[container.name] = (
                        f"{spec.url} is {other}'s too, and counts once: give each its own port"
                    )
        except labels.LabelsError as fault:
            made.refused[container.name] = str(fault)
    return made


def _url(container: Container, marks: labels.Marks, own: Place | None, made: Found) -> str | None:
    """Where it listens; `None` while it has no address. Raises `LabelsError`."""
    address = _address(container, own, made)
    if address is None:
        return None
    port = marks.port if marks.port is not None else _port(container)
    return f"{marks.scheme}://{address}:{port}{marks.path.rstrip('/')}"


def _address(container: Container, own: Place | None, made: Found) -> str | None:
    if container.is_on_host:
        if own is None or own.is_on_host:
            return "127.0.0.1"
        text = (
            "it is on the host's network, which Pharos is not: add the label pharos.url with an address that Pharos has"
        )
        raise labels.LabelsError([text])
    addresses = {name: address for name, address in sorted(container.networks.items()) if address}
    if not addresses:
        if not container.networks:
            raise labels.LabelsError(["it is in no network: put it into one of Pharos's, or add the label pharos.url"])
        made.unaddressed.append(container.name)
        return None
    if own is None or own.is_on_host:
        return next(iter(addresses.values()))
    shared = [address for name, address in addresses.items() if name in own.networks]
    if not shared:
        made.doubts[container.name] = (
            f"{container.name} is in none of Pharos's networks ({', '.join(sorted(own.networks)) or 'none'}), only in "
            f"{', '.join(addresses)}: it may be out of reach; put both into one network, or add the label pharos.url"
        )
        return next(iter(addresses.values()))
    return shared[0]


def _port(container: Container) -> int:
    ports = sorted({port.private_port for port in container.ports or () if port.type == "tcp"})
    if len(ports) == 1:
        return ports[0]
    if not ports:
        raise labels.LabelsError(["it exposes no port: add the label pharos.port with the one its engine listens on"])
    listed = ", ".join(map(str, ports))
    raise labels.LabelsError([f"it exposes several ports ({listed}): add the label pharos.port with its engine's"])
