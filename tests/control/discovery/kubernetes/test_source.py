"""A cluster's Pods and Services come and go, the API server fails in every way: what is a backend meanwhile."""

import asyncio

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pharos.control.discovery.kubernetes import api as api_module
from pharos.control.discovery.kubernetes.api import Api
from pharos.control.discovery.kubernetes.finding import AT_ONCE
from pharos.control.discovery.kubernetes.reflector import LIST_EVERY_S
from tests.control.discovery.kubernetes.rigging import ON, Rig, cluster_with_a_pod, cluster_with_a_service, rig
from tests.fakes.kubernetes import FakeCluster, pod


async def test_an_annotated_pod_is_a_backend_and_what_comes_and_goes_is_followed() -> None:
    async with rig(await cluster_with_a_pod()) as it:
        await it.until(lambda: it.names == ["models/a"])
        assert it.told[-1][0].url == "http://10.0.0.1:8080"
        await it.cluster.put("pods", pod("b", "10.0.0.2", annotations=ON))
        await it.until(lambda: it.names == ["models/a", "models/b"])
        await it.cluster.delete("pods", "a")
        await it.until(lambda: it.names == ["models/b"])


async def test_nothing_is_told_before_every_kind_was_listed() -> None:
    async with rig(FakeCluster()) as it:
        await it.until(lambda: it.told)
        assert it.told == [[]]
        assert it.it.is_complete


async def test_a_first_look_at_many_gives_others_their_turns_and_tells_of_them_once() -> None:
    cluster = FakeCluster()
    for number in range(1, 60):
        of_its_own = {**ON, "pharos.capacity": str(number)}
        await cluster.put("pods", pod(f"p{number:02}", f"10.0.0.{number}", annotations=of_its_own))
    async with rig(cluster) as it:
        await it.until(lambda: it.it.is_complete)
        turns = 0
        while not it.told:
            turns += 1
            if turns == AT_ONCE // 2:
                await it.cluster.put("pods", pod("p01", "10.0.1.1", annotations=ON))
            await asyncio.sleep(0)
        assert turns >= 60 // AT_ONCE
        assert len(it.told[0]) == 59
        await it.until(lambda: it.told[-1][0].url == "http://10.0.1.1:8080")
        assert {len(specs) for specs in it.told} == {59}


async def test_a_service_is_one_backend_for_each_endpoint_that_may_serve() -> None:
    cluster = await cluster_with_a_service()
    async with rig(cluster) as it:
        await it.until(lambda: it.names == ["models/a", "models/b"])
        await cluster.put("pods", pod("b", "10.0.0.2", ending=True))
        await it.until(lambda: it.draining == ["models/b"])
        assert it.names == ["models/a"]


async def test_a_pod_that_is_not_ready_keeps_its_place_without_new_requests() -> None:
    async with rig(await cluster_with_a_pod()) as it:
        await it.until(lambda: it.names == ["models/a"])
        await it.cluster.put("pods", pod("a", annotations=ON, ready=False))
        await it.until(lambda: it.draining == ["models/a"])
        await it.cluster.put("pods", pod("a", annotations=ON))
        await it.until(lambda: it.names == ["models/a"])


async def test_a_change_of_no_field_that_is_read_is_no_news() -> None:
    async with rig(await cluster_with_a_pod()) as it:
        await it.until(lambda: it.names == ["models/a"])
        before = len(it.told)
        await it.cluster.put("pods", pod("a", annotations={**ON, "other": "x"}))
        await it.cluster.put("pods", pod("b", "10.0.0.2", annotations=ON))
        await it.until(lambda: it.names == ["models/a", "models/b"])
        assert len(it.told) == before + 1


async def test_many_objects_come_in_pages() -> None:
    cluster = FakeCluster()
    cluster.page = 3
    for number in range(8):
        await cluster.put("pods", pod(f"p{number}", f"10.0.0.{number + 1}", annotations=ON))
    async with rig(cluster) as it:
        await it.until(lambda: len(it.names) == 8)
        assert sum("continue" in query for path, query in cluster.asked if path.endswith("pods")) == 2


async def test_a_list_whose_next_page_is_too_old_is_begun_anew() -> None:
    cluster = FakeCluster()
    cluster.page = 1
    for number in range(3):
        await cluster.put("pods", pod(f"p{number}", f"10.0.0.{number + 1}", annotations=ON))
    cluster.compact()
    async with rig(cluster) as it:
        await it.until(lambda: any("continue" in query for _, query in cluster.asked))
        cluster.page = 500
        await it.until(lambda: len(it.names) == 3)


async def test_a_pod_deleted_while_the_watch_was_down_is_gone_after_a_new_list() -> None:
    async with rig(await cluster_with_a_pod()) as it:
        await it.until(lambda: it.names == ["models/a"] and it.cluster.watching == 3)
        it.cluster.status = 503
        await it.cluster.cut()
        await it.until(lambda: it.it.troubles)
        await it.cluster.delete("pods", "a")
        it.cluster.compact()
        assert it.names == ["models/a"]  # stale is better than empty
        it.cluster.status = 0
        await it.until(lambda: it.names == [] and it.told[-1] == [])


async def test_a_watch_goes_on_where_it_ended() -> None:
    async with rig(await cluster_with_a_pod()) as it:
        await it.until(lambda: it.names == ["models/a"] and it.cluster.watching == 3)
        lists = sum("watch" not in query for _, query in it.cluster.asked)
        await it.cluster.cut()
        await it.until(lambda: it.cluster.watching == 3)
        await it.cluster.put("pods", pod("b", "10.0.0.2", annotations=ON))
        await it.until(lambda: it.names == ["models/a", "models/b"])
        assert sum("watch" not in query for _, query in it.cluster.asked) == lists


async def test_everything_is_listed_again_from_time_to_time() -> None:
    cluster = await cluster_with_a_pod()
    async with rig(cluster) as it:
        await it.until(lambda: it.names == ["models/a"] and cluster.watching == 3)
        lists = sum("watch" not in query for _, query in cluster.asked)
        it.now += LIST_EVERY_S
        await cluster.cut()
        await it.until(lambda: sum("watch" not in query for _, query in cluster.asked) >= lists + 3)


@pytest.mark.parametrize(
    "line",
    [
        b'{"type":"ERROR","object":{"kind":"Status","code":410,"reason":"Expired"}}\n',
        b'{"type":"ERROR","object":{"kind":"Status","code":500}}\n',
        b"{garbage\n",
        b'{"type":"ADDED","object":' + b"[" * 5000 + b"\n",
        b'{"type":"BOOKMARK","object":{"metadata":{"resourceVersion":"9999"}}}\n',
        b"\n",
    ],
)
async def test_whatever_a_watch_says_the_truth_is_found_again(line: bytes) -> None:
    cluster = await cluster_with_a_pod()
    async with rig(cluster) as it:
        await it.until(lambda: it.names == ["models/a"] and cluster.watching == 3)
        await cluster.say(line)
        await it.until(lambda: cluster.watching == 3)
        await cluster.put("pods", pod("b", "10.0.0.2", annotations=ON))
        if b"BOOKMARK" not in line:
            await it.until(lambda: it.names == ["models/a", "models/b"])


async def test_a_silent_watch_is_given_up_at_its_deadline(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(api_module, "LATE_S", -239.9)
    cluster = await cluster_with_a_pod()
    cluster.silent = True
    async with rig(cluster) as it:
        await it.until(lambda: it.names == ["models/a"])
        await cluster.put("pods", pod("b", "10.0.0.2", annotations=ON))
        it.now += LIST_EVERY_S
        await it.until(lambda: it.names == ["models/a", "models/b"])


async def test_a_right_that_is_missing_is_told_with_the_rule_that_gives_it() -> None:
    cluster = await cluster_with_a_pod()
    cluster.denied = {"endpointslices"}
    async with rig(cluster) as it:
        await it.until(lambda: it.names == ["models/a"])
        [trouble] = it.it.troubles
        assert trouble.fix == (
            'a Role in namespace models with apiGroups: ["discovery.k8s.io"], resources: ["endpointslices"], '
            'verbs: ["get", "list", "watch"]'
        )
        assert [text for text in it.said if "no right to list endpointslices" in text]
        cluster.denied = set()
        await it.until(lambda: any("endpointslices in namespace models can be read again" in text for text in it.said))
        assert not it.it.troubles


async def test_a_token_that_was_renewed_is_used_from_the_next_request_on() -> None:
    cluster = await cluster_with_a_pod()
    async with rig(cluster) as it:
        await it.until(lambda: it.names == ["models/a"] and cluster.watching == 3)
        cluster.tokens = {"second"}
        await cluster.cut()
        await it.until(lambda: len(it.it.troubles) == 3)
        assert all("token" in trouble.text for trouble in it.it.troubles)
        it.token = "second"
        await cluster.put("pods", pod("b", "10.0.0.2", annotations=ON))
        await it.until(lambda: it.names == ["models/a", "models/b"])


async def test_an_api_server_that_asks_for_patience_gets_it() -> None:
    cluster = await cluster_with_a_pod()
    cluster.status, cluster.headers = 429, {"Retry-After": "7"}
    async with rig(cluster) as it:
        await it.until(lambda: it.pauses.count(7.0) >= 3 and it.told)
        assert it.told == [[]]
        cluster.status = 0
        await it.until(lambda: it.names == ["models/a"])


async def test_the_same_trouble_is_said_once() -> None:
    cluster = FakeCluster()
    cluster.status = 500
    async with rig(cluster) as it:
        await it.until(lambda: len(it.pauses) > 30)
        assert len(it.said) == len(set(it.said))


async def test_without_a_way_in_there_are_no_backends_and_that_is_said() -> None:
    cluster = await cluster_with_a_pod()
    async with rig(cluster) as it:
        it.logins = ["the Pod has no token"] * 50
        await it.until(lambda: it.it.troubles)
        assert [trouble.text for trouble in it.it.troubles] == ["Kubernetes cannot be asked: the Pod has no token"]
        await it.until(lambda: it.names == ["models/a"])
        assert not it.it.troubles
        assert it.told[0] == []
        assert it.said == ["Kubernetes cannot be asked: the Pod has no token"]


async def test_bad_annotations_leave_their_object_out_and_are_told_once() -> None:
    cluster = await cluster_with_a_pod()
    await cluster.put("pods", pod("bad", "10.0.0.9", annotations={**ON, "pharos.prot": "8080"}))
    async with rig(cluster) as it:
        await it.until(lambda: it.names == ["models/a"])
        assert [str(subject) for subject, _ in it.refused] == ["Pod models/bad"]
        assert "did you mean pharos.port?" in it.refused[0][1]
        await cluster.put("pods", pod("b", "10.0.0.2", annotations=ON))
        await it.until(lambda: it.names == ["models/a", "models/b"])
        assert len(it.refused) == 1


async def test_an_object_that_cannot_be_read_hides_no_other() -> None:
    cluster = await cluster_with_a_pod()
    broken = pod("broken", annotations=ON)
    broken["status"]["podIP"] = 7
    await cluster.put("pods", broken)
    async with rig(cluster) as it:
        await it.until(lambda: it.names == ["models/a"])
        assert it.it.reflectors[0].unreadable == {"models/broken"}


async def test_all_namespaces_are_asked_for_at_once() -> None:
    cluster = FakeCluster()
    await cluster.put("pods", pod("a", annotations=ON, namespace="one"))
    await cluster.put("pods", pod("a", "10.0.0.2", annotations=ON, namespace="two"))
    async with rig(cluster, cluster_wide=True) as it:
        await it.until(lambda: it.names == ["one/a", "two/a"])
        assert {path for path, _ in cluster.asked} == {
            "/api/v1/pods", "/api/v1/services", "/apis/discovery.k8s.io/v1/endpointslices",
        }  # fmt: skip


STEPS = st.lists(
    st.tuples(
        st.sampled_from(["put", "put", "delete", "cut", "compact", "error", "down", "up", "ending"]), st.integers(0, 4)
    ),
    max_size=25,
)


async def _play(cluster: FakeCluster, steps: list[tuple[str, int]], it: Rig) -> None:
    for what, number in steps:
        name = f"p{number}"
        match what:
            case "put" | "ending":
                made = pod(name, f"10.0.0.{number + 1}", annotations=ON, ending=what == "ending")
                await cluster.put("pods", made)
            case "delete":
                if f"models/{name}" in cluster.objects["pods"]:
                    await cluster.delete("pods", name)
            case "cut":
                await cluster.cut()
            case "compact":
                cluster.compact()
            case "error":
                await cluster.say(b'{"type":"ERROR","object":{"code":410}}\n')
            case "down":
                cluster.status = 500
                await cluster.cut()
            case _:
                cluster.status = 0
        await asyncio.sleep(0)
    cluster.status = 0
    truth = sorted(cluster.objects["pods"])
    await it.until(lambda: it.told and sorted(spec.name for spec in it.told[-1]) == truth)
    ending = sorted(key for key, made in cluster.objects["pods"].items() if "deletionTimestamp" in made["metadata"])
    await it.until(lambda: it.draining == ending)


@settings(max_examples=25, deadline=None)
@given(STEPS)
def test_any_script_of_changes_cuts_and_faults_ends_with_the_cluster_s_truth(steps: list[tuple[str, int]]) -> None:
    async def whole() -> None:
        cluster = FakeCluster()
        async with rig(cluster) as it:
            await it.until(lambda: it.told)
            await _play(cluster, steps, it)

    asyncio.run(whole())


async def test_a_session_survives_the_source(recwarn: pytest.WarningsRecorder) -> None:
    async with rig(await cluster_with_a_pod()) as it:
        await it.until(lambda: it.names == ["models/a"])
    assert isinstance(it.it.api, Api)
    assert not recwarn.list
