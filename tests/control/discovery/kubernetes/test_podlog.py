"""A container's log through the API: whole lines, and an end that says why."""

import aiohttp
import pytest

from pharos.control.discovery.kubernetes.api import Api
from pharos.control.discovery.kubernetes.podlog import open_pod_log, where
from pharos.control.follow.fault import Fault, FeedError
from tests.control.discovery.kubernetes.rigging import login
from tests.fakes.kubernetes import FakeCluster

PLACE = where("models", "a", "engine")


async def read(cluster: FakeCluster, *, has_api: bool = True) -> list[bytes]:
    async with cluster.serve(), aiohttp.ClientSession() as session:
        api = Api(session, login(cluster))
        async with open_pod_log(PLACE, lambda: api if has_api else None)() as lines:
            return [line async for line in lines]


async def test_lines_are_whole_wherever_they_were_cut() -> None:
    cluster = FakeCluster()
    cluster.logs["models/a/engine"] = [b"one\nt", b"wo\nhalf"]
    assert await read(cluster) == [b"one", b"two"]
    assert cluster.asked[-1] == ("/api/v1/namespaces/models/pods/a/log", {"container": "engine", "follow": "true"})


@pytest.mark.parametrize(
    ("status", "fault"),
    [
        (400, Fault.NOT_RUNNING),
        (401, Fault.UNAUTHORIZED),
        (403, Fault.NO_PERMISSION),
        (404, Fault.NOT_FOUND),
        (503, Fault.STATUS),
    ],
)
async def test_what_cannot_be_read_says_why(status: int, fault: Fault) -> None:
    cluster = FakeCluster()
    cluster.status = status
    with pytest.raises(FeedError) as caught:
        await read(cluster)
    assert caught.value.fault is fault


async def test_without_a_way_to_the_cluster_there_is_no_log() -> None:
    with pytest.raises(FeedError) as caught:
        await read(FakeCluster(), has_api=False)
    assert caught.value.fault is Fault.NO_CONNECTION
