"""One Pod, one Service, or one endpoint of it to a backend, to nothing, or to a reason why it is left out.

Forbidden here: knowing any other object, asking anybody.
"""

from collections.abc import Callable, Mapping
from typing import Final, NamedTuple

import msgspec

from pharos.config.schema import Credential
from pharos.control.discovery.kubernetes import annotations, podlog, ports
from pharos.control.discovery.kubernetes.annotations import PORT, URL, Form, Wanted
from pharos.control.discovery.kubernetes.objects import EndpointPort, Pod, Service
from pharos.control.discovery.labels import LabelsError
from pharos.core.fleet.backend import BackendSpec

MOST_FORMS: Final = 10_000
"""Sets of annotations that are remembered; beyond it all are forgotten and read anew."""
LONGEST: Final = 800
"""Characters of a reason."""


class Refusal(msgspec.Struct, frozen=True):
    """Why something is left out."""

    why: str
    of_pod: bool = True
    """Whether the fault is in the Pod's own annotations, and not in its Service's."""


class Front(msgspec.Struct, frozen=True):
    """A Service that asks for its endpoints to be backends."""

    service: Service
    given: dict[str, str]


class Spot(NamedTuple):
    """Where something is, and what it is called."""

    name: str
    address: str
    drain: bool


NOWHERE: Final = Spot("", "", drain=True)
Listed = tuple[EndpointPort, ...] | None
Verdict = BackendSpec | Refusal | None


class Judge:
    """Reads annotations; those of one template are read once."""

    def __init__(self, *, allow_url: bool, pod_logs: bool) -> None:
        self._allow_url = allow_url
        self._pod_logs = pod_logs
        self.credentials: Mapping[str, Credential] = {}
        self._forms: dict[tuple[tuple[str, str], ...], Form | str] = {}

    def begin(self, credentials: Mapping[str, Credential]) -> None:
        """Judge by these from now on."""
        self.credentials = dict(credentials)
        self._forms.clear()

    def front(self, service: Service) -> Front | Refusal | None:
        """What a Service asks for."""
        given = annotations.of(service.metadata)
        try:
            return Front(service, given) if self._wanted(given) is not None else None
        except LabelsError as fault:
            return Refusal(_short(fault), of_pod=False)

    def behind(self, front: Front, listed: Listed, spot: Spot, pod: Pod | None) -> Verdict:
        """An endpoint of a Service, whose slice has the ports `listed`."""
        own = annotations.of(pod.metadata) if pod is not None else {}

        def port(asked: str | None) -> int:
            if pod is not None and PORT in own:
                return ports.of_pod(pod, asked)
            return ports.of_service(front.service, listed, asked)

        try:
            return self._made({**front.given, **own}, port, spot, pod)
        except LabelsError as fault:
            return Refusal(_short(fault), of_pod=bool(own) and self._is_good(front, listed))

    def _is_good(self, front: Front, listed: Listed) -> bool:
        """Whether a Service's annotations would do for a Pod that has none."""
        try:
            self._made(front.given, lambda asked: ports.of_service(front.service, listed, asked), NOWHERE, None)
        except LabelsError:
            return False
        return True

    def alone(self, pod: Pod) -> Verdict:
        """A Pod that no Service asks for."""
        given = annotations.of(pod.metadata)
        if not given or pod.is_over:
            return None
        spot = Spot(pod.metadata.key, pod.status.pod_ip, not pod.is_ready)
        try:
            made = self._made(given, lambda asked: ports.of_pod(pod, asked), spot, pod)
        except LabelsError as fault:
            return Refusal(_short(fault))
        return made if pod.has_begun else None

    # --- inside

    def _wanted(self, given: Mapping[str, str]) -> Wanted | None:
        return annotations.wanted(given, allow_url=self._allow_url)

    def _made(
        self, given: Mapping[str, str], port: Callable[[str | None], int], spot: Spot, pod: Pod | None
    ) -> BackendSpec | None:
        """Raises `LabelsError`."""
        asked = self._wanted(given)
        if asked is None:
            return None
        form = self._form(asked)
        number = port(asked.port) if URL not in given else 0
        logs = _log_of(pod, number) if self._pod_logs and asked.logs and pod is not None else None
        return form.at(spot.name, spot.address, number, logs, drain=spot.drain)

    def _form(self, asked: Wanted) -> Form:
        """Raises `LabelsError`."""
        made = self._forms.get(asked.values)
        if made is None:
            try:
                made = annotations.form(asked, self.credentials)
            except LabelsError as fault:
                made = str(fault)
            if len(self._forms) >= MOST_FORMS:
                self._forms.clear()
            self._forms[asked.values] = made
        if isinstance(made, str):
            raise LabelsError([made])
        return made


def _log_of(pod: Pod, port: int) -> str | None:
    """Where the log of its engine is: that of the container with its port, else of the first that no mesh put there."""
    engines = [one for one in pod.spec.containers or () if one.name not in ports.SIDECARS]
    engines.sort(key=lambda one: all(each.container_port != port for each in one.ports or ()))
    return podlog.where(pod.metadata.namespace, pod.metadata.name, engines[0].name) if engines else None


def _short(fault: LabelsError) -> str:
    text = str(fault)
    return text if len(text) <= LONGEST else f"{text[:LONGEST]}…"
