"""What changes in ConfigMaps and Secrets is taken up without a restart, and instances that come share what there is."""

import hashlib
import json
import urllib.error
import urllib.request
from typing import Any

import pytest

from e2e import objects
from e2e.cluster import Namespace, until

SELECTOR = "app.kubernetes.io/name=pharos"
RPM = 12
SHARED = "e2e-shared-key"
LATER = "e2e-later-key"
PATCH = ("patch", "configmap", "pharos", "-p")
"""After it the field belongs to kubectl, and Helm takes it back with `--force-conflicts` only."""


def key(name: str, secret: str, **more: Any) -> dict[str, Any]:
    return {"name": name, "sha256": hashlib.sha256(secret.encode()).hexdigest(), **more}


def values(replicas: int, *keys: dict[str, Any], **more: Any) -> dict[str, Any]:
    inline = [*objects.KEYS, key("shared", SHARED, rpm=RPM), *keys]
    return {**objects.TEST_VALUES, "replicaCount": replicas, "keys": {"inline": inline}, **more}


@pytest.fixture(scope="module")
def served(namespace: Namespace) -> Namespace:
    namespace.apply(objects.engines("llama", replicas=1, annotations={"pharos.enable": "true"}))
    namespace.helm("install", "pharos", values(1))
    namespace.kubectl("rollout", "status", "deploy/llama", "--timeout", "180s")
    until("the engine is up", lambda: any(one["up"] for one in namespace.backends().values()))
    return namespace


def chat(url: str, secret: str) -> int:
    """The status of a short chat."""
    body = {"model": objects.MODEL, "max_tokens": 1, "messages": [{"role": "user", "content": "hi"}]}
    request = urllib.request.Request(  # noqa: S310 (the cluster's own address)
        f"{url}/v1/chat/completions", json.dumps(body).encode(),
        {"Content-Type": "application/json", "Authorization": f"Bearer {secret}"},
    )  # fmt: skip
    try:
        with urllib.request.urlopen(request, timeout=60) as response:  # noqa: S310
            return int(response.status)
    except urllib.error.HTTPError as error:
        with error:
            return error.code


def instances(where: Namespace) -> list[dict[str, Any]]:
    return [pod for pod in where.pods(SELECTOR) if "deletionTimestamp" not in pod["metadata"]]


def names(where: Namespace) -> list[str]:
    return sorted(pod["metadata"]["name"] for pod in instances(where))


def urls(where: Namespace) -> list[str]:
    return [f"http://{pod['status']['podIP']}:8090" for pod in instances(where)]


def meshed(where: Namespace, count: int) -> bool:
    """Whether every instance tells all others, and is heard by them."""
    return all(
        where.metric(pod, "pharos_peer_up") == count - 1 and where.metric(pod, "pharos_peer_mismatch") == 0
        for pod in names(where)
    )


def test_three_instances_find_each_other_and_share_a_quota(served: Namespace) -> None:
    served.helm("upgrade", "pharos", values(3))
    until("three are there and tell each other", lambda: len(names(served)) == 3 and meshed(served, 3))
    statuses: list[int] = []
    for _ in range(RPM):
        statuses += [chat(url, SHARED) for url in urls(served)]
    print(f"{RPM} a minute through three instances: {statuses.count(200)} served, {statuses.count(429)} refused")
    assert set(statuses) == {200, 429}
    assert RPM <= statuses.count(200) <= 2 * RPM  # a minute may end meanwhile; apart they would let in 3 x


def test_the_peers_secret_changes_without_a_restart_and_without_a_gap(served: Namespace) -> None:
    before = names(served)
    found = served.get("secret", "pharos-peer-secret")["data"]
    (entry,) = found
    secret = {"stringData": {entry: "b" * 64}}
    served.kubectl("patch", "secret", "pharos-peer-secret", "-p", json.dumps(secret))
    file = f"/etc/pharos-peers/{entry}"
    until(
        "all have the new file", lambda: all("bbbb" in served.kubectl("exec", pod, "--", "cat", file) for pod in before)
    )
    # One that starts with the new secret alone is told by all that have it.
    served.kubectl("delete", "pod", before[0], "--wait=false")
    until("the new one is one of three", lambda: len(names(served)) == 3 and before[0] not in names(served))
    until("they tell each other", lambda: meshed(served, 3))
    assert set(before[1:]) < set(names(served))


def test_what_was_counted_stays_when_two_instances_go(served: Namespace) -> None:
    counted = used(served)
    assert counted > 0
    served.helm("upgrade", "pharos", values(1))
    until("one is left", lambda: len(served.pods(SELECTOR)) == 1, wait_s=300)
    assert used(served) == counted
    until("it has no peer any more", lambda: meshed(served, 1))


def used(where: Namespace) -> int:
    request = urllib.request.Request(  # noqa: S310
        f"{where.address('pharos')}/usage", headers={"Authorization": f"Bearer {objects.ADMIN}"}
    )
    with urllib.request.urlopen(request, timeout=20) as response:  # noqa: S310
        return sum(row["requests"] for row in json.loads(response.read()))


def test_keys_and_configuration_change_without_a_restart(served: Namespace) -> None:
    before = names(served)
    assert chat(served.address("pharos"), LATER) == 401
    served.helm("upgrade", "pharos", values(1, key("later", LATER), config={"response_headers": {"target": True}}))
    until("the new key is taken", lambda: chat(served.address("pharos"), LATER) == 200)

    def told() -> bool:
        request = urllib.request.Request(f"{urls(served)[0]}/v1/models", headers={"Authorization": f"Bearer {LATER}"})  # noqa: S310
        with urllib.request.urlopen(request, timeout=20) as response:  # noqa: S310
            return bool(response.status == 200)

    assert told()
    until("the log says that it was read", lambda: "was read again" in served.kubectl("logs", before[0]))
    assert names(served) == before


def test_a_broken_configuration_changes_nothing_and_is_visible(served: Namespace) -> None:
    (pod,) = names(served)
    text = served.get("configmap", "pharos")["data"]["pharos.yaml"]
    broken = {"data": {"pharos.yaml": text + "\nquueue: {size: 3}\n"}}
    served.kubectl(*PATCH, json.dumps(broken))
    until("the metric tells", lambda: served.metric(pod, "pharos_config_last_reload_successful") == 0)
    assert "quueue" in served.kubectl("logs", pod)
    assert chat(served.address("pharos"), LATER) == 200
    served.kubectl(*PATCH, json.dumps({"data": {"pharos.yaml": text}}))
    until("it is mended", lambda: served.metric(pod, "pharos_config_last_reload_successful") == 1)
    assert names(served) == [pod]


def test_the_pod_is_as_small_as_it_looks(served: Namespace) -> None:
    (pod,) = names(served)

    def fails(*words: str) -> bool:
        line = f"{' '.join(words)} 2>/dev/null && echo yes || echo no"
        return "no" in served.kubectl("exec", pod, "--", "sh", "-c", line)

    assert served.kubectl("exec", pod, "--", "id", "-u").strip() == "65532"
    assert fails("touch", "/usr/x")
    assert fails("touch", "/etc/pharos/x")
    assert not fails("touch", "/tmp/x")  # noqa: S108 - in the Pod
    assert "CapEff:\t0000000000000000" in served.kubectl("exec", pod, "--", "cat", "/proc/1/status")
    token = "/var/run/secrets/kubernetes.io/serviceaccount/token"  # noqa: S105 - a path
    assert not fails("test", "-e", token)
    static = values(1, discovery={"kubernetes": {"enabled": False}}, config={"backends": [{"url": "http://nowhere:1"}]})
    served.helm("upgrade", "pharos", static, "--force-conflicts", wait=False)
    until("it is another one", lambda: names(served) and pod not in names(served) and len(names(served)) == 1)
    served.kubectl("rollout", "status", "deploy/pharos", "--timeout", "120s")
    (pod,) = names(served)
    assert fails("test", "-e", token)
