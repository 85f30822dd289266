"""Three instances among each other: who is told what, who is missed, and what a partition leaves behind."""

import asyncio
import itertools
from collections.abc import AsyncIterator

import pytest

from pharos.peer import wire
from pharos.peer.members import LookupFault
from tests.peer.world import Instance, Network, loop_time, mesh

pytestmark = pytest.mark.looptime


async def test_what_one_counts_all_know_a_tick_later() -> None:
    async with mesh() as (a, b, c):
        a.counters.add("x", 3)
        b.counters.add("x", 4)
        await asyncio.sleep(0.25)
        assert [one.counters.total("x") for one in (a, b, c)] == [7, 7, 7]


async def test_each_knows_the_others_and_not_itself() -> None:
    async with mesh() as (a, b, c):
        records = a.node.describe(loop_time())
        assert [(one.name, one.origin, one.state, one.up) for one in records] == [
            ("b", b.origin, "up", True),
            ("c", c.origin, "up", True),
        ]
        assert all(one.heard_ago_s is not None and one.heard_ago_s < 1 for one in records)
        assert sorted(a.said) == ["peer b is connected", "peer c is connected"]


async def test_an_idle_mesh_says_little_and_nobody_is_taken_for_silent() -> None:
    async with mesh() as (a, b, _):
        before = len(a.network.deltas)
        await asyncio.sleep(10)
        told = len(a.network.deltas) - before
        assert told < 3 * 2 * 10 * 2, "less than two deltas a second for each pair"
        assert a.peer("b").state == b.peer("a").state == "up"


async def test_one_that_is_killed_is_forgotten_for_the_moment_after_two_seconds_and_not_before() -> None:
    async with mesh() as (a, b, c):
        c.levels.own = 5
        await asyncio.sleep(0.3)
        assert b.levels.others[c.origin] == 5
        await c.kill()
        await asyncio.sleep(1.0)
        assert b.levels.others[c.origin] == 5
        await asyncio.sleep(1.5)
        assert c.origin not in b.levels.others
        assert a.peer("c").state == "silent"
        assert not a.peer("c").up
        assert "peer c is silent: cannot be reached" in a.said


async def test_one_that_leaves_is_forgotten_at_once_and_hands_over_its_last_news() -> None:
    async with mesh() as (a, b, c):
        c.levels.own = 5
        await asyncio.sleep(0.3)
        c.counters.add("x", 9)
        await c.leave()
        assert a.counters.total("x") == b.counters.total("x") == 9
        assert c.origin not in a.levels.others
        assert a.peer("c").state == "left"
        await asyncio.sleep(31)
        assert a.peer("c") is None, "it is not shown for ever"
        assert not any("silent" in text for text in a.said)


async def test_a_late_delta_of_one_that_left_brings_nothing_of_the_moment_back() -> None:
    async with mesh("ab") as (a, b):
        b.levels.own = 7
        await asyncio.sleep(0.3)
        late = [body for whence, _, body in a.network.deltas if whence == "b"][-1]
        with_level = [body for whence, _, body in a.network.deltas if whence == "b" and b"levels" in body][-1]
        await b.leave()
        await a.node.receive(late)
        await a.node.receive(with_level)
        assert b.origin not in a.levels.others


async def test_a_partition_lets_each_side_go_on_and_heals_whole() -> None:
    async with mesh() as (a, b, c):
        a.network.partition(("a",), ("b", "c"))
        a.counters.add("x", 1)
        b.counters.add("x", 10)
        await asyncio.sleep(20)
        assert (a.counters.total("x"), b.counters.total("x"), c.counters.total("x")) == (1, 10, 10)
        assert a.peer("b").state == a.peer("c").state == b.peer("a").state == "silent"
        assert a.peer("b").heard_ago_s >= 19
        pulls = len(a.network.pulls)
        a.network.heal()
        await asyncio.sleep(8)
        assert [one.counters.total("x") for one in (a, b, c)] == [11, 11, 11]
        assert {("a", "b"), ("b", "a"), ("a", "c"), ("c", "a")} <= set(a.network.pulls[pulls:])
        assert a.peer("b").state == b.peer("a").state == "up"


async def test_one_lost_delta_is_told_again_and_no_snapshot_is_pulled_for_it() -> None:
    async with mesh("ab") as (a, b):
        pulls = len(a.network.pulls)
        a.network.partition(("a",), ("b",))
        a.counters.add("x", 2)
        await asyncio.sleep(0.21)
        a.network.heal()
        await asyncio.sleep(1)
        assert b.counters.total("x") == 2
        assert len(a.network.pulls) == pulls
        assert not any("silent" in text for text in (*a.said, *b.said))


@pytest.mark.parametrize("seed", range(5))
async def test_lost_late_doubled_and_overtaking_deltas_end_in_one_state_everywhere(seed: int) -> None:
    network = Network(seed)
    network.lost, network.doubled, network.jitter_s = 0.2, 0.3, 1.5
    async with mesh("abc", network) as instances:
        for step in range(40):
            one = network.chance.choice(instances)
            one.counters.add(network.chance.choice("xyz"), step)
            one.levels.own = step
            await asyncio.sleep(network.chance.random() * 0.5)
        network.lost = network.doubled = network.jitter_s = 0.0
        await asyncio.sleep(12)
        await network.settle()
        a, *others = instances
        assert all(one.counters.cells == a.counters.cells for one in others)
        for one in instances:
            assert one.levels.others == {two.origin: two.levels.own for two in instances if two is not one}


async def test_a_restarted_instance_gets_its_state_back_from_its_peers_before_it_is_ready() -> None:
    async with mesh() as (a, b, c):
        a.counters.add("x", 5)
        await asyncio.sleep(0.3)
        await a.kill()
        await asyncio.sleep(1)
        anew = Instance(a.network, "a", ("a", "b", "c"), run=2)
        anew.listen()
        anew.run()
        pulls = len(a.network.pulls)
        assert await anew.node.restore(5.0) == 2
        assert anew.counters.total("x") == 5, "its own cells of before are those of another origin now"
        anew.counters.add("x", 1)
        await asyncio.sleep(1)
        told = a.network.pulls[pulls:]
        assert sorted(told) == [("a", "a"), ("a", "b"), ("a", "c"), ("b", "a"), ("c", "a")], "nothing is pulled twice"
        assert b.counters.total("x") == c.counters.total("x") == 6
        await anew.kill()


async def test_a_restore_without_anybody_ends_at_once_and_one_beside_a_dead_peer_in_time() -> None:
    network = Network()
    alone = Instance(network, "a", ("a", "b"))
    alone.listen()
    began = loop_time()
    assert await alone.node.restore(5.0) == 0
    assert loop_time() - began < 1
    network.delay_s = 100.0
    assert await alone.node.restore(5.0) == 0
    assert loop_time() - began < 6.5


async def test_a_peer_that_comes_up_while_a_slow_one_is_waited_for_is_asked_too() -> None:
    network = Network()
    network.slow["c"] = 100.0
    a, b, c = (Instance(network, address, ("a", "b", "c")) for address in "abc")
    b.counters.cells["b-0", "x"] = 7  # what its state file brought; it is in no delta
    for one in (a, c):
        one.listen()
    a.run()
    restoring = asyncio.create_task(a.node.restore(5.0))
    await asyncio.sleep(1)
    b.listen()
    b.run()
    await asyncio.sleep(3)
    assert not restoring.done()
    assert await restoring == 0
    await asyncio.sleep(1)
    assert a.counters.total("x") == 7
    assert network.pulls.count(("a", "b")) == 2, "in vain at first, then once"
    for one in (a, b):
        await one.kill()


async def test_a_snapshot_that_did_not_come_is_asked_for_again_after_a_while() -> None:
    async with mesh("ab") as (a, b):
        b.counters.cells["b-0", "x"] = 7  # it is in no delta
        frames, tries = b.node.frames, []

        async def broken() -> AsyncIterator[bytes]:
            tries.append(loop_time())
            if len(tries) < 3:
                yield wire.MAGIC
                return
            async for block in frames():
                yield block

        b.node.frames = broken  # type: ignore[method-assign]
        a.network.partition(("a",), ("b",))
        await asyncio.sleep(4)
        a.network.heal()
        await asyncio.sleep(20)
        assert a.counters.total("x") == 7
        assert len(tries) == 3
        assert all(5 <= later - earlier < 7 for earlier, later in itertools.pairwise(tries))


async def test_other_configurations_are_shown_at_once_and_said_once_when_they_last() -> None:
    network = Network()
    config = {"backends": 1, "keys": 2}
    a, b = Instance(network, "a", ("a", "b")), Instance(network, "b", ("a", "b"), config=lambda: config)
    for one in (a, b):
        one.listen()
        one.run()
    await asyncio.sleep(1)
    config = {"backends": 1, "keys": 3, "later": 4}
    await asyncio.sleep(2)
    assert a.peer("b").config_differs == b.peer("a").config_differs == ("keys",)
    assert not any("other keys" in text for text in a.said)
    await asyncio.sleep(20)
    assert [text for text in a.said if "other" in text] == ["peer b has other keys than this instance"]
    config = {"backends": 1, "keys": 2}
    await asyncio.sleep(2)
    assert a.peer("b").config_differs == ()
    for one in (a, b):
        await one.kill()


async def test_another_protocol_is_flagged_on_both_sides_and_cleared_by_an_upgrade(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with mesh("ab") as (a, b):
        await b.kill()
        newer = Instance(a.network, "b", ("a", "b"), run=2)
        older_decode = wire.decode_delta

        def decode(data: bytes) -> wire.Delta:
            raise wire.ProtocolError(older_decode(data).proto)

        receive = newer.node.receive

        async def refuse(body: bytes) -> bytes:
            with monkeypatch.context() as patch:
                patch.setattr(wire, "decode_delta", decode)
                return await receive(body)

        newer.node.receive = refuse  # type: ignore[method-assign]  # stands for a later release
        newer.listen()
        await asyncio.sleep(12)
        assert a.peer("b").state == "protocol_differs"
        assert [text for text in a.said if "protocol" in text]
        assert [text for text in newer.said if "speaks protocol" in text]
        newer.node.receive = receive  # type: ignore[method-assign]
        newer.run()
        await asyncio.sleep(8)
        assert a.peer("b").state == "up"
        assert newer.peer("a").state == "up"
        await newer.kill()


async def test_two_addresses_of_one_instance_are_told_once() -> None:
    network = Network()
    a = Instance(network, "a", ("a", "b", "b6"))
    b = Instance(network, "b", ("a", "b", "b6"))
    for one in (a, b):
        one.listen()
    network.nodes["b6"] = b.node
    for one in (a, b):
        one.run()
    await asyncio.sleep(3)
    before = len([1 for whence, _, _ in network.deltas if whence == "a"])
    a.counters.add("x")
    await asyncio.sleep(0.3)
    assert len([1 for whence, _, _ in network.deltas if whence == "a"]) == before + 1
    assert [one.name for one in a.node.describe(loop_time())] == ["b"]
    assert [one.name for one in b.node.describe(loop_time())] == ["a"]
    for one in (a, b):
        await one.kill()


async def test_a_slow_peer_delays_only_itself_and_its_backlog_is_bounded() -> None:
    async with mesh() as (a, b, c):
        frozen = asyncio.Event()
        receive = c.node.receive

        async def stall(body: bytes) -> bytes:
            await frozen.wait()
            return await receive(body)

        c.node.receive = stall  # type: ignore[method-assign]
        for step in range(3000):
            a.counters.add(f"{step} {'x' * 2000}")
            if step % 100 == 0:
                await asyncio.sleep(0.25)
        assert b.counters.total(f"2900 {'x' * 2000}") == 1
        slow = a.node.mesh.peers["c"]
        assert slow._size < 3 * 1024**2
        assert slow.dropped > 0
        frozen.set()
        await asyncio.sleep(15)
        assert c.counters.cells == a.counters.cells


async def test_what_is_no_delta_is_refused_and_named() -> None:
    async with mesh("ab") as (a, _):
        for garbage in (
            b"",
            b"\xc1",
            b"hello",
            b"\x80",
            b"\x91" * 5000,
            wire.encode_answer(wire.Answer(proto=1, origin="x")),
        ):
            with pytest.raises(Exception, match=r"is (no|a) delta"):
                await a.node.receive(garbage)
        delta = wire.Delta(proto=1, origin="x", seq=1)
        await a.node.receive(
            wire.encode_delta(delta, [("counters", wire.encode_entries([1])), ("unknown", wire.encode_entries([2]))])
        )
        assert a.node.sections.faults == 1


async def test_news_that_were_on_their_way_when_an_instance_ended_go_with_its_last_delta() -> None:
    async with mesh("ab") as (a, b):
        a.network.delay_s = 0.15
        a.counters.add("x", 2)
        await asyncio.sleep(0.21)  # it is on its way now
        again, a.counters.again = a.counters.again, lambda _: []  # type: ignore[method-assign]
        await a.leave()
        assert b.counters.total("x") == 2
        a.counters.again = again  # type: ignore[method-assign]


class Changing:
    """Members as a name server tells them now."""

    def __init__(self, *addresses: str) -> None:
        self.addresses = addresses
        self.is_failing = False

    async def look(self) -> tuple[tuple[str, ...], float]:
        if self.is_failing:
            raise LookupFault("no answer")
        return self.addresses, 1.0


async def test_members_come_and_go_as_the_name_says_and_stay_while_nobody_answers_for_it() -> None:
    network, name = Network(), Changing("a", "b")
    a = Instance(network, "a", (), members=name)
    b, c = (Instance(network, address, (), members=name) for address in "bc")
    for one in (a, b, c):
        one.listen()
        one.run()
    await asyncio.sleep(2)
    assert [one.name for one in a.node.describe(loop_time())] == ["b", c.origin], "c tells, and is nobody's member"
    name.addresses = ("a", "b", "c")
    await asyncio.sleep(2)
    a.counters.add("x")
    await asyncio.sleep(0.5)
    assert c.counters.total("x") == 1
    name.is_failing = True
    await asyncio.sleep(10)
    assert [one.name for one in a.node.describe(loop_time())] == ["b", "c"]
    assert [text for text in a.said if "dns" in text] == [
        "peers.dns cannot be resolved (no answer): the peers of before stay"
    ]
    name.is_failing, name.addresses = False, ("a", "b")
    await asyncio.sleep(5)
    assert a.peer("c").up, "it answers, whatever the name says"
    await c.kill()
    await asyncio.sleep(8)
    assert a.peer("c") is None
    for one in (a, b):
        await one.kill()


async def test_one_that_tells_us_and_whose_address_nobody_knows_is_heard_and_shown() -> None:
    network = Network()
    a, b = Instance(network, "a", ("a",)), Instance(network, "b", ("a",))
    for one in (a, b):
        one.listen()
        one.run()
    b.counters.add("x")
    await asyncio.sleep(2)
    assert a.counters.total("x") == 1
    [record] = a.node.describe(loop_time())
    assert (record.name, record.state, record.up) == (b.origin, "up", False)
    assert "not among peers.members" in record.error
    await b.kill()
    await asyncio.sleep(5)
    assert a.node.describe(loop_time()) == []
    await a.kill()


async def test_a_member_that_was_never_there_is_no_trouble_for_half_a_minute() -> None:
    network = Network()
    a = Instance(network, "a", ("a", "b"))
    a.listen()
    a.run()
    await asyncio.sleep(25)
    assert a.peer("b").state == "new"
    assert a.said == []
    await asyncio.sleep(15)
    assert a.peer("b").state == "silent"
    assert a.said == ["peer b is silent: cannot be reached"]
    await a.kill()
