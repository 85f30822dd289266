"""All Pods, Services and EndpointSlices to the backends among them, each once.

A Service is one backend for each endpoint, never its own address: what an engine has loaded and cached is its own.
A Pod's annotations win over its Service's, field by field. Who is not ready or is ending gets no new request (`drain`)
and keeps its state; who has ended is gone. An object that is refused counts as one without annotations.

Forbidden here: asking anybody, and keeping anything between two calls but what the same objects would make again.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Final, TypeVar

import msgspec

from pharos.config.schema import Credential
from pharos.control.discovery.kubernetes.objects import Endpoint, EndpointSlice, Meta, Pod, Service
from pharos.control.discovery.kubernetes.verdicts import Front, Judge, Refusal, Spot
from pharos.core.fleet.backend import BackendSpec

NO_ENDPOINTS: Final = "a Service of type ExternalName has no endpoints: list the engine under `backends` of pharos.yaml"
NOTHING_BEHIND: Final = (
    "it has no selector and no EndpointSlice: nothing is behind it until somebody makes one, "
    "or lists the engine under `backends` of pharos.yaml"
)
NAMES: Final = "its endpoints are names (FQDN), which are not followed: list them under `backends` of pharos.yaml"
AT_ONCE: Final = 10
"""Objects that are judged in one step: with annotations that no other has, each takes half a millisecond."""
T = TypeVar("T")


class Subject(msgspec.Struct, frozen=True):
    """The object whose annotations are meant."""

    kind: str
    namespace: str
    name: str
    uid: str

    def __str__(self) -> str:
        return f"{self.kind} {self.namespace}/{self.name}"


class Found(msgspec.Struct):
    """What one look makes."""

    specs: list[BackendSpec] = []
    refused: dict[Subject, str] = {}
    """Why it is left out, and what to do."""
    notes: dict[Subject, str] = {}
    """What is odd, though nothing is left out for good."""


class Seen(msgspec.Struct, frozen=True):
    """Everything that is known of the cluster, by key."""

    pods: Mapping[str, Pod] = {}
    services: Mapping[str, Service] = {}
    slices: Mapping[str, EndpointSlice] = {}
    blind: frozenset[str | None] = frozenset()
    """Namespaces whose Pods may not be read (`None`: all): there, an endpoint counts without its Pod."""


class Finder:
    """Makes backends of what is seen. What did not change since the last look is not judged again."""

    def __init__(self, *, own_uid: str | None = None, allow_url: bool = False, pod_logs: bool = False) -> None:
        """`own_uid`: of the Pod that Pharos runs in. `pod_logs`: whether it may read logs."""
        self.own_uid = own_uid
        self.judge = Judge(allow_url=allow_url, pod_logs=pod_logs)
        self._kept: dict[str, tuple[tuple[object, ...], object]] = {}
        self._next: dict[str, tuple[tuple[object, ...], object]] = {}
        self._fresh = 0
        """Judged since the last step."""

    def find(self, seen: Seen, credentials: Mapping[str, Credential]) -> Found:
        """Look at everything."""
        *_, found = self.steps(seen, credentials)
        assert found is not None  # noqa: S101 - the last one
        return found

    def steps(self, seen: Seen, credentials: Mapping[str, Credential]) -> Iterator[Found | None]:
        """Look at everything: `None` whenever as much was judged as may hold up others, at last what was found."""
        if credentials != self.judge.credentials:
            self._kept.clear()
            self.judge.begin(credentials)
        self._next, self._fresh = {}, 0
        look = _Look(self, seen)
        for _ in look.everything():
            if self._fresh >= AT_ONCE:
                self._fresh = 0
                yield None
        self._kept = self._next
        yield look.found

    def judged(self, key: str, judge: Callable[..., T], *of: object) -> T:
        """What `judge` makes of these, called only when they are not those of the last look."""
        kept = self._kept.get(key)
        if kept is None or kept[0] != of:
            kept = (of, judge(*of))
            self._fresh += 1
        self._next[key] = kept
        return kept[1]  # type: ignore[return-value]


class _Look:
    """One look at everything."""

    def __init__(self, finder: Finder, seen: Seen) -> None:
        self.found = Found()
        self._finder = finder
        self._seen = seen
        self._taken: dict[str, Subject] = {}
        """By the key of a Pod, or by the address of an endpoint without one: which Service has it."""
        self._urls: dict[str, tuple[int, Subject]] = {}
        """By URL: the place in the list of who has it, and who that is."""

    def everything(self) -> Iterator[None]:
        """Look at each Service, endpoint and Pod."""
        seen = self._seen
        by_service: dict[str, list[EndpointSlice]] = {}
        for key in sorted(seen.slices):
            by_service.setdefault(seen.slices[key].service, []).append(seen.slices[key])
        for key in sorted(seen.services):
            yield from self._service(seen.services[key], by_service.get(key, []))
        for key in sorted(seen.pods):
            self._pod(key, seen.pods[key])
            yield

    def _service(self, service: Service, slices: list[EndpointSlice]) -> Iterator[None]:
        yield
        key = service.metadata.key
        front = self._finder.judged(f"Service {key}", self._finder.judge.front, service)
        if front is None:
            return
        subject = _subject("Service", service.metadata)
        if isinstance(front, Refusal) or service.spec.type == "ExternalName":
            self.found.refused[subject] = front.why if isinstance(front, Refusal) else NO_ENDPOINTS
            return
        if not slices and not service.spec.selector:
            self.found.notes[subject] = NOTHING_BEHIND
        for part in sorted(slices, key=lambda one: one.address_type):  # IPv4 before IPv6: one address for each Pod
            if part.address_type not in {"IPv4", "IPv6"}:
                self.found.notes[subject] = NAMES
                continue
            for endpoint in part.endpoints or ():
                self._endpoint(subject, front, part, endpoint)
                yield

    def _endpoint(self, subject: Subject, front: Front, part: EndpointSlice, endpoint: Endpoint) -> None:
        if not endpoint.addresses:
            return
        address = endpoint.addresses[0]
        key = f"{front.service.metadata.key}/{address}"
        pod: Pod | None = None
        of = endpoint.target_ref
        if of is not None and of.kind == "Pod":
            key = f"{subject.namespace}/{of.name}"
            pod = self._seen.pods.get(key)
            if pod is not None and of.uid and pod.metadata.uid != of.uid:
                return  # of a Pod of this name that is gone, or of the next one
            if pod is None and not self._is_blind(subject.namespace):
                return  # it has just gone or has not been heard of yet, and the news of it is on its way
            if self._is_own(of.uid) or (pod is not None and (pod.is_over or not pod.has_begun)):
                return
        if (by := self._taken.get(key)) is not None:
            if by != subject:
                self.found.notes[subject] = f"{by} has some of its Pods already; each counts once, as {by} says"
            return
        # Slices of a Service that publishes not-ready addresses call all ready: the Pod knows better.
        drain = not endpoint.is_ready or (pod is not None and not pod.is_ready)
        spot = Spot(key, address, drain)
        made = self._finder.judged(f"{subject} {key}", self._finder.judge.behind, front, part.ports, spot, pod)
        if isinstance(made, Refusal):
            if made.of_pod and pod is not None:
                self._taken[key] = subject
                self.found.refused[_subject("Pod", pod.metadata)] = made.why
            else:
                self.found.refused[subject] = made.why
            return
        self._taken[key] = subject
        if made is not None:
            self._add(made, _subject("Pod", pod.metadata) if pod is not None else subject)

    def _is_blind(self, namespace: str) -> bool:
        return namespace in self._seen.blind or None in self._seen.blind

    def _is_own(self, uid: str) -> bool:
        return uid != "" and uid == self._finder.own_uid

    def _pod(self, key: str, pod: Pod) -> None:
        if key in self._taken or self._is_own(pod.metadata.uid):
            return
        made = self._finder.judged(f"Pod {key}", self._finder.judge.alone, pod)
        if isinstance(made, Refusal):
            self.found.refused[_subject("Pod", pod.metadata)] = made.why
        elif made is not None:
            self._add(made, _subject("Pod", pod.metadata))

    def _add(self, spec: BackendSpec, subject: Subject) -> None:
        """Take it, unless its address is another one's: Pods in their host's network, or one that follows another."""
        specs = self.found.specs
        index, other = self._urls.get(spec.url, (-1, subject))
        if index < 0:
            self._urls[spec.url] = (len(specs), subject)
            specs.append(spec)
            return
        if specs[index].drain and not spec.drain:
            self._urls[spec.url] = (index, subject)
            specs[index] = spec
            subject, other = other, subject
        if subject != other:
            self.found.notes[subject] = f"{spec.url} is {other}'s too: it counts once, as {other}"


def _subject(kind: str, meta: Meta) -> Subject:
    return Subject(kind, meta.namespace, meta.name, meta.uid)
