"""Rights that are missing, a server that is slow or away, objects that cannot be read: what is a backend meanwhile."""

import asyncio

from pharos.config.schema import Credential
from pharos.control.discovery.kubernetes.source import PATIENCE_S
from tests.control.discovery.kubernetes.rigging import ON, cluster_with_a_pod, cluster_with_a_service, rig
from tests.fakes.kubernetes import FakeCluster, endpoint, endpoint_slice, pod, service


async def test_a_right_to_list_without_the_right_to_watch_is_told_once_and_lists_go_on() -> None:
    cluster = await cluster_with_a_pod()
    cluster.denied = {"watch pods"}
    async with rig(cluster) as it:
        await it.until(lambda: it.names == ["models/a"])
        await cluster.put("pods", pod("b", "10.0.0.2", annotations=ON))
        await it.until(lambda: it.names == ["models/a", "models/b"])
        lists = sum(path.endswith("pods") and "watch" not in query for path, query in cluster.asked)
        await it.until(
            lambda: sum(path.endswith("pods") and "watch" not in query for path, query in cluster.asked) > lists + 5
        )
        assert len([text for text in it.said if "no right to watch pods" in text]) == 1
        assert not [text for text in it.said if "can be read again" in text]


async def test_a_denial_that_ends_soon_as_after_a_start_of_the_api_server_is_over_soon() -> None:
    cluster = await cluster_with_a_pod()
    async with rig(cluster) as it:
        await it.until(lambda: it.names == ["models/a"] and cluster.watching == 3)
        cluster.denied = {"pods"}
        await cluster.cut()
        await it.until(lambda: any("no right to" in text for text in it.said))
        cluster.denied = set()
        began = it.now
        await cluster.put("pods", pod("b", "10.0.0.2", annotations=ON))
        await it.until(lambda: it.names == ["models/a", "models/b"])
        assert it.now - began < 30


async def test_a_denial_that_lasts_is_asked_about_once_a_minute() -> None:
    cluster = await cluster_with_a_pod()
    cluster.denied = {"pods"}
    async with rig(cluster) as it:
        await it.until(lambda: it.pauses.count(60.0) > 2)
        assert [pause for pause in it.pauses if pause in {1.0, 2.0, 4.0, 8.0, 16.0, 32.0}] == [
            1.0,
            2.0,
            4.0,
            8.0,
            16.0,
            32.0,
        ]


async def test_a_list_whose_pages_come_too_slowly_is_asked_for_in_one_piece() -> None:
    cluster = FakeCluster()
    cluster.page = 1
    for number in range(4):
        await cluster.put("pods", pod(f"p{number}", f"10.0.0.{number + 1}", annotations=ON))
    cluster.compact()
    async with rig(cluster) as it:
        await it.until(lambda: len(it.names) == 4)
        assert sum("continue" in query for _, query in cluster.asked) == 1


async def test_a_watch_that_is_always_too_old_is_tried_less_and_less_often() -> None:
    cluster = await cluster_with_a_pod()
    async with rig(cluster) as it:
        await it.until(lambda: it.names == ["models/a"] and cluster.watching == 3)
        cluster.always_gone = True
        await cluster.cut()
        await it.until(lambda: len(it.pauses) > 60)
        assert max(it.pauses) > 5
        assert it.names == ["models/a"]
        assert not it.it.troubles
        cluster.always_gone = False
        await cluster.put("pods", pod("b", "10.0.0.2", annotations=ON))
        await it.until(lambda: it.names == ["models/a", "models/b"])


async def test_a_start_waits_for_an_api_server_that_does_not_answer_but_not_for_ever() -> None:
    cluster = await cluster_with_a_pod()
    cluster.status = 503
    async with rig(cluster) as it:
        await it.until(lambda: it.it.troubles)
        while it.now < PATIENCE_S / 2:
            assert it.told == []
            await asyncio.sleep(0.001)
        await it.until(lambda: it.told)
        assert it.now >= PATIENCE_S
        assert it.told == [[]]


async def test_a_pod_that_is_gone_is_none_though_its_slice_still_has_it() -> None:
    cluster = await cluster_with_a_service()
    async with rig(cluster) as it:
        await it.until(lambda: it.names == ["models/a", "models/b"])
        await cluster.delete("pods", "b")
        await it.until(lambda: it.names == ["models/a"])


async def test_without_the_right_to_pods_a_service_s_endpoints_count_by_the_same_names() -> None:
    cluster = await cluster_with_a_service()
    cluster.denied = {"pods"}
    async with rig(cluster) as it:
        await it.until(lambda: it.names == ["models/a", "models/b"])
        told = len(it.told)
        cluster.denied = set()
        await it.until(lambda: not it.it.troubles)
        assert it.names == ["models/a", "models/b"]
        assert len(it.told) == told


async def test_an_endpoint_whose_pod_cannot_be_read_for_a_moment_waits_for_what_the_pod_says() -> None:
    cluster = FakeCluster()
    await cluster.put("services", service("llm", annotations=ON))
    await cluster.put("endpointslices", endpoint_slice("llm", endpoint("10.0.0.1", "a")))
    await cluster.put("pods", pod("a", "10.0.0.1"))
    async with rig(cluster) as it:
        await it.until(lambda: it.names == ["models/a"] and cluster.watching == 3)
        cluster.broken = {"pods"}
        await cluster.cut()
        await it.until(lambda: it.it.troubles and cluster.watching == 2)
        await cluster.put("pods", pod("b", "10.0.0.2", annotations={"pharos.enable": "false"}))
        slices = endpoint_slice("llm", endpoint("10.0.0.1", "a"), endpoint("10.0.0.2", "b"), endpoint("10.0.0.3"))
        await cluster.put("endpointslices", slices)
        await it.until(lambda: it.names == ["models/a", "models/llm/10.0.0.3"])
        cluster.broken = set()
        await it.until(lambda: not it.it.troubles)
        assert it.names == ["models/a", "models/llm/10.0.0.3"]
        assert not any("models/b" in {spec.name for spec in told} for told in it.told)


async def test_new_credentials_are_looked_at_without_a_change_in_the_cluster() -> None:
    cluster = FakeCluster()
    await cluster.put("pods", pod("a", annotations={**ON, "pharos.credential": "later"}))
    async with rig(cluster) as it:
        await it.until(lambda: it.refused)
        assert "credential" in it.refused[0][1]
        it.credentials["later"] = Credential(api_key_env="KEY")
        it.it.wake()
        await it.until(lambda: it.names == ["models/a"])


async def test_what_cannot_be_read_is_told_and_comes_back_once_it_can() -> None:
    cluster = FakeCluster()
    broken = pod("a", annotations=ON)
    broken["status"]["podIP"] = 7
    await cluster.put("pods", broken)
    async with rig(cluster) as it:
        await it.until(lambda: any("Pod models/a is left out" in text for text in it.said))
        await cluster.put("pods", pod("a", annotations=ON))
        await it.until(lambda: it.names == ["models/a"])
        await cluster.put("pods", broken)
        await it.until(lambda: it.names == [])


async def test_a_job_s_pod_that_completes_is_gone_at_once() -> None:
    cluster = await cluster_with_a_pod()
    async with rig(cluster) as it:
        await it.until(lambda: it.names == ["models/a"])
        await cluster.put("pods", pod("a", annotations=ON, ready=False, phase="Succeeded"))
        await it.until(lambda: it.told[-1] == [])


async def test_only_what_was_asked_for_is_asked_of_a_cluster_that_denies_the_rest() -> None:
    cluster = FakeCluster()
    await cluster.put("pods", pod("a", annotations=ON, namespace="llm"))
    async with rig(cluster, namespaces=("llm", "llm")) as it:
        await it.until(lambda: it.names == ["llm/a"])
        assert {path for path, _ in cluster.asked} == {
            "/api/v1/namespaces/llm/pods", "/api/v1/namespaces/llm/services",
            "/apis/discovery.k8s.io/v1/namespaces/llm/endpointslices",
        }  # fmt: skip
