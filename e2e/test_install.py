"""Install, annotate, ask: every engine is routed to within seconds, and doctor in the Pod shows each."""

import json
import time
import urllib.error
import urllib.request
from datetime import datetime

import pytest

from e2e import objects
from e2e.cluster import Namespace, run, until

NAMES = 5
AGAIN = 12
"""How often a Pod is annotated, to see how long that takes."""
START_S = 5
DOCTOR_MB = 40
DOCTOR = """
import resource, subprocess, time
began = time.monotonic()
subprocess.run(["pharos", "doctor", "--json"], stdout=subprocess.DEVNULL)
print(time.monotonic() - began, resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024)
"""
"""Run in the Pod: how long doctor takes there, and its largest memory in MB."""


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


def chat(url: str, tokens: int, model: str = objects.MODEL) -> int | None:
    """The tokens of a reply; `None`: there was none."""
    body = {"model": model, "max_tokens": tokens, "messages": [{"role": "user", "content": "hi"}]}
    request = urllib.request.Request(  # noqa: S310
        f"{url}/v1/chat/completions", json.dumps(body).encode(), {"Content-Type": "application/json"}
    )
    try:
        with urllib.request.urlopen(request, timeout=60) as response:  # noqa: S310
            return int(json.loads(response.read())["usage"]["completion_tokens"])
    except urllib.error.HTTPError as error:
        with error:
            return None


def test_a_token_is_routed_through_the_service(installed: Namespace) -> None:
    assert chat(installed.address("pharos"), 4) == 4


def test_a_container_is_ready_soon_and_doctor_in_it_is_small(installed: Namespace) -> None:
    (pod,) = installed.pods("app.kubernetes.io/name=pharos")
    began = pod["status"]["containerStatuses"][0]["state"]["running"]["startedAt"]
    (ready,) = (one["lastTransitionTime"] for one in pod["status"]["conditions"] if one["type"] == "Ready")
    took = datetime.fromisoformat(ready) - datetime.fromisoformat(began)
    runs = [installed.kubectl("exec", "deploy/pharos", "--", "python3", "-c", DOCTOR).split() for _ in range(5)]
    times, sizes = (sorted(float(run[place]) for run in runs) for place in (0, 1))
    print(f"ready {took.total_seconds():.0f} s after the start; doctor: {times[2]:.2f} s, {sizes[-1]:.0f} MB")
    assert took.total_seconds() <= START_S
    assert sizes[-1] <= DOCTOR_MB


def test_a_pod_annotated_again_and_again_is_routed_to_each_time_within_ten_seconds(installed: Namespace) -> None:
    only = f"{{{objects.MODEL}: only-here}}"
    installed.apply(objects.engines("again", replicas=1, annotations={"pharos.aliases": only}))
    installed.kubectl("rollout", "status", "deploy/again", "--timeout", "180s")
    name = installed.pods("app=again")[0]["metadata"]["name"]
    full = f"{installed.name}/{name}"
    times = []
    for _ in range(AGAIN):
        began = time.monotonic()
        installed.kubectl("annotate", "pod", name, "pharos.enable=true")
        until("it answers", lambda: chat(installed.address("pharos"), 1, "only-here"), every_s=0.05)
        times.append(time.monotonic() - began)
        installed.kubectl("annotate", "pod", name, "pharos.enable-")
        until("it is no backend", lambda: full not in installed.backends(), every_s=0.05)
    installed.kubectl("delete", "deploy", "again", "--wait=false")
    times.sort()
    print(f"annotate -> first answer, {AGAIN} times: p50 {times[AGAIN // 2]:.2f} s, p95 {times[-1]:.2f} s")
    assert times[-1] < 10


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
