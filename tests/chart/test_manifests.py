"""Plain manifests: current, such as Kubernetes takes, and engines among them that let their streams finish."""

import sys
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml

from pharos.control.discovery.kubernetes.annotations import KNOWN
from pharos.control.discovery.kubernetes.ports import of_pod
from tests.chart.rendering import HELM, ROOT, the

sys.path.insert(0, str(ROOT / "hack"))
MANIFESTS = ROOT / "manifests"
ENGINES = sorted((MANIFESTS / "engines").glob("*.yaml"))


def documents(path: Path) -> list[dict[str, Any]]:
    return [found for found in yaml.safe_load_all(path.read_text(encoding="utf-8")) if found]


def test_the_rendering_without_helm_is_current() -> None:
    import chart

    if not HELM.exists():
        pytest.skip("there is no helm here: hack/setup-helm fetches it")
    assert (MANIFESTS / "pharos.yaml").read_text(encoding="utf-8") == chart.rendered(), "run `make docs`"


def test_the_rendering_holds_no_secret_and_nothing_of_helm_s() -> None:
    found = documents(MANIFESTS / "pharos.yaml")
    assert "Secret" not in {it["kind"] for it in found}
    assert "helm.sh" not in str(found)
    assert "ClusterRole" not in {it["kind"] for it in found}
    assert the("Deployment", found)["metadata"]["namespace"] == "pharos"


@pytest.mark.parametrize("version", ["1.30", "1.37"])
@pytest.mark.parametrize("path", [*ENGINES, MANIFESTS / "pharos.yaml"], ids=lambda it: it.name)
def test_every_manifest_is_one_that_kubernetes_takes(path: Path, version: str) -> None:
    for found in documents(path):
        kubernetes_validate.validate(found, version, strict=True)


@pytest.mark.parametrize("path", ENGINES, ids=lambda it: it.name)
def test_an_engine_s_manifest_is_found_and_lets_its_streams_finish(path: Path) -> None:
    found = documents(path)
    template = the("Deployment", found)["spec"]["template"]
    given = [it["metadata"].get("annotations", {}) for it in [*found, template]]
    [annotated] = [it for it in given if it]
    assert annotated["pharos.enable"] == "true"
    assert {name.removeprefix("pharos.") for name in annotated} <= set(KNOWN)
    [container] = template["spec"]["containers"]
    sleep = container["lifecycle"]["preStop"]["sleep"]["seconds"]
    assert template["spec"]["terminationGracePeriodSeconds"] >= sleep + 30
    assert container["ports"][0]["name"] == "http"
    host = container["image"].split("/")[0]
    assert "/" not in container["image"] or ("." not in host and ":" not in host), "an image names no registry"


def test_the_manifests_of_engines_are_those_that_discovery_takes() -> None:
    import msgspec

    from pharos.control.discovery.kubernetes.annotations import of, wanted
    from pharos.control.discovery.kubernetes.objects import Pod

    for path in ENGINES:
        template = the("Deployment", documents(path))["spec"]["template"]
        pod = msgspec.convert({"metadata": template["metadata"], "spec": template["spec"]}, Pod)
        asked = wanted(of(pod.metadata), allow_url=False)
        assert of_pod(pod, asked.port if asked is not None else None) in {8080, 11434, 8000}
