"""What the doctor tells of the Kubernetes cluster, out of what discovery, the fleet and the peers know.

Forbidden here: asking anybody.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec

from pharos import __version__, clock
from pharos.config.schema import Drain
from pharos.control.discovery.kubernetes import remarks
from pharos.control.discovery.kubernetes.checkup import Answers
from pharos.control.discovery.kubernetes.objects import Pod
from pharos.control.discovery.kubernetes.remarks import Remark
from pharos.control.discovery.kubernetes.source import KubernetesObjects
from pharos.core.fleet import Fleet, State

Told = dict[str, Any]


def told(
    objects: KubernetesObjects, answers: Answers, fleet: Fleet, drain: Drain, peers: Sequence[Mapping[str, Any]] | None
) -> Told:
    """All of it, as JSON has it. `answers`: what the cluster said when it was asked last."""
    seen, found = objects.seen, objects.found
    engines = {spec.name: seen.pods[spec.name] for spec in found.specs if spec.name in seen.pods}
    up = {spec.name: _is_up(fleet, spec.name) for spec in found.specs}
    return {
        "account": objects.api.login.account if objects.api is not None else None,
        "namespaces": None if objects.namespaces == [None] else objects.namespaces,
        "objects": {"pods": len(seen.pods), "services": len(seen.services), "endpointslices": len(seen.slices)},
        "accepted": [_accepted(name, engines.get(name), up=is_up) for name, is_up in up.items()],
        "refused": [{"object": str(subject), "why": why} for subject, why in found.refused.items()],
        "notes": [{"object": str(subject), "text": text} for subject, text in found.notes.items()],
        "troubles": [msgspec.to_builtins(one) for one in objects.troubles],
        "rights": [msgspec.to_builtins(one) for one in answers.rights],
        "remarks": [msgspec.to_builtins(one) for one in _remarks(answers, drain, engines, up, peers)],
    }


def _accepted(name: str, pod: Pod | None, *, up: bool | None) -> Told:
    return {"backend": name, "ready": pod.is_ready if pod is not None else None, "up": up}


def _is_up(fleet: Fleet, name: str) -> bool | None:
    it = fleet.backends.get(name)
    return None if it is None or it.state is State.UNKNOWN else it.is_alive(clock.monotonic())


def _remarks(
    answers: Answers,
    drain: Drain,
    engines: Mapping[str, Pod],
    up: Mapping[str, bool | None],
    peers: Sequence[Mapping[str, Any]] | None,
) -> Iterator[Remark]:
    yield from remarks.of_rights(answers)
    if answers.pod is not None:
        yield from remarks.of_own_pod(answers.pod, drain.grace_s, drain.timeout_s, __version__)
    yield from remarks.of_engines(list(engines.values()))
    yield from remarks.of_readiness(engines, up)
    for one in peers if peers is not None else ():
        if not one["up"] and one["error"] and one["state"] != "left":
            yield Remark(
                f"the instance {one['name']}, which DNS or peers.members names, {one['error']}",
                "does the Service of the peers select only Pharos, and do all its Pods have one secret?",
                is_wrong=False,
            )
