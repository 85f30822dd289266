"""Fields of `pharos.yaml` that this version knows but cannot honour yet. Setting one is refused, never ignored.

Forbidden here: logic. A part that gets built takes its rows away in the same change.
"""

from typing import Final

NOT_YET: Final[dict[str, str]] = {
    "admin_listen": "the admin listener is not built; /status is served beside the API",
    "metrics_listen": "/metrics is served beside the API on `listen`",
    "keys[].rpm": "keys have no quotas",
    "keys[].tokens_per_day": "keys have no quotas",
    "keys[].priority": "keys have weights only",
    "keys[].queue_events": "waiting clients are not told their place",
    "keys_file": "list the keys under `keys`",
    "discovery.docker.enabled": "list the engines under `backends`",
    "discovery.docker.socket": "list the engines under `backends`",
    "discovery.kubernetes.enabled": "list the engines under `backends`",
    "discovery.kubernetes.namespaces": "list the engines under `backends`",
    "discovery.kubernetes.cluster_wide": "list the engines under `backends`",
    "discovery.kubernetes.pod_logs": "list the engines under `backends`",
    "discovery.kubernetes.allow_url": "list the engines under `backends`",
    "discovery.kubernetes.kubeconfig": "list the engines under `backends`",
    "discovery.kubernetes.context": "list the engines under `backends`",
    "usage.timezone": "usage is not kept",
    "usage.retention_days": "usage is not kept",
    "peers": "every instance stands alone",
    "state_file": "what was learned is not kept over a restart",
    "decision_log": "the last decisions are on /status",
    "cors.origins": "browsers are not let in from other origins",
}
"""Field (list positions as `[]`) to how things are instead."""
