"""What is wrong, or will be, around Pharos in a cluster, each with what to do about it. Forbidden here: asking."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

import msgspec

from pharos.control.discovery.kubernetes.checkup import Answers, OwnPod
from pharos.control.discovery.kubernetes.objects import Pod

SPARE_S: Final = 15
"""Seconds that a Pod needs beyond its drain: for the last news to peers, the state file and the end itself."""
AUTOSCALER_S: Final = 600
"""Seconds after which the cluster autoscaler cuts a Pod, unless --max-graceful-termination-sec says otherwise."""
USUAL_GRACE_S: Final = 30
"""Seconds that Kubernetes gives a Pod that says nothing."""
VERSION: Final = "app.kubernetes.io/version"
SHOWN: Final = 5
"""Names that are listed before the rest are counted."""


class Remark(msgspec.Struct, frozen=True):
    """Something to know."""

    text: str
    fix: str
    is_wrong: bool = True
    """False for what may be as it should be."""


def of_own_pod(pod: OwnPod, grace_s: float, timeout_s: float, version: str) -> Iterator[Remark]:
    """On the Pod that this runs in. `grace_s` and `timeout_s`: of its drain. `version`: of the program."""
    hooks = [one.lifecycle.pre_stop for one in pod.spec.containers if one.lifecycle is not None]
    sleep = max((hook.sleep.seconds for hook in hooks if hook is not None and hook.sleep is not None), default=0)
    needed = round(sleep + grace_s + timeout_s) + SPARE_S
    given = pod.spec.termination_grace_period_seconds
    if given < needed:
        yield Remark(
            f"terminationGracePeriodSeconds of this Pod is {given}, but a drain may take {needed} s (preStop {sleep} + "
            f"drain.grace {grace_s:g} + drain.timeout {timeout_s:g} + {SPARE_S}): the kubelet would cut streams",
            f"set terminationGracePeriodSeconds to {needed} or more, or shorten drain.timeout",
        )
    if given > AUTOSCALER_S:
        yield Remark(
            f"a drain may take {given} s, and the cluster autoscaler cuts Pods after {AUTOSCALER_S} s",
            "where it runs, give it --max-graceful-termination-sec, or shorten drain.timeout",
            is_wrong=False,
        )
    chart = (pod.metadata.labels or {}).get(VERSION)
    if chart is not None and chart != version:
        yield Remark(
            f"the chart is made for Pharos {chart}, and this is {version}",
            "upgrade the chart, or leave image.tag empty so that the image is the chart's",
            is_wrong=False,
        )


def of_rights(answers: Answers) -> Iterator[Remark]:
    """On rights that are missing."""
    for right in answers.rights:
        if right.needed and right.allowed is False:
            where = f"namespace {right.namespace}" if right.namespace is not None else "all namespaces"
            yield Remark(f"no right to {right.verb} {right.resource} in {where}", f"it needs {right.rule}")


def of_engines(pods: Sequence[Pod]) -> Iterator[Remark]:
    """On the Pods of engines: whether their streams may finish."""
    bare = [pod for pod in pods if not _has_hook(pod)]
    if bare:
        verb = "have" if len(bare) > 1 else "has"
        yield Remark(
            f"{_names(bare)} {verb} no preStop: engines end their streams at SIGTERM, so a rollout cuts them",
            "give the engine's container lifecycle.preStop.sleep of its longest stream's seconds, and the Pod a "
            "terminationGracePeriodSeconds above that (manifests/engines shows it)",
            is_wrong=False,
        )
    short = [pod for pod in pods if _has_hook(pod) and _grace(pod) <= USUAL_GRACE_S]
    if short:
        yield Remark(
            f"{_names(short)}: the preStop is cut by terminationGracePeriodSeconds of {USUAL_GRACE_S} s or less",
            "raise it above the preStop's seconds",
            is_wrong=False,
        )


def of_readiness(pods: Mapping[str, Pod], up: Mapping[str, bool | None]) -> Iterator[Remark]:
    """On who is ready as Kubernetes sees it and dead as Pharos does. `up`: of each backend; `None`: not known yet."""
    deaf = [pods[name] for name, is_up in up.items() if is_up is False and name in pods and pods[name].is_ready]
    if deaf:
        yield Remark(
            f"{_names(deaf)}: ready as Kubernetes sees it, but nothing answers Pharos there",
            "is pharos.port the engine's port, does it listen on all addresses, does a NetworkPolicy let Pharos in?",
        )
    ignored = [
        pods[name]
        for name, is_up in up.items()
        if is_up and name in pods and not pods[name].is_ready and pods[name].metadata.deletion_timestamp is None
    ]
    if ignored:
        yield Remark(
            f"{_names(ignored)}: answers Pharos, but is not ready as Kubernetes sees it, and so gets no requests",
            "see its readinessProbe and readiness gates with kubectl describe",
        )


def _has_hook(pod: Pod) -> bool:
    return any(one.lifecycle is not None and one.lifecycle.pre_stop is not None for one in pod.spec.containers or ())


def _grace(pod: Pod) -> int:
    given = pod.spec.termination_grace_period_seconds
    return given if given is not None else USUAL_GRACE_S


def _names(pods: Sequence[Pod]) -> str:
    listed = ", ".join(pod.metadata.key for pod in pods[:SHOWN])
    return f"{listed} and {len(pods) - SHOWN} more" if len(pods) > SHOWN else listed
