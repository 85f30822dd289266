"""What the chart makes: objects that Kubernetes takes, a drain that fits, rights as small as they can be."""

import json
import re
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml

from pharos.config.effects import EFFECTS
from tests.chart.rendering import (
    CHART,
    Manifest,
    RefusedError,
    config_of,
    container_of,
    helm,
    kinds,
    plain,
    pod_of,
    render,
    taken,
    the,
)

OWN_KINDS = {"ServiceMonitor", "PodMonitor", "PrometheusRule", "HTTPRoute"}
"""Of operators: Kubernetes itself has no schema of them."""
EVERYTHING: dict[str, Any] = {
    "commonLabels": {"team": "ml"},
    "drain": {"preStopSleepSeconds": 5},
    "keys": {"inline": [{"name": "ci", "sha256": "0" * 64}]},
    "discovery": {"kubernetes": {"namespaces": ["a", "b"], "podLogs": True, "events": True}},
    "service": {"type": "LoadBalancer", "annotations": {"x": "y"}, "loadBalancerSourceRanges": ["10.0.0.0/8"]},
    "metrics": {
        "podMonitor": {"enabled": True}, "prometheusRule": {"enabled": True}, "dashboard": {"enabled": True},
    },
    "ingress": {"enabled": True, "className": "nginx", "profile": "nginx", "hosts": ["llm.example.org"]},
    "httpRoute": {"enabled": True, "parentRefs": [{"name": "gateway", "namespace": "edge"}]},
    "autoscaling": {"enabled": True, "queueWaiting": 5},
    "networkPolicy": {"enabled": True, "restrictEgress": True},
    "credentials": {"existingSecret": "engine-keys"},
    "hostUsers": False,
    "extraEnv": [{"name": "A", "value": "b"}],
    "extraVolumes": [{"name": "x", "emptyDir": {}}],
    "extraVolumeMounts": [{"name": "x", "mountPath": "/x"}],
    "extraContainers": [{"name": "beside", "image": "beside:1"}],
    "extraObjects": [{"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "{{ .Release.Name }}-more"}}],
    "podAnnotations": {"a": "b"},
    "nodeSelector": {"disk": "ssd"},
    "tolerations": [{"operator": "Exists"}],
    "priorityClassName": "high",
}  # fmt: skip
ONE: dict[str, Any] = {"replicaCount": 1}
BARE: dict[str, Any] = {
    "replicaCount": 1, "peers": {"enabled": False}, "state": {"enabled": False},
    "discovery": {"kubernetes": {"enabled": False}}, "serviceAccount": {"create": False}, "tests": {"enabled": False},
}  # fmt: skip
CLUSTER_WIDE: dict[str, Any] = {"discovery": {"kubernetes": {"clusterWide": True}}}


@pytest.mark.parametrize("version", ["1.29", "1.30", "1.33", "1.37"])
@pytest.mark.parametrize(
    "values", [{}, ONE, BARE, CLUSTER_WIDE, EVERYTHING], ids=["plain", "one", "bare", "wide", "all"]
)
def test_every_object_is_one_that_kubernetes_takes(version: str, values: dict[str, Any]) -> None:
    for found in render(values):  # the templates ask for no version
        if found["kind"] in OWN_KINDS:
            continue
        if version == "1.29" and "hostUsers" in str(found) and found["kind"] == "Deployment":
            found["spec"]["template"]["spec"].pop("hostUsers", None)
        lifecycle = str(found).count("'sleep'")
        if version == "1.29" and lifecycle:
            continue  # a preStop that sleeps is of 1.30
        kubernetes_validate.validate(found, version, strict=True)


def test_the_oldest_version_is_taken_and_one_before_it_is_not() -> None:
    assert render({}, "--kube-version", "1.29.0")
    with pytest.raises(RefusedError) as refused:
        render({}, "--kube-version", "1.28.9")
    assert "1.29" in str(refused.value)


def test_helm_finds_nothing_to_say_against_it() -> None:
    assert "0 chart(s) failed" in helm("lint", str(CHART), "--strict")


def test_the_configuration_is_one_that_the_program_takes(tmp_path: Path) -> None:
    for values in ({}, ONE, BARE, CLUSTER_WIDE, {**EVERYTHING, "config": {"queue": {"size": 7}}}):
        config = taken(render(values), tmp_path)
        assert config.drain.grace_s == 15.0
        assert config.discovery.docker.enabled is False


def test_settings_of_ones_own_are_kept_beside_the_chart_s() -> None:
    config = config_of(render({"config": {"queue": {"size": 7}, "cors": {"origins": ["*"]}}}))
    assert config["queue"] == {"size": 7}
    assert config["cors"] == {"origins": ["*"]}
    assert config["metrics_listen"] == ":9090"


def test_an_upgrade_takes_nobody_away_before_somebody_else_is_ready() -> None:
    spec = the("Deployment", plain())["spec"]
    assert spec["strategy"] == {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": 0, "maxSurge": 1}}
    assert spec["minReadySeconds"] == 15


@pytest.mark.parametrize(
    ("drain", "seconds"),
    [
        ({}, 630),
        ({"graceSeconds": 5, "timeoutSeconds": 20}, 40),
        ({"preStopSleepSeconds": 10, "graceSeconds": 0, "timeoutSeconds": 0}, 25),
    ],
)
def test_the_grace_period_is_the_sum_of_what_a_drain_may_take(drain: dict[str, int], seconds: int) -> None:
    found = render({"drain": drain})
    assert pod_of(found)["terminationGracePeriodSeconds"] == seconds
    config = config_of(found)["drain"]
    assert config["grace"] == f"{drain.get('graceSeconds', 15)}s"


@pytest.mark.parametrize(
    ("values", "sentence"),
    [
        ({"terminationGracePeriodSeconds": 60}, "the kubelet would cut streams"),
        ({"config": {"listen": ":1"}}, "use the value service.port"),
        ({"config": {"drain": {}}}, "use the value drain.graceSeconds and drain.timeoutSeconds"),
        ({"config": {"peers": {}}}, "use the value peers"),
        ({"existingConfigMap": "x", "config": {"policy": "cost"}}, "move config into it"),
        ({"peers": {"gitops": True}}, "name it in peers.existingSecret"),
        ({"keys": {"existingSecret": "x", "inline": [{}]}}, "put the entries of keys.inline into that Secret"),
        (
            {"peers": {"enabled": False}, "keys": {"existingSecret": "x"}},
            "quotas of keys would count in each instance alone",
        ),
        (
            {"metrics": {"serviceMonitor": {"enabled": True}, "podMonitor": {"enabled": True}}},
            "every series would be scraped twice",
        ),
        (
            {"discovery": {"kubernetes": {"clusterWide": True, "namespaces": ["a"]}}},
            "leave discovery.kubernetes.namespaces empty",
        ),
        ({"autoscaling": {"enabled": True, "minReplicas": 4, "maxReplicas": 3}}, "is below autoscaling.minReplicas"),
        ({"autoscaling": {"enabled": True, "targetCPUUtilizationPercentage": None}}, "needs a measure"),
        ({"httpRoute": {"enabled": True}}, "name it in httpRoute.parentRefs"),
        ({"ingress": {"enabled": True}}, "at least one name in ingress.hosts"),
        ({"lifecycle": {"preStop": {}}, "drain": {"preStopSleepSeconds": 1}}, "leave lifecycle empty"),
        ({"metrics": {"port": 8090}}, "must differ"),
    ],
)
def test_values_that_cannot_work_are_refused_with_what_to_change(values: dict[str, Any], sentence: str) -> None:
    with pytest.raises(RefusedError) as refused:
        render(values)
    assert sentence in str(refused.value)


@pytest.mark.parametrize(
    ("values", "place"),
    [
        ({"replicas": 3}, "additional properties 'replicas' not allowed"),
        ({"replicaCount": "3"}, "at '/replicaCount': got string, want integer"),
        ({"drain": {"graceSeconds": "15s"}}, "at '/drain/graceSeconds': got string, want integer"),
        ({"config": {"quue": {}}}, "additional properties 'quue' not allowed"),
        ({"config": {"queue": {"size": -1}}}, "at '/config/queue/size': minimum: got -1, want 0"),
        ({"autoscaling": {"maxReplicas": 50}}, "at '/autoscaling/maxReplicas': maximum: got 50, want 10"),
        ({"image": {"digest": "latest"}}, "at '/image/digest'"),
        ({"fullnameOverride": "123"}, "at '/fullnameOverride'"),
        ({"peers": {"existingSecret": "a: b"}}, "at '/peers/existingSecret'"),
    ],
)
def test_a_value_that_the_schema_does_not_know_is_named(values: dict[str, Any], place: str) -> None:
    with pytest.raises(RefusedError) as refused:
        render(values)
    assert place in str(refused.value)


def test_probes_ask_the_right_questions() -> None:
    container = container_of(plain())
    assert container["readinessProbe"]["httpGet"] == {"path": "/healthz", "port": "http"}
    assert container["livenessProbe"]["httpGet"] == {"path": "/livez", "port": "http"}
    assert container["startupProbe"]["httpGet"] == {"path": "/livez", "port": "http"}


def test_the_pod_meets_the_restricted_standard() -> None:
    pod, container = pod_of(plain()), container_of(plain())
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False, "readOnlyRootFilesystem": True, "capabilities": {"drop": ["ALL"]},
    }  # fmt: skip
    assert pod["enableServiceLinks"] is False


def test_directories_are_mounted_and_no_single_file_which_would_never_change() -> None:
    for mount in container_of(render(EVERYTHING))["volumeMounts"]:
        assert "subPath" not in mount


def rules(found: list[Manifest]) -> list[dict[str, Any]]:
    return [rule for it in found if it["kind"] in {"Role", "ClusterRole"} for rule in it["rules"]]


def test_rights_are_to_read_three_kinds_in_the_own_namespace() -> None:
    role = the("Role", plain())
    assert role["metadata"]["namespace"] == "models"
    assert role["rules"] == [
        {"apiGroups": [""], "resources": ["pods", "services"], "verbs": ["get", "list", "watch"]},
        {"apiGroups": ["discovery.k8s.io"], "resources": ["endpointslices"], "verbs": ["get", "list", "watch"]},
    ]


def test_each_switch_adds_its_own_right_and_none_reads_secrets() -> None:
    found = render({"discovery": {"kubernetes": {"podLogs": True, "events": True}}})
    added = rules(found)[2:]
    assert added == [
        {"apiGroups": [""], "resources": ["pods/log"], "verbs": ["get"]},
        {"apiGroups": ["events.k8s.io"], "resources": ["events"], "verbs": ["create", "patch"]},
    ]
    assert "secrets" not in str(rules(render(EVERYTHING)))


def test_several_namespaces_get_a_role_each() -> None:
    found = render({"discovery": {"kubernetes": {"namespaces": ["a", "b"]}}})
    assert [it["metadata"]["namespace"] for it in found if it["kind"] == "Role"] == ["a", "b"]
    subjects = [it["subjects"] for it in found if it["kind"] == "RoleBinding"]
    assert subjects == [[{"kind": "ServiceAccount", "name": "pharos", "namespace": "models"}]] * 2
    assert config_of(found)["discovery"]["kubernetes"]["namespaces"] == ["a", "b"]


def test_nothing_is_of_the_whole_cluster_unless_asked_for() -> None:
    everything = {it["kind"] for it in render(EVERYTHING)}
    assert not {"ClusterRole", "ClusterRoleBinding"} & everything
    assert {"ClusterRole", "ClusterRoleBinding"} <= kinds(render(CLUSTER_WIDE))


def test_without_discovery_there_is_no_right_and_no_token() -> None:
    found = render({"discovery": {"kubernetes": {"enabled": False}}})
    assert "Role" not in kinds(found)
    assert pod_of(found)["automountServiceAccountToken"] is False


def test_the_peers_service_lists_those_that_drain_and_the_clients_one_does_not() -> None:
    assert the("Service", plain(), "pharos-peers")["spec"]["publishNotReadyAddresses"] is True
    assert "publishNotReadyAddresses" not in the("Service", plain(), "pharos")["spec"]
    assert config_of(plain())["peers"]["dns"] == "pharos-peers.models.svc.cluster.local.:8081"


def test_a_generated_secret_survives_an_uninstall() -> None:
    secret = the("Secret", plain())
    assert secret["metadata"]["annotations"]["helm.sh/resource-policy"] == "keep"
    assert "Secret" not in kinds(render({"peers": {"existingSecret": "mine"}}))


def test_no_key_and_no_secret_is_in_a_configmap() -> None:
    found = render({**EVERYTHING, "peers": {"existingSecret": "mine"}})
    for it in found:
        if it["kind"] == "ConfigMap":
            assert "sha256" not in json.dumps(it.get("data", {}).get("pharos.yaml", ""))
    assert "0" * 64 in str(the("Secret", found, "pharos-keys"))


def test_every_field_that_waits_for_a_restart_is_in_the_checksum_and_no_other_of_its_group() -> None:
    """So that a change which needs a restart rolls the Pods, and no other change drains them."""
    template = (CHART / "templates" / "_helpers.tpl").read_text(encoding="utf-8")
    _, _, found = template.partition('define "pharos.restartChecksum"')
    restart = {field.partition(".")[0] for field, when in EFFECTS.items() if when == "at a restart"}
    named = set(re.findall(r'"([a-z_]+)"', found))
    assert restart <= named, f"{restart - named} need a restart"
    assert named - restart == set(), f"{named - restart} take effect at once"


def test_large_numbers_and_tags_of_digits_stay_what_they_are(tmp_path: Path) -> None:
    keys = {"inline": [{"name": "ci", "sha256": "0" * 64, "tokens_per_day": 2000000}]}
    found = render({"keys": keys, "image": {"tag": "20250314"}, "config": {"limits": {"buffered": 268435456}}})
    assert container_of(found)["image"] == "pharos:20250314"
    assert "2000000" in the("Secret", found, "pharos-keys")["stringData"]["keys.yaml"]
    config = taken(found, tmp_path)
    assert (config.keys[0].tokens_per_day, config.limits.buffered_bytes) == (2000000, 268435456)
    found = render({}, "--set", "keys.inline[0].name=ci", "--set", f"keys.inline[0].sha256={'a' * 64}",
                   "--set", "keys.inline[0].tokens_per_day=2000000", "--set-string", "image.tag=20250314")  # fmt: skip
    assert taken(found, tmp_path).keys[0].tokens_per_day == 2000000
    with pytest.raises(RefusedError) as refused:
        render({}, "--set", "image.tag=20250314")
    assert "at '/image/tag': got number, want string" in str(refused.value)


def checksum(values: dict[str, Any]) -> str:
    found = the("Deployment", render(values))["spec"]["template"]["metadata"]["annotations"]
    return str(found["pharos.dev/restart-checksum"])


def test_only_what_needs_a_restart_rolls_the_pods() -> None:
    same = [
        {},
        {"keys": {"inline": [{"name": "a", "sha256": "0" * 64}]}},
        {"config": {"aliases": {"a": ["b"]}}},
        {"config": {"backends": [{"url": "http://gpu:8080"}]}},
        {"drain": {"timeoutSeconds": 60}},
    ]
    assert len({checksum(values) for values in same}) == 1
    for values in ({"metrics": {"port": 9191}}, {"peers": {"port": 8181}}, {"state": {"enabled": False}}):
        assert checksum(values) != checksum({})


def test_one_instance_has_no_budget_that_would_block_a_node() -> None:
    assert "PodDisruptionBudget" not in kinds(render(ONE))
    assert the("PodDisruptionBudget", plain())["spec"]["maxUnavailable"] == 1


def test_autoscaling_owns_the_count_and_goes_down_slowly() -> None:
    found = render({"autoscaling": {"enabled": True}})
    assert "replicas" not in the("Deployment", found)["spec"]
    down = the("HorizontalPodAutoscaler", found)["spec"]["behavior"]["scaleDown"]
    assert down["policies"] == [{"type": "Pods", "value": 1, "periodSeconds": 630}]


def test_ways_in_from_outside_do_not_cut_streams() -> None:
    found = render(EVERYTHING)
    ingress = the("Ingress", found)["metadata"]["annotations"]
    assert ingress["nginx.ingress.kubernetes.io/proxy-buffering"] == "off"
    [rule] = the("HTTPRoute", found)["spec"]["rules"]
    assert rule["timeouts"] == {"request": "0s", "backendRequest": "0s"}


def test_metrics_are_on_a_port_that_no_ingress_leads_to() -> None:
    found = render(EVERYTHING)
    ports = {it["name"]: it["port"] for it in the("Service", found, "pharos")["spec"]["ports"]}
    assert ports == {"http": 8090}
    assert config_of(found)["metrics_listen"] == ":9090"


def test_pods_prefer_different_nodes_and_require_nothing() -> None:
    pod = pod_of(plain())
    assert list(pod["affinity"]["podAntiAffinity"]) == ["preferredDuringSchedulingIgnoredDuringExecution"]
    [spread] = pod["topologySpreadConstraints"]
    assert (spread["whenUnsatisfiable"], spread["matchLabelKeys"]) == ("ScheduleAnyway", ["pod-template-hash"])


def test_selectors_never_hold_what_an_upgrade_changes() -> None:
    selector = the("Deployment", plain())["spec"]["selector"]["matchLabels"]
    assert set(selector) == {"app.kubernetes.io/name", "app.kubernetes.io/instance"}


def test_the_pod_of_helm_test_is_no_instance() -> None:
    test = the("Pod", plain())
    selector = the("Deployment", plain())["spec"]["selector"]["matchLabels"]
    assert not selector.items() <= test["metadata"]["labels"].items()
    assert test["spec"]["containers"][0]["args"] == ["doctor", "http://pharos:8090"]


@pytest.mark.parametrize("release", ["pharos", "a", "my-pharos-of-the-team", "x" * 53, "123"])
def test_names_fit_whatever_the_release_is_called(release: str) -> None:
    for found in render(release=release):
        assert len(found["metadata"]["name"]) <= 63
        assert found["metadata"]["labels"]["app.kubernetes.io/instance"] == release


def test_a_namespace_of_digits_is_a_text() -> None:
    found = yaml.safe_load_all(helm("template", "pharos", str(CHART), "--namespace", "2026", values={}))
    assert {it["metadata"]["namespace"] for it in found if it} == {"2026"}


def test_an_image_is_named_by_its_digest_where_there_is_one() -> None:
    digest = "sha256:" + "a" * 64
    image = {"registry": "registry.example", "repository": "team/pharos", "digest": digest}
    assert container_of(render({"image": image}))["image"] == f"registry.example/team/pharos@{digest}"
    assert container_of(plain())["image"].startswith("pharos:")
