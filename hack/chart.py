"""What is made of the chart: its values' schema, the table of its README, and plain YAML for clusters without Helm.

The comments of `charts/pharos/values.yaml` are the descriptions. Forbidden here: deciding about values.
"""

import json
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple

import yaml

from pharos.config.explain import json_schema

ROOT: Final = Path(__file__).resolve().parent.parent
CHART: Final = ROOT / "charts" / "pharos"
VALUES: Final = CHART / "values.yaml"
SCHEMA: Final = CHART / "values.schema.json"
README: Final = CHART / "README.md"
MANIFEST: Final = ROOT / "manifests" / "pharos.yaml"
HELM: Final = ROOT / ".cache" / "tools" / "helm"
SHARED: Final = "pharos-peers-shared"
"""The Secret of the peers: a rendering without a cluster would make another one each time."""
OF_HELM: Final = re.compile(r"^ +(?:helm\.sh/chart|app\.kubernetes\.io/managed-by): .*\n", re.MULTILINE)
BEGIN: Final = "<!-- values: made by `make docs` -->"
END: Final = "<!-- end of values -->"
OWNED: Final = ("listen", "admin_listen", "metrics_listen", "drain", "discovery", "peers", "state_file", "keys_file")
"""Fields of `pharos.yaml` that the chart sets: `templates/_validations.tpl` refuses them with the value to use."""

PORT: Final = {"type": "integer", "minimum": 1, "maximum": 65535}
NAME: Final[dict[str, Any]] = {
    "pattern": r"^([a-z0-9]([-a-z0-9.]*[a-z0-9])?)?$",
    "not": {
        "anyOf": [
            {"enum": ["true", "false", "null", "yes", "no", "on", "off", "y", "n"]},
            {"pattern": r"^[0-9][-0-9.]*(e[0-9]+|x[0-9a-f]+|o[0-7]+|b[01]+)?$"},
        ]
    },
}
"""Names of objects, but for those that YAML would take for something else than a text."""
ENTRY: Final = {"type": "string", "pattern": "^[-._a-zA-Z0-9]+$"}
SECONDS: Final = {"type": "integer", "minimum": 0, "maximum": 86400}
MAYBE: Final[dict[str, Any]] = {"type": ["integer", "null"], "minimum": 1}
NARROWED: Final[dict[str, dict[str, Any]]] = {
    "image.pullPolicy": {"enum": ["Always", "IfNotPresent", "Never"]},
    "image.digest": {"pattern": "^(sha256:[0-9a-f]{64})?$"},
    "replicaCount": {"minimum": 0, "maximum": 10},
    "minReadySeconds": SECONDS,
    "progressDeadlineSeconds": {"minimum": 1},
    "revisionHistoryLimit": {"minimum": 0},
    "drain.preStopSleepSeconds": SECONDS,
    "drain.graceSeconds": SECONDS,
    "drain.timeoutSeconds": SECONDS,
    "terminationGracePeriodSeconds": {"type": ["integer", "null"], "minimum": 0},
    "peers.port": PORT,
    "peers.secretKey": ENTRY,
    "keys.secretKey": ENTRY,
    "image.repository": {"minLength": 1},
    "clusterDomain": NAME | {"minLength": 1},
    "nameOverride": NAME,
    "fullnameOverride": NAME,
    "serviceAccount.name": NAME,
    "existingConfigMap": NAME,
    "keys.existingSecret": NAME,
    "credentials.existingSecret": NAME,
    "peers.existingSecret": NAME,
    "priorityClassName": NAME,
    "runtimeClassName": NAME,
    "ingress.className": NAME,
    "dnsPolicy": {"enum": ["", "ClusterFirst", "ClusterFirstWithHostNet", "Default", "None"]},
    "service.trafficDistribution": {"pattern": "^([A-Z][A-Za-z]+)?$"},
    "service.loadBalancerClass": {**NAME, "pattern": "^([a-z][-a-z0-9.]*/)?[a-z][-a-z0-9.]*$|^$"},
    "state.sizeLimit": {"pattern": "^[0-9.]+([EPTGMK]i?|[mk])?$"},
    "state.medium": {"enum": ["", "Memory"]},
    "service.type": {"enum": ["ClusterIP", "LoadBalancer", "NodePort"]},
    "service.port": PORT,
    "service.nodePort": {**PORT, "type": ["integer", "null"]},
    "service.externalTrafficPolicy": {"enum": ["", "Cluster", "Local"]},
    "metrics.port": PORT,
    "ingress.profile": {"enum": ["", "nginx"]},
    "autoscaling.minReplicas": {"minimum": 1, "maximum": 10},
    "autoscaling.maxReplicas": {"minimum": 1, "maximum": 10},
    "autoscaling.targetCPUUtilizationPercentage": {**MAYBE, "maximum": 100},
    "autoscaling.queueWaiting": MAYBE,
    "autoscaling.scaleDownStabilizationSeconds": {"minimum": 0, "maximum": 3600},
    "hostUsers": {"type": ["boolean", "null"]},
    "discovery.kubernetes.namespaces": {"items": {"type": "string", "pattern": "^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$"}},
    "ingress.hosts": {"items": {"type": "string", "minLength": 1}},
    "imagePullSecrets": {"items": {"type": "object", "required": ["name"]}},
    "extraArgs": {"items": {"type": "string"}},
}
"""What the default alone does not say of a value."""
TYPES: Final = {bool: "boolean", int: "integer", float: "number", str: "string", list: "array", dict: "object"}


class Value(NamedTuple):
    """One value that may be set."""

    path: str
    default: Any
    text: str


def values() -> Iterator[Value]:
    """Every value that has a comment, in the order of the file."""
    text = VALUES.read_text(encoding="utf-8")
    root = yaml.compose(text)
    if not isinstance(root, yaml.MappingNode):
        raise SystemExit(f"{VALUES.relative_to(ROOT)} is no map")
    yield from _values(root, yaml.safe_load(text), text.splitlines(), "")


def _values(node: yaml.MappingNode, default: dict[str, Any], lines: list[str], path: str) -> Iterator[Value]:
    for key, inner in node.value:
        name = f"{path}.{key.value}" if path else key.value
        _, found, comment = lines[key.start_mark.line].partition("# -- ")
        if found:
            yield Value(name, default[key.value], comment.strip())
        elif isinstance(inner, yaml.MappingNode):
            yield from _values(inner, default[key.value], lines, name)
        else:
            raise SystemExit(f"{VALUES.relative_to(ROOT)}: {name} has no comment: write `# -- what it means` behind it")


def schema() -> dict[str, Any]:
    """What `helm` holds values against before it renders anything; a name it does not know is an error."""
    top = _group()
    top |= {"$schema": "http://json-schema.org/draft-07/schema#", "title": "Values of the Pharos chart"}
    top["properties"]["global"] = {"type": "object", "description": "What a parent chart hands to all its parts"}
    for value in values():
        group = top
        *groups, last = value.path.split(".")
        for name in groups:
            group = group["properties"].setdefault(name, _group())
        group["properties"][last] = _one(value)
    config = json_schema()
    config.pop("$schema")
    config["description"] = "The rest of pharos.yaml, except what the chart sets itself"
    for field in OWNED:
        config["properties"][field] = {}  # refused with a sentence when the chart is rendered
    top["definitions"] = config.pop("definitions", {})
    top["properties"]["config"] = config
    return top


def _group() -> dict[str, Any]:
    return {"type": "object", "additionalProperties": False, "properties": {}}


def _one(value: Value) -> dict[str, Any]:
    made: dict[str, Any] = {"description": value.text}
    if value.default is not None:
        made["type"] = TYPES[type(value.default)]
    made |= NARROWED.get(value.path, {})
    if "enum" in made:
        made.pop("type")
    return made


def table() -> str:
    """The values as a table."""
    rows = [f"| `{value.path}` | `{json.dumps(value.default)}` | {value.text} |" for value in values()]
    return "\n".join(["| value | default | meaning |", "|---|---|---|", *rows])


def readme(now: str) -> str:
    """The page with its table renewed."""
    head, _, rest = now.partition(BEGIN)
    _, _, tail = rest.partition(END)
    return f"{head}{BEGIN}\n\n{table()}\n\n{END}{tail}"


def rendered() -> str:
    """The chart with its defaults, for clusters without Helm. What is there already, where this machine has no Helm."""
    if not HELM.exists():
        return MANIFEST.read_text(encoding="utf-8") if MANIFEST.exists() else ""
    done = subprocess.run(
        [str(HELM), "template", "pharos", str(CHART), "--namespace", "pharos", "--kube-version", "1.29.0",
         "--set", f"tests.enabled=false,peers.gitops=true,peers.existingSecret={SHARED}"],
        capture_output=True, text=True, timeout=60, check=True, env={"HOME": "/nonexistent", "PATH": "/usr/bin:/bin"},
    )  # fmt: skip
    return f"# Made by `make docs` from charts/pharos with its defaults; do not edit.\n{OF_HELM.sub('', done.stdout)}"


DOCUMENTS: Final = {
    "charts/pharos/values.schema.json": lambda: json.dumps(schema(), indent=2, ensure_ascii=False) + "\n",
    "charts/pharos/README.md": lambda: readme(README.read_text(encoding="utf-8")),
    "manifests/pharos.yaml": rendered,
}
"""Every file that is made here, with what belongs into it. The last one is made of the first."""
