"""Any values that the schema lets through are a chart that works, or are refused with a sentence."""

import json
import tempfile
from pathlib import Path
from typing import Any

import kubernetes_validate
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.chart.rendering import CHART, Manifest, RefusedError, kinds, pod_of, render, taken

EXAMPLES = 12
"""Each starts `helm`, which takes a good part of a second on a busy machine."""
OWN_KINDS = {"ServiceMonitor", "PodMonitor", "PrometheusRule", "HTTPRoute"}
OF_THE_CLUSTER = {"ClusterRole", "ClusterRoleBinding", "Namespace", "CustomResourceDefinition", "PriorityClass"}
HASH = "0123456789abcdef" * 4
CHOSEN: dict[str, list[Any]] = {
    "config": [
        {}, {"queue": {"size": 7, "max_wait": "90s"}},
        {"keys": [{"name": "ci", "sha256": HASH, "tokens_per_day": 2000000}]},
        {"limits": {"body": "64MB"}, "policy": "least-load"}, {"listen": ":1"},
        {"backends": [{"url": "http://gpu:8080", "memory_gb": 80}], "aliases": {"small": ["a", "b"]}},
    ],
    "image.tag": ["", "20250314", "1e6", "v1.2.3-rc.1"],
    "image.repository": ["pharos", "team/pharos"],
    "keys.inline": [[], [{"name": "ci", "sha256": HASH, "tokens_per_day": 2000000}]],
    "discovery.kubernetes.namespaces": [[], ["models"], ["a", "b"]],
    "ingress.hosts": [[], ["llm.example.org"]],
    "ingress.tls": [[], [{"secretName": "x", "hosts": ["llm.example.org"]}]],
    "httpRoute.parentRefs": [[], [{"name": "gateway", "namespace": "edge"}]],
    "state.sizeLimit": ["128Mi", "1Gi"],
    "peers.secretKey": ["secret", "123"],
    "keys.secretKey": ["keys.yaml", "1e3"],
    "clusterDomain": ["cluster.local", "corp.example"],
    "metrics.port": [9090, 9100, 8090],
    "peers.port": [8081, 8181],
    "terminationGracePeriodSeconds": [None, None, 0, 60, 700, 100000],
    "nameOverride": ["", "router", "123"],
    "fullnameOverride": ["", "x" * 80, "1e3"],
    "lifecycle": [{}, {"preStop": {"exec": {"command": ["sleep", "5"]}}}],
    "replicaCount": [0, 1, 2, 5],
}  # fmt: skip
"""Values of what the schema leaves open, good and bad."""
LEFT = {"global", "extraObjects", "startupProbe", "livenessProbe", "readinessProbe", "podSecurityContext"}
OPEN = st.sampled_from(["", "one", "a-b"])
NAMES = st.sampled_from(["", "one", "a-b", "1password", "123", "1e3", "true", "a: b"])


def values(schema: dict[str, Any], path: str = "") -> st.SearchStrategy[Any]:
    """What a part of the schema lets through; a number of seconds may be any."""
    if path in CHOSEN:
        return st.sampled_from(CHOSEN[path])
    if "enum" in schema:
        return st.sampled_from(schema["enum"])
    if "properties" in schema:
        inner = {
            name: values(it, f"{path}.{name}" if path else name)
            for name, it in schema["properties"].items()
            if name not in LEFT
        }
        return st.fixed_dictionaries({}, optional=inner)
    types = schema.get("type")
    match types[0] if isinstance(types, list) else types:
        case "boolean":
            return st.booleans()
        case "integer":
            return st.integers(schema.get("minimum", 0), min(schema.get("maximum", 5000), 86400))
        case "string" if "not" in schema:
            return NAMES
        case "string" if "pattern" not in schema:
            return OPEN if not path.endswith("terval") else st.just("15s")
        case "object" if path.endswith(("abels", "nnotations")):
            return st.sampled_from([{}, {"team": "ml"}])
    return st.nothing()


def some() -> st.SearchStrategy[dict[str, Any]]:
    """A few values beside each other: all of them at once would nearly always be refused for one."""
    schema = json.loads((CHART / "values.schema.json").read_text(encoding="utf-8"))
    parts = {name: values(it, name) for name, it in schema["properties"].items() if name not in LEFT}
    usable = {name: it for name, it in parts.items() if not it.is_empty}
    return st.lists(st.sampled_from(sorted(usable)), max_size=6, unique=True).flatmap(
        lambda names: st.fixed_dictionaries({name: usable[name] for name in names})
    )


@settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=list(HealthCheck))
@given(some())
def test_any_values_make_a_chart_that_works_or_a_sentence(given_values: dict[str, Any]) -> None:
    try:
        found = render(given_values)
    except RefusedError as refused:
        text = str(refused)
        assert "at '/" in text or "execution error at (pharos/templates/" in text, text
        for crash in ("nil pointer", "wrong type", "YAML parse error", "error converting", "can't evaluate"):
            assert crash not in text, text
        return
    _keeps_promises(found, given_values)


def _keeps_promises(found: list[Manifest], given_values: dict[str, Any]) -> None:
    for it in found:
        assert len(it["metadata"]["name"]) <= 63
        if it["kind"] not in OWN_KINDS:
            kubernetes_validate.validate(it, "1.33", strict=True)
    is_wide = given_values.get("discovery", {}).get("kubernetes", {}).get("clusterWide", False)
    assert is_wide or not OF_THE_CLUSTER & kinds(found)
    maps = json.dumps([it for it in found if it["kind"] == "ConfigMap"])
    inline = given_values.get("keys", {}).get("inline", [])
    assert not inline or HASH not in maps
    for secret in (it for it in found if it["kind"] == "Secret"):
        assert all(held not in maps for held in secret.get("data", {}).values())
    if given_values.get("existingConfigMap"):
        return
    own = [it for it in found if it["kind"] == "ConfigMap" and "pharos.yaml" in it.get("data", {})]
    with tempfile.TemporaryDirectory() as folder:
        if given_values.get("keys", {}).get("existingSecret"):
            return
        config = taken([*own, *(it for it in found if it["kind"] == "Secret")], Path(folder))
    pod = pod_of(found)
    hook = pod["containers"][0].get("lifecycle", {}).get("preStop", {}).get("sleep", {}).get("seconds", 0)
    needed = hook + config.drain.grace_s + config.drain.timeout_s + 15
    assert pod["terminationGracePeriodSeconds"] >= needed
