import asyncio

import pytest

from pharos.core.fleet import BackendSpec
from pharos.core.sched import Refusal, Submit
from pharos.proxy.gate import Gate, RefusedError
from tests.proxy.harness import Front


def submit(**more: object) -> Submit:
    return Submit(key="k", weight=1, model="m", prompt_tokens=1, **more)  # type: ignore[arg-type]


def one_slot() -> Front:
    return Front([BackendSpec(name="a", url="http://127.0.0.1:9", capacity=1)])


async def test_a_free_slot_is_given_at_once_and_the_next_waits_for_it() -> None:
    pharos = one_slot()
    gate = pharos.gate
    first = await gate.acquire(submit())
    second = asyncio.create_task(gate.acquire(submit()))
    await asyncio.sleep(0)
    assert not second.done()
    gate.release(first)
    lease = await second
    gate.release(lease)
    gate.release(lease)
    assert pharos.inflight == 0
    assert pharos.ledger.leased == 0


async def test_a_cancelled_waiter_leaves_the_queue() -> None:
    pharos = one_slot()
    gate = pharos.gate
    first = await gate.acquire(submit())
    second = asyncio.create_task(gate.acquire(submit()))
    await asyncio.sleep(0)
    second.cancel()
    await asyncio.wait([second])
    assert pharos.ledger.waiting == 0
    gate.release(first)
    assert pharos.ledger.leased == 0


async def test_a_slot_granted_in_the_same_turn_as_the_cancellation_goes_to_the_next() -> None:
    pharos = one_slot()
    gate = pharos.gate
    first = await gate.acquire(submit())
    second = asyncio.create_task(gate.acquire(submit()))
    third = asyncio.create_task(gate.acquire(submit()))
    await asyncio.sleep(0)
    gate.release(first)  # grants to the second, synchronously ...
    second.cancel()  # ... which never sees it
    lease = await third
    assert second.cancelled() or second.done()
    gate.release(lease)
    assert pharos.ledger.leased == 0
    assert pharos.ledger.waiting == 0


async def test_a_cancelled_waiter_that_was_not_yet_resumed_passes_its_grant_on() -> None:
    pharos = one_slot()
    gate = pharos.gate
    first = await gate.acquire(submit())
    second = asyncio.create_task(gate.acquire(submit()))
    third = asyncio.create_task(gate.acquire(submit()))
    await asyncio.sleep(0)
    second.cancel()
    gate.release(first)  # the second's future is cancelled already, its ticket still in the ledger
    lease = await third
    gate.release(lease)
    assert pharos.ledger.leased == 0


async def test_a_refusal_is_raised() -> None:
    pharos = one_slot()
    with pytest.raises(RefusedError) as caught:
        await pharos.gate.acquire(Submit(key="k", weight=1, model="none", prompt_tokens=1))
    assert caught.value.refusal.outcome == "unknown_model"


async def test_a_waiter_whose_time_is_over_is_refused_by_the_timer() -> None:
    pharos = one_slot()
    pharos.ledger._room._max_wait_s = 0.02
    gate = Gate(pharos.ledger, pharos.clock, lambda: 0)
    first = await gate.acquire(submit())
    with pytest.raises(RefusedError) as caught:
        await gate.acquire(submit())
    assert caught.value.refusal.outcome == "wait_too_long"
    gate.release(first)
    gate.close()


async def test_an_ended_gate_refuses_who_waits_and_who_comes_and_grants_no_more() -> None:
    pharos = one_slot()
    held = await pharos.gate.acquire(submit())
    waiting = [asyncio.create_task(pharos.gate.acquire(submit())) for _ in range(3)]
    await asyncio.sleep(0)
    assert pharos.ledger.waiting == 3
    pharos.gate.end(Refusal("unavailable", 1, "over"))
    pharos.gate.release(held)
    for task in waiting:
        with pytest.raises(RefusedError, match="over"):
            await task
    with pytest.raises(RefusedError, match="over"):
        await pharos.gate.acquire(submit())
    with pytest.raises(RefusedError, match="over"):
        pharos.gate.visit(submit())
    assert pharos.ledger.waiting == 0
    assert pharos.inflight == 0
