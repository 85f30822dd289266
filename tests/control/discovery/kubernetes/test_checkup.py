"""What the doctor asks of a cluster, and what it makes of the answers."""

import aiohttp
import msgspec
import pytest

from pharos.control.discovery.kubernetes import checkup, remarks
from pharos.control.discovery.kubernetes.api import Api
from pharos.control.discovery.kubernetes.checkup import OwnPod, Right
from pharos.control.discovery.kubernetes.objects import Pod
from tests.control.discovery.kubernetes.rigging import login
from tests.fakes.kubernetes import FakeCluster, pod


async def asked(cluster: FakeCluster, own: tuple[str, str] | None = None, *, pod_logs: bool = True) -> checkup.Answers:
    async with cluster.serve(), aiohttp.ClientSession() as session:
        api = Api(session, login(cluster))
        return await checkup.ask(api, checkup.needs(["models"], pod_logs=pod_logs), own)


def told(answers: checkup.Answers) -> list[tuple[str, str]]:
    return [(one.text, one.fix) for one in remarks.of_rights(answers)]


def rule(group: str, resource: str, verb: str) -> str:
    return f'namespace models with apiGroups: ["{group}"], resources: ["{resource}"], verbs: ["{verb}"]'


async def test_each_verb_is_asked_for_and_one_that_is_missing_is_told_with_its_rule() -> None:
    cluster = FakeCluster()
    cluster.denied = {"watch endpointslices", "get pods/log", "create events"}
    answers = await asked(cluster)
    assert [(one.verb, one.resource) for one in answers.rights if one.allowed] == [
        ("list", "pods"), ("watch", "pods"), ("list", "services"), ("watch", "services"), ("list", "endpointslices"),
    ]  # fmt: skip
    assert told(answers) == [
        (
            "no right to watch endpointslices in namespace models",
            f"it needs a Role in {rule('discovery.k8s.io', 'endpointslices', 'watch')}",
        ),
        (
            "no right to get pods/log in namespace models",
            f"it needs a Role in {rule('', 'pods/log', 'get')}",
        ),
    ]


async def test_an_api_server_that_does_not_say_leaves_rights_unknown() -> None:
    cluster = FakeCluster()
    cluster.status = 500
    answers = await asked(cluster, ("models", "pharos-0"))
    assert {one.allowed for one in answers.rights} == {None}
    assert answers.pod is None
    assert told(answers) == []


async def test_a_cluster_that_answers_too_late_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checkup, "ASK_S", 0.0)
    answers = await asked(FakeCluster())
    assert {one.allowed for one in answers.rights} == {None}


def test_rights_over_all_namespaces_are_of_a_cluster_role() -> None:
    [right, *_] = checkup.needs([None], pod_logs=False)
    assert right == Right("list", "", "pods", None, needed=True)
    assert right.rule.startswith("a ClusterRole with")


async def test_the_own_pod_is_read_with_its_labels() -> None:
    cluster = FakeCluster()
    own = pod("pharos-0", labels={remarks.VERSION: "1.0"})
    own["spec"]["terminationGracePeriodSeconds"] = 630
    await cluster.put("pods", own)
    found = (await asked(cluster, ("models", "pharos-0"))).pod
    assert found is not None
    assert found.metadata.labels == {remarks.VERSION: "1.0"}
    assert found.spec.termination_grace_period_seconds == 630
    assert (await asked(cluster, ("models", "another"))).pod is None


def own_pod(seconds: int, version: str = "1.0", sleep: int | None = None) -> OwnPod:
    hook = {} if sleep is None else {"lifecycle": {"preStop": {"sleep": {"seconds": sleep}}}}
    return msgspec.convert(
        {
            "metadata": {"labels": {remarks.VERSION: version}},
            "spec": {"containers": [hook, {}], "terminationGracePeriodSeconds": seconds},
        },
        OwnPod,
    )


@pytest.mark.parametrize(
    ("given", "sleep", "needed"), [(95, None, None), (94, None, 95), (104, 10, 105), (105, 10, None)]
)
def test_the_grace_period_holds_the_whole_drain_or_that_is_told(
    given: int, sleep: int | None, needed: int | None
) -> None:
    found = [one for one in remarks.of_own_pod(own_pod(given, sleep=sleep), 20.0, 60.0, "1.0") if one.is_wrong]
    if needed is None:
        assert not found
    else:
        assert "the kubelet would cut streams" in found[0].text
        assert found[0].fix.startswith(f"set terminationGracePeriodSeconds to {needed} or more")


def test_a_drain_beyond_the_autoscaler_s_limit_and_another_chart_are_told() -> None:
    texts = [one.text for one in remarks.of_own_pod(own_pod(630, "0.9"), 15.0, 600.0, "1.0")]
    assert texts == [
        "a drain may take 630 s, and the cluster autoscaler cuts Pods after 600 s",
        "the chart is made for Pharos 0.9, and this is 1.0",
    ]
    assert not list(remarks.of_own_pod(own_pod(100), 15.0, 60.0, "1.0"))


def engine(name: str, *, hook: bool = False, seconds: int | None = None, ready: bool = True) -> Pod:
    made = pod(name, ready=ready)
    made["spec"]["terminationGracePeriodSeconds"] = seconds
    if hook:
        made["spec"]["containers"][0]["lifecycle"] = {"preStop": {"exec": {"command": ["sleep", "60"]}}}
    return msgspec.convert(made, Pod)


def test_engines_without_a_pre_stop_are_named_and_many_are_counted() -> None:
    [one] = remarks.of_engines([engine(f"e{number}") for number in range(7)])
    assert one.text.startswith("models/e0, models/e1, models/e2, models/e3, models/e4 and 2 more have no preStop")
    assert not one.is_wrong
    [one] = remarks.of_engines([engine("a", hook=True, seconds=30), engine("b", hook=True, seconds=120)])
    assert one.text == "models/a: the preStop is cut by terminationGracePeriodSeconds of 30 s or less"


def test_who_is_ready_for_one_and_not_for_the_other_is_told() -> None:
    pods = {"models/a": engine("a"), "models/b": engine("b", ready=False)}
    texts = [one.text for one in remarks.of_readiness(pods, {"models/a": False, "models/b": True, "elsewhere": False})]
    assert texts == [
        "models/a: ready as Kubernetes sees it, but nothing answers Pharos there",
        "models/b: answers Pharos, but is not ready as Kubernetes sees it, and so gets no requests",
    ]
    assert not list(remarks.of_readiness(pods, {"models/a": True, "models/b": False}))
    assert not list(remarks.of_readiness(pods, {"models/a": None}))
