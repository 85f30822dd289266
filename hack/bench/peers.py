"""What peers cost: a tick's news told and taken, a snapshot of a full prefix index, and an idle mesh.

Times are CPU of this process. A tick tells of 200 targets and 50 keys: every key had a request, half of the targets
hold some, and 20 prompts of 20 messages were recorded. `--idle SECONDS` also starts real instances that do nothing.
"""

import argparse
import asyncio
import gc
import json
import os
import random
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from pharos.core.fleet import Event
from pharos.core.fleet.inherit import Inheritance
from pharos.core.prefix import Chain, PendingOps, PrefixIndex
from pharos.core.sched import Elsewhere
from pharos.core.usage import Day, UsageBook
from pharos.peer import sections, wire
from pharos.peer.members import Listed
from pharos.peer.node import TICK_S, Node
from pharos.peer.section import Sections
from pharos.proxy.responses import Responses
from tests.core.fleet.given import OPENAI, fleet_of, publish, spec
from tests.peer import rolling

BACKENDS, MODELS, KEYS = 20, 10, 50
PROMPTS, MESSAGES = 20, 20
TICKS = 200
PEERS = 2


class Instance:
    """All sections over one fleet."""

    def __init__(self, origin: str, link: Any, members: list[str]) -> None:  # noqa: ANN401 - a link of this file
        self.fleet = fleet_of(*(spec(f"gpu-{number}") for number in range(BACKENDS)))
        for name in self.fleet.backends:
            publish(self.fleet, name, 0.0, models=tuple(f"model-{n}" for n in range(MODELS)), plan=OPENAI)
        self.targets = [t for b in self.fleet.backends.values() for t in b.targets.values()]
        self.index = PrefixIndex(pending=PendingOps())
        self.book = UsageBook(origin, _day_of, retention_days=400, now=time.time())
        self.node = Node(
            origin,
            Sections(
                [
                    sections.Gauges(Elsewhere(self.fleet), dict, lambda: None),
                    sections.Cells(self.book, time.time),
                    sections.Minutes(self.book, time.time),
                    sections.Responses(Responses()),
                    sections.Learned(Inheritance(self.fleet), time.time),
                    sections.Prefixes(self.fleet, self.index, time.time),
                ]
            ),
            Listed(members),
            link,
            fingerprint=lambda: {"backends": 1, "keys": 2, "zone": 3},
            clock=time.monotonic,
            wall=time.time,
            on_event=_nothing,
            spread=random.random,
        )

    def work(self, chance: random.Random) -> None:
        """What happens between two ticks."""
        now = time.time()
        for number in range(KEYS):
            key, model = f"key-{number}", f"model-{number % MODELS}"
            self.book.count(key, model, now, prompt_tokens=900, cached_tokens=300, completion_tokens=70)
            self.book.minutes.add(key, now)
        for target in self.targets:
            target.inflight = chance.randrange(1, 4) if chance.random() < 0.5 else 0
        for _ in range(PROMPTS):
            target = chance.choice(self.targets)
            self.index.record(_chain(chance, MESSAGES), target.id, target.generation, now)


class Wires:
    """Keeps what is told, and answers at once."""

    def __init__(self) -> None:
        self.told: list[bytes] = []

    async def tell(self, address: str, delta: bytes) -> bytes:
        """See `Link`."""
        self.told.append(delta)
        return wire.encode_answer(wire.Answer(proto=1, origin=address))

    async def pull(self, address: str) -> AsyncIterator[bytes]:
        """See `Link`: nobody has anything."""
        del address
        yield wire.MAGIC + wire.block(wire.Head(proto=1, origin="x", at=0.0))
        yield wire.block(wire.Frame(section="", count=0))


def _nothing(_: Event) -> None:
    return


def _day_of(now: float) -> Day:
    number = int(now // 86_400)
    return Day(number, number * 86_400.0, (number + 1) * 86_400.0)


def _chain(chance: random.Random, links: int) -> Chain:
    return Chain(tuple(chance.getrandbits(64) for _ in range(links)), tuple(range(800, 800 * links + 1, 800)))


async def tick() -> dict[str, float]:
    """CPU milliseconds to tell and to take a tick's news, and what that is a second for a pair of peers."""
    chance, link = random.Random(1), Wires()  # noqa: S311 - the same each time
    teller = Instance("teller", link, [f"peer-{number}" for number in range(PEERS)])
    taker = Instance("taker", Wires(), [])
    await teller.node.look()
    told_ms, taken_ms, sizes = [], [], []
    for _ in range(TICKS):
        teller.work(chance)
        link.told.clear()
        began = time.process_time()
        teller.node.tick()
        while teller.node._calls:  # noqa: SLF001, ASYNC110 - until all that it started has ended
            await asyncio.sleep(0)
        told_ms.append((time.process_time() - began) * 1000)
        began = time.process_time()
        await taker.node.receive(link.told[0])
        taken_ms.append((time.process_time() - began) * 1000)
        sizes.append(len(link.told[0]))
    return {
        "tell_ms": _middle(told_ms),
        "take_ms": _middle(taken_ms),
        "delta_bytes": _middle(sizes),
        "kb_per_s_and_pair": _middle(sizes) / TICK_S / 1000,
    }


async def snapshot(entries: int) -> dict[str, float]:
    """Size of a snapshot of a full index, and how long one of its steps holds up everything else at most."""
    chance = random.Random(2)  # noqa: S311 - the same each time
    giver, taker = Instance("giver", Wires(), []), Instance("taker", Wires(), [])
    while len(giver.index) < entries:
        target = chance.choice(giver.targets)
        giver.index.record(_chain(chance, MESSAGES), target.id, target.generation, time.time() - chance.random() * 1e5)
    gc.collect()
    gc.freeze()
    blocks, steps = [], []
    began = last = time.process_time()
    async for block in giver.node.frames():
        steps.append(time.process_time() - last)
        blocks.append(block)
        last = time.process_time()
    gave_s = time.process_time() - began
    reader, takes = wire.Blocks(), []
    began = time.process_time()
    for block in blocks:
        last = time.process_time()
        for frame in reader.feed(block):
            taker.node.sections.take("giver", frame.section, frame.entries, 0.0, is_restored=True)
        takes.append(time.process_time() - last)
    return {
        "entries": len(giver.index),
        "mb": sum(map(len, blocks)) / 1e6,
        "frames": len(blocks),
        "give_s": gave_s,
        "take_s": time.process_time() - began,
        "longest_give_ms": max(steps) * 1000,
        "longest_take_ms": max(takes) * 1000,
        "taken": len(taker.index),
    }


async def idle(seconds: float) -> dict[str, float]:
    """CPU of an idle instance beside two peers, and of one alone, in percent of a core."""
    found = {}
    for count in (1, 3):
        with tempfile.TemporaryDirectory() as folder:
            async with rolling.standing(Path(folder), count) as stand:
                await asyncio.sleep(3)  # whatever a start leaves to do
                before = [_cpu_s(place.process.pid) for place in stand.places if place.process is not None]
                await asyncio.sleep(seconds)
                after = [_cpu_s(place.process.pid) for place in stand.places if place.process is not None]
        spent = sum(b - a for a, b in zip(before, after, strict=True)) / count
        found["alone_percent" if count == 1 else "among_three_percent"] = spent / seconds * 100
    found["peers_percent"] = found["among_three_percent"] - found["alone_percent"]
    return found


def _cpu_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _middle(values: list[Any]) -> float:
    return float(sorted(values)[len(values) // 2])


def main() -> int:
    """Measure, and print beside the budgets."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--entries", type=int, default=199_000)
    parser.add_argument("--idle", type=float, metavar="SECONDS", default=0.0)
    parser.add_argument("--json", action="store_true")
    chosen = parser.parse_args()
    told: dict[str, dict[str, float]] = {"tick": asyncio.run(tick()), "snapshot": asyncio.run(snapshot(chosen.entries))}
    if chosen.idle:
        told["idle"] = asyncio.run(idle(chosen.idle))
    if chosen.json:
        print(json.dumps(told))
        return 0
    budgets = {
        "tell_ms": "< 2", "kb_per_s_and_pair": "tens", "mb": "< 20", "longest_give_ms": "< 20",
        "longest_take_ms": "< 20", "peers_percent": "< 1",
    }  # fmt: skip
    for part, values in told.items():
        for name, value in values.items():
            print(f"{part:9} {name:20} {value:12.2f}  {budgets.get(name, '')}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
