"""What `pharos doctor` asks of a cluster: each right that is needed, and the Pod that this runs in.

Every account may ask for its own rights; the Pod is read with the right that discovery has anyway. Forbidden here:
asking for anything else, and judging the answers (`remarks` does).
"""

import asyncio
from collections.abc import Sequence
from http import HTTPStatus
from typing import Final

import msgspec

from pharos.control.discovery.kubernetes.api import Api, ApiError, rule
from pharos.control.discovery.kubernetes.objects import Labels, Object

ASK_S: Final = 2.0
"""Seconds that all questions get together."""
MOST: Final = 20
"""Namespaces whose rights are asked for; of more, the first."""
REVIEWS: Final = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
WATCHED: Final = (("", "pods"), ("", "services"), ("discovery.k8s.io", "endpointslices"))


class Right(msgspec.Struct, frozen=True):
    """What an account may or may not do."""

    verb: str
    group: str
    resource: str
    """With what is under it: `pods/log`."""
    namespace: str | None
    """`None`: all."""
    needed: bool
    """False for what only adds something."""
    allowed: bool | None = None
    """`None`: nobody said."""

    @property
    def rule(self) -> str:
        """The rule that gives it."""
        return rule(self.group, self.resource, (self.verb,), self.namespace)


class Sleep(Object, frozen=True):
    """A pause of a hook."""

    seconds: int = 0


class Hook(Object, frozen=True):
    """What is done before a container ends."""

    sleep: Sleep | None = None


class Hooks(Object, frozen=True):
    """Of a container."""

    pre_stop: Hook | None = None


class OwnContainer(Object, frozen=True):
    """One container of the Pod that this runs in."""

    lifecycle: Hooks | None = None


class OwnMeta(Object, frozen=True):
    """With all labels."""

    labels: Labels | None = None


class OwnSpec(Object, frozen=True):
    """How it ends."""

    containers: tuple[OwnContainer, ...] = ()
    termination_grace_period_seconds: int = 30


class OwnPod(Object, frozen=True):
    """The Pod that this runs in."""

    metadata: OwnMeta = OwnMeta()
    spec: OwnSpec = OwnSpec()


class Answers(msgspec.Struct, frozen=True):
    """What the cluster said."""

    rights: tuple[Right, ...] = ()
    pod: OwnPod | None = None
    """`None`: it cannot be read, or this runs in none."""


class _ReviewStatus(Object, frozen=True):
    allowed: bool = False


class _Review(Object, frozen=True):
    status: _ReviewStatus = _ReviewStatus()


_review: Final = msgspec.json.Decoder(_Review)
_pod: Final = msgspec.json.Decoder(OwnPod)


def needs(namespaces: Sequence[str | None], *, pod_logs: bool) -> list[Right]:
    """The rights that discovery uses in these namespaces."""
    made = []
    for namespace in namespaces[:MOST]:
        for group, resource in WATCHED:
            made += [Right(verb, group, resource, namespace, needed=True) for verb in ("list", "watch")]
        if pod_logs:
            made.append(Right("get", "", "pods/log", namespace, needed=True))
        made.append(Right("create", "events.k8s.io", "events", namespace, needed=False))
    return made


async def ask(api: Api, rights: Sequence[Right], own: tuple[str, str] | None) -> Answers:
    """Ask for each right, and for the own Pod by namespace and name. What is not answered in time is not known."""
    asked = [asyncio.create_task(_allowed(api, right)) for right in rights]
    pod = asyncio.create_task(_own(api, own))
    _, late = await asyncio.wait([*asked, pod], timeout=ASK_S)
    for task in late:
        task.cancel()
    await asyncio.gather(*late, return_exceptions=True)
    found = [
        msgspec.structs.replace(right, allowed=task.result() if task not in late else None)
        for right, task in zip(rights, asked, strict=True)
    ]
    return Answers(tuple(found), pod.result() if pod not in late else None)


async def _allowed(api: Api, right: Right) -> bool | None:
    resource, _, below = right.resource.partition("/")
    attributes = {"verb": right.verb, "group": right.group, "resource": resource, "subresource": below}
    if right.namespace is not None:
        attributes["namespace"] = right.namespace
    body = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SelfSubjectAccessReview",
        "spec": {"resourceAttributes": attributes},
    }
    try:
        status, answer = await api.post(REVIEWS, body)
        return _review.decode(answer).status.allowed if status == HTTPStatus.CREATED else None
    except (ApiError, msgspec.DecodeError):
        return None


async def _own(api: Api, own: tuple[str, str] | None) -> OwnPod | None:
    if own is None:
        return None
    namespace, name = own
    try:
        body = await api.read(f"/api/v1/namespaces/{namespace}/pods/{name}")
        return _pod.decode(body) if body is not None else None
    except (ApiError, msgspec.DecodeError):
        return None
