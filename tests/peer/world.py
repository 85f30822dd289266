"""Instances in one process over a transport that cuts, delays, loses, duplicates and reorders, on the loop's time.

Under `looptime` that time is virtual: nothing here waits for real.
"""

import asyncio
import contextlib
import random
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any, ClassVar, TypeVar

from pharos.core.fleet import Event
from pharos.peer import wire
from pharos.peer.link import LinkFault
from pharos.peer.members import Listed, Members
from pharos.peer.node import Node, Refused
from pharos.peer.section import FRAME, Section, Sections

WALL = 1_800_000_000.0
"""What clocks of people show when the loop's time is 0."""


def loop_time() -> float:
    return asyncio.get_running_loop().time()


def wall() -> float:
    return WALL + loop_time()


class Network:
    """Who can reach whom, and how badly."""

    def __init__(self, seed: int = 0) -> None:
        self.chance = random.Random(seed)
        self.nodes: dict[str, Node] = {}
        """By address; one that is not in it answers nobody."""
        self.cut: set[frozenset[str]] = set()
        self.delay_s = 0.001
        self.jitter_s = 0.0
        """Up to so much more: deltas overtake each other."""
        self.slow: dict[str, float] = {}
        """By address: so much more, in seconds."""
        self.lost = 0.0
        """Share of deltas, and of answers, that are lost."""
        self.doubled = 0.0
        """Share of deltas that come twice."""
        self.deltas: list[tuple[str, str, bytes]] = []
        """From, to, and what was said."""
        self.pulls: list[tuple[str, str]] = []
        self.late: set[asyncio.Task[None]] = set()

    def partition(self, *sides: tuple[str, ...]) -> None:
        """Let nobody reach another side."""
        everybody = [(name, number) for number, side in enumerate(sides) for name in side]
        self.cut = {frozenset((a, b)) for a, m in everybody for b, n in everybody if m != n}

    def heal(self) -> None:
        self.cut = set()

    async def carry(self, whence: str, whither: str) -> Node:
        """The way to an address; its node, if anybody is there."""
        await asyncio.sleep(self.delay_s + self.chance.random() * self.jitter_s + self.slow.get(whither, 0.0))
        node = self.nodes.get(whither)
        if node is None or frozenset((whence, whither)) in self.cut:
            raise LinkFault("unreachable", "cannot be reached")
        return node

    async def settle(self) -> None:
        """Let everything that is under way arrive."""
        while self.late:
            await asyncio.wait(self.late)


class Wires:
    """The link of one instance."""

    def __init__(self, network: Network, address: str) -> None:
        self._network = network
        self._address = address

    async def tell(self, address: str, delta: bytes) -> bytes:
        network, chance = self._network, self._network.chance
        network.deltas.append((self._address, address, delta))
        node = await network.carry(self._address, address)
        if chance.random() < network.lost:
            raise LinkFault("unreachable", "does not answer in time")
        if chance.random() < network.doubled:
            again = asyncio.create_task(self._again(address, delta))
            network.late.add(again)
            again.add_done_callback(network.late.discard)
        try:
            answer = await node.receive(delta)
        except Refused as fault:
            kind = {400: "broken", 409: "protocol", 503: "unreachable"}[fault.status]
            raise LinkFault(kind, str(fault), wire.PROTO if kind == "protocol" else None) from None  # type: ignore[arg-type]
        if chance.random() < network.lost:
            raise LinkFault("unreachable", "does not answer in time")
        return answer

    async def _again(self, address: str, delta: bytes) -> None:
        await asyncio.sleep(self._network.chance.random() * 3)
        with contextlib.suppress(LinkFault, Refused):
            node = await self._network.carry(self._address, address)
            await node.receive(delta)

    async def pull(self, address: str) -> AsyncIterator[bytes]:
        self._network.pulls.append((self._address, address))
        node = await self._network.carry(self._address, address)
        async for data in node.frames():
            if frozenset((self._address, address)) in self._network.cut:
                raise LinkFault("unreachable", "was cut off")
            yield data


class Counters(Section):
    """The simplest shared state: counters by origin and name, merged by the greater one."""

    name: ClassVar[str] = "counters"

    def __init__(self, origin: str) -> None:
        self.origin = origin
        self.cells: dict[tuple[str, str], int] = {}
        self._changed: set[str] = set()

    def add(self, name: str, by: int = 1) -> None:
        key = (self.origin, name)
        self.cells[key] = self.cells.get(key, 0) + by
        self._changed.add(name)

    def total(self, name: str) -> int:
        return sum(count for (_, what), count in self.cells.items() if what == name)

    def changes(self, now: float) -> list[Any]:
        del now
        changed, self._changed = self._changed, set()
        return [[self.origin, name, self.cells[self.origin, name]] for name in sorted(changed)]

    def again(self, now: float) -> list[Any]:
        del now
        return [[origin, name, count] for (origin, name), count in self.cells.items() if origin == self.origin]

    def full(self, now: float) -> Iterator[list[Any]]:
        del now
        everything = [[*key, count] for key, count in self.cells.items()]
        for at in range(0, len(everything), FRAME):
            yield everything[at : at + FRAME]

    def take(self, origin: str, entries: list[Any], now: float, *, is_restored: bool) -> None:
        del origin, now, is_restored
        for whose, name, count in entries:
            if whose != self.origin:
                self.cells[whose, name] = max(self.cells.get((whose, name), 0), count)


class Levels(Section):
    """A state of the moment: one number per instance, whose latest word counts."""

    name: ClassVar[str] = "levels"
    is_latest: ClassVar[bool] = True

    def __init__(self) -> None:
        self.own = 0
        self.others: dict[str, int] = {}
        self._told: int | None = None

    def changes(self, now: float) -> list[Any]:
        if self.own == self._told:
            return []
        self._told = self.own
        return self.again(now)

    def again(self, now: float) -> list[Any]:
        del now
        return [self.own]

    def take(self, origin: str, entries: list[Any], now: float, *, is_restored: bool) -> None:
        del now, is_restored
        self.others[origin] = entries[0]

    def forget(self, origin: str, now: float) -> None:
        del now
        self.others.pop(origin, None)


class Instance:
    """A node with state, at an address."""

    def __init__(
        self,
        network: Network,
        address: str,
        addresses: tuple[str, ...],
        *,
        run: int = 1,
        config: Callable[[], dict[str, int]] = lambda: {"backends": 1, "keys": 2},
        members: Members | None = None,
        sections: tuple[Section, ...] = (),
    ) -> None:
        self.network = network
        self.address = address
        self.origin = f"{address}-{run}"
        self.counters = Counters(self.origin)
        self.levels = Levels()
        self.events = list[Event]()
        self.node = Node(
            self.origin,
            Sections([self.counters, self.levels, *sections]),
            members if members is not None else Listed(addresses),
            Wires(network, address),
            fingerprint=config,
            clock=loop_time,
            wall=wall,
            on_event=self.events.append,
            spread=network.chance.random,
        )
        self._task: asyncio.Task[None] | None = None

    @property
    def said(self) -> list[str]:
        return [event.text for event in self.events]

    def listen(self) -> None:
        self.network.nodes[self.address] = self.node

    def run(self) -> None:
        self._task = asyncio.create_task(self.node.run())

    async def start(self) -> None:
        """As the program does: listen, restore, tell."""
        self.listen()
        self.run()
        await self.node.restore(5.0)

    async def stop_telling(self) -> None:
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task
            self._task = None

    async def kill(self) -> None:
        """It is gone, as a killed process is."""
        self.network.nodes.pop(self.address, None)
        await self.stop_telling()

    async def leave(self) -> None:
        """It ends in good order."""
        await self.stop_telling()
        await self.node.leave()
        self.network.nodes.pop(self.address, None)

    def peer(self, address: str) -> Any:
        """Its record of an address."""
        return next((one for one in self.node.describe(loop_time()) if one.name == address), None)


Made = TypeVar("Made", bound="Instance")


@contextlib.asynccontextmanager
async def mesh_of(
    make: Callable[[Network, str, tuple[str, ...]], Made], names: str = "abc", network: Network | None = None
) -> AsyncIterator[tuple[Made, ...]]:
    """Instances of one make that know each other and have met."""
    network = network if network is not None else Network()
    addresses = tuple(names)
    instances = tuple(make(network, address, addresses) for address in addresses)
    for one in instances:
        one.listen()
    for one in instances:
        one.run()
    await asyncio.sleep(2)
    try:
        yield instances
    finally:
        for one in instances:
            await one.kill()
        await network.settle()


def mesh(
    names: str = "abc", network: Network | None = None
) -> contextlib.AbstractAsyncContextManager[tuple[Instance, ...]]:
    """Plain ones."""
    return mesh_of(Instance, names, network)
