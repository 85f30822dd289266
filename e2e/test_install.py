"""Install, annotate, ask: every engine is routed to within seconds, and doctor in the Pod shows each."""

import json
import time
import urllib.request

import pytest

from e2e import objects
from e2e.cluster import Namespace, run, until

ON = {"pharos.enable": "true"}
NAMES = 5


@pytest.fixture(scope="module")
def installed(namespace: Namespace) -> Namespace:
    """Two engine Pods on their own and three behind a Service, none annotated yet; Pharos with one instance."""
    namespace.apply(objects.engines("alone", replicas=2), objects.engines("grouped", replicas=3))
    namespace.apply(objects.service("grouped", "grouped"))
    values = {**objects.TEST_VALUES, "replicaCount": 1, "discovery": {"kubernetes": {"events": True}}}
    namespace.helm("install", "pharos", values)
    for name in ("alone", "grouped"):
        namespace.kubectl("rollout", "status", f"deploy/{name}", "--timeout", "180s")
    return namespace


def test_without_an_annotation_nothing_is_an_engine(installed: Namespace) -> None:
    assert installed.backends() == {}


def test_annotated_pods_and_services_are_routed_to_within_ten_seconds(installed: Namespace) -> None:
    began = time.monotonic()
    for pod in installed.pods("app=alone"):
        installed.kubectl("annotate", "pod", pod["metadata"]["name"], "pharos.enable=true")
    installed.kubectl("annotate", "service", "grouped", "pharos.enable=true")
    url = installed.address("pharos")

    def served() -> bool:
        with urllib.request.urlopen(f"{url}/v1/models", timeout=5) as response:  # noqa: S310 (the cluster's own address)
            return bool(json.loads(response.read())["data"])

    until("a model is listed", served, every_s=0.1)
    first_s = time.monotonic() - began
    found = until("every engine is a backend that is up", lambda: _up(installed), every_s=0.2)
    print(f"annotate -> model listed {first_s:.1f} s, all {NAMES} up {time.monotonic() - began:.1f} s")
    assert first_s < 10
    pods = {
        f"{installed.name}/{pod['metadata']['name']}"
        for name in ("alone", "grouped")
        for pod in installed.pods(f"app={name}")
    }
    assert set(found) == pods
    assert {one["kind"] for one in found.values()} == {"llamacpp"}


def _up(where: Namespace) -> dict[str, dict[str, object]] | None:
    found = where.backends()
    return found if len(found) == NAMES and all(one["up"] for one in found.values()) else None


def test_a_token_is_routed_through_the_service(installed: Namespace) -> None:
    body = {"model": objects.MODEL, "max_tokens": 4, "messages": [{"role": "user", "content": "hi"}]}
    request = urllib.request.Request(  # noqa: S310
        f"{installed.address('pharos')}/v1/chat/completions", json.dumps(body).encode(),
        {"Content-Type": "application/json"},
    )  # fmt: skip
    with urllib.request.urlopen(request, timeout=60) as response:  # noqa: S310
        assert json.loads(response.read())["usage"]["completion_tokens"] == 4


def test_a_bad_annotation_is_an_event_on_its_object_and_in_doctor(installed: Namespace) -> None:
    pod = installed.pods("app=alone")[0]["metadata"]["name"]
    installed.kubectl("annotate", "pod", pod, "pharos.prot=8080")
    shown = until("the Event", lambda: "did you mean pharos.port" in installed.kubectl("describe", "pod", pod))
    assert shown
    told = installed.doctor()
    assert f"{installed.name}/{pod}" not in {one["name"] for one in told["backends"]}
    assert [one["object"] for one in told["kubernetes"]["refused"]] == [f"Pod {installed.name}/{pod}"]
    installed.kubectl("annotate", "pod", pod, "pharos.prot-")
    until("it is back", lambda: _up(installed))


def test_helm_test_passes(installed: Namespace) -> None:
    assert "Phase:          Succeeded" in run("helm", "test", "pharos", "-n", installed.name)


def test_a_pod_that_goes_is_a_backend_no_longer(installed: Namespace) -> None:
    installed.kubectl("scale", "deploy/grouped", "--replicas=2")
    until("four are left that get requests", lambda: _counted(installed) == NAMES - 1)


def _counted(where: Namespace) -> int:
    return sum(1 for one in where.backends().values() if not one.get("drained"))
