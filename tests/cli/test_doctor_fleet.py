"""The doctor on a whole fleet, and on every engine that was ever recorded."""

import asyncio
from contextlib import AsyncExitStack

import pytest

from pharos.cli import checkup
from pharos.cli.checkup import EXIT_UNREACHABLE
from pharos.core.fleet import BackendSpec, Fleet
from pharos.core.signals import MARKS, Signal
from pharos.obs import describe
from tests.core.engine.pages import NOW
from tests.core.engine.replay.replaying import detected, pages_of, resolved
from tests.core.engine.replay.worlds import all_states
from tests.fakes.http import Connection, Seen
from tests.fakes.llamacpp import FakeLlamaCpp

MANY = 10


class Patient(FakeLlamaCpp):
    """Answers its first request once each of them has got one: they must be asked side by side."""

    everybody: asyncio.Barrier

    async def respond(self, request: Seen, connection: Connection) -> None:
        if len(self.seen) == 1:
            await self.everybody.wait()
        await super().respond(request, connection)


async def test_ten_backends_are_looked_at_side_by_side_and_a_dead_one_holds_up_nobody() -> None:
    Patient.everybody = asyncio.Barrier(MANY - 1)
    async with AsyncExitStack() as stack:
        engines = [await stack.enter_async_context(Patient(build="b11434-abc")) for _ in range(MANY - 1)]
        dead = await stack.enter_async_context(FakeLlamaCpp())
        dead.kill()
        urls = [engine.url for engine in (*engines, dead)]
        found = await checkup.examine([BackendSpec(name=f"gpu-{at}", url=url) for at, url in enumerate(urls)])
    assert [one.row["name"] for one in found] == [f"gpu-{at}" for at in range(MANY)]
    assert [one.row["kind"] for one in found] == ["llamacpp"] * (MANY - 1) + [None]
    assert found[-1].exit_code == EXIT_UNREACHABLE


@pytest.mark.parametrize("row", all_states(), ids="/".join)
def test_each_unknown_signal_of_each_engine_comes_with_its_reason_its_cost_and_its_fix(
    row: tuple[str, str, str],
) -> None:
    there = pages_of(row)
    found, pages = detected(there)
    if found.kind is None:
        assert found.pending
        return
    made, first, _ = resolved(found.kind, there, pages)
    fleet = Fleet()
    fleet.set_backends((BackendSpec(name="it", url="http://it"),), NOW)
    backend = fleet.backends["it"]
    fleet.publish(backend, made, first, NOW, full=True, started_at=NOW)
    described = describe.backend(backend, NOW)
    assert all(one["reason"] and one["cost"] and one["fix"] for one in described["unknown"])
    told = {one["signal"] for one in (*described["plan"], *described["unknown"])}
    optional = {Signal.PHYSICAL_GROUP, Signal.GPU_TOTAL_BYTES, Signal.GPU_USED_BYTES, Signal.MODELS_AT_ONCE}
    assert set(Signal) - MARKS - optional <= told
