"""Which port an engine listens on: the annotation, else what the Service or the Pod says, if that is only one thing.

Forbidden here: guessing. Where several could be meant, all are named and nothing is taken.
"""

from collections.abc import Sequence
from typing import Final

from pharos.control.discovery.kubernetes.annotations import PORT
from pharos.control.discovery.kubernetes.objects import EndpointPort, Pod, Service
from pharos.control.discovery.labels import LabelsError, is_port

MAIN: Final = "http"
"""The name of a port that is taken when there are several."""
USUAL: Final = (11434, 8080, 8000, 30000)
"""Where Ollama, llama.cpp, vLLM and SGLang listen by themselves: taken when one of several declared ports is that."""
SIDECARS: Final = frozenset(
    {"istio-proxy", "linkerd-proxy", "envoy", "envoy-sidecar", "consul-dataplane", "cilium-envoy"}
)
"""Containers that meshes put beside an engine: their ports are none of its."""
_Named = Sequence[tuple[str, int]]


def of_pod(pod: Pod, asked: str | None) -> int:
    """The port of a Pod on its own. Raises `LabelsError`."""
    declared = [
        (port.name, port.container_port)
        for container in pod.spec.containers or ()
        if container.name not in SIDECARS
        for port in container.ports or ()
        if port.protocol == "TCP"
    ]
    if asked is not None:
        return _asked(asked, declared, declared)
    if not declared:
        raise LabelsError([f"no container declares a port: annotate {PORT} with the one that the engine listens on"])
    return _only(declared, "declares")


def of_service(service: Service, listed: Sequence[EndpointPort] | None, asked: str | None) -> int:
    """The port of the endpoints in a slice of a Service. `listed`: the slice's ports. Raises `LabelsError`."""
    targets = [
        (port.name if port.name is not None else "", port.port)
        for port in listed or ()
        if port.port is not None and port.protocol in {None, "TCP"}
    ]
    by_name = dict(targets)
    fronts = [
        (str(port.port), by_name[port.name])
        for port in service.spec.ports or ()
        if port.protocol == "TCP" and port.name in by_name
    ]
    if asked is not None:
        return _asked(asked, [*targets, *fronts], targets)
    if not targets:
        raise LabelsError([f"its Service has no port: annotate {PORT} with the one that its engines listen on"])
    return _only(targets, "has")


def _asked(asked: str, named: _Named, listed: _Named) -> int:
    """The port that an annotation names: a number that endpoints have, a name, or a number of the Service's."""
    is_number = is_port(asked)
    if is_number and any(number == int(asked) for _, number in listed):
        return int(asked)
    found = {number for name, number in named if name and name == asked}
    if len(found) == 1:
        return found.pop()
    if is_number:
        return int(asked)  # engines listen on ports that nobody declared
    known = ", ".join(dict.fromkeys(name for name, _ in listed if name)) or "none has a name"
    raise LabelsError([f"{PORT} is {asked[:60]!r}: write a number from 1 to 65535, or the name of a port ({known})"])


def _only(named: _Named, verb: str) -> int:
    numbers = sorted({number for _, number in named})
    if len(numbers) == 1:
        return numbers[0]
    main = {number for name, number in named if name == MAIN}
    if len(main) == 1:
        return main.pop()
    usual = [number for number in numbers if number in USUAL]
    if len(usual) == 1:
        return usual[0]
    listed = ", ".join(f"{number} ({name})" if name else str(number) for name, number in named)
    raise LabelsError([f"it {verb} several ports ({listed}): annotate {PORT} with its engine's"])
