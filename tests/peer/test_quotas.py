"""Quotas of three instances: exact while they are connected, one per side while they are cut, and whole again after."""

import asyncio
import contextlib
import math

import pytest

from pharos.core.usage import Day, Quota, UsageBook
from pharos.peer import sections
from tests.peer.world import WALL, Instance, Network, mesh_of, wall

pytestmark = pytest.mark.looptime

TICK_S = 0.25
"""Longer than a tick: what one counted has reached the others."""
TOKENS = Quota(tokens_per_day=100)
RATE = Quota(rpm=6)


def day_of(now: float) -> Day:
    number = math.floor(now // 86_400)
    return Day(number, number * 86_400.0, (number + 1) * 86_400.0)


class Counting(Instance):
    """An instance that admits requests of a key."""

    def __init__(self, network: Network, address: str, addresses: tuple[str, ...], run: int = 1) -> None:
        self.book = UsageBook(f"{address}-{run}", day_of, retention_days=400, now=WALL)
        super().__init__(
            network, address, addresses, run=run,
            sections=(sections.Cells(self.book, wall), sections.Minutes(self.book, wall)),
        )  # fmt: skip

    def ask(self, quota: Quota, tokens: int = 10) -> bool:
        """Whether a request is let in; it takes so many tokens."""
        if self.book.admit("k", quota, wall()) is not None:
            return False
        self.book.count("k", "m", wall(), prompt_tokens=tokens, completion_tokens=0)
        return True

    @property
    def tokens(self) -> int:
        return sum(count.tokens for count in self.book.today(wall()).values())


def counting(network: Network) -> contextlib.AbstractAsyncContextManager[tuple[Counting, ...]]:
    return mesh_of(Counting, "abc", network)


@pytest.mark.parametrize("quota", [TOKENS, RATE], ids=["tokens_per_day", "rpm"])
async def test_connected_instances_admit_exactly_the_quota(quota: Quota) -> None:
    async with counting(Network()) as instances:
        admitted = 0
        for number in range(24):
            admitted += instances[number % 3].ask(quota)
            await asyncio.sleep(TICK_S)
        assert admitted == (10 if quota is TOKENS else 6)


async def test_a_partition_admits_one_quota_on_each_side_and_all_refuse_once_it_has_healed() -> None:
    network = Network()
    async with counting(network) as (a, b, c):
        network.partition(("a",), ("b", "c"))
        await asyncio.sleep(3)
        sides = {"a": 0, "bc": 0}
        for number in range(30):
            sides["a"] += a.ask(TOKENS)
            sides["bc"] += (b, c)[number % 2].ask(TOKENS)
            await asyncio.sleep(TICK_S)
        assert sides == {"a": 10, "bc": 10}
        heard = a.peer("b").heard_ago_s
        assert heard > 30 * TICK_S
        network.heal()
        await asyncio.sleep(10)
        assert a.peer("b").heard_ago_s < 2
        assert [one.tokens for one in (a, b, c)] == [200] * 3
        assert not any(one.ask(TOKENS) for one in (a, b, c))


async def test_usage_of_an_instance_that_died_in_a_partition_comes_with_whoever_knew_it() -> None:
    network = Network()
    async with counting(network) as (a, b, c):
        network.partition(("a",), ("b", "c"))
        c.ask(TOKENS)
        await asyncio.sleep(1)
        await c.kill()
        network.heal()
        await asyncio.sleep(8)
        assert a.tokens == b.tokens == 10


async def test_a_restarted_instance_has_its_usage_back_and_counts_nothing_twice() -> None:
    network = Network()
    async with counting(network) as (a, b, c):
        for one in (a, b, c):
            one.ask(TOKENS)
        await asyncio.sleep(TICK_S)
        await a.leave()
        again = Counting(network, "a", ("a", "b", "c"), run=2)
        await again.start()
        assert again.tokens == 30
        again.ask(TOKENS)
        await asyncio.sleep(TICK_S * 2)
        assert [one.tokens for one in (again, b, c)] == [40] * 3
        await again.kill()


async def test_a_killed_instance_loses_what_it_counted_in_its_last_tick_and_no_more() -> None:
    network = Network()
    async with counting(network) as (a, b, c):
        a.ask(TOKENS)
        await asyncio.sleep(TICK_S)
        a.ask(TOKENS)
        await a.kill()
        await asyncio.sleep(3)
        assert b.tokens == c.tokens == 10
