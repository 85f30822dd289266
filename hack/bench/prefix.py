"""Times the prefix index, and weighs it: a look-up of a chat of 200 messages, and 200,000 entries.

Prints microseconds and megabytes; `--json` for machines. Budgets: a look-up < 150 µs, 200,000 entries ≤ 60 MB. Entries
are weighed in a fresh process each, by what the process grows, in three states: links of usual chats (recorded
together, so that they share what is known of them), prompts that come once, and the worst there is: each link alone,
on four targets, at its own time. Each state is reached after three times as many new links as there is room for.
"""

import argparse
import gc
import json
import multiprocessing
import random
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Final

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import processes
from pick import timed

from pharos.core.prefix import Chain, PrefixIndex
from pharos.core.prefix.index import CAPACITY

MESSAGES: Final = 200
TARGETS: Final = 64
TURNS: Final = 3


def chain(chance: random.Random, links: int) -> Chain:
    """A chain of as many links as a chat has messages, of 150 bytes each."""
    return Chain(tuple(chance.getrandbits(64) for _ in range(links)), tuple(range(150, 150 * links + 1, 150)))


def lookups(rounds: int) -> dict[str, dict[str, float]]:
    """Look-ups of one chat in a full index: unknown, on one target, and on 64 that have it up to 64 places."""
    chance = random.Random(7)  # noqa: S311 - repeatable, not secret
    index = PrefixIndex()
    fill_usual(index, chance)
    unknown, one, many = (chain(chance, MESSAGES) for _ in range(3))
    index.record(one, 1, 0, 1e6)
    for target in range(TARGETS):
        links = MESSAGES - target * 3
        index.record(Chain(many.hashes[:links], many.ends[:links]), target, 0, 1e6 + target)

    def generation_of(_: int) -> int:
        return 0

    def look(what: Chain) -> Callable[[int], object]:
        return lambda _: index.lookup(what, generation_of)

    return {
        "unknown": timed(look(unknown), rounds),
        "one target has it": timed(look(one), rounds),
        f"{TARGETS} targets have it up to {TARGETS} places": timed(look(many), rounds),
    }


def fill_usual(index: PrefixIndex, chance: random.Random) -> None:
    """Chats of 20 to 120 messages, most of which came twice."""
    now, links = 0.0, 0
    while links < TURNS * CAPACITY:
        it = chain(chance, chance.randrange(20, 120))
        links += len(it.hashes)
        for _ in range(1 + (chance.random() < 0.8)):
            now += 0.5
            index.record(it, chance.randrange(4), 0, now)


def fill_once(index: PrefixIndex, chance: random.Random) -> None:
    """Prompts of one message, which come once."""
    for number in range(TURNS * CAPACITY):
        index.record(chain(chance, 1), number % 4, 0, number / 100)


def fill_worst(index: PrefixIndex, chance: random.Random) -> None:
    """Each link alone, on four targets, at its own time."""
    for number in range(TURNS * CAPACITY):
        it = chain(chance, 1)
        for target in range(4):
            index.record(it, target, 0, 1e6 + number * 4 + target)


FILLS: Final = {"usual chats": fill_usual, "prompts that come once": fill_once, "the worst": fill_worst}


def _weigh(name: str, said: "multiprocessing.Queue[tuple[float, int]]") -> None:
    own = multiprocessing.current_process().pid
    assert own is not None
    index = PrefixIndex()
    gc.collect()
    before = processes.rss_mb_of(own)
    FILLS[name](index, random.Random(7))  # noqa: S311 - repeatable, not secret
    gc.collect()
    said.put((processes.rss_mb_of(own) - before, len(index)))


def weights() -> dict[str, dict[str, float]]:
    """Megabytes that an index takes, by how it was filled."""
    found = {}
    fresh = multiprocessing.get_context("spawn")
    for name in FILLS:
        said: multiprocessing.Queue[tuple[float, int]] = fresh.Queue()
        child = fresh.Process(target=_weigh, args=(name, said))
        child.start()
        grown, entries = said.get(timeout=120)
        child.join()
        found[name] = {"mb": grown, "entries": entries}
    return found


def main() -> int:
    """Measure and print."""
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--json", action="store_true", help="print JSON")
    arguments.add_argument("--rounds", type=int, default=3000, help="look-ups per row")
    options = arguments.parse_args()
    times, sizes = lookups(options.rounds), weights()
    if options.json:
        print(json.dumps({"lookups": times, "weights": sizes}))
        return 0
    for name, row in times.items():
        figures = "   ".join(f"{figure[:-3].replace('_', ' ')} {value:7.1f} µs" for figure, value in row.items())
        print(f"{name:40} {figures}")
    for name, size in sizes.items():
        print(f"{name:40} {size['mb']:.1f} MB for {size['entries']:,.0f} entries")
    return 0


if __name__ == "__main__":
    sys.exit(main())
