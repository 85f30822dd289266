"""The engines that run in Pods here: llama.cpp with a tiny model, as slow as their share of a processor makes them."""

import hashlib
from typing import Any, Final

ENGINE: Final = "localhost/engine:e2e"
PHAROS: Final = "localhost/pharos:e2e"
NEXT: Final = "localhost/pharos:e2e-next"
"""The same under another tag, to upgrade to."""
PREVIOUS: Final = "localhost/pharos:e2e-previous"
"""An older one, to upgrade from and to go back to."""
MODEL: Final = "tiny"
DEFAULT: Final = "docker.io"
"""What nodes put before a name without a place."""
PLAIN: Final = f"{DEFAULT}/library/pharos:0.1.0"
"""The same as the chart asks for it when no value says otherwise."""
KEY: Final = "e2e-client-key"
ADMIN: Final = "e2e-admin-key"
"""Made up for these tests."""
KEYS: Final = [
    {"name": "client", "sha256": hashlib.sha256(KEY.encode()).hexdigest()},
    {"name": "admin", "sha256": hashlib.sha256(ADMIN.encode()).hexdigest(), "admin": True},
]
TEST_VALUES: Final[dict[str, Any]] = {
    "image": {"registry": "localhost", "tag": "e2e"},
    "minReadySeconds": 5,
    "drain": {"graceSeconds": 5, "timeoutSeconds": 90},
}
"""Short times, so that a test of an upgrade takes a minute and not ten."""


def engines(
    name: str,
    *,
    replicas: int = 2,
    annotations: dict[str, str] | None = None,
    cpu: str = "300m",
    pre_stop_s: int = 60,
    version: str = "1",
    killable: bool = False,
) -> dict[str, Any]:
    """A Deployment of them. `killable`: a signal from inside ends its process, as it is not the first one."""
    container: dict[str, Any] = {
        "name": "llama",
        "image": ENGINE,
        "imagePullPolicy": "IfNotPresent",
        "env": [{"name": "VERSION", "value": version}],
        "ports": [{"name": "http", "containerPort": 8080}],
        "readinessProbe": {"httpGet": {"path": "/health", "port": "http"}, "periodSeconds": 1, "timeoutSeconds": 5},
        "resources": {"requests": {"cpu": "50m", "memory": "128Mi"}, "limits": {"cpu": cpu, "memory": "512Mi"}},
    }
    if pre_stop_s:
        container["lifecycle"] = {"preStop": {"sleep": {"seconds": pre_stop_s}}}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": {"app": name}},
            "strategy": {"rollingUpdate": {"maxUnavailable": 0, "maxSurge": 1}},
            "template": {
                "metadata": {"labels": {"app": name}, "annotations": annotations or {}},
                "spec": {
                    "terminationGracePeriodSeconds": pre_stop_s + 30,
                    "shareProcessNamespace": killable,
                    "containers": [container],
                },
            },
        },
    }


def service(name: str, app: str, *, annotations: dict[str, str] | None = None) -> dict[str, Any]:
    """A Service in front of them."""
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": name, "annotations": annotations or {}},
        "spec": {"selector": {"app": app}, "ports": [{"name": "http", "port": 80, "targetPort": "http"}]},
    }
