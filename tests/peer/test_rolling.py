"""Real processes: a rolling restart cuts no stream and loses no count; a kill loses a tick at most."""

import asyncio
import random
import sys
from asyncio.subprocess import PIPE
from pathlib import Path

import pytest

from pharos.peer import wire
from tests.peer import rolling

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]


async def test_a_rolling_restart_under_traffic_cuts_no_stream_and_loses_no_request(tmp_path: Path) -> None:
    async with rolling.standing(tmp_path) as stand:
        assert await rolling.roll(stand) == [0, 0, 0]
        crowd = stand.crowd
        assert crowd.cut == []
        assert crowd.asked == len(crowd.served) > 0
        assert {one.by for one in crowd.served} == {0, 1, 2}
        assert await stand.agreed(len(crowd.served)) == [len(crowd.served)] * 3


async def test_killed_processes_lose_a_tick_of_usage_at_most_and_tear_no_file(tmp_path: Path) -> None:
    async with rolling.standing(tmp_path, 2) as stand:
        killed = await rolling.kill(stand, 2, random.randrange(10**6))
        assert all(death.is_state_whole for death in killed)
        served = stand.crowd.served
        least = len(served) - rolling.may_be_lost(served, killed, 10 * rolling.TICK_S)  # a loaded machine ticks late
        known = await stand.agreed(least)
        assert len(set(known)) == 1, "all agree"
        assert least <= known[0] <= stand.crowd.asked


SAVING = """
import asyncio, sys
from pharos.peer import wire
from pharos.peer.statefile import StateFile

async def blocks():
    yield wire.MAGIC + wire.block(wire.Head(proto=1, origin="a", at=1.0))
    for number in range(300):
        yield wire.block(wire.Frame(section="x", entries=wire.encode_entries(["y" * 2000])))
    yield wire.block(wire.Frame(section="", count=300))

async def main():
    file = StateFile(sys.argv[1], on_event=print)
    await file.save(blocks())
    print("saved", flush=True)
    while True:
        await file.save(blocks())

asyncio.run(main())
"""


async def test_a_process_killed_while_it_writes_leaves_a_whole_state_file(tmp_path: Path) -> None:
    path = tmp_path / "state"
    chance = random.Random()
    for _ in range(8):
        process = await asyncio.create_subprocess_exec(sys.executable, "-c", SAVING, str(path), stdout=PIPE)
        assert process.stdout is not None
        assert await process.stdout.readline() == b"saved\n"
        await asyncio.sleep(chance.random() * 0.05)  # the moment is what matters
        process.kill()
        await process.wait()
        await process.stdout.read()
        process._transport.close()  # type: ignore[attr-defined]  # its pipe would be closed late, with a warning
        blocks = wire.Blocks()
        assert sum(1 for _ in blocks.feed(path.read_bytes())) == 300
        assert blocks.is_whole
