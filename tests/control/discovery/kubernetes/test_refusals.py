"""What is written onto objects that are refused: once, slowly, and nothing where there is no right to."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING

import aiohttp

from pharos.control.discovery.kubernetes.api import Api
from pharos.control.discovery.kubernetes.finding import Subject
from pharos.control.discovery.kubernetes.refusals import DENIED_S, MOST_WAITING, PAUSE_S, Refusals
from tests.control.discovery.kubernetes.rigging import in_background, login
from tests.fakes.kubernetes import FakeCluster
from tests.waiting import until

if TYPE_CHECKING:
    from pharos.core.fleet import Event

SUBJECT = Subject("Pod", "models", "a", "uid-a")


class Rig:
    def __init__(self, cluster: FakeCluster, session: aiohttp.ClientSession) -> None:
        self.api = Api(session, login(cluster))
        self.pauses: list[float] = []
        self.events: list[Event] = []
        self.now = 1.5
        self.it = Refusals("pharos-1", wall=lambda: self.now, on_event=self.events.append, sleep=self._pause)

    async def _pause(self, seconds: float) -> None:
        self.pauses.append(seconds)
        await asyncio.sleep(0)


@contextlib.asynccontextmanager
async def rig(cluster: FakeCluster) -> AsyncIterator[Rig]:
    async with cluster.serve(), aiohttp.ClientSession() as session:
        made = Rig(cluster, session)
        async with in_background(made.it.run()):
            yield made


async def test_an_event_says_what_is_wrong_with_which_object() -> None:
    async with rig(cluster := FakeCluster()) as it:
        it.it.add(it.api, SUBJECT, "pharos.prot is no label of Pharos")
        await until(lambda: cluster.events)
        [event] = cluster.events
        assert event["regarding"] == {
            "apiVersion": "v1", "kind": "Pod", "namespace": "models", "name": "a", "uid": "uid-a",
        }  # fmt: skip
        assert event["note"] == "Pharos leaves it out: pharos.prot is no label of Pharos"
        assert event["eventTime"] == "1970-01-01T00:00:01.500000Z"
        assert (event["type"], event["reportingInstance"]) == ("Warning", "pharos-1")


async def test_instances_that_see_the_same_write_one_event() -> None:
    async with rig(cluster := FakeCluster()) as it:
        it.it.add(it.api, SUBJECT, "one")
        it.it.add(it.api, SUBJECT, "one")
        it.it.add(it.api, SUBJECT, "two")
        await until(lambda: len(cluster.events) == 3)
        assert len({event["metadata"]["name"] for event in cluster.events}) == 2


async def test_events_are_written_slowly_and_the_oldest_are_dropped() -> None:
    async with rig(cluster := FakeCluster()) as it:
        for number in range(MOST_WAITING + 10):
            it.it.add(it.api, SUBJECT, str(number))
        await until(lambda: len(it.pauses) == MOST_WAITING)
        assert set(it.pauses) == {PAUSE_S}
        assert cluster.events[0]["note"] == "Pharos leaves it out: 10"


async def test_without_the_right_nothing_more_is_tried() -> None:
    cluster = FakeCluster()
    cluster.denied = {"events"}
    async with rig(cluster) as it:
        it.it.add(it.api, SUBJECT, "one")
        await until(lambda: it.events)
        asked = len(cluster.asked)
        it.it.add(it.api, SUBJECT, "two")
        assert not it.it.may_write
        assert (len(cluster.asked), it.pauses) == (asked, it.pauses)
        assert "no right to create events" in it.events[0].text


async def test_a_right_that_was_given_meanwhile_is_used_some_time_later() -> None:
    cluster = FakeCluster()
    cluster.denied = {"events"}
    async with rig(cluster) as it:
        it.it.add(it.api, SUBJECT, "one")
        await until(lambda: not it.it.may_write)
        it.now += DENIED_S
        it.it.add(it.api, SUBJECT, "two")
        await until(lambda: len(cluster.asked) == 2)
        cluster.denied = set()
        await until(lambda: len(it.pauses) == 2)
        it.now += DENIED_S
        it.it.add(it.api, SUBJECT, "x" * 990 + "\N{SNOWMAN}" * 9)
        await until(lambda: cluster.events)
        assert it.it.may_write
        assert len(it.events) == 1
        assert len(cluster.events[0]["note"].encode()) <= 1000


async def test_an_api_server_that_fails_costs_the_event_and_nothing_else() -> None:
    cluster = FakeCluster()
    cluster.status = 500
    async with rig(cluster) as it:
        it.it.add(it.api, SUBJECT, "one")
        await until(lambda: it.pauses)
        cluster.status = 0
        it.it.add(it.api, SUBJECT, "two")
        await until(lambda: cluster.events)
        assert it.events == []
