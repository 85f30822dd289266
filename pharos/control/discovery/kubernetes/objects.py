"""The dozen fields that are read of Pods, Services and EndpointSlices, and of what a watch sends.

Facts: the API's reference of core/v1 and discovery.k8s.io/v1; a field that is absent is absent, not null, but both
occur in what programs write by hand. Forbidden here: judging anything.
"""

from typing import Final

import msgspec

Labels = dict[str, str]
PREFIX: Final = "pharos."
SERVICE: Final = "kubernetes.io/service-name"
"""The label by which a slice names its Service."""


class Object(msgspec.Struct, frozen=True, rename="camel"):
    """Base of all: names as the API writes them, what is not named here is left unread."""


class Reference(Object, frozen=True):
    """What an endpoint stands for."""

    kind: str = ""
    name: str = ""
    uid: str = ""


class Meta(Object, frozen=True):
    """What every object has."""

    name: str = ""
    namespace: str = ""
    uid: str = ""
    labels: Labels | None = None
    annotations: dict[str, str] | None = None
    deletion_timestamp: str | None = None

    def __post_init__(self) -> None:
        """Keep only what is read: others write much, and often, into annotations."""
        if self.annotations:
            kept = {name: text for name, text in self.annotations.items() if name.startswith(PREFIX)}
            msgspec.structs.force_setattr(self, "annotations", kept or None)
        if self.labels:
            kept = {name: text for name, text in self.labels.items() if name.startswith(PREFIX) or name == SERVICE}
            msgspec.structs.force_setattr(self, "labels", kept or None)

    @property
    def key(self) -> str:
        """Its name in its cluster, among those of its kind."""
        return f"{self.namespace}/{self.name}"


class ContainerPort(Object, frozen=True):
    """A port that a container declares."""

    container_port: int = 0
    name: str = ""
    protocol: str = "TCP"


class Present(Object, frozen=True):
    """Something of which only matters that it is there."""


class Lifecycle(Object, frozen=True):
    """What a container does besides running."""

    pre_stop: Present | None = None


class Container(Object, frozen=True):
    """One container of a Pod."""

    name: str = ""
    lifecycle: Lifecycle | None = None
    ports: tuple[ContainerPort, ...] | None = ()


class PodSpec(Object, frozen=True):
    """What a Pod should be."""

    containers: tuple[Container, ...] | None = ()
    termination_grace_period_seconds: int | None = None


class Condition(Object, frozen=True):
    """One of a Pod's conditions."""

    type: str = ""
    status: str = ""


class Address(Object, frozen=True):
    """One address of a Pod."""

    ip: str = ""


class PodStatus(Object, frozen=True):
    """What a Pod is."""

    phase: str = ""
    pod_ip: str = msgspec.field(name="podIP", default="")
    conditions: tuple[Condition, ...] | None = ()


class Pod(Object, frozen=True):
    """A Pod."""

    metadata: Meta = Meta()
    spec: PodSpec = PodSpec()
    status: PodStatus = PodStatus()

    @property
    def has_begun(self) -> bool:
        """Whether its containers were started, as far as that is known; before, nobody listens at its address."""
        return self.status.phase != "Pending" and self.status.pod_ip != ""

    @property
    def is_over(self) -> bool:
        """Whether its containers ended for good."""
        return self.status.phase in {"Succeeded", "Failed"}

    @property
    def is_ready(self) -> bool:
        """Whether it is ready as Kubernetes sees it, readiness gates included, and is not ending."""
        ready = any(one.type == "Ready" and one.status == "True" for one in self.status.conditions or ())
        return ready and self.metadata.deletion_timestamp is None


class ServicePort(Object, frozen=True):
    """A port of a Service."""

    port: int = 0
    name: str = ""
    protocol: str = "TCP"


class ServiceSpec(Object, frozen=True):
    """What a Service is."""

    type: str = "ClusterIP"
    selector: dict[str, str] | None = None
    """Absent: whoever made the Service also says what is behind it."""
    ports: tuple[ServicePort, ...] | None = ()


class Service(Object, frozen=True):
    """A Service."""

    metadata: Meta = Meta()
    spec: ServiceSpec = ServiceSpec()


class EndpointConditions(Object, frozen=True):
    """Absent means "unknown", which the API wants to be read as ready and not ending."""

    ready: bool | None = None
    terminating: bool | None = None


class Endpoint(Object, frozen=True):
    """One endpoint of a slice."""

    addresses: tuple[str, ...] | None = ()
    conditions: EndpointConditions = EndpointConditions()
    target_ref: Reference | None = None

    @property
    def is_ready(self) -> bool:
        """Whether it may get new requests."""
        return self.conditions.ready is not False and not self.conditions.terminating


class EndpointPort(Object, frozen=True):
    """A port that all endpoints of a slice have; its name is that of the Service's port."""

    port: int | None = None
    name: str | None = None
    protocol: str | None = None


class EndpointSlice(Object, frozen=True):
    """Some of the endpoints of a Service, all of one family."""

    metadata: Meta = Meta()
    address_type: str = "IPv4"
    endpoints: tuple[Endpoint, ...] | None = ()
    ports: tuple[EndpointPort, ...] | None = ()

    @property
    def service(self) -> str:
        """The key of its Service; of nobody's when the label is missing."""
        name = (self.metadata.labels or {}).get(SERVICE, "")
        return f"{self.metadata.namespace}/{name}"


class ListMeta(Object, frozen=True):
    """What a list says of itself."""

    resource_version: str = ""
    continue_: str = msgspec.field(name="continue", default="")


class RawList(Object, frozen=True):
    """One page of a list, its items still bytes: one that cannot be read must not hide the others."""

    metadata: ListMeta = ListMeta()
    items: tuple[msgspec.Raw, ...] | None = ()


class Change(Object, frozen=True):
    """One line of a watch."""

    type: str
    object: msgspec.Raw


class Status(Object, frozen=True):
    """How the API says that something failed."""

    code: int = 0
    reason: str = ""


class Versioned(Meta, frozen=True):
    """With what a watch goes on from; apart, since it changes when nothing that is read here does."""

    resource_version: str = ""


class Head(Object, frozen=True):
    """What is read of a bookmark, and of an object that cannot be read whole."""

    metadata: Versioned = Versioned()
