"""Restarts three real instances in turn under traffic, or kills them at random moments, and counts what was lost.

A rolling restart must cut no stream, and all usage must be there afterwards. A kill may lose the usage of one tick:
what its instance had counted and no peer had heard of. Ends with 1 if anything else is missing.
"""

import argparse
import asyncio
import secrets
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from tests.peer import rolling

WINDOW_S = 2 * rolling.TICK_S
"""A tick, and a delta on its way."""


def parse() -> argparse.Namespace:
    """Options from the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--times", type=int, default=1, help="rolling restarts, one after the other")
    parser.add_argument("--kill", type=int, metavar="TIMES", help="kill so often at random moments instead")
    parser.add_argument("--seed", type=int, default=secrets.randbelow(1_000_000))
    parser.add_argument("--clients", type=int, default=6)
    return parser.parse_args()


async def roll(chosen: argparse.Namespace, folder: Path) -> bool:
    """One rolling restart after the other; whether all went well."""
    is_well = True
    for number in range(chosen.times):
        place = folder / str(number)
        place.mkdir()
        began = time.monotonic()
        async with rolling.standing(place) as stand:
            statuses = await rolling.roll(stand, chosen.clients)
            crowd = stand.crowd
            known = await stand.agreed(len(crowd.served))
        good = statuses == [0, 0, 0] and not crowd.cut and known == [len(crowd.served)] * 3
        is_well &= good
        print(
            f"rolling restart {number + 1}: {crowd.asked} streams, {len(crowd.cut)} cut, {crowd.refused} refused, "
            f"usage {known}, exit {statuses}, {time.monotonic() - began:.0f} s{'' if good else '  FAULT'}",
            flush=True,
        )
    return is_well


async def kill(chosen: argparse.Namespace, folder: Path) -> bool:
    """Kill instances at random moments; whether no more than a tick each was lost."""
    began = time.monotonic()
    async with rolling.standing(folder) as stand:
        killed = await rolling.kill(stand, chosen.kill, chosen.seed, chosen.clients)
        served = stand.crowd.served
        allowed = rolling.may_be_lost(served, killed, WINDOW_S)
        known = await stand.agreed(len(served) - allowed)
        torn = sum(not death.is_state_whole for death in killed)
        lost = len(served) - min(known)
        good = not torn and lost <= allowed and max(known) <= stand.crowd.asked
        print(
            f"{len(killed)} kills (seed {chosen.seed}): {len(served)} whole streams, {len(stand.crowd.cut)} cut, "
            f"usage {known}: {max(lost, 0)} lost ({allowed} ended within a tick of their instance's end), "
            f"{torn} torn files, {time.monotonic() - began:.0f} s{'' if good else '  FAULT'}"
        )
    return good


def main() -> int:
    """Run what was chosen."""
    chosen = parse()
    with tempfile.TemporaryDirectory() as folder:
        work = roll(chosen, Path(folder)) if chosen.kill is None else kill(chosen, Path(folder))
        return 0 if asyncio.run(work) else 1


if __name__ == "__main__":
    sys.exit(main())
